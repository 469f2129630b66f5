package chat_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/secret"
)

var asJSON = http.Header{"Content-Type": {"application/json"}}

func withHeader(h http.Header, pairs ...string) http.Header {
	out := h.Clone()
	for i := 0; i < len(pairs); i += 2 {
		out.Set(pairs[i], pairs[i+1])
	}
	return out
}

// Every other path below /v1/ goes to a provider of the client's API, with its method, query, escapes and body. The provider is the
// first that serves the model of a JSON body, or every model.
func TestOtherPathsAreForwarded(t *testing.T) {
	providers := map[string]*stubProvider{}
	var entries []chat.Provider
	for _, e := range []struct {
		name, kind string
		models     []string
	}{
		{"kimi", "openai", []string{"kimi-*"}}, {"openai", "openai", nil}, {"claude", "anthropic", nil}, {"never", "anthropic", nil},
	} {
		providers[e.name] = newStubProvider(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Method", r.Method)
			respond(http.StatusOK, e.name)(w, r)
		})
		entries = append(entries, providerConfig(e.name, e.kind, providers[e.name].URL, func(p *chat.Provider) { p.Models = e.models }))
	}
	g := newGateway(t, entries)
	version := http.Header{"Anthropic-Version": {"2023-06-01"}}
	for _, tt := range []struct {
		method, path, body string
		header             http.Header
		want               string
	}{
		{"POST", "/v1/embeddings", `{"model":"text-embedding-3","input":["a"]}`, asJSON, "openai"},
		{"POST", "/v1/embeddings", `{"input":"a", "model":"kimi-embed"}`, asJSON, "kimi"},
		{"POST", "/v1/embeddings", `{"input":"a"}`, asJSON, "openai"},
		{"POST", "/v1/completions", `{"model":"kimi-k2","prompt":"x","stream":true}`, withHeader(asJSON, "Content-Type", "application/json; charset=utf-8"), "kimi"},
		{"POST", "/v1/embeddings", `{"model":"kimi-embed"}`, http.Header{"Content-Type": {"text/plain"}}, "openai"}, // not read
		{"POST", "/v1/responses/compact", `{"model":"kimi-k2","input":[]}`, asJSON, "kimi"},
		{"GET", "/v1/responses/resp_1?include=a%2Fb&x", "", http.Header{}, "openai"},
		{"DELETE", "/v1/responses/resp_1", "", http.Header{}, "openai"},
		{"GET", "/v1/chat/completions?limit=2", "", http.Header{}, "openai"},
		{"DELETE", "/v1/models/ft:gpt:x", "", http.Header{}, "openai"},
		{"HEAD", "/v1/files", "", http.Header{}, "openai"},
		{"PATCH", "/v1/x/a%2Fb%20c/", "{}", asJSON, "openai"},
		{"POST", "/v1/messages/batches", `{"requests":[]}`, asJSON, "claude"},
		{"GET", "/v1/messages/batches/b1/results", "", http.Header{}, "claude"},
		{"GET", "/v1/files", "", version, "claude"},
		{"POST", "/v1/complete", `{"model":"kimi-k2"}`, withHeader(asJSON, "Anthropic-Version", "1"), "claude"},
		{"GET", "/v1/files", "", http.Header{"X-Api-Key": {"k"}}, "claude"},
		{"GET", "/v1/files", "", http.Header{"X-Api-Key": {"k"}, "Authorization": {"Bearer k"}}, "openai"},
	} {
		resp, body := readReply(t, g.do(t, tt.method, tt.path, tt.body, tt.header))
		if tt.method == "HEAD" && resp.ContentLength == int64(len(tt.want)) {
			body = tt.want
		}
		if body != tt.want || resp.Header.Get("X-Method") != tt.method {
			t.Errorf("%s %s: got %d %s for %q, want %s", tt.method, tt.path, resp.StatusCode, resp.Header.Get("X-Method"), body, tt.want)
			continue
		}
		calls := providers[tt.want].requests()
		if last := calls[len(calls)-1]; last.uri != tt.path || string(last.body) != tt.body {
			t.Errorf("%s %s: the provider got %s %q", tt.method, tt.path, last.uri, last.body)
		}
	}
	g.wantMetrics(t, `ctxgate_llm_requests_total{provider="claude",result="ok"} 5`, "ctxgate_llm_requests_in_flight 0")

	// A duplicate key could name another model to the provider.
	if resp, body := readReply(t, g.do(t, "POST", "/v1/embeddings", `{"model":"kimi-1","model":"gpt"}`, asJSON)); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "duplicate key") {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
}

