package upstream_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// newForgetfulServer is a server that knows only its newest session, and answers requests of others with forgot. It counts the
// calls that it executed.
func newForgetfulServer(t *testing.T, forgot handler) (f *fakeHTTP, forget func(), took *atomic.Int64) {
	t.Helper()
	f = newLegacyServer(t)
	var mu sync.Mutex
	current, n := "", 0
	took = new(atomic.Int64)
	f.on(mcp.Initialize, func(w http.ResponseWriter, h httpRequest) {
		mu.Lock()
		n++
		current = strings.Repeat("s", n)
		session := current
		mu.Unlock()
		startSession(session)(w, h)
	})
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, h httpRequest) {
		mu.Lock()
		known := h.head.Get(mcp.HeaderSession) == current
		mu.Unlock()
		if !known {
			forgot(w, h)
			return
		}
		took.Add(1)
		respond(`{"content":[]}`)(w, h)
	})
	return f, func() {
		mu.Lock()
		current = "none"
		mu.Unlock()
	}, took
}

// A2, A13: a server that has forgotten the session did not start the call: a new session is initialized without the old id, and
// the call is executed once.
func TestForgottenSession(t *testing.T) {
	for name, forgot := range map[string]handler{
		"as specified": respondStatus(404, ""),
		"in words":     respondStatus(404, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`),
		"in a reply":   respondAs(404, "error", `{"code":-32600,"message":"Session terminated"}`),
		"400":          respondStatus(400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Session ID is not valid"},"id":null}`),
		"400 as text":  respondStatus(400, "Invalid session ID"),
	} {
		t.Run(name, func(t *testing.T) {
			f, forget, took := newForgetfulServer(t, forgot)
			n := connect(t, httpEntry(f), nil)
			n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
			forget()
			n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
			if took.Load() != 2 || len(f.requests(mcp.ToolsCall)) != 3 || len(f.requests(mcp.Initialize)) != 2 {
				t.Errorf("%d calls were executed of %d, with %d handshakes", took.Load(), len(f.requests(mcp.ToolsCall)), len(f.requests(mcp.Initialize)))
			}
			if got := f.requests(mcp.Initialize)[1].head.Get(mcp.HeaderSession); got != "" {
				t.Errorf("the second handshake was sent with session %q", got)
			}
			if f.requests("DELETE") != nil {
				t.Error("a forgotten session was ended")
			}
		})
	}
}

// A2: every call that was on its way when the session was forgotten is executed, each once.
func TestForgottenSessionWithConcurrentCalls(t *testing.T) {
	f, forget, took := newForgetfulServer(t, respondStatus(404, ""))
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.Ping, `{}`)
	forget()
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if took.Load() != 32 || len(f.requests(mcp.Initialize)) != 2 {
		t.Errorf("%d calls were executed with %d handshakes", took.Load(), len(f.requests(mcp.Initialize)))
	}
}

// A2: so are calls that hear of it long after the first, as long as one after the other does.
func TestForgottenSessionWithLateCalls(t *testing.T) {
	var late atomic.Int64
	f, forget, took := newForgetfulServer(t, func(w http.ResponseWriter, h httpRequest) {
		time.Sleep(time.Duration(late.Add(1)) * 40 * time.Millisecond)
		respondStatus(404, "")(w, h)
	})
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.Ping, `{}`)
	forget()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if took.Load() != 8 || len(f.requests(mcp.Initialize)) != 2 {
		t.Errorf("%d calls were executed with %d handshakes", took.Load(), len(f.requests(mcp.Initialize)))
	}
}

// A2: a call that the server had started is not repeated, even if others hear that the session is gone.
func TestStartedCallIsNotRepeated(t *testing.T) {
	f, forget, _ := newForgetfulServer(t, respondStatus(404, ""))
	var begun atomic.Int64
	f.on(mcp.PromptsGet, func(_ http.ResponseWriter, h httpRequest) {
		begun.Add(1)
		<-h.ctx.Done()
	})
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.Ping, `{}`)
	failed := make(chan error, 1)
	go func() {
		_, err := n.call(t, mcp.PromptsGet, `{"name":"slow"}`)
		failed <- err
	}()
	f.awaitRequest(t, mcp.PromptsGet, 1)
	forget()
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	if err := <-failed; fault.KindOf(err) != fault.Unavailable || begun.Load() != 1 {
		t.Errorf("got %v; begun %d times", err, begun.Load())
	}
}

