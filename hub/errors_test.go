package hub_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/upstream"
)

const request = `{"jsonrpc":"2.0","id":"x\u0031","method":"m"}`
const requestID = `"x\u0031"`

// expectRelayError checks that an answer is a JSON-RPC error as G5 wants it.
func expectRelayError(t *testing.T, got relayReply, status, code int, id string, hidden ...string) {
	t.Helper()
	var reply struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *struct {
			Code    int
			Message string
			Data    struct{ Reason string }
		}
	}
	if err := json.Unmarshal([]byte(got.body), &reply); err != nil || reply.Error == nil {
		t.Fatalf("got %d %.300q, want a JSON-RPC error", got.status, got.body)
	}
	if got.status != status || reply.Error.Code != code || string(reply.ID) != id || reply.Version != "2.0" {
		t.Errorf("got %d %s, want %d with code %d and id %s", got.status, got.body, status, code, id)
	}
	if reply.Error.Message == "" || reply.Error.Data.Reason == "" {
		t.Errorf("got %s, want a message and a reason", got.body)
	}
	if ct := got.header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("Content-Type is %q", ct)
	}
	if len(got.body) > 4<<10 {
		t.Errorf("the answer has %d bytes, want at most 4 KiB", len(got.body))
	}
	for _, h := range append(hidden, "127.0.0.1", "goroutine", ".go:") {
		if h != "" && strings.Contains(got.body, h) {
			t.Errorf("%s shows %q", got.body, h)
		}
	}
}

func hostOf(url string) string { return strings.TrimPrefix(url, "http://") }

func TestG5UnknownServer(t *testing.T) {
	g := startRPCGateway(t, closedServer(t), nil)
	for _, name := range []string{"b", "A", "a%2Fb", "%ff", "a%00", "%0a", "é", "a;x"} {
		t.Run(name, func(t *testing.T) {
			expectRelayError(t, g.post(t, name, request), http.StatusNotFound, -32001, requestID)
		})
	}
	expectRelayError(t, g.post(t, "b", `{"jsonrpc":"2.0","method":"notifications/x"}`), http.StatusNotFound, -32001, "null")
}

// The client chooses how long a name is; the error message stays short.
func TestG5UnknownServerOfALongName(t *testing.T) {
	g := startRPCGateway(t, closedServer(t), nil)
	expectRelayError(t, g.post(t, strings.Repeat("n", 20_000), request), http.StatusNotFound, -32001, requestID)
}

func TestG5ServerThatCannotBeReached(t *testing.T) {
	handlers := map[string]http.HandlerFunc{
		"silent": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then the disconnect is noticed
			<-r.Context().Done()
		},
		"silent after the head": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0",`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"cut inside a sized body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0",`)
		},
		"cut inside a chunked body": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":"x1","result":1}`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"cut before the head": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	for name, handler := range handlers {
		t.Run(name, func(t *testing.T) {
			up := httptest.NewServer(handler)
			defer up.Close()
			g := startRPCGateway(t, up.URL, func(s *setup) { s.upstream.ResponseTimeout = seconds(0.2) })
			defer g.Close()
			expectRelayError(t, g.post(t, "a", request), http.StatusBadGateway, -32002, requestID, hostOf(up.URL))
		})
	}
	t.Run("refused", func(t *testing.T) {
		base := closedServer(t)
		expectRelayError(t, startRPCGateway(t, base, nil).post(t, "a", request), http.StatusBadGateway, -32002, requestID, hostOf(base))
	})
	t.Run("a name that does not resolve", func(t *testing.T) {
		g := startRPCGateway(t, "http://nowhere.invalid:1", nil)
		expectRelayError(t, g.post(t, "a", request), http.StatusBadGateway, -32002, requestID, "nowhere.invalid")
	})
	t.Run("of a kind that is not yet served", func(t *testing.T) {
		g := startRPCGateway(t, "", func(s *setup) {
			s.upstream.Servers = []upstream.ServerConfig{{ID: "a", Command: []string{"secret-program"}}}
		})
		expectRelayError(t, g.post(t, "a", request), http.StatusBadGateway, -32002, requestID, "secret-program")
	})
}

