package upstream_test

import (
	"net/http"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

func plainAt(f *far) upstream.Server { return upstream.Server{RPC: secret.URL(f.URL + "/base")} }

// G2: a plain server is greeted like one of the older era, at <rpc>/rpc.
func TestPlainServer(t *testing.T) {
	f := legacy(t)
	n := connect(t, plainAt(f), func(_ *upstream.Config, s *upstream.Server) {
		s.Headers = map[string]secret.Text{"authorization": secret.Parse("Bearer t")}
	})
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	hello, _ := n.Shared().Up()
	if hello.Era != mcp.EraLegacy || hello.Version != mcp.V20250618 || !hello.Offers("resources") {
		t.Errorf("got %+v", hello)
	}
	for _, what := range []string{mcp.Initialize, mcp.Initialized, mcp.ToolsCall} {
		h := f.await(t, what, 1)
		if h.path != "/base/rpc" || h.head.Get("Authorization") != "Bearer t" || h.head.Get(mcp.HeaderSession) != "" {
			t.Errorf("%s: %s with %v", what, h.path, h.head)
		}
	}
	if f.got(mcp.Discover) != nil || f.got("GET") != nil {
		t.Error("a plain server was spoken to in another way")
	}
}

// G2: a server that knows no greeting has tools all the same.
func TestPlainServerWithoutGreeting(t *testing.T) {
	for name, a := range map[string]act{
		"no such method": replyAs(200, "error", `{"code":-32601,"message":"Method not found"}`),
		"of 404":         replyAs(404, "error", `{"code":-32601,"message":"Method not found"}`),
		"anything":       reply(`"hello"`),
	} {
		t.Run(name, func(t *testing.T) {
			n := connect(t, plainAt(legacy(t).on(mcp.Initialize, a)), nil)
			n.must(t, mcp.ToolsCall, `{"name":"x"}`)
			hello, _ := n.Shared().Up()
			if hello.Era != mcp.EraLegacy || !hello.Offers("tools") || hello.Offers("prompts") {
				t.Errorf("got %+v", hello)
			}
		})
	}
}

// A2: what is no JSON-RPC server is none.
func TestPlainServerThatIsNone(t *testing.T) {
	for name, tt := range map[string]struct {
		act  act
		want fault.Kind
	}{
		"a page":     {status(200, "<html>"), fault.BadReply},
		"nothing":    {status(200, ""), fault.BadReply},
		"wrong id":   {status(200, `{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}`), fault.BadReply},
		"cut":        {func(http.ResponseWriter, heard) { panic(http.ErrAbortHandler) }, fault.Unavailable},
		"redirected": {status(307, ""), fault.BadReply},
	} {
		t.Run(name, func(t *testing.T) {
			n := connect(t, plainAt(legacy(t).on(mcp.Initialize, tt.act)), nil)
			if err := n.failed(t); fault.KindOf(err) != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// A2: a plain server's failures are the call's.
func TestPlainServerFailures(t *testing.T) {
	f := legacy(t)
	n := connect(t, plainAt(f), func(c *upstream.Config, _ *upstream.Server) {
		c.ResponseTimeout, c.MaxReplyBytes = brief, 1000
	})
	for name, tt := range map[string]struct {
		act  act
		want fault.Kind
	}{
		"silent":   {func(_ http.ResponseWriter, h heard) { <-h.ctx.Done() }, fault.Timeout},
		"a page":   {status(502, "<html>"), fault.BadReply},
		"not ours": {status(200, `{"jsonrpc":"2.0","id":99,"result":1}`), fault.BadReply},
		"large":    {reply(`"` + string(make([]byte, 2000)) + `"`), fault.BadReply},
		"cut":      {func(http.ResponseWriter, heard) { panic(http.ErrAbortHandler) }, fault.Unavailable},
	} {
		f.on(mcp.ToolsCall, tt.act)
		if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != tt.want {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
	}
	f.on(mcp.ToolsCall, nil)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	if n.count.Load() != 0 {
		t.Error("the connection was given up")
	}
}

// A client that leaves stops the POST.
func TestPlainServerIsLeft(t *testing.T) {
	f := legacy(t)
	left := make(chan struct{})
	f.on(mcp.ToolsCall, func(_ http.ResponseWriter, h heard) {
		<-h.ctx.Done()
		close(left)
	})
	leave(t, f, connect(t, plainAt(f), nil), left)
	if f.got(mcp.Cancelled) != nil {
		t.Error("a plain server was sent a cancellation")
	}
}