// A provider that serves only some models gets no request that names none of them, unless its paths say so.
func TestOtherPathsOfRestrictedProviders(t *testing.T) {
	f := newStubProvider(t, respond(200, "{}"))
	some := func(p *chat.Provider) { p.Models = []string{"kimi-*"} }
	g := newGateway(t, []chat.Provider{providerConfig("kimi", "openai", f.URL+"/api/v4", some), providerConfig("voyage", "anthropic", f.URL, func(p *chat.Provider) { p.Models = []string{"voyage-*"} })})
	for path, body := range map[string]string{"/v1/files": "", "/v1/embeddings": `{"model":"gpt"}`, "/v1/batches": "{}"} {
		if resp, text := readReply(t, g.do(t, "POST", path, body, asJSON)); resp.StatusCode != http.StatusNotFound || !strings.Contains(text, "provider") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, text)
		}
	}
	if len(f.requests()) != 0 {
		t.Errorf("forwarded %+v", f.requests())
	}
	// An entry of another kind that names the model.
	if resp, text := readReply(t, g.do(t, "POST", "/v1/embeddings", `{"model":"voyage-3"}`, asJSON)); resp.StatusCode != http.StatusOK {
		t.Errorf("got %d %s", resp.StatusCode, text)
	}
	// /v1 stands for the version of the base URL, but a path of the configuration is the provider's own.
	g.post(t, "/v1/embeddings", `{"model":"kimi-embed"}`, asJSON)
	g.reload(providerConfig("kimi", "openai", f.URL+"/api/v4", some, func(p *chat.Provider) { p.Paths = []string{"/v1/files*"} }))
	g.get(t, "/v1/files/f1?x=1", nil)
	var uris []string
	for _, r := range f.requests() {
		uris = append(uris, r.uri)
	}
	if diff := cmp.Diff([]string{"/v1/embeddings", "/api/v4/embeddings", "/v1/files/f1?x=1"}, uris); diff != "" {
		t.Error(diff)
	}
	g.reload()
	if resp, text := g.get(t, "/v1/files", nil); resp.StatusCode != http.StatusNotFound || !strings.Contains(text, "[[providers]]") {
		t.Errorf("without providers: %d %s", resp.StatusCode, text)
	}
}

// Claude Code asks for / when it starts.
func TestRootIsAnswered(t *testing.T) {
	g := newGateway(t, nil, withToken("hush"))
	for _, method := range []string{"HEAD", "GET"} {
		resp, body := readReply(t, g.do(t, method, "/", "", http.Header{"X-Api-Key": {"hush"}}))
		if resp.StatusCode != http.StatusOK || (body == "") != (method == "HEAD") {
			t.Errorf("%s: %d %q", method, resp.StatusCode, body)
		}
		if resp := g.do(t, method, "/", "", nil); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d", method, resp.StatusCode)
		}
	}
	if resp, _ := readReply(t, g.do(t, "POST", "/", "", http.Header{"X-Api-Key": {"hush"}})); resp.StatusCode != http.StatusNotFound {
		t.Errorf("POST: %d", resp.StatusCode)
	}
}

// A websocket is refused with 426 on every path.
func TestWebsocketsAreRefused(t *testing.T) {
	f := newStubProvider(t, respond(200, "{}"))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL, func(p *chat.Provider) { p.Models, p.Paths = []string{"*"}, []string{"/openai/*"} })})
	for _, path := range []string{"/v1/responses", "/v1/realtime?model=x", "/openai/v1/responses", "/"} {
		resp, body := g.get(t, path, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"WebSocket"}})
		if resp.StatusCode != http.StatusUpgradeRequired || resp.Header.Get("Upgrade") == "" || !strings.Contains(body, "websocket") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	if len(f.requests()) != 0 {
		t.Error("a provider was asked")
	}
}