func TestG5ServerThatAnswersSomethingElse(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, `{"jsonrpc":"2.0","id":"x1","result":1}`)
	_ = z.Close()
	for name, tt := range map[string]struct{ encoding, body string }{
		"HTML":                  {"", "<html><body>502 Bad Gateway</body></html>"},
		"empty":                 {"", ""},
		"blank":                 {"", " \n"},
		"no envelope":           {"", `{"ok":true}`},
		"a string":              {"", `"ok"`},
		"an array":              {"", `[{"jsonrpc":"2.0","id":"x1","result":1}]`},
		"another id":            {"", `{"jsonrpc":"2.0","id":"x2","result":1}`},
		"an id of another type": {"", `{"jsonrpc":"2.0","id":1,"result":1}`},
		"a null id":             {"", `{"jsonrpc":"2.0","id":null,"result":1}`},
		"an id that is no id":   {"", `{"jsonrpc":"2.0","id":["x1"],"result":1}`},
		"no id":                 {"", `{"jsonrpc":"2.0","result":1}`},
		"an error without id":   {"", `{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}`},
		"another version":       {"", `{"jsonrpc":"1.0","id":"x1","result":1}`},
		"result and error":      {"", `{"jsonrpc":"2.0","id":"x1","result":1,"error":{"code":1,"message":"m"}}`},
		"neither":               {"", `{"jsonrpc":"2.0","id":"x1"}`},
		"a text for an error":   {"", `{"jsonrpc":"2.0","id":"x1","error":"no"}`},
		"a request":             {"", `{"jsonrpc":"2.0","id":"x1","method":"m","result":1}`},
		"a key twice":           {"", `{"jsonrpc":"2.0","id":"x1","result":1,"result":2}`},
		"the id twice":          {"", `{"jsonrpc":"2.0","id":"x1","id":"x1","result":1}`},
		"a key in other case":   {"", `{"jsonrpc":"2.0","id":"x1","Result":1,"result":1}`},
		"two replies":           {"", `{"jsonrpc":"2.0","id":"x1","result":1}{}`},
		"cut short":             {"", `{"jsonrpc":"2.0","id":"x1","result":`},
		"not UTF-8":             {"", "{\"jsonrpc\":\"2.0\",\"id\":\"x1\",\"result\":\"\xff\"}"},
		"a lone surrogate":      {"", `{"jsonrpc":"2.0","id":"x1","result":"\ud800"}`},
		"too deep":              {"", `{"jsonrpc":"2.0","id":"x1","result":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`},
		"over the limit":        {"", `{"jsonrpc":"2.0","id":"x1","result":"` + strings.Repeat("x", 8<<10) + `"}`},
		"over the limit, unsized": {"", `{"jsonrpc":"2.0","id":"x1","result":"` + strings.Repeat("x", 64<<10) +
			`"}`},
		"packed":                          {"gzip", zipped.String()},
		"an event stream":                 {"", "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"x1\",\"result\":1}\n\n"},
		"declared as compressed, and not": {"br", `{"jsonrpc":"2.0","id":"x1","result":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tt.encoding != "" {
					w.Header().Set("Content-Encoding", tt.encoding)
				}
				_, _ = io.WriteString(w, tt.body)
			}))
			defer up.Close()
			g := startRPCGateway(t, up.URL, func(s *setup) { s.upstream.MaxReplyBytes = 4 << 10 })
			defer g.Close()
			expectRelayError(t, g.post(t, "a", request), http.StatusBadGateway, -32003, requestID, hostOf(up.URL))
		})
	}
}

// A redirect is not a reply, and is not followed.
func TestG5RedirectIsNotFollowed(t *testing.T) {
	elsewhere := rpcServerReplying(t, `{"jsonrpc":"2.0","id":"x1","result":1}`)
	up := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/rpc", http.StatusTemporaryRedirect))
	defer up.Close()
	expectRelayError(t, startRPCGateway(t, up.URL, nil).post(t, "a", request), http.StatusBadGateway, -32003, requestID, hostOf(elsewhere.URL))
	if n := len(elsewhere.requests()); n != 0 {
		t.Errorf("the redirect was followed %d times", n)
	}
}

// A JSON-RPC error of the server is its reply, whatever HTTP status it came with.
func TestG5ErrorOfTheServerPasses(t *testing.T) {
	reply := `{"jsonrpc":"2.0","id":"x1","error":{"code":-32050,"message":"` + strings.Repeat("m", 60) +
		`","data":{"trace":"` + strings.Repeat("x", 50) + `"}}}`
	for _, status := range []int{200, 400, 404, 500, 503} {
		up := rpcServerWith(t, status, "text/plain", reply)
		got := startRPCGateway(t, up.URL, maskWithoutRecoverLine).post(t, "a", request)
		want := strings.Replace(masked(reply), `"x1"`, requestID, 1)
		if got.status != http.StatusOK || got.body != want {
			t.Errorf("upstream status %d: got %d %s, want 200 %s", status, got.status, got.body, want)
		}
	}
}

func TestG5InvalidRequest(t *testing.T) {
	up := rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":1}`)
	g := startRPCGateway(t, up.URL, nil)
	for name, tt := range map[string]struct {
		body string
		code int
		id   string
	}{
		"empty":               {``, -32700, `null`},
		"text":                {`hello`, -32700, `null`},
		"cut short":           {`{"jsonrpc":"2.0","id":1,"method":"m"`, -32700, `null`},
		"trailing":            {`{"jsonrpc":"2.0","id":1,"method":"m"} x`, -32700, `null`},
		"not UTF-8":           {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", -32700, `null`},
		"lone surrogate":      {`{"jsonrpc":"2.0","id":1,"method":"\udc00"}`, -32700, `null`},
		"byte order mark":     {"\uFEFF" + `{"jsonrpc":"2.0","id":1,"method":"m"}`, -32700, `null`},
		"batch":               {`[{"jsonrpc":"2.0","id":1,"method":"m"}]`, -32600, `null`},
		"empty batch":         {`[]`, -32600, `null`},
		"a number":            {`1`, -32600, `null`},
		"a reply":             {`{"jsonrpc":"2.0","id":7,"result":{}}`, -32600, `7`},
		"an error":            {`{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}`, -32600, `7`},
		"request and reply":   {`{"jsonrpc":"2.0","id":7,"method":"m","result":1}`, -32600, `7`},
		"no method":           {`{"jsonrpc":"2.0","id":7.0}`, -32600, `7.0`},
		"an empty method":     {`{"jsonrpc":"2.0","id":7,"method":""}`, -32600, `7`},
		"method is a number":  {`{"jsonrpc":"2.0","id":7,"method":1}`, -32600, `7`},
		"no version":          {`{"id":"\u0061","method":"m"}`, -32600, `"\u0061"`},
		"version is a number": {`{"jsonrpc":2.0,"id":7,"method":"m"}`, -32600, `7`},
		"params is a text":    {`{"jsonrpc":"2.0","method":"m","params":"p","id":7}`, -32600, `7`},
		"params is null":      {`{"jsonrpc":"2.0","method":"m","params":null,"id":7}`, -32600, `7`},
		"id is an object":     {`{"jsonrpc":"2.0","id":{},"method":"m"}`, -32600, `null`},
		"id is true":          {`{"jsonrpc":"2.0","id":true,"method":"m"}`, -32600, `null`},
		"a key twice":         {`{"jsonrpc":"2.0","id":7,"method":"a","method":"b"}`, -32600, `7`},
		"a key twice, deep":   {`{"jsonrpc":"2.0","id":7,"method":"a","params":{"x":[{"y":1,"\u0079":2}]}}`, -32600, `7`},
		"the id twice":        {`{"jsonrpc":"2.0","id":7,"method":"a","id":8}`, -32600, `null`},
		"a folded key":        {`{"jsonrpc":"2.0","id":7,"Method":"a"}`, -32600, `7`},
		"a folded param":      {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"Name":"a"}}`, -32600, `7`},
		"too deep":            {`{"jsonrpc":"2.0","id":7,"method":"a","params":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, -32600, `null`},
	} {
		t.Run(name, func(t *testing.T) {
			expectRelayError(t, g.post(t, "a", tt.body), http.StatusBadRequest, tt.code, tt.id)
		})
	}
	if n := len(up.requests()); n != 0 {
		t.Errorf("%d refused requests reached the server", n)
	}
}

func TestG5OnlyPOST(t *testing.T) {
	g := startRPCGateway(t, closedServer(t), nil)
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, "BREW"} {
		got := g.do(t, method, rpcPath("a"), nil, nil)
		expectRelayError(t, got, http.StatusMethodNotAllowed, -32600, "null")
		if allow := got.header.Get("Allow"); allow != http.MethodPost {
			t.Errorf("%s: Allow is %q, want POST", method, allow)
		}
	}
	if got := g.do(t, http.MethodHead, rpcPath("a"), nil, nil); got.status != http.StatusMethodNotAllowed || got.body != "" {
		t.Errorf("HEAD: got %d %q", got.status, got.body)
	}
}

func TestG5UnknownPath(t *testing.T) {
	g := startRPCGateway(t, closedServer(t), nil)
	for _, p := range []string{"/", "/nothing", "/api/mcp-gateway", "/api/mcp-gateway/a", "/api/mcp-gateway/a/rpc/", "/api/mcp-gateway/a/b/rpc", "/favicon.ico"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			expectRelayError(t, g.do(t, method, p, strings.NewReader("{}"), nil), http.StatusNotFound, -32001, "null")
		}
	}
}

func TestG5UncleanPath(t *testing.T) {
	g := startRPCGateway(t, closedServer(t), nil)
	g.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, p := range []string{"//", "/x/../y", "/api//mcp-gateway/a/rpc"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			expectRelayError(t, g.do(t, method, p, strings.NewReader("{}"), nil), http.StatusNotFound, -32001, "null")
		}
	}
}

