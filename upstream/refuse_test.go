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

// forgetful is a server that knows only the session it began last, and says otherwise how it has
// forgotten all others. Calls that it took are counted.
func forgetful(t *testing.T, forgot act) (f *far, forget func(), took *atomic.Int64) {
	t.Helper()
	f = legacy(t)
	var mu sync.Mutex
	current, n := "", 0
	took = new(atomic.Int64)
	f.on(mcp.Initialize, func(w http.ResponseWriter, h heard) {
		mu.Lock()
		n++
		current = strings.Repeat("s", n)
		session := current
		mu.Unlock()
		begin(session)(w, h)
	})
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, h heard) {
		mu.Lock()
		known := h.head.Get(mcp.HeaderSession) == current
		mu.Unlock()
		if !known {
			forgot(w, h)
			return
		}
		took.Add(1)
		reply(`{"content":[]}`)(w, h)
	})
	return f, func() {
		mu.Lock()
		current = "none"
		mu.Unlock()
	}, took
}

// A2, A13: a server that has forgotten the session did not begin the call: the session is begun
// anew without the old id, and the call is made once.
func TestForgottenSession(t *testing.T) {
	for name, forgot := range map[string]act{
		"as specified": status(404, ""),
		"in words":     status(404, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`),
		"in a reply":   replyAs(404, "error", `{"code":-32600,"message":"Session terminated"}`),
		"400":          status(400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Session ID is not valid"},"id":null}`),
		"400 as text":  status(400, "Invalid session ID"),
	} {
		t.Run(name, func(t *testing.T) {
			f, forget, took := forgetful(t, forgot)
			n := connect(t, at(f), nil)
			n.must(t, mcp.ToolsCall, `{"name":"x"}`)
			forget()
			n.must(t, mcp.ToolsCall, `{"name":"x"}`)
			if took.Load() != 2 || len(f.got(mcp.ToolsCall)) != 3 || len(f.got(mcp.Initialize)) != 2 {
				t.Errorf("%d calls were taken of %d, with %d greetings", took.Load(), len(f.got(mcp.ToolsCall)), len(f.got(mcp.Initialize)))
			}
			if got := f.got(mcp.Initialize)[1].head.Get(mcp.HeaderSession); got != "" {
				t.Errorf("the second greeting was sent with session %q", got)
			}
			if f.got("DELETE") != nil {
				t.Error("a forgotten session was ended")
			}
		})
	}
}

// A2: every call that was on its way when the session was forgotten is made again, and each once.
func TestForgottenSessionOfMany(t *testing.T) {
	f, forget, took := forgetful(t, status(404, ""))
	n := connect(t, at(f), nil)
	n.must(t, mcp.Ping, `{}`)
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
	if took.Load() != 32 || len(f.got(mcp.Initialize)) != 2 {
		t.Errorf("%d calls were taken with %d greetings", took.Load(), len(f.got(mcp.Initialize)))
	}
}

// A2: so is one that hears of it long after the first, as long as one after the other does.
func TestForgottenSessionOfLateCalls(t *testing.T) {
	var late atomic.Int64
	f, forget, took := forgetful(t, func(w http.ResponseWriter, h heard) {
		time.Sleep(time.Duration(late.Add(1)) * 40 * time.Millisecond)
		status(404, "")(w, h)
	})
	n := connect(t, at(f), nil)
	n.must(t, mcp.Ping, `{}`)
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
	if took.Load() != 8 || len(f.got(mcp.Initialize)) != 2 {
		t.Errorf("%d calls were taken with %d greetings", took.Load(), len(f.got(mcp.Initialize)))
	}
}

// A2: a call that the server had begun is not made again, whoever else is told of a lost session.
func TestBegunCallIsNotRepeated(t *testing.T) {
	f, forget, _ := forgetful(t, status(404, ""))
	var begun atomic.Int64
	f.on(mcp.PromptsGet, func(_ http.ResponseWriter, h heard) {
		begun.Add(1)
		<-h.ctx.Done()
	})
	n := connect(t, at(f), nil)
	n.must(t, mcp.Ping, `{}`)
	failed := make(chan error, 1)
	go func() {
		_, err := n.call(t, mcp.PromptsGet, `{"name":"slow"}`)
		failed <- err
	}()
	f.await(t, mcp.PromptsGet, 1)
	forget()
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	if err := <-failed; fault.KindOf(err) != fault.Unavailable || begun.Load() != 1 {
		t.Errorf("got %v; begun %d times", err, begun.Load())
	}
}

