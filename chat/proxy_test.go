package chat_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/upstream"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")) // of a dependency of genai
}

// wire is one of the wire formats, with a sample request and sample replies.
type wire struct {
	path, kind, body string
	reply            string   // not streamed
	events           []string // of a streamed reply
	usage            llm.Usage
}

// No encoder would write these bodies: H10 requires the same bytes, not just the same values.
var wires = map[string]wire{
	"completions": {
		path: "/v1/chat/completions", kind: "openai",
		body:  "{ \"model\":\"m-1\",\n\t\"messages\": [{\"role\":\"user\",\"content\":\"\\u00e9\\/ é\"}],\"n\":1.0e0, \"big\": 12345678901234567890, \"stream\":%v }\n",
		reply: `{"id":"c1","model":"m-1-0825","choices":[{"message":{"content":"hi \"usage\":{}"}}],"usage":{"prompt_tokens":100,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":60}}}`,
		events: []string{
			"data: {\"id\":\"c1\",\"model\":\"m-1-0825\",\"choices\":[{\"delta\":{\"content\":\"h\"}}],\"usage\":null}\n\n",
			": keep-alive\n\n",
			"data: {\"id\":\"c1\",\"model\":\"m-1-0825\",\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":60}}}\n\n",
			"data: [DONE]\n\n",
		},
		usage: llm.Usage{Fresh: 40, Cached: 60, Output: 7},
	},
	"responses": {
		path: "/v1/responses", kind: "openai",
		body:  "{\"input\":[ {\"type\":\"function_call_output\",\"call_id\":\"a\",\"output\":\"\\ud83d\\ude00\"}],\"model\" : \"m-1\",\"stream\":%v}",
		reply: `{"id":"r1","object":"response","output":[],"model":"m-1-0825","usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":7,"total_tokens":107},"metadata":{}}`,
		events: []string{
			"event: response.created\r\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r1\",\"model\":\"m-1-0825\",\"usage\":null}}\r\n\r\n",
			"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"h\"}\n\n",
			"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"usage\":9}],\"model\":\"m-1-0825\",\"usage\":{\"input_tokens\":100,\"input_tokens_details\":{\"cached_tokens\":60},\"output_tokens\":7}}}\n\n",
		},
		usage: llm.Usage{Fresh: 40, Cached: 60, Output: 7},
	},
	"messages": {
		path: "/v1/messages", kind: "anthropic",
		body:  "{\"max_tokens\":5,\"model\":\"m-1\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\",\"cache_control\":{\"type\":\"ephemeral\"}}]}],\"stream\":%v}",
		reply: `{"id":"msg","type":"message","model":"m-1-0825","content":[],"usage":{"input_tokens":40,"cache_creation_input_tokens":5,"cache_read_input_tokens":60,"output_tokens":7}}`,
		events: []string{
			"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m-1-0825\",\"usage\":{\"input_tokens\":40,\"cache_creation_input_tokens\":5,\"cache_read_input_tokens\":60,\"output_tokens\":1}}}\n\n",
			"event: ping\ndata: {\"type\": \"ping\"}\n\n",
			"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":7}}\n\n",
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
		},
		usage: llm.Usage{Fresh: 40, Cached: 60, Created: 5, Output: 7},
	},
	"gemini": {
		path: geminiPath, kind: "gemini",
		body:  "{\"contents\":[ {\"role\":\"user\",\"parts\":[{\"text\":\"\\u00e9\\/\"}]}],\"generationConfig\":{\"temperature\":1.0e0,\"x\":%v}}",
		reply: `{"candidates":[{"content":{"parts":[{"text":"hi \"usageMetadata\":{}"}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":95,"cachedContentTokenCount":60,"candidatesTokenCount":4,"thoughtsTokenCount":3,"toolUsePromptTokenCount":5,"promptTokensDetails":[{"modality":"TEXT","tokenCount":95}]},"modelVersion":"m-1-0825"}`,
		events: []string{
			"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"h\"}],\"role\": \"model\"}}],\"usageMetadata\": {\"promptTokenCount\": 95,\"thoughtsTokenCount\": 3},\"modelVersion\": \"m-1-0825\"}\r\n\r\n",
			"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"i\"}],\"role\": \"model\"},\"finishReason\": \"STOP\"}],\"usageMetadata\": {\"promptTokenCount\": 95,\"cachedContentTokenCount\": 60,\"candidatesTokenCount\": 4,\"toolUsePromptTokenCount\": 5,\"totalTokenCount\": 107},\"modelVersion\": \"m-1-0825\"}\r\n\r\n",
		},
		usage: llm.Usage{Fresh: 40, Cached: 60, Output: 7},
	},
}

// geminiPath names the model: the body does not.
const geminiPath = "/v1beta/models/m-1:streamGenerateContent?alt=sse"

// request returns the request body, streamed or not.
func (w wire) request(stream bool) string { return fmt.Sprintf(w.body, stream) }