// A13: a modern server sends 404 with an unknown method, and any server may send a JSON-RPC error with any status: it is the
// call's reply.
func TestJSONRPCErrorWithAnyStatus(t *testing.T) {
	for name, tt := range map[string]struct {
		newServer func(*testing.T) *fakeHTTP
		code      int
		err       string
	}{
		"no method, modern":  {newModernServer, 404, `{"code":-32601,"message":"Method not found"}`},
		"no tool, modern":    {newModernServer, 400, `{"code":-32602,"message":"Unknown tool"}`},
		"mismatch, modern":   {newModernServer, 400, `{"code":-32020,"message":"Header mismatch"}`},
		"internal, modern":   {newModernServer, 500, `{"code":-32603,"message":"Internal"}`},
		"refused, modern":    {newModernServer, 401, `{"code":-32000,"message":"no"}`},
		"no method, legacy":  {newLegacyServer, 404, `{"code":-32601,"message":"Method not found"}`},
		"a tool's own":       {newLegacyServer, 404, `{"code":-32602,"message":"no such tool: list_sessions"}`},
		"of 400":             {newLegacyServer, 400, `{"code":-32000,"message":"the session of the tool"}`},
		"with data and more": {newModernServer, 400, `{"code":1, "message":"m","data":{"a":[1.0]},"x":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := tt.newServer(t).on(mcp.ToolsCall, respondAs(tt.code, "error", tt.err))
			n := connect(t, httpEntry(f), nil)
			m, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`)
			if err != nil || !m.IsError || string(m.Error.Of(m.Body)) != tt.err {
				t.Errorf("got %s, %v", m.Body, err)
			}
			if len(f.requests(mcp.ToolsCall)) != 1 || n.count.Load() != 0 {
				t.Errorf("%d calls, %d lost connections", len(f.requests(mcp.ToolsCall)), n.count.Load())
			}
		})
	}
}

// A2: responses that are not replies fail the call with the right kind, and not the connection.
func TestHTTPFailures(t *testing.T) {
	const small = 16 << 10
	for name, tt := range map[string]struct {
		act    handler
		want   fault.Kind
		public string
		after  time.Duration
	}{
		"unauthorized": {respondStatus(401, "who?"), fault.Unavailable, "the server refuses the gateway's credentials", 0},
		"forbidden":    {respondStatus(403, ""), fault.Unavailable, "the server refuses the gateway's credentials", 0},
		"limited": {func(w http.ResponseWriter, _ httpRequest) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		}, fault.Unavailable, "the server is not available", 7 * time.Second},
		"broken":      {respondStatus(500, "<html>secret"), fault.Unavailable, "the server is not available", 0},
		"a page":      {respondStatus(200, "<html>"), fault.BadReply, "", 0},
		"nothing":     {respondStatus(200, ""), fault.BadReply, "", 0},
		"no content":  {respondStatus(204, ""), fault.BadReply, "", 0},
		"teapot":      {respondStatus(418, ""), fault.BadReply, "", 0},
		"cut":         {func(http.ResponseWriter, httpRequest) { panic(http.ErrAbortHandler) }, fault.Unavailable, "", 0},
		"not ours":    {respondStatus(200, `{"jsonrpc":"2.0","id":"other","result":{}}`), fault.BadReply, "", 0},
		"stream ends": {respondEvents(": hi\n\n"), fault.Unavailable, "the server went away during the call", 0},
		"stream cut": {func(w http.ResponseWriter, h httpRequest) {
			respondEvents("id: 1\ndata: {\"jsonrpc\"")(w, h)
			panic(http.ErrAbortHandler)
		}, fault.Unavailable, "the server went away during the call", 0},
		"event is no message": {respondEvents("data: hello\n\n"), fault.BadReply, "", 0},
		"packed": {func(w http.ResponseWriter, h httpRequest) {
			w.Header().Set("Content-Encoding", "gzip")
			respond(`{}`)(w, h)
		}, fault.BadReply, "the server's answer cannot be read", 0},
		"large body":  {respond(`"` + strings.Repeat("x", small) + `"`), fault.BadReply, "the server's answer is too large", 0},
		"large event": {respondEvents("data: " + strings.Repeat("x", small+1) + "\n\n"), fault.BadReply, "the server's answer is too large", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newModernServer(t).on(mcp.ToolsCall, tt.act)
			n := connect(t, httpEntry(f), func(c *upstream.Config, _ *upstream.ServerConfig) { c.MaxReplyBytes = small })
			_, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`)
			public := fault.PublicOf(err)
			if fault.KindOf(err) != tt.want || tt.public != "" && public != tt.public || fault.RetryAfterOf(err) != tt.after {
				t.Errorf("got %v (%s), want %s %q", err, fault.KindOf(err), tt.want, tt.public)
			}
			if strings.Contains(public, "127.0.0.1") || strings.Contains(public, "secret") {
				t.Errorf("the public text %q says too much", public)
			}
			if len(f.requests(mcp.ToolsCall)) != 1 {
				t.Errorf("the call was made %d times", len(f.requests(mcp.ToolsCall)))
			}
			n.mustCall(t, mcp.PromptsList, `{}`)
			if n.count.Load() != 0 {
				t.Error("the connection was given up")
			}
		})
	}
}

// A2: a reply of exactly the limit is read, in a body or in an event.
func TestLargeReplies(t *testing.T) {
	text := `{"content":[{"type":"text","text":"` + strings.Repeat("x", 8<<20) + `"}]}`
	for name, a := range map[string]handler{
		"body": respond(text), "event": respondEvents(`data: {"jsonrpc":"2.0","id":%s,"result":` + text + "}\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			n := connect(t, httpEntry(newModernServer(t).on(mcp.ToolsCall, a)), nil)
			if got := n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`); got != text {
				t.Errorf("got %d bytes, want %d", len(got), len(text))
			}
		})
	}
}

