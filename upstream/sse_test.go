package upstream_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// newSSEServer is a server of HTTP+SSE: it replies on its stream.
func newSSEServer(t *testing.T) *fakeHTTP {
	t.Helper()
	f := newFakeHTTP(t, map[string]handler{})
	outgoing := make(chan string, 16)
	f.on("GET", func(w http.ResponseWriter, h httpRequest) {
		respondEvents("event: endpoint\ndata: /messages?session=1\n\n")(w, h)
		for {
			select {
			case text := <-outgoing:
				writeEvent(w, h, "event: message\ndata: "+text+"\n\n")
			case <-h.ctx.Done():
				return
			}
		}
	})
	respond202 := func(result string) handler {
		return func(w http.ResponseWriter, h httpRequest) {
			if len(h.ID) > 0 {
				outgoing <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, h.ID, result)
			}
			w.WriteHeader(http.StatusAccepted)
		}
	}
	f.on(mcp.Initialize, respond202(`{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"old"}}`))
	f.on("push", func(_ http.ResponseWriter, h httpRequest) { outgoing <- h.body })
	f.other = respond202(`{"content":[]}`)
	return f
}

// sendEvent makes the server send a message.
func (f *fakeHTTP) sendEvent(text string) { f.handlers["push"](nil, httpRequest{body: text}) }

// shortTimeout is short enough for a test to wait for.
const shortTimeout = unit.Duration(300 * time.Millisecond)

func sseEntry(f *fakeHTTP) upstream.ServerConfig {
	return upstream.ServerConfig{URL: secret.URL(f.URL + "/sse"), Transport: "sse"}
}

// A13: HTTP+SSE: one stream, and a POST for each message.
func TestSSE(t *testing.T) {
	f := newSSEServer(t)
	n := connect(t, sseEntry(f), func(_ *upstream.Config, s *upstream.ServerConfig) {
		s.Headers = map[string]secret.Text{"authorization": secret.Parse("Bearer t")}
	})
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	handshake, _ := n.SharedConn().Handshake()
	if handshake.Protocol != mcp.Legacy || handshake.Version != mcp.V20241105 {
		t.Errorf("got %+v", handshake)
	}
	get, call := f.awaitRequest(t, "GET", 1), f.awaitRequest(t, mcp.ToolsCall, 1)
	if get.path != "/sse" || get.head.Get("Accept") != "text/event-stream" || get.head.Get("Authorization") != "Bearer t" {
		t.Errorf("GET %s with %v", get.path, get.head)
	}
	if call.path != "/messages?session=1" || call.head.Get("Content-Type") != "application/json" || call.head.Get("Authorization") != "Bearer t" {
		t.Errorf("POST %s with %v", call.path, call.head)
	}
	f.sendEvent(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	n.ears.awaitNotification(t, mcp.NotifyToolsChanged)
	f.sendEvent(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	if h := f.awaitRequest(t, "answer", 1); h.body != `{"jsonrpc":"2.0","id":"p","result":{}}` {
		t.Errorf("got %s", h.body)
	}
	if f.requests(mcp.ServerDiscover) != nil {
		t.Error("server/discover was sent")
	}
	for range 50 {
		n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	}
	if got := f.accepted.Load(); got > 8 {
		t.Errorf("%d connections for 50 calls", got)
	}
}

// A13: messages carry the server's credentials, so they go to its own origin only.
func TestSSEEndpointMustBeSameOrigin(t *testing.T) {
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a stranger was sent %s", r.URL)
	}))
	defer stranger.Close()
	for name, tt := range map[string]struct {
		endpoint func(own string) string
		fails    bool
	}{
		"path":          {func(string) string { return "/m" }, false},
		"relative":      {func(string) string { return "m?x=1" }, false},
		"whole":         {func(own string) string { return own + "/m" }, false},
		"case":          {func(own string) string { return strings.Replace(own, "http", "HTTP", 1) + "/m" }, false},
		"other port":    {func(string) string { return stranger.URL + "/m" }, true},
		"other scheme":  {func(own string) string { return strings.Replace(own, "http", "https", 1) + "/m" }, true},
		"other host":    {func(own string) string { return strings.Replace(own, "127.0.0.1", "localhost", 1) + "/m" }, true},
		"without host":  {func(string) string { return "//" + strings.TrimPrefix(stranger.URL, "http://") + "/m" }, true},
		"as a user":     {func(own string) string { return strings.Replace(own, "://", "://u:p@", 1) + "/m" }, true},
		"no URL at all": {func(string) string { return "http://[::1" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSSEServer(t)
			listening := f.handlers["GET"]
			f.on("GET", func(w http.ResponseWriter, h httpRequest) { listening(replaceEndpoint{w, tt.endpoint(f.URL)}, h) })
			n := connect(t, sseEntry(f), nil)
			<-n.SharedConn().FirstAttemptDone()
			if _, up := n.SharedConn().Handshake(); up == tt.fails {
				t.Errorf("up: %t", up)
			}
		})
	}
}