// A13: in the newer era 404 is how a server says that it has no such method, and in any era an
// error about the call is the call's, whatever the status.
func TestErrorsOfAnyStatusAreReplies(t *testing.T) {
	for name, tt := range map[string]struct {
		far  func(*testing.T) *far
		code int
		err  string
	}{
		"no method, newer":   {modern, 404, `{"code":-32601,"message":"Method not found"}`},
		"no tool, newer":     {modern, 400, `{"code":-32602,"message":"Unknown tool"}`},
		"mismatch, newer":    {modern, 400, `{"code":-32020,"message":"Header mismatch"}`},
		"internal, newer":    {modern, 500, `{"code":-32603,"message":"Internal"}`},
		"refused, newer":     {modern, 401, `{"code":-32000,"message":"no"}`},
		"no method, older":   {legacy, 404, `{"code":-32601,"message":"Method not found"}`},
		"a tool's own":       {legacy, 404, `{"code":-32602,"message":"no such tool: list_sessions"}`},
		"of 400":             {legacy, 400, `{"code":-32000,"message":"the session of the tool"}`},
		"with data and more": {modern, 400, `{"code":1, "message":"m","data":{"a":[1.0]},"x":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := tt.far(t).on(mcp.ToolsCall, replyAs(tt.code, "error", tt.err))
			n := connect(t, at(f), nil)
			m, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`)
			if err != nil || !m.IsError || string(m.Error.Of(m.Body)) != tt.err {
				t.Errorf("got %s, %v", m.Body, err)
			}
			if len(f.got(mcp.ToolsCall)) != 1 || n.count.Load() != 0 {
				t.Errorf("%d calls, %d lost connections", len(f.got(mcp.ToolsCall)), n.count.Load())
			}
		})
	}
}