// stubProvider is a provider on loopback that records its requests.
type stubProvider struct {
	*httptest.Server
	mu       sync.Mutex
	received []receivedRequest
}

type receivedRequest struct {
	uri    string
	header http.Header
	body   []byte
}

func newStubProvider(t *testing.T, serve http.HandlerFunc) *stubProvider {
	t.Helper()
	f := &stubProvider{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		f.received = append(f.received, receivedRequest{r.RequestURI, r.Header.Clone(), body})
		f.mu.Unlock()
		serve(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *stubProvider) requests() []receivedRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received
}

// respond answers with a status and a body.
func respond(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// respondInOrder answers each request with the next handler, and repeats the last.
func respondInOrder(serve ...http.HandlerFunc) http.HandlerFunc {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		handler := serve[0]
		if len(serve) > 1 {
			serve = serve[1:]
		}
		mu.Unlock()
		handler(w, r)
	}
}

// providerConfig is a [[providers]] entry with defaults, then the changes.
func providerConfig(name, kind, url string, change ...func(*chat.Provider)) chat.Provider {
	var p chat.Provider
	p.SetDefaults()
	p.Name, p.Kind, p.BaseURL = name, chat.APIKind(kind), secret.URL(url)
	for _, f := range change {
		f(&p)
	}
	return p
}

func withAPIKey(key string) func(*chat.Provider) {
	return func(p *chat.Provider) { p.APIKey = secret.Literal(key) }
}

// gateway is a gateway with only the LLM endpoints.
type gateway struct {
	*httptest.Server
	proxy   *chat.Proxy
	meter   *meter.Meter
	handler front.SwappableHandler
	cfg     chat.Settings
}

type option func(*chat.Settings, *chat.Deps)

func withToken(t string) option {
	return func(s *chat.Settings, _ *chat.Deps) {
		s.Gate = gate.New(gate.Deps{Authenticator: auth.New(auth.Config{Token: secret.Literal(t)})})
	}
}

func withLimits(change func(*chat.Limits)) option {
	return func(s *chat.Settings, _ *chat.Deps) { change(&s.Chat.LLM) }
}

func newGateway(t *testing.T, providers []chat.Provider, options ...option) *gateway {
	t.Helper()
	g := &gateway{meter: meter.New("test", func() (meter.StoreStats, bool) { return meter.StoreStats{}, true })}
	g.cfg = chat.Settings{Chat: chat.Default(), HTTP: front.Default().HTTP}
	g.cfg.Chat.Providers = providers
	transport := upstream.NewTransport()
	deps := chat.Deps{Transport: transport, Meter: g.meter}
	for _, o := range options {
		o(&g.cfg, &deps)
	}
	if problems := g.cfg.Chat.Validate(); problems != nil {
		t.Fatal(problems)
	}
	g.proxy = chat.New(g.cfg, deps)
	g.handler.Set(g.proxy.Handler(front.NewGuard("127.0.0.1:8000", front.HTTP{})))
	g.Server = httptest.NewServer(&g.handler)
	t.Cleanup(func() { g.Client().CloseIdleConnections(); g.Close(); transport.CloseIdleConnections() })
	return g
}

// reload applies a configuration with other providers.
func (g *gateway) reload(providers ...chat.Provider) {
	g.cfg.Chat.Providers = providers
	g.proxy.Apply(g.cfg)
	g.handler.Set(g.proxy.Handler(front.NewGuard("127.0.0.1:8000", front.HTTP{})))
}

// do sends a request. The caller closes the response body.
func (g *gateway) do(t *testing.T, method, path, body string, head http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, g.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range head {
		req.Header[name] = values
	}
	resp, err := g.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// post sends a request and reads the whole response.
func (g *gateway) post(t *testing.T, path, body string, head http.Header) (*http.Response, string) {
	t.Helper()
	return readReply(t, g.do(t, http.MethodPost, path, body, head))
}

func (g *gateway) get(t *testing.T, path string, head http.Header) (*http.Response, string) {
	t.Helper()
	return readReply(t, g.do(t, http.MethodGet, path, "", head))
}

func readReply(t *testing.T, resp *http.Response) (*http.Response, string) {
	t.Helper()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%d %q: %v", resp.StatusCode, text, err)
	}
	return resp, string(text)
}

// wantMetrics waits until the metrics contain all lines: a request is counted after its client has the reply.
func (g *gateway) wantMetrics(t *testing.T, lines ...string) {
	t.Helper()
	var text string
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		w := httptest.NewRecorder()
		g.meter.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		text = w.Body.String()
		missing := false
		for _, line := range lines {
			missing = missing || !strings.Contains(text, line+"\n")
		}
		if !missing {
			return
		}
	}
	t.Errorf("the metrics lack one of %q:\n%s", lines, llmLines(text))
}

func llmLines(text string) string {
	var out bytes.Buffer
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "ctxgate_llm") && !strings.Contains(line, "bucket") {
			out.WriteString(line)
		}
	}
	return out.String()
}

func unitDuration(d time.Duration) unit.Duration { return unit.Duration(d) }
