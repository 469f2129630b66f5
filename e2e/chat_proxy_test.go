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

	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// llmServer is an LLM provider that records its requests and sends stream events when the test releases them.
type llmServer struct {
	*httptest.Server
	nextEvent chan struct{}

	mu         sync.Mutex
	requests   []string
	lastHeader http.Header
}

const llmReply = `{"id":"c","model":"kimi-k2","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}`

var llmEvents = []string{
	"data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
	"data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n",
	"data: [DONE]\n\n",
}

func startLLMServer(t *testing.T) *llmServer {
	t.Helper()
	p := &llmServer{nextEvent: make(chan struct{})}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	return p
}

func (p *llmServer) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.requests, p.lastHeader = append(p.requests, r.RequestURI+" "+string(body)), r.Header.Clone()
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
			case <-p.nextEvent:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, e)
		_ = http.NewResponseController(w).Flush()
	}
}

func (p *llmServer) lastRequest() (string, http.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[len(p.requests)-1], p.lastHeader
}

func providerTOML(name, url string) string {
	return fmt.Sprintf("[[providers]]\nname = %q\nkind = \"openai\"\nbase_url = %q\nmodels = [\"kimi-*\"]\nretries = 0\ncache = { write = 1.0, read = 0.25, ttl = 300 }\n", name, url)
}