// A7, A13: a notification is sent when Notify returns, with the headers of the protocol; errors of the server are returned.
func TestNotifications(t *testing.T) {
	const note = "notifications/roots/list_changed"
	for name, tt := range map[string]struct {
		act  handler
		want fault.Kind // Internal for none
	}{
		"accepted":   {respondStatus(202, ""), fault.Internal},
		"answered":   {respond(`{}`), fault.Internal},
		"a stream":   {func(w http.ResponseWriter, h httpRequest) { respondEvents(":\n\n")(w, h); <-h.ctx.Done() }, fault.Internal},
		"refused":    {respondStatus(400, "no"), fault.BadReply},
		"busy":       {respondStatus(503, ""), fault.Unavailable},
		"redirected": {respondStatus(302, ""), fault.BadReply},
		"cut":        {func(http.ResponseWriter, httpRequest) { panic(http.ErrAbortHandler) }, fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			f := newModernServer(t).on(note, tt.act)
			conn, err := connect(t, httpEntry(f), nil).SharedConn().AwaitConn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			err = conn.Notify(note, []byte(`{}`))
			if (err == nil) != (tt.want == fault.Internal) || fault.KindOf(err) != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			h := f.awaitRequest(t, note, 1)
			if h.head.Get(mcp.HeaderMethod) != note || h.head.Get(mcp.HeaderVersion) != mcp.V20260728 {
				t.Errorf("got %v", h.head)
			}
		})
	}
}

// A2: a notification can also find out that the session is gone.
func TestNotifyFindsForgottenSession(t *testing.T) {
	f := newLegacyServer(t).on(mcp.NotifyRootsChanged, respondStatus(404, ""))
	n := connect(t, httpEntry(f), nil)
	conn, err := n.SharedConn().AwaitConn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Notify(mcp.NotifyRootsChanged, nil); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
	f.awaitRequest(t, mcp.Initialize, 2)
}

// Retry-After is read as seconds or as a date, up to a limit.
func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "-1": 0, "soon": 0, "99999999": time.Hour,
		"Thu, 01 Jan 1970 00:00:00 GMT": 0, "Fri, 01 Jan 2999 00:00:00 GMT": time.Hour,
	} {
		f := newModernServer(t).on(mcp.ToolsCall, func(w http.ResponseWriter, _ httpRequest) {
			w.Header().Set("Retry-After", value)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		if _, err := connect(t, httpEntry(f), nil).call(t, mcp.ToolsCall, `{"name":"x"}`); fault.RetryAfterOf(err) != want {
			t.Errorf("%q: got %v, want %v", value, fault.RetryAfterOf(err), want)
		}
	}
}
