package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// llm is an LLM provider on loopback: it keeps what it is asked, and streams its events one by one,
// each when the test lets it.
type llm struct {
	*httptest.Server
	next chan struct{}

	mu   sync.Mutex
	got  []string
	head http.Header
}

const llmReply = `{"id":"c","model":"kimi-k2","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}`

var llmEvents = []string{
	"data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
	"data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n",
	"data: [DONE]\n\n",
}

func startLLM(t *testing.T) *llm {
	t.Helper()
	p := &llm{next: make(chan struct{})}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	return p
}

func (p *llm) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.got, p.head = append(p.got, r.RequestURI+" "+string(body)), r.Header.Clone()
	p.mu.Unlock()
	if !strings.Contains(string(body), `"stream":true`) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, llmReply)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i, e := range llmEvents {
		if i > 0 {
			select {
			case <-p.next:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, e)
		_ = http.NewResponseController(w).Flush()
	}
}

func (p *llm) last() (string, http.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got[len(p.got)-1], p.head
}

func providers(name, url string) string {
	return fmt.Sprintf("[[providers]]\nname = %q\nkind = \"openai\"\nbase_url = %q\nmodels = [\"kimi-*\"]\nretries = 0\ncache = { write = 1.0, read = 0.25, ttl = 300 }\n", name, url)
}

// stream asks for a stream; the caller reads it event by event.
func stream(t *testing.T, client *http.Client, url, body string, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func readEvent(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

// H10: through the real binary a request keeps its bytes and its client's key, a stream its events
// and their timing, and a reload that takes the provider away does not cut it.
func TestH10ChatProxy(t *testing.T) {
	p := startLLM(t)
	s := settle(t, "http://127.0.0.1:1", providers("kimi", p.URL+"/v1"))
	g := s.start(t)
	client, done := newClient()
	defer done()
	mine := http.Header{"Authorization": {"Bearer sk-mine"}, "Content-Type": {"application/json"}}

	body := "{\"model\":\"kimi-k2\", \"messages\":[ {\"role\":\"user\",\"content\":\"\\u00e9\"}],\"n\":1.0}"
	status, reply, err := post(client, g.url+"/chat/completions?x=1", body, mine)
	if err != nil || status != http.StatusOK || string(reply) != llmReply {
		t.Fatalf("got %d %s, %v", status, reply, err)
	}
	if got, head := p.last(); got != "/v1/chat/completions?x=1 "+body || head.Get("Authorization") != "Bearer sk-mine" {
		t.Errorf("the provider got %s with %v", got, head)
	}

	resp := stream(t, client, g.url+"/v1/chat/completions", `{"model":"kimi-k2","stream":true}`, mine)
	readEvent(t, resp.Body, llmEvents[0])
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	other := startLLM(t)
	if err := os.WriteFile(s.config, []byte(strings.ReplaceAll(string(text), p.URL, other.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	err = within(startLimit, "the new provider is not asked", func() (bool, error) {
		_, _, err := post(client, g.url+"/v1/responses", `{"model":"kimi-k2"}`, mine)
		other.mu.Lock()
		defer other.mu.Unlock()
		return len(other.got) > 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range llmEvents[1:] {
		p.next <- struct{}{}
		readEvent(t, resp.Body, want)
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("after the last event: %q, %v", rest, err)
	}
	tokens(t, g, s, `ctxgate_llm_tokens_total{kind="cached",provider="kimi"}`, 8)
}

// tokens waits until a counter is at least n: a request is counted after its client has it.
func tokens(t *testing.T, g *gateway, s site, series string, n float64) {
	t.Helper()
	err := within(endLimit, series+" does not grow", func() (bool, error) {
		all, err := g.metrics(s)
		return all[series] >= n, err
	})
	if err != nil {
		t.Error(err)
	}
}

// A provider that dies in the middle of a stream, one that is not there, and a client without the
// gateway's token (A8): each ends as an error, and none hangs.
func TestChatFailures(t *testing.T) {
	p := startLLM(t)
	key := "api_key = \"file:" + writeFile(t, "sk-ours") + "\"\n"
	gone, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	config := "auth_token = \"sesame\"\n" + strings.Replace(providers("kimi", p.URL), "retries", key+"retries", 1) +
		"[[providers]]\nname = \"gone\"\nkind = \"anthropic\"\nbase_url = \"http://" + gone + "\"\nretries = 1\n"
	s := settle(t, "http://127.0.0.1:1", config)
	g := s.start(t)
	client, done := newClient()
	defer done()
	sesame := http.Header{"Authorization": {"Bearer sesame"}}

	status, body, err := post(client, g.url+"/v1/chat/completions", `{"model":"kimi-k2"}`, nil)
	if want := `{"error":{"message":"a valid bearer token is required","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`; err != nil || status != http.StatusUnauthorized || string(body) != want {
		t.Errorf("without a token: %d %s, %v", status, body, err)
	}
	status, body, err = post(client, g.url+"/v1/messages", `{"model":"x"}`, http.Header{"X-Api-Key": {"sesame"}})
	if want := `{"type":"error","error":{"type":"api_error","message":"the provider is not available"}}`; err != nil || status != http.StatusBadGateway || string(body) != want {
		t.Errorf("nobody there: %d %s, %v", status, body, err)
	}

	resp := stream(t, client, g.url+"/v1/chat/completions", `{"model":"kimi-k2","stream":true}`, sesame)
	readEvent(t, resp.Body, llmEvents[0])
	if _, head := p.last(); head.Get("Authorization") != "Bearer sk-ours" {
		t.Errorf("the provider was asked with %v", head)
	}
	began := time.Now()
	p.CloseClientConnections()
	if rest, err := io.ReadAll(resp.Body); err == nil || len(rest) > 0 {
		t.Errorf("a stream whose provider died ended with %q, %v", rest, err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	said, err := os.ReadFile(g.log)
	if err != nil || strings.Contains(string(said), "sesame") || strings.Contains(string(said), "sk-ours") {
		t.Errorf("the log shows a secret, %v:\n%s", err, said)
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := t.TempDir() + "/key"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