// Credentials, configured headers, compression and reply headers of an unread request.
func TestOtherPathsHeaders(t *testing.T) {
	f := newStubProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("X-Request-Id", "theirs")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "zipped")
	})
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL, withAPIKey("k"), func(p *chat.Provider) {
		p.Headers = map[string]secret.Text{"OpenAI-Organization": secret.Literal("org")}
	})}, withToken("hush"))
	body := gzipText(t, `{"model":"m"}`)
	head := http.Header{
		"Authorization": {"Bearer hush"}, "Cookie": {"c=d"}, "X-Mine": {"1", "2"}, "Openai-Organization": {"theirs"}, "Content-Type": {"application/json"},
		"Content-Encoding": {"gzip"}, "Accept-Encoding": {"gzip, br"},
	}
	resp, reply := g.post(t, "/v1/embeddings", body, head)
	if resp.StatusCode != http.StatusAccepted || reply != "zipped" || resp.Header.Get("Content-Encoding") != "gzip" || resp.Header.Get("Set-Cookie") != "" || resp.Header.Get("X-Request-Id") != "theirs" {
		t.Errorf("got %d %q %v", resp.StatusCode, reply, resp.Header)
	}
	got := f.requests()[0]
	want := http.Header{
		"Authorization": {"Bearer k"}, "X-Mine": {"1", "2"}, "Openai-Organization": {"org"}, "Content-Type": {"application/json"}, "Content-Encoding": {"gzip"},
		"Accept-Encoding": {"gzip, br"}, "Content-Length": {fmt.Sprint(len(body))}, "User-Agent": {"Go-http-client/1.1"},
	}
	if diff := cmp.Diff(want, got.header); diff != "" || string(got.body) != body {
		t.Errorf("%s %q", diff, got.body)
	}
	if resp, _ := g.post(t, "/v1/embeddings", "{}", http.Header{"Authorization": {"Bearer wrong"}}); resp.StatusCode != http.StatusUnauthorized || len(f.requests()) != 1 {
		t.Errorf("with a wrong token: %d", resp.StatusCode)
	}

	// Where the model decides, a compressed body is decoded, as at the other endpoints.
	g.reload(providerConfig("p", "openai", f.URL, withAPIKey("k"), func(p *chat.Provider) { p.Models = []string{"m"} }))
	if resp, reply := g.post(t, "/v1/embeddings", body, head); resp.StatusCode != http.StatusAccepted {
		t.Errorf("got %d %q", resp.StatusCode, reply)
	}
	if got := f.requests()[1]; string(got.body) != `{"model":"m"}` || got.header.Get("Content-Encoding") != "" {
		t.Errorf("forwarded %q %v", got.body, got.header)
	}
}

// A body is forwarded while it arrives, and the reply while it comes; neither is buffered.
func TestUploadsAreStreamed(t *testing.T) {
	const size = 24 << 20
	var received atomic.Int64
	first := make(chan struct{})
	f := newUnreadProvider(t, func(w http.ResponseWriter, r *http.Request) {
		part := make([]byte, 64<<10)
		for {
			n, err := r.Body.Read(part)
			if received.Add(int64(n)) == int64(n) && n > 0 {
				close(first)
			}
			if err != nil {
				break
			}
		}
		_, _ = io.WriteString(w, "done")
	})
	// The budget has no room for the body.
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f)}, func(_ *chat.Settings, d *chat.Deps) { d.Budget = membudget.New(4 << 20) })
	body, in := io.Pipe()
	form := multipart.NewWriter(in)
	go func() {
		file, _ := form.CreateFormFile("file", "a.jsonl")
		_, _ = io.WriteString(file, "first part")
		<-first // the provider has it before the rest is sent
		_, _ = io.Copy(file, io.LimitReader(zeroReader{}, size))
		_ = form.Close()
		_ = in.Close()
	}()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/v1/files", body)
	req.Header.Set("Content-Type", form.FormDataContentType())
	resp, err := g.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp, text := readReply(t, resp); resp.StatusCode != http.StatusOK || text != "done" || received.Load() < size {
		t.Errorf("got %d %s after %d bytes", resp.StatusCode, text, received.Load())
	}
}

// newUnreadProvider is a provider whose handler reads the body itself.
func newUnreadProvider(t *testing.T, serve http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	return server.URL
}

