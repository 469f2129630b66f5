package upstream_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// newSDKServer is a Go SDK server with a tool for each thing that a server may do during a call.
func newSDKServer() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "kit", Version: "1"}, nil)
	object := map[string]any{"type": "object"}
	text := func(s string) *sdk.CallToolResult {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s}}}
	}
	s.AddTool(&sdk.Tool{Name: "echo", InputSchema: map[string]any{"type": "object", "properties": map[string]any{
		"region": map[string]any{"type": "string", "x-mcp-header": "Region"},
	}}}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		mirrored := ""
		if r.Extra != nil { // not over SSE
			mirrored = r.Extra.Header.Get("Mcp-Param-Region")
		}
		return text(string(r.Params.Arguments) + " " + mirrored), nil
	})
	s.AddTool(&sdk.Tool{Name: "steps", InputSchema: object}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for i := range 3 {
			err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1)})
			if err != nil {
				return nil, err
			}
		}
		return text("done"), nil
	})
	s.AddTool(&sdk.Tool{Name: "ask", InputSchema: object}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		res, err := r.Session.Elicit(ctx, &sdk.ElicitParams{Message: "sure?", RequestedSchema: object})
		if err != nil {
			return nil, err
		}
		return text(res.Action), nil
	})
	s.AddTool(&sdk.Tool{Name: "leave", InputSchema: object}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		r.Extra.CloseSSEStream(sdk.CloseSSEStreamArgs{RetryAfter: 100 * time.Millisecond})
		return text("back"), nil
	})
	s.AddTool(&sdk.Tool{Name: "hang", InputSchema: object}, func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	s.AddTool(&sdk.Tool{Name: "grow", InputSchema: object}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		s.AddTool(&sdk.Tool{Name: "grown", InputSchema: object}, nil)
		return text("ok"), nil
	})
	return s
}

func serveHTTP(t *testing.T, h http.Handler) upstream.ServerConfig {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return upstream.ServerConfig{URL: secret.URL(srv.URL)}
}

func serveStreamable(t *testing.T, opts sdk.StreamableHTTPOptions) upstream.ServerConfig {
	t.Helper()
	s := newSDKServer()
	return serveHTTP(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &opts))
}

// A13: Go SDK servers over each transport.
func TestGoSDKServers(t *testing.T) {
	for name, tt := range map[string]struct {
		serve    func(*testing.T) upstream.ServerConfig
		protocol mcp.Protocol
		asks     bool
	}{
		"stateful": {func(t *testing.T) upstream.ServerConfig { return serveStreamable(t, sdk.StreamableHTTPOptions{}) }, mcp.Legacy, true},
		"stateful, resumable": {func(t *testing.T) upstream.ServerConfig {
			return serveStreamable(t, sdk.StreamableHTTPOptions{EventStore: sdk.NewMemoryEventStore(nil)})
		}, mcp.Legacy, true},
		"stateless": {func(t *testing.T) upstream.ServerConfig {
			return serveStreamable(t, sdk.StreamableHTTPOptions{Stateless: true})
		}, mcp.Modern, false},
		"stateless, JSON": {func(t *testing.T) upstream.ServerConfig {
			return serveStreamable(t, sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
		}, mcp.Modern, false},
		"SSE": {func(t *testing.T) upstream.ServerConfig {
			s := newSDKServer()
			e := serveHTTP(t, sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return s }, nil))
			e.Transport = "sse"
			return e
		}, mcp.Legacy, true},
		"SSE, not configured": {func(t *testing.T) upstream.ServerConfig {
			s := newSDKServer()
			return serveHTTP(t, sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return s }, nil))
		}, mcp.Legacy, true},
	} {
		t.Run(name, func(t *testing.T) {
			can := mcp.Client{Capabilities: []byte(`{"elicitation":{}}`)}
			p := &fakePeer{answer: resultReply(`{"action":"accept","content":{}}`)}
			n := connectAs(t, tt.serve(t), can, nil)
			with := func(c *upstream.Call) { c.Peer, c.Client, c.WantsProgress = p, can, true }
			if got := n.mustCall(t, mcp.ToolsList, `{}`); !strings.Contains(got, `"echo"`) {
				t.Errorf("got %s", got)
			}
			if handshake, _ := n.SharedConn().Handshake(); handshake.Protocol != tt.protocol {
				t.Errorf("got %s", handshake.Protocol)
			}
			got := n.mustCall(t, mcp.ToolsCall, `{"name":"echo","arguments":{"region":"é"}}`, with)
			mirrored := strings.Contains(got, "=?base64?w6k=?=")
			if !strings.Contains(got, `{\"region\":\"é\"}`) || mirrored != (tt.protocol == mcp.Modern) {
				t.Errorf("got %s", got)
			}
			n.mustCall(t, mcp.ToolsCall, `{"name":"steps","arguments":{}}`, with)
			if got := p.notifications(); len(got) != 3 && name != "stateless, JSON" {
				t.Errorf("received %q", got)
			}
			if m, err := n.call(t, mcp.ToolsCall, `{"name":"none","arguments":{}}`, with); err != nil || !m.IsError {
				t.Errorf("no such tool: %s, %v", m.Body, err)
			}
			if tt.asks {
				conn, release, err := n.Acquire(t.Context(), upstream.Caller{Client: can, SessionID: "s", SessionPeer: p})
				if err != nil {
					t.Fatal(err)
				}
				m, err := conn.Call(t.Context(), newCall(t, mcp.ToolsCall, `{"name":"ask","arguments":{}}`, with))
				release()
				if err != nil || !strings.Contains(string(m.Body), "accept") || len(p.asked) != 1 {
					t.Errorf("got %s, %v, asked %q", m.Body, err, p.asked)
				}
			}
			n.mustCall(t, mcp.ToolsCall, `{"name":"grow","arguments":{}}`, with)
			n.ears.awaitNotification(t, mcp.NotifyToolsChanged)
			if n.count.Load() != 0 {
				t.Errorf("connections were lost: %v", n.lost)
			}
		})
	}
}