// replaceEndpoint replaces the endpoint that the server sends.
type replaceEndpoint struct {
	http.ResponseWriter
	to string
}

func (r replaceEndpoint) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r replaceEndpoint) Write(p []byte) (int, error) {
	_, err := r.ResponseWriter.Write([]byte(strings.Replace(string(p), "/messages?session=1", r.to, 1)))
	return len(p), err
}

// A2: the end of the stream is the end of the connection; it is opened again.
func TestSSEReconnects(t *testing.T) {
	f := newSSEServer(t)
	n := connect(t, sseEntry(f), nil)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	f.CloseClientConnections()
	f.awaitRequest(t, "GET", 2)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	if n.count.Load() != 1 {
		t.Errorf("%d connections were lost", n.count.Load())
	}
}

// A2: after the server forgot the session, a new connection is opened and the call is executed once.
func TestSSEForgottenSession(t *testing.T) {
	f := newSSEServer(t)
	n := connect(t, sseEntry(f), nil)
	n.mustCall(t, mcp.Ping, `{}`)
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, _ httpRequest) {
		f.on(mcp.ToolsCall, nil)
		http.Error(w, "session not found", http.StatusNotFound)
	})
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	if got := len(f.requests(mcp.ToolsCall)); got != 2 || len(f.requests(mcp.Initialize)) != 2 {
		t.Errorf("%d calls and %d handshakes", got, len(f.requests(mcp.Initialize)))
	}
}

// A2: failures of an SSE server have the right kind.
func TestSSEFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		act  handler
		want fault.Kind
	}{
		"refused":     {respondStatus(401, ""), fault.Unavailable},
		"busy":        {respondStatus(503, ""), fault.Unavailable},
		"bad request": {respondStatus(400, "no such tool"), fault.BadReply},
		"redirect":    {respondStatus(307, ""), fault.BadReply},
		"cut":         {func(http.ResponseWriter, httpRequest) { panic(http.ErrAbortHandler) }, fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSSEServer(t).on(mcp.ToolsCall, tt.act)
			n := connect(t, sseEntry(f), nil)
			if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			n.mustCall(t, mcp.Ping, `{}`)
			if n.count.Load() != 0 {
				t.Error("the connection was given up")
			}
		})
	}
}

// A2: a response that is not an event stream, or has no endpoint event, is not a server.
func TestSSENotAServer(t *testing.T) {
	for name, tt := range map[string]struct {
		act  handler
		want fault.Kind
	}{
		"a page":    {respondStatus(200, "<html>"), fault.BadReply},
		"not there": {respondStatus(404, ""), fault.BadReply},
		"refused":   {respondStatus(403, ""), fault.Unavailable},
		"ends":      {respondEvents(": hello\n\n", "event: other\ndata: x\n\n"), fault.Unavailable},
		"silent":    {func(w http.ResponseWriter, h httpRequest) { respondEvents(":\n\n")(w, h); <-h.ctx.Done() }, fault.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSSEServer(t).on("GET", tt.act)
			n := connect(t, sseEntry(f), func(_ *upstream.Config, s *upstream.ServerConfig) { s.StartupTimeout = shortTimeout })
			if err := n.awaitFailure(t); fault.KindOf(err) != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// A13: a canceled call is canceled at an SSE server.
func TestSSECancellation(t *testing.T) {
	f := newSSEServer(t).on(mcp.ToolsCall, respondStatus(202, ""))
	n := connect(t, sseEntry(f), func(c *upstream.Config, _ *upstream.ServerConfig) { c.ResponseTimeout = shortTimeout })
	if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != fault.Timeout {
		t.Errorf("got %v", err)
	}
	want := fmt.Sprintf(`"requestId":%s`, f.requests(mcp.ToolsCall)[0].ID)
	if h := f.awaitRequest(t, mcp.NotifyCancelled, 1); !strings.Contains(h.body, want) {
		t.Errorf("got %s, want %s", h.body, want)
	}
}

// A message over the limit ends the stream, and the error says why.
func TestSSEMessageTooLarge(t *testing.T) {
	f := newSSEServer(t)
	n := connect(t, sseEntry(f), func(c *upstream.Config, _ *upstream.ServerConfig) { c.MaxReplyBytes = 4 << 10 })
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, _ httpRequest) {
		w.WriteHeader(http.StatusAccepted)
		f.sendEvent(`"` + strings.Repeat("x", 8<<10) + `"`)
	})
	if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != fault.BadReply {
		t.Errorf("got %v", err)
	}
}