func TestG5BodyOverTheLimit(t *testing.T) {
	up := rpcServerReplying(t, `{"jsonrpc":"2.0","id":"x1","result":1}`)
	g := startRPCGateway(t, up.URL, func(s *setup) { s.http.MaxRequestBytes = 2 << 10 })
	body := func(n int) string { return request + strings.Repeat(" ", n-len(request)) }
	if got := g.post(t, "a", body(2<<10)); got.status != http.StatusOK {
		t.Errorf("a body of just the limit: got %d %s", got.status, got.body)
	}
	expectRelayError(t, g.post(t, "a", body(2<<10+1)), http.StatusRequestEntityTooLarge, -31413, "null")
	expectRelayError(t, g.post(t, "a", body(3<<20)), http.StatusRequestEntityTooLarge, -31413, "null")
	chunked := struct{ io.Reader }{strings.NewReader(body(2<<10 + 1))}
	expectRelayError(t, g.do(t, http.MethodPost, rpcPath("a"), chunked, nil), http.StatusRequestEntityTooLarge, -31413, "null")
}

// panickingTransport is a transport that panics.
type panickingTransport struct{}

func (panickingTransport) RoundTrip(*http.Request) (*http.Response, error) {
	panic("canary-of-a-panic")
}

func TestG5PanicIsAnInternalError(t *testing.T) {
	g := startRPCGateway(t, "http://127.0.0.1:1", func(s *setup) {
		s.transport = panickingTransport{}
		s.mount = func(mux *http.ServeMux) {
			mux.HandleFunc("/boom", func(http.ResponseWriter, *http.Request) { panic("canary-of-a-panic") })
		}
	})
	expectRelayError(t, g.do(t, http.MethodGet, "/boom", nil, nil), http.StatusBadGateway, -32603, "null", "canary")
	for range 2 { // and the next request is served
		var got struct {
			Error struct{ Code int }
		}
		a := g.post(t, "a", request)
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != http.StatusBadGateway || got.Error.Code != -32603 {
			t.Errorf("got %d %s, want 502 with code -32603", a.status, a.body)
		}
	}
}

