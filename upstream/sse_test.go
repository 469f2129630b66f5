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

// oldest is a server of HTTP+SSE: what it answers, it says on its stream.
func oldest(t *testing.T) *far {
	t.Helper()
	f := newFar(t, map[string]act{})
	said := make(chan string, 16)
	f.on("GET", func(w http.ResponseWriter, h heard) {
		stream("event: endpoint\ndata: /messages?session=1\n\n")(w, h)
		for {
			select {
			case text := <-said:
				write(w, h, "event: message\ndata: "+text+"\n\n")
			case <-h.ctx.Done():
				return
			}
		}
	})
	say := func(result string) act {
		return func(w http.ResponseWriter, h heard) {
			if len(h.ID) > 0 {
				said <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, h.ID, result)
			}
			w.WriteHeader(http.StatusAccepted)
		}
	}
	f.on(mcp.Initialize, say(`{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"old"}}`))
	f.on("push", func(_ http.ResponseWriter, h heard) { said <- h.body })
	f.other = say(`{"content":[]}`)
	return f
}

// push makes the server say something by itself.
func (f *far) push(text string) { f.acts["push"](nil, heard{body: text}) }

// brief is a time that a test can wait for.
const brief = unit.Duration(300 * time.Millisecond)

func old(f *far) upstream.Server {
	return upstream.Server{URL: secret.URL(f.URL + "/sse"), Transport: "sse"}
}

// A13: a server of the oldest transport: one stream, a POST for each message.
func TestOldestTransport(t *testing.T) {
	f := oldest(t)
	n := connect(t, old(f), func(_ *upstream.Config, s *upstream.Server) {
		s.Headers = map[string]secret.Text{"authorization": secret.Parse("Bearer t")}
	})
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	hello, _ := n.Shared().Up()
	if hello.Era != mcp.EraLegacy || hello.Version != mcp.V20241105 {
		t.Errorf("got %+v", hello)
	}
	get, call := f.await(t, "GET", 1), f.await(t, mcp.ToolsCall, 1)
	if get.path != "/sse" || get.head.Get("Accept") != "text/event-stream" || get.head.Get("Authorization") != "Bearer t" {
		t.Errorf("GET %s with %v", get.path, get.head)
	}
	if call.path != "/messages?session=1" || call.head.Get("Content-Type") != "application/json" || call.head.Get("Authorization") != "Bearer t" {
		t.Errorf("POST %s with %v", call.path, call.head)
	}
	f.push(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	n.ears.await(t, mcp.ToolsChanged)
	f.push(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	if h := f.await(t, "answer", 1); h.body != `{"jsonrpc":"2.0","id":"p","result":{}}` {
		t.Errorf("got %s", h.body)
	}
	if f.got(mcp.Discover) != nil {
		t.Error("the newer era was asked for")
	}
	for range 50 {
		n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	}
	if got := f.accepted.Load(); got > 8 {
		t.Errorf("%d connections for 50 calls", got)
	}
}

// A13: messages have the server's credentials: they go to its own origin and nowhere else.
func TestEndpointOfTheSameOrigin(t *testing.T) {
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
			f := oldest(t)
			listening := f.acts["GET"]
			f.on("GET", func(w http.ResponseWriter, h heard) { listening(replaceEndpoint{w, tt.endpoint(f.URL)}, h) })
			n := connect(t, old(f), nil)
			<-n.Shared().Settled()
			if _, up := n.Shared().Up(); up == tt.fails {
				t.Errorf("up: %t", up)
			}
		})
	}
}

// replaceEndpoint says another endpoint than the server does.
type replaceEndpoint struct {
	http.ResponseWriter
	to string
}

func (r replaceEndpoint) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r replaceEndpoint) Write(p []byte) (int, error) {
	_, err := r.ResponseWriter.Write([]byte(strings.Replace(string(p), "/messages?session=1", r.to, 1)))
	return len(p), err
}

// A2: a stream that ends is a connection that ended; it is made again.
func TestOldestTransportReconnects(t *testing.T) {
	f := oldest(t)
	n := connect(t, old(f), nil)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	f.CloseClientConnections()
	f.await(t, "GET", 2)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	if n.count.Load() != 1 {
		t.Errorf("%d connections were lost", n.count.Load())
	}
}

// A2: a session that the server has forgotten is made again, and the call was made once.
func TestOldestTransportForgets(t *testing.T) {
	f := oldest(t)
	n := connect(t, old(f), nil)
	n.must(t, mcp.Ping, `{}`)
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, _ heard) {
		f.on(mcp.ToolsCall, nil)
		http.Error(w, "session not found", http.StatusNotFound)
	})
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	if got := len(f.got(mcp.ToolsCall)); got != 2 || len(f.got(mcp.Initialize)) != 2 {
		t.Errorf("%d calls and %d greetings", got, len(f.got(mcp.Initialize)))
	}
}

// A2: what a server of the oldest transport does wrong is a failure of the right kind.
func TestOldestTransportFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		act  act
		want fault.Kind
	}{
		"refused":     {status(401, ""), fault.Unavailable},
		"busy":        {status(503, ""), fault.Unavailable},
		"bad request": {status(400, "no such tool"), fault.BadReply},
		"redirect":    {status(307, ""), fault.BadReply},
		"cut":         {func(http.ResponseWriter, heard) { panic(http.ErrAbortHandler) }, fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			f := oldest(t).on(mcp.ToolsCall, tt.act)
			n := connect(t, old(f), nil)
			if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			n.must(t, mcp.Ping, `{}`)
			if n.count.Load() != 0 {
				t.Error("the connection was given up")
			}
		})
	}
}

// A2: what is no stream, or never says where messages go, is no server.
func TestOldestTransportThatIsNone(t *testing.T) {
	for name, tt := range map[string]struct {
		act  act
		want fault.Kind
	}{
		"a page":    {status(200, "<html>"), fault.BadReply},
		"not there": {status(404, ""), fault.BadReply},
		"refused":   {status(403, ""), fault.Unavailable},
		"ends":      {stream(": hello\n\n", "event: other\ndata: x\n\n"), fault.Unavailable},
		"silent":    {func(w http.ResponseWriter, h heard) { stream(":\n\n")(w, h); <-h.ctx.Done() }, fault.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			f := oldest(t).on("GET", tt.act)
			n := connect(t, old(f), func(_ *upstream.Config, s *upstream.Server) { s.StartupTimeout = brief })
			if err := n.failed(t); fault.KindOf(err) != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// A13: a client that leaves is told of, on the oldest transport too.
func TestOldestTransportCancels(t *testing.T) {
	f := oldest(t).on(mcp.ToolsCall, status(202, ""))
	n := connect(t, old(f), func(c *upstream.Config, _ *upstream.Server) { c.ResponseTimeout = brief })
	if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != fault.Timeout {
		t.Errorf("got %v", err)
	}
	want := fmt.Sprintf(`"requestId":%s`, f.got(mcp.ToolsCall)[0].ID)
	if h := f.await(t, mcp.Cancelled, 1); !strings.Contains(h.body, want) {
		t.Errorf("got %s, want %s", h.body, want)
	}
}

// A message over the limit ends the stream it came on, and says why.
func TestOldestTransportTooLarge(t *testing.T) {
	f := oldest(t)
	n := connect(t, old(f), func(c *upstream.Config, _ *upstream.Server) { c.MaxReplyBytes = 4 << 10 })
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, _ heard) {
		w.WriteHeader(http.StatusAccepted)
		f.push(`"` + strings.Repeat("x", 8<<10) + `"`)
	})
	if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != fault.BadReply {
		t.Errorf("got %v", err)
	}
}