// An upload that is too large, or stops, is the client's failure; one that the provider declines early is answered at once.
func TestUploadsThatFail(t *testing.T) {
	readAllOf := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			_, _ = io.WriteString(w, "whole")
		}
	}
	declineEarly := func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		respond(http.StatusForbidden, "no")(w, r)
	}
	small := func(s *chat.Settings, _ *chat.Deps) {
		s.Chat.LLM.MaxRequestBytes = 100 << 10
		s.HTTP.BodyTimeout = unitDuration(200 * time.Millisecond)
	}
	entry := func(url string) []chat.Provider { return []chat.Provider{providerConfig("p", "openai", url)} }
	stalls := func(ctx context.Context) io.Reader {
		return io.MultiReader(strings.NewReader("begin"), readerFunc(func([]byte) (int, error) { <-ctx.Done(); return 0, ctx.Err() }))
	}
	for name, tt := range map[string]struct {
		serve  http.HandlerFunc
		body   func(context.Context) io.Reader
		status int
		result string
	}{
		"too large, by its header": {readAllOf, func(context.Context) io.Reader { return bytes.NewReader(make([]byte, 200<<10)) }, 413, "too_large"},
		"too large":                {readAllOf, func(context.Context) io.Reader { return io.LimitReader(zeroReader{}, 200<<10) }, 413, "too_large"},
		"stalled":                  {readAllOf, stalls, 408, "stalled"},
		"declined early":           {declineEarly, stalls, 403, "rejected"},
		"failed, not sent again":   {respond(http.StatusServiceUnavailable, "no"), func(context.Context) io.Reader { return io.LimitReader(zeroReader{}, 10) }, 503, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			g := newGateway(t, entry(newUnreadProvider(t, func(w http.ResponseWriter, r *http.Request) { calls.Add(1); tt.serve(w, r) })), small)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+"/v1/audio/transcriptions", tt.body(ctx))
			resp, err := g.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != tt.status || calls.Load() > 1 {
				t.Errorf("got %d after %d calls, want %d", resp.StatusCode, calls.Load(), tt.status)
			}
			if calls.Load() > 0 {
				g.wantMetrics(t, fmt.Sprintf(`ctxgate_llm_requests_total{provider="p",result=%q} 1`, tt.result))
			}
			g.wantMetrics(t, "ctxgate_llm_requests_in_flight 0")
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A request without a body is sent again like others; one that only reads is sent again even if it was delivered.
func TestOtherPathsAreRetried(t *testing.T) {
	for _, tt := range []struct {
		method string
		how    connBehavior
		status int
	}{
		{"GET", declines429, 200}, {"GET", executesOnly, 200}, {"POST", declines429, 200}, {"POST", executesOnly, 502}, {"DELETE", executesOnly, 502},
	} {
		p := newCountingProvider(t, tt.how, answers200)
		g := newGateway(t, []chat.Provider{providerConfig("p", "openai", "http://"+p.Addr().String())})
		if resp, body := readReply(t, g.do(t, tt.method, "/v1/batches/b/cancel", "", nil)); resp.StatusCode != tt.status {
			t.Errorf("%s %d: got %d %s", tt.method, tt.how, resp.StatusCode, body)
		}
	}
}

// Azure's and Bedrock's paths go to the same path at the provider's host. A conversation in a known wire format is masked.
func TestConfiguredPaths(t *testing.T) {
	f := newStubProvider(t, respond(200, wires["completions"].reply))
	bedrock := newStubProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
		_, _ = w.Write([]byte{0, 0, 1, 2, 255})
	})
	entries := []chat.Provider{
		providerConfig("azure", "openai", f.URL+"/openai/v1", func(p *chat.Provider) {
			p.Paths, p.Headers = []string{"/openai/*"}, map[string]secret.Text{"Api-Key": secret.Literal("azure-key")}
		}),
		providerConfig("bedrock", "anthropic", bedrock.URL, func(p *chat.Provider) { p.Paths = []string{"/model/*"} }),
	}
	g := newGateway(t, entries, withMasking(newRecall(t, nil), twoTurnWindow))
	conversation := requestBodies["/v1/chat/completions"](4)

	const deployment = "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"
	if resp, body := g.post(t, deployment, conversation, http.Header{"Api-Key": {"mine"}}); resp.StatusCode != http.StatusOK || body != wires["completions"].reply {
		t.Fatalf("got %d %s", resp.StatusCode, body)
	}
	sent := f.requests()[0]
	if masked := placeholder.FindAllString(string(sent.body), -1); sent.uri != deployment || len(masked) != 2 || sent.header.Get("Api-Key") != "azure-key" {
		t.Errorf("%s: masked %q, %v", sent.uri, masked, sent.header)
	}
	g.wantMetrics(t, `ctxgate_llm_tokens_total{kind="cached",provider="azure"} 60`)

	for path, body := range map[string]string{"/openai/v1/embeddings": conversation, "/openai/deployments/a%20b/images/generations": "{x", "/openai/v1/responses/r1": ""} {
		g.post(t, path, body, asJSON)
		if last := f.requests()[len(f.requests())-1]; last.uri != path || string(last.body) != body {
			t.Errorf("%s: got %s %q", path, last.uri, last.body)
		}
	}
	for _, path := range []string{
		"/model/anthropic.claude-sonnet-4-5-20250929-v1:0/invoke-with-response-stream", "/model/us.x/converse-stream",
		"/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fx/invoke",
	} {
		resp, body := g.post(t, path, conversation, withHeader(asJSON, "Authorization", "Bearer bedrock-key", "X-Amzn-Bedrock-Trace", "ENABLED"))
		last := bedrock.requests()[len(bedrock.requests())-1]
		if resp.StatusCode != http.StatusOK || body != "\x00\x00\x01\x02\xff" || last.uri != path || string(last.body) != conversation || last.header.Get("Authorization") != "Bearer bedrock-key" || last.header.Get("X-Amzn-Bedrock-Trace") == "" {
			t.Errorf("%s: got %d %q, forwarded %s %v", path, resp.StatusCode, body, last.uri, last.header)
		}
	}
	// Entries with paths and without models serve nothing else, and are not asked for their models.
	before := len(f.requests())
	for _, path := range []string{"/v1/chat/completions", "/v1/embeddings"} {
		if resp, _ := g.post(t, path, `{"model":"gpt"}`, asJSON); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	if _, list := g.get(t, "/v1/models", nil); list != `{"object":"list","data":[]}` || len(f.requests()) != before {
		t.Errorf("models: %s", list)
	}
	// A fallback gets its own path.
	other := newStubProvider(t, respond(200, "other"))
	entries[0].BaseURL, entries[0].Fallback, entries[0].Retries = secret.URL(unreachableURL(t)), []string{"other"}, 0
	g.reload(append(entries, providerConfig("other", "openai", other.URL))...)
	if resp, body := g.post(t, deployment, conversation, nil); body != "other" || other.requests()[0].uri != "/v1/chat/completions" {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
}

// clientTools is a list of one tool in each wire format.
var clientTools = map[string]string{
	"completions": `[{"type":"function","function":{"name":"a","parameters":{}}}]`, "responses": `[{"type":"function","name":"a","parameters":{}}]`,
	"messages": `[{"name":"a","input_schema":{"type":"object"}}]`, "gemini": `[{"functionDeclarations":[{"name":"a"}]}]`,
}

// A client that disconnects right after the last event had the whole reply: it counts as one, with its usage. So does a reply
// whose provider dies after the last event.
func testDisconnectAfterTheLastEvent(t *testing.T) {
	for name, w := range wires {
		for i := range 4 {
			dies, offers := i&1 > 0, i&2 > 0
			t.Run(fmt.Sprintf("%s dies %t offers %t", name, dies, offers), func(t *testing.T) {
				gone := make(chan struct{})
				f := newStubProvider(t, func(rw http.ResponseWriter, r *http.Request) {
					defer close(gone)
					rw.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(rw, strings.Join(w.events, ""))
					_ = http.NewResponseController(rw).Flush()
					if dies {
						panic(http.ErrAbortHandler)
					}
					<-r.Context().Done() // it does not end its reply
				})
				var options []option
				body := w.request(true)
				if offers { // replies pass the merger of recover_text's rounds
					options = append(options, withRecovery(newRecall(t, nil), twoTurnWindow))
					body = strings.Replace(body, "{", `{"store":false,"tools":`+clientTools[name]+",", 1)
				}
				g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, f.URL)}, options...)
				conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", w.path, len(body), body)
				var got strings.Builder
				part := make([]byte, 4096)
				last := w.events[len(w.events)-1]
				for !strings.Contains(got.String(), last[strings.Index(last, "data:"):]) {
					n, err := conn.Read(part)
					if got.Write(part[:n]); err != nil {
						t.Fatalf("%q: %v", got.String(), err)
					}
				}
				conn.Close()
				<-gone
				if offered := strings.Contains(string(f.requests()[0].body), "recover_text"); offered != offers {
					t.Errorf("recover_text was offered: %t", offered)
				}
				g.wantMetrics(t, `ctxgate_llm_requests_total{provider="p",result="ok"} 1`, "ctxgate_llm_requests_in_flight 0",
					fmt.Sprintf(`ctxgate_llm_tokens_total{kind="output",provider="p"} %d`, w.usage.Output))
			})
		}
	}
}

// Before the last event it is a reply that was broken off.
func TestDisconnectBeforeTheLastEvent(t *testing.T) {
	for name, w := range wires {
		t.Run(name, func(t *testing.T) {
			f := newStubProvider(t, func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(rw, strings.Join(w.events[:len(w.events)-1], ""))
				_ = http.NewResponseController(rw).Flush()
				<-r.Context().Done()
			})
			g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, f.URL)})
			resp := g.startStream(t, w)
			part := make([]byte, 1)
			_, _ = resp.Body.Read(part)
			resp.Body.Close()
			g.wantMetrics(t, `ctxgate_llm_requests_total{provider="p",result="canceled"} 1`, "ctxgate_llm_requests_in_flight 0")
		})
	}
}
