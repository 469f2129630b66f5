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

// kit is a server of the Go SDK with a tool for each thing a server may do during a call.
func kit() *sdk.Server {
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

func host(t *testing.T, h http.Handler) upstream.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return upstream.Server{URL: secret.URL(srv.URL)}
}

func streamable(t *testing.T, opts sdk.StreamableHTTPOptions) upstream.Server {
	t.Helper()
	s := kit()
	return host(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &opts))
}

// A13: servers of the Go SDK in every way it can serve.
func TestServersOfTheGoSDK(t *testing.T) {
	for name, tt := range map[string]struct {
		serve func(*testing.T) upstream.Server
		era   mcp.Era
		asks  bool
	}{
		"stateful": {func(t *testing.T) upstream.Server { return streamable(t, sdk.StreamableHTTPOptions{}) }, mcp.EraLegacy, true},
		"stateful, resumable": {func(t *testing.T) upstream.Server {
			return streamable(t, sdk.StreamableHTTPOptions{EventStore: sdk.NewMemoryEventStore(nil)})
		}, mcp.EraLegacy, true},
		"stateless": {func(t *testing.T) upstream.Server {
			return streamable(t, sdk.StreamableHTTPOptions{Stateless: true})
		}, mcp.EraModern, false},
		"stateless, JSON": {func(t *testing.T) upstream.Server {
			return streamable(t, sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
		}, mcp.EraModern, false},
		"SSE": {func(t *testing.T) upstream.Server {
			s := kit()
			e := host(t, sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return s }, nil))
			e.Transport = "sse"
			return e
		}, mcp.EraLegacy, true},
		"SSE, not said": {func(t *testing.T) upstream.Server {
			s := kit()
			return host(t, sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return s }, nil))
		}, mcp.EraLegacy, true},
	} {
		t.Run(name, func(t *testing.T) {
			can := mcp.Client{Capabilities: []byte(`{"elicitation":{}}`)}
			p := &peer{answer: yes(`{"action":"accept","content":{}}`)}
			n := connectAs(t, tt.serve(t), can, nil)
			with := func(c *upstream.Call) { c.Peer, c.Client, c.Progress = p, can, true }
			if got := n.must(t, mcp.ToolsList, `{}`); !strings.Contains(got, `"echo"`) {
				t.Errorf("got %s", got)
			}
			if hello, _ := n.Shared().Up(); hello.Era != tt.era {
				t.Errorf("got %s", hello.Era)
			}
			got := n.must(t, mcp.ToolsCall, `{"name":"echo","arguments":{"region":"é"}}`, with)
			mirrored := strings.Contains(got, "=?base64?w6k=?=")
			if !strings.Contains(got, `{\"region\":\"é\"}`) || mirrored != (tt.era == mcp.EraModern) {
				t.Errorf("got %s", got)
			}
			n.must(t, mcp.ToolsCall, `{"name":"steps","arguments":{}}`, with)
			if got := p.heard(); len(got) != 3 && name != "stateless, JSON" {
				t.Errorf("heard %q", got)
			}
			if m, err := n.call(t, mcp.ToolsCall, `{"name":"none","arguments":{}}`, with); err != nil || !m.IsError {
				t.Errorf("no such tool: %s, %v", m.Body, err)
			}
			if tt.asks {
				lane, release, err := n.Pick(t.Context(), upstream.Who{Client: can, Session: "s", Owner: p})
				if err != nil {
					t.Fatal(err)
				}
				m, err := lane.Call(t.Context(), newCall(t, mcp.ToolsCall, `{"name":"ask","arguments":{}}`, with))
				release()
				if err != nil || !strings.Contains(string(m.Body), "accept") || len(p.asked) != 1 {
					t.Errorf("got %s, %v, asked %q", m.Body, err, p.asked)
				}
			}
			n.must(t, mcp.ToolsCall, `{"name":"grow","arguments":{}}`, with)
			n.ears.await(t, mcp.ToolsChanged)
			if n.count.Load() != 0 {
				t.Errorf("connections were lost: %v", n.lost)
			}
		})
	}
}

// A13: a stream that a server of the Go SDK closes is taken up again.
func TestResumptionWithTheGoSDK(t *testing.T) {
	n := connect(t, streamable(t, sdk.StreamableHTTPOptions{EventStore: sdk.NewMemoryEventStore(nil)}), nil)
	if got := n.must(t, mcp.ToolsCall, `{"name":"leave","arguments":{}}`); !strings.Contains(got, "back") {
		t.Errorf("got %s", got)
	}
}

// A2, A13: a server of the Go SDK that was started again has forgotten the session; the next call
// does not notice.
func TestRestartOfTheGoSDK(t *testing.T) {
	var now atomic.Pointer[sdk.StreamableHTTPHandler]
	start := func() *sdk.Server {
		s := kit()
		now.Store(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
		return s
	}
	old := start()
	n := connect(t, host(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { now.Load().ServeHTTP(w, r) })), nil)
	t.Cleanup(func() {
		for session := range old.Sessions() {
			_ = session.Close()
		}
	})
	n.must(t, mcp.ToolsCall, `{"name":"echo","arguments":{}}`)
	start()
	n.must(t, mcp.ToolsCall, `{"name":"echo","arguments":{}}`)
	if n.count.Load() != 1 {
		t.Errorf("%d connections were lost", n.count.Load())
	}
}

// A13: a cancellation reaches the tool of a server of the Go SDK. Were it not so, the server could
// not be closed: the tool waits for it.
func TestCancellationWithTheGoSDK(t *testing.T) {
	n := connect(t, streamable(t, sdk.StreamableHTTPOptions{}), func(c *upstream.Config, _ *upstream.Server) { c.ResponseTimeout = brief })
	if _, err := n.call(t, mcp.ToolsCall, `{"name":"hang","arguments":{}}`); fault.KindOf(err) != fault.Timeout {
		t.Errorf("got %v", err)
	}
	n.must(t, mcp.ToolsCall, `{"name":"echo","arguments":{}}`)
}

// clumsy is a client's side that panics when it hears of progress.
type clumsy struct{ *peer }

func (clumsy) Notify(string, rpc.Message) { panic("clumsy") }

// R26: a panic while reading what a server said costs a call, or the connection it came on: the next
// call finds the server as ever.
func TestR26APanicCostsNoMore(t *testing.T) {
	const progress = `{"name":"raw","arguments":{"text":"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":$id,\"progress\":1}}"}}`
	for name, tt := range map[string]struct {
		entry  func(*testing.T) upstream.Server
		params string
	}{
		"stream":    {func(t *testing.T) upstream.Server { return streamable(t, sdk.StreamableHTTPOptions{}) }, `{"name":"steps","arguments":{}}`},
		"stateless": {func(t *testing.T) upstream.Server { return streamable(t, sdk.StreamableHTTPOptions{Stateless: true}) }, `{"name":"steps","arguments":{}}`},
		"SSE": {func(t *testing.T) upstream.Server {
			s := kit()
			return host(t, sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return s }, nil))
		}, `{"name":"steps","arguments":{}}`},
		"stdio": {func(*testing.T) upstream.Server { return program() }, progress},
	} {
		t.Run(name, func(t *testing.T) {
			n := connect(t, tt.entry(t), nil)
			_, err := n.call(t, mcp.ToolsCall, tt.params, func(c *upstream.Call) { c.Peer, c.Progress = clumsy{}, true })
			if kind := fault.KindOf(err); kind != fault.Internal && kind != fault.Unavailable {
				t.Errorf("got %v", err)
			}
			n.must(t, mcp.ToolsCall, `{"name":"echo","arguments":{}}`)
		})
	}
}