// The request is parsed before the panic, so its id is known.
func TestG5PanicKeepsTheID(t *testing.T) {
	g := startRPCGateway(t, "http://127.0.0.1:1", func(s *setup) { s.transport = panickingTransport{} })
	expectRelayError(t, g.post(t, "a", request), http.StatusBadGateway, -32603, requestID, "canary")
}

// A call that panicked is not in flight any more.
func TestPanicEndsTheCallInTheMetrics(t *testing.T) {
	g := startRPCGateway(t, "http://127.0.0.1:1", func(s *setup) { s.transport = panickingTransport{} })
	g.post(t, "a", request)
	if !strings.Contains(g.metrics(), "\nctxgate_calls_in_flight 0\n") {
		t.Error("ctxgate_calls_in_flight stays up after a panic")
	}
}

func TestTokenIsAskedOnEveryRoute(t *testing.T) {
	up := rpcServerReplying(t, `{"jsonrpc":"2.0","id":"x1","result":1}`)
	g := startRPCGateway(t, up.URL, func(s *setup) { s.auth = auth.Config{Token: secret.Parse("right-token")} })
	for name, values := range map[string][]string{
		"missing":       nil,
		"empty":         {""},
		"wrong":         {"Bearer wrong-token"},
		"longer":        {"Bearer right-token-and-more"},
		"other scheme":  {"Basic right-token"},
		"no scheme":     {"right-token"},
		"twice":         {"Bearer right-token", "Bearer right-token"},
		"right + wrong": {"Bearer right-token", "Bearer wrong-token"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range []string{rpcPath("a"), rpcPath("unknown"), "/", "/nothing"} {
				for _, method := range []string{http.MethodPost, http.MethodGet} {
					header := http.Header{}
					if values != nil {
						header["Authorization"] = values
					}
					got := g.do(t, method, p, strings.NewReader(request), header)
					expectRelayError(t, got, http.StatusUnauthorized, -31401, "null", "right-token")
					if got.header.Get("WWW-Authenticate") != "Bearer" {
						t.Errorf("headers %v", got.header)
					}
				}
			}
		})
	}
	if n := len(up.requests()); n != 0 {
		t.Errorf("%d requests without a token reached the server", n)
	}
	got := g.do(t, http.MethodPost, rpcPath("a"), strings.NewReader(request), http.Header{"Authorization": {"bearer right-token"}})
	if got.status != http.StatusOK {
		t.Errorf("the right token: got %d %s", got.status, got.body)
	}
	if h := up.requests()[0].header.Get("Authorization"); h != "" {
		t.Errorf("the client's token went to the server: %q", h)
	}
}

// What a client writes into a message cannot make log lines grow without bound (I9).
func TestLogLineIsBounded(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(&log, nil)))
	defer slog.SetDefault(old)
	up := rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":1}`)
	g := startRPCGateway(t, up.URL, nil)
	g.post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"`+strings.Repeat("m", 1<<20)+`"}`)
	g.Close()
	if log.Len() > 128<<10 {
		t.Errorf("one request wrote %d bytes of log", log.Len())
	}
}

// A call may take longer than reading its body: the deadline of the body ends when it is read, also on a
// connection that is used again.
func TestSlowServerIsNotASlowBody(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(400 * time.Millisecond)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":"x1","result":1}`)
	}))
	defer up.Close()
	g := startRPCGateway(t, up.URL, func(s *setup) { s.http.BodyTimeout = seconds(0.2) })
	for range 2 {
		if got := g.post(t, "a", request); got.status != http.StatusOK {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
}