// openStream requests a stream; the caller reads its events.
func openStream(t *testing.T, client *http.Client, url, body string, header http.Header) *http.Response {
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

// H10: a request keeps its bytes and its client's key, a stream its events and their timing, and a reload
// that removes the provider does not cut the stream.
func TestH10ChatProxy(t *testing.T) {
	p := startLLMServer(t)
	s := newSite(t, "http://127.0.0.1:1", providerTOML("kimi", p.URL+"/v1"))
	g := s.start(t)
	client, done := newClient()
	defer done()
	mine := http.Header{"Authorization": {"Bearer sk-mine"}, "Content-Type": {"application/json"}}

	body := "{\"model\":\"kimi-k2\", \"messages\":[ {\"role\":\"user\",\"content\":\"\\u00e9\"}],\"n\":1.0}"
	status, reply, err := post(client, g.URL+"/chat/completions?x=1", body, mine)
	if err != nil || status != http.StatusOK || string(reply) != llmReply {
		t.Fatalf("got %d %s, %v", status, reply, err)
	}
	if got, head := p.lastRequest(); got != "/v1/chat/completions?x=1 "+body || head.Get("Authorization") != "Bearer sk-mine" {
		t.Errorf("the provider got %s with %v", got, head)
	}

	resp := openStream(t, client, g.URL+"/v1/chat/completions", `{"model":"kimi-k2","stream":true}`, mine)
	readEvent(t, resp.Body, llmEvents[0])
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	other := startLLMServer(t)
	if err := os.WriteFile(s.config, []byte(strings.ReplaceAll(string(text), p.URL, other.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	err = wait.Until(startLimit, "the new provider got no request", func() (bool, error) {
		_, _, err := post(client, g.URL+"/v1/responses", `{"model":"kimi-k2"}`, mine)
		other.mu.Lock()
		defer other.mu.Unlock()
		return len(other.requests) > 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range llmEvents[1:] {
		p.nextEvent <- struct{}{}
		readEvent(t, resp.Body, want)
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("after the last event: %q, %v", rest, err)
	}
	waitForCounter(t, g, s, `ctxgate_llm_tokens_total{kind="cached",provider="kimi"}`, 8)
}

// waitForCounter waits until a counter is at least n: a request is counted after its reply is sent.
func waitForCounter(t *testing.T, g *testGateway, s site, series string, n float64) {
	t.Helper()
	err := wait.Until(exitLimit, series+" does not grow", func() (bool, error) {
		all, err := g.metrics(s)
		return all[series] >= n, err
	})
	if err != nil {
		t.Error(err)
	}
}

// A provider that fails in the middle of a stream, an unreachable one, and a client without the gateway's
// token (A8): each is an error, and none hangs.
func TestChatFailures(t *testing.T) {
	p := startLLMServer(t)
	key := "api_key = \"file:" + writeSecret(t, "sk-ours") + "\"\n"
	gone, err := process.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	config := "auth_token = \"sesame\"\n" + strings.Replace(providerTOML("kimi", p.URL), "retries", key+"retries", 1) +
		"[[providers]]\nname = \"gone\"\nkind = \"anthropic\"\nbase_url = \"http://" + gone + "\"\nretries = 1\n"
	s := newSite(t, "http://127.0.0.1:1", config)
	g := s.start(t)
	client, done := newClient()
	defer done()
	sesame := http.Header{"Authorization": {"Bearer sesame"}}

	status, body, err := post(client, g.URL+"/v1/chat/completions", `{"model":"kimi-k2"}`, nil)
	if want := `{"error":{"message":"a valid bearer token is required","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`; err != nil || status != http.StatusUnauthorized || string(body) != want {
		t.Errorf("without a token: %d %s, %v", status, body, err)
	}
	status, body, err = post(client, g.URL+"/v1/messages", `{"model":"x"}`, http.Header{"X-Api-Key": {"sesame"}})
	if want := `{"type":"error","error":{"type":"api_error","message":"the provider is not available"}}`; err != nil || status != http.StatusBadGateway || string(body) != want {
		t.Errorf("unreachable: %d %s, %v", status, body, err)
	}

	resp := openStream(t, client, g.URL+"/v1/chat/completions", `{"model":"kimi-k2","stream":true}`, sesame)
	readEvent(t, resp.Body, llmEvents[0])
	if _, head := p.lastRequest(); head.Get("Authorization") != "Bearer sk-ours" {
		t.Errorf("the provider got %v", head)
	}
	began := time.Now()
	p.CloseClientConnections()
	if rest, err := io.ReadAll(resp.Body); err == nil || len(rest) > 0 {
		t.Errorf("a stream whose provider failed ended with %q, %v", rest, err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if log := g.Output(); strings.Contains(log, "sesame") || strings.Contains(log, "sk-ours") {
		t.Errorf("the log shows a secret:\n%s", log)
	}
}

func writeSecret(t *testing.T, text string) string {
	t.Helper()
	path := t.TempDir() + "/key"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What is no conversation passes the gateway unread: other paths below /v1/, uploads, Azure's and Bedrock's paths. Websockets are
// refused, / is answered, and a client that disconnects after the last event had a whole reply.
func TestOtherPathsOfTheLLMProxy(t *testing.T) {
	p := startLLMServer(t)
	entry := func(name, kind, rest string) string {
		return fmt.Sprintf("[[providers]]\nname = %q\nkind = %q\nbase_url = %q\nretries = 0\n%s\n", name, kind, p.URL, rest)
	}
	s := newSite(t, "http://127.0.0.1:1", entry("azure", "openai", `paths = ["/openai/*"]`)+entry("bedrock", "anthropic", `paths = ["/model/*", "/mcp*"]`)+entry("all", "openai", ""))
	g := s.start(t)
	client, done := newClient()
	defer done()
	send := func(method, path, body string, header http.Header) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, g.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	upload := "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n" + strings.Repeat("\x00\xff line\n", 1<<20) + "\r\n--x--\r\n"
	for path, body := range map[string]string{
		"/v1/embeddings?x=1": `{"model":"m", "input":"\u00e9"}`, "/v1/files": upload, "/v1/completions": "not JSON",
		"/openai/deployments/d/chat/completions?api-version=1": `{ "messages":[]}`, "/model/a%2Fb%3A0/converse": "{}",
	} {
		kind := "application/json"
		if body == upload {
			kind = "multipart/form-data; boundary=x"
		}
		status, reply := send(http.MethodPost, path, body, http.Header{"Content-Type": {kind}, "Authorization": {"Bearer sk-mine"}})
		if got, head := p.lastRequest(); status != http.StatusOK || reply != llmReply || got != path+" "+body || head.Get("Authorization") != "Bearer sk-mine" {
			t.Errorf("%s: got %d %s, the provider got %.200q with %v", path, status, reply, got, head)
		}
	}
	if status, _ := send(http.MethodHead, "/", "", nil); status != http.StatusOK {
		t.Errorf("HEAD /: %d", status)
	}
	if status, _ := send(http.MethodGet, "/v1/responses", "", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}); status != http.StatusUpgradeRequired {
		t.Errorf("a websocket: %d", status)
	}
	if status, body := send(http.MethodPost, "/mcp", "{}", nil); status == http.StatusOK || !strings.Contains(body, "jsonrpc") {
		t.Errorf("/mcp: %d %s", status, body)
	}

	resp := openStream(t, client, g.URL+"/v1/chat/completions", `{"model":"m","stream":true}`, http.Header{})
	readEvent(t, resp.Body, llmEvents[0])
	for _, want := range llmEvents[1:] {
		p.nextEvent <- struct{}{}
		readEvent(t, resp.Body, want)
	}
	resp.Body.Close()
	waitForCounter(t, g, s, `ctxgate_llm_requests_total{provider="all",result="ok"}`, 4)
	waitForCounter(t, g, s, `ctxgate_llm_tokens_total{kind="cached",provider="azure"}`, 4)
}