// A13: a stream that a Go SDK server closes is resumed.
func TestGoSDKResumption(t *testing.T) {
	n := connect(t, serveStreamable(t, sdk.StreamableHTTPOptions{EventStore: sdk.NewMemoryEventStore(nil)}), nil)
	if got := n.mustCall(t, mcp.ToolsCall, `{"name":"leave","arguments":{}}`); !strings.Contains(got, "back") {
		t.Errorf("got %s", got)
	}
}

// A2, A13: a restarted Go SDK server has forgotten the session; the next call succeeds all the same.
func TestGoSDKRestart(t *testing.T) {
	var now atomic.Pointer[sdk.StreamableHTTPHandler]
	start := func() *sdk.Server {
		s := newSDKServer()
		now.Store(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
		return s
	}
	old := start()
	n := connect(t, serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { now.Load().ServeHTTP(w, r) })), nil)
	t.Cleanup(func() {
		for session := range old.Sessions() {
			_ = session.Close()
		}
	})
	n.mustCall(t, mcp.ToolsCall, `{"name":"echo","arguments":{}}`)
	start()
	n.mustCall(t, mcp.ToolsCall, `{"name":"echo","arguments":{}}`)
	if n.count.Load() != 1 {
		t.Errorf("%d connections were lost", n.count.Load())
	}
}

// A13: a cancellation reaches the tool of a Go SDK server. Otherwise the server could not be closed, since the tool waits
// for it.
func TestGoSDKCancellation(t *testing.T) {
	n := connect(t, serveStreamable(t, sdk.StreamableHTTPOptions{}), func(c *upstream.Config, _ *upstream.ServerConfig) { c.ResponseTimeout = shortTimeout })
	if _, err := n.call(t, mcp.ToolsCall, `{"name":"hang","arguments":{}}`); fault.KindOf(err) != fault.Timeout {
		t.Errorf("got %v", err)
	}
	n.mustCall(t, mcp.ToolsCall, `{"name":"echo","arguments":{}}`)
}

// panickingPeer panics when it gets a notification.
type panickingPeer struct{ *fakePeer }

func (panickingPeer) Notify(string, rpc.Message) { panic("clumsy") }

// R26: a panic while a server's message is handled costs one call or one connection; the next call succeeds.
func TestR26PanicIsContained(t *testing.T) {
	const progress = `{"name":"raw","arguments":{"text":"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":$id,\"progress\":1}}"}}`
	for name, tt := range map[string]struct {
		entry  func(*testing.T) upstream.ServerConfig
		params string
	}{
		"stream": {func(t *testing.T) upstream.ServerConfig { return serveStreamable(t, sdk.StreamableHTTPOptions{}) }, `{"name":"steps","arguments":{}}`},
		"stateless": {func(t *testing.T) upstream.ServerConfig {
			return serveStreamable(t, sdk.StreamableHTTPOptions{Stateless: true})
		}, `{"name":"steps","arguments":{}}`},
		"SSE": {func(t *testing.T) upstream.ServerConfig {
			s := newSDKServer()
			return serveHTTP(t, sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return s }, nil))
		}, `{"name":"steps","arguments":{}}`},
		"stdio": {func(*testing.T) upstream.ServerConfig { return childEntry() }, progress},
	} {
		t.Run(name, func(t *testing.T) {
			n := connect(t, tt.entry(t), nil)
			_, err := n.call(t, mcp.ToolsCall, tt.params, func(c *upstream.Call) { c.Peer, c.WantsProgress = panickingPeer{}, true })
			if kind := fault.KindOf(err); kind != fault.Internal && kind != fault.Unavailable {
				t.Errorf("got %v", err)
			}
			n.mustCall(t, mcp.ToolsCall, `{"name":"echo","arguments":{}}`)
		})
	}
}