// A2: what is no reply is a failure of the right kind, and none of the connection's.
func TestStreamFailures(t *testing.T) {
	const small = 16 << 10
	for name, tt := range map[string]struct {
		act    act
		want   fault.Kind
		public string
		after  time.Duration
	}{
		"unauthorized": {status(401, "who?"), fault.Unavailable, "the server refuses the gateway's credentials", 0},
		"forbidden":    {status(403, ""), fault.Unavailable, "the server refuses the gateway's credentials", 0},
		"limited": {func(w http.ResponseWriter, _ heard) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		}, fault.Unavailable, "the server is not available", 7 * time.Second},
		"broken":      {status(500, "<html>secret"), fault.Unavailable, "the server is not available", 0},
		"a page":      {status(200, "<html>"), fault.BadReply, "", 0},
		"nothing":     {status(200, ""), fault.BadReply, "", 0},
		"no content":  {status(204, ""), fault.BadReply, "", 0},
		"teapot":      {status(418, ""), fault.BadReply, "", 0},
		"cut":         {func(http.ResponseWriter, heard) { panic(http.ErrAbortHandler) }, fault.Unavailable, "", 0},
		"not ours":    {status(200, `{"jsonrpc":"2.0","id":"other","result":{}}`), fault.BadReply, "", 0},
		"stream ends": {stream(": hi\n\n"), fault.Unavailable, "the server went away during the call", 0},
		"stream cut": {func(w http.ResponseWriter, h heard) {
			stream("id: 1\ndata: {\"jsonrpc\"")(w, h)
			panic(http.ErrAbortHandler)
		}, fault.Unavailable, "the server went away during the call", 0},
		"event is no message": {stream("data: hello\n\n"), fault.BadReply, "", 0},
		"packed": {func(w http.ResponseWriter, h heard) {
			w.Header().Set("Content-Encoding", "gzip")
			reply(`{}`)(w, h)
		}, fault.BadReply, "the server's answer cannot be read", 0},
		"large body":  {reply(`"` + strings.Repeat("x", small) + `"`), fault.BadReply, "the server's answer is too large", 0},
		"large event": {stream("data: " + strings.Repeat("x", small+1) + "\n\n"), fault.BadReply, "the server's answer is too large", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := modern(t).on(mcp.ToolsCall, tt.act)
			n := connect(t, at(f), func(c *upstream.Config, _ *upstream.Server) { c.MaxReplyBytes = small })
			_, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`)
			public := fault.PublicOf(err)
			if fault.KindOf(err) != tt.want || tt.public != "" && public != tt.public || fault.RetryAfterOf(err) != tt.after {
				t.Errorf("got %v (%s), want %s %q", err, fault.KindOf(err), tt.want, tt.public)
			}
			if strings.Contains(public, "127.0.0.1") || strings.Contains(public, "secret") {
				t.Errorf("the public text %q says too much", public)
			}
			if len(f.got(mcp.ToolsCall)) != 1 {
				t.Errorf("the call was made %d times", len(f.got(mcp.ToolsCall)))
			}
			n.must(t, mcp.PromptsList, `{}`)
			if n.count.Load() != 0 {
				t.Error("the connection was given up")
			}
		})
	}
}

// A2: a reply as large as the limit is read, in a body or in an event.
func TestLargeReplies(t *testing.T) {
	text := `{"content":[{"type":"text","text":"` + strings.Repeat("x", 8<<20) + `"}]}`
	for name, a := range map[string]act{
		"body": reply(text), "event": stream(`data: {"jsonrpc":"2.0","id":%s,"result":` + text + "}\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			n := connect(t, at(modern(t).on(mcp.ToolsCall, a)), nil)
			if got := n.must(t, mcp.ToolsCall, `{"name":"x"}`); got != text {
				t.Errorf("got %d bytes, want %d", len(got), len(text))
			}
		})
	}
}

// A7, A13: a notification is sent when Notify returns, with the headers of its era; what the server
// makes of it is told.
func TestNotifications(t *testing.T) {
	const note = "notifications/roots/list_changed"
	for name, tt := range map[string]struct {
		act  act
		want fault.Kind // Internal for none
	}{
		"accepted":   {status(202, ""), fault.Internal},
		"answered":   {reply(`{}`), fault.Internal},
		"a stream":   {func(w http.ResponseWriter, h heard) { stream(":\n\n")(w, h); <-h.ctx.Done() }, fault.Internal},
		"refused":    {status(400, "no"), fault.BadReply},
		"busy":       {status(503, ""), fault.Unavailable},
		"redirected": {status(302, ""), fault.BadReply},
		"cut":        {func(http.ResponseWriter, heard) { panic(http.ErrAbortHandler) }, fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			f := modern(t).on(note, tt.act)
			conn, err := connect(t, at(f), nil).Shared().Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			err = conn.Notify(note, []byte(`{}`))
			if (err == nil) != (tt.want == fault.Internal) || fault.KindOf(err) != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			h := f.await(t, note, 1)
			if h.head.Get(mcp.HeaderMethod) != note || h.head.Get(mcp.HeaderVersion) != mcp.V20260728 {
				t.Errorf("got %v", h.head)
			}
		})
	}
}

// A2: a notification too may be what shows that the session is gone.
func TestNotificationOfAForgottenSession(t *testing.T) {
	f := legacy(t).on(mcp.RootsChanged, status(404, ""))
	n := connect(t, at(f), nil)
	conn, err := n.Shared().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Notify(mcp.RootsChanged, nil); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
	f.await(t, mcp.Initialize, 2)
}

// When to come back is read in seconds or as a date, and not believed without bound.
func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "-1": 0, "soon": 0, "99999999": time.Hour,
		"Thu, 01 Jan 1970 00:00:00 GMT": 0, "Fri, 01 Jan 2999 00:00:00 GMT": time.Hour,
	} {
		f := modern(t).on(mcp.ToolsCall, func(w http.ResponseWriter, _ heard) {
			w.Header().Set("Retry-After", value)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		if _, err := connect(t, at(f), nil).call(t, mcp.ToolsCall, `{"name":"x"}`); fault.RetryAfterOf(err) != want {
			t.Errorf("%q: got %v, want %v", value, fault.RetryAfterOf(err), want)
		}
	}
}
