package upstream_test

import (
	"net/http"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

func plainEntry(f *fakeHTTP) upstream.ServerConfig {
	return upstream.ServerConfig{RPC: secret.URL(f.URL + "/base")}
}

// G2: a plain server gets initialize at <rpc>/rpc.
func TestPlainServer(t *testing.T) {
	f := newLegacyServer(t)
	n := connect(t, plainEntry(f), func(_ *upstream.Config, s *upstream.ServerConfig) {
		s.Headers = map[string]secret.Text{"authorization": secret.Parse("Bearer t")}
	})
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	handshake, _ := n.SharedConn().Handshake()
	if handshake.Protocol != mcp.Legacy || handshake.Version != mcp.V20250618 || !handshake.HasCapability("resources") {
		t.Errorf("got %+v", handshake)
	}
	for _, what := range []string{mcp.Initialize, mcp.NotifyInitialized, mcp.ToolsCall} {
		h := f.awaitRequest(t, what, 1)
		if h.path != "/base/rpc" || h.head.Get("Authorization") != "Bearer t" || h.head.Get(mcp.HeaderSession) != "" {
			t.Errorf("%s: %s with %v", what, h.path, h.head)
		}
	}
	if f.requests(mcp.ServerDiscover) != nil || f.requests("GET") != nil {
		t.Error("a plain server was spoken to in another way")
	}
}

// G2: a server that does not know initialize is taken to have tools.
func TestPlainServerWithoutHandshake(t *testing.T) {
	for name, a := range map[string]handler{
		"no such method": respondAs(200, "error", `{"code":-32601,"message":"Method not found"}`),
		"of 404":         respondAs(404, "error", `{"code":-32601,"message":"Method not found"}`),
		"anything":       respond(`"hello"`),
	} {
		t.Run(name, func(t *testing.T) {
			n := connect(t, plainEntry(newLegacyServer(t).on(mcp.Initialize, a)), nil)
			n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
			handshake, _ := n.SharedConn().Handshake()
			if handshake.Protocol != mcp.Legacy || !handshake.HasCapability("tools") || handshake.HasCapability("prompts") {
				t.Errorf("got %+v", handshake)
			}
		})
	}
}

// A2: replies that are not JSON-RPC.
func TestPlainServerErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		act  handler
		want fault.Kind
	}{
		"a page":     {respondStatus(200, "<html>"), fault.BadReply},
		"nothing":    {respondStatus(200, ""), fault.BadReply},
		"wrong id":   {respondStatus(200, `{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}`), fault.BadReply},
		"cut":        {func(http.ResponseWriter, httpRequest) { panic(http.ErrAbortHandler) }, fault.Unavailable},
		"redirected": {respondStatus(307, ""), fault.BadReply},
	} {
		t.Run(name, func(t *testing.T) {
			n := connect(t, plainEntry(newLegacyServer(t).on(mcp.Initialize, tt.act)), nil)
			if err := n.awaitFailure(t); fault.KindOf(err) != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// A2: how a plain server's failures reach the call.
func TestPlainServerFailures(t *testing.T) {
	f := newLegacyServer(t)
	n := connect(t, plainEntry(f), func(c *upstream.Config, _ *upstream.ServerConfig) {
		c.ResponseTimeout, c.MaxReplyBytes = shortTimeout, 1000
	})
	for name, tt := range map[string]struct {
		act  handler
		want fault.Kind
	}{
		"silent":   {func(_ http.ResponseWriter, h httpRequest) { <-h.ctx.Done() }, fault.Timeout},
		"a page":   {respondStatus(502, "<html>"), fault.BadReply},
		"not ours": {respondStatus(200, `{"jsonrpc":"2.0","id":99,"result":1}`), fault.BadReply},
		"large":    {respond(`"` + string(make([]byte, 2000)) + `"`), fault.BadReply},
		"cut":      {func(http.ResponseWriter, httpRequest) { panic(http.ErrAbortHandler) }, fault.Unavailable},
	} {
		f.on(mcp.ToolsCall, tt.act)
		if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != tt.want {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
	}
	f.on(mcp.ToolsCall, nil)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	if n.count.Load() != 0 {
		t.Error("the connection was given up")
	}
}

// A canceled call ends its POST.
func TestPlainServerCancellation(t *testing.T) {
	f := newLegacyServer(t)
	left := make(chan struct{})
	f.on(mcp.ToolsCall, func(_ http.ResponseWriter, h httpRequest) {
		<-h.ctx.Done()
		close(left)
	})
	callAndCancel(t, f, connect(t, plainEntry(f), nil), left)
	if f.requests(mcp.NotifyCancelled) != nil {
		t.Error("a plain server was sent a cancellation")
	}
}
