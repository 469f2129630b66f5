//nolint:staticcheck // deprecated features must pass through the gateway as long as they are used
package peers

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

const callLimit = 10 * time.Second

// sdkClient is a client of the Go SDK with the events that it received.
type sdkClient struct {
	setup   testSetup
	session *mcp.ClientSession

	mu     sync.Mutex
	events []string // server requests, log messages, updates, progress
}

func (v *sdkClient) record(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.events = append(v.events, fmt.Sprintf(format, args...))
}

// waitForEvent waits for an event since the last clearEvents.
func (v *sdkClient) waitForEvent(t *testing.T, word string) {
	t.Helper()
	err := wait.Until(callLimit, "no event "+word, func() (bool, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		return slices.ContainsFunc(v.events, func(s string) bool { return strings.Contains(s, word) }), nil
	})
	if err != nil {
		t.Errorf("%v; events %q", err, v.events)
	}
}

func (v *sdkClient) clearEvents() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.events = nil
}

func (v *sdkClient) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{}},
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			v.record("sampling for %v", r.Params.Meta["ctxgate/server"])
			return &mcp.CreateMessageResult{Model: "peers", Role: "assistant", Content: &mcp.TextContent{Text: "sampled by peers"}}, nil
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			v.record("elicitation for %v", r.Params.Meta["ctxgate/server"])
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) { v.record("log %v", r.Params.Data) },
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			v.record("updated %s", r.Params.URI)
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			v.record("progress %v of %v for %v", r.Params.Progress, r.Params.Total, r.Params.ProgressToken)
		},
	}
}

// connectSetup connects to a setup.
func connectSetup(t *testing.T, w testSetup) *sdkClient {
	t.Helper()
	v := &sdkClient{setup: w}
	client := mcp.NewClient(&mcp.Implementation{Name: "peers-go", Version: "1.0.0"}, v.options())
	client.AddRoots(&mcp.Root{URI: "file://" + w.Root, Name: "the-root"})
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	session, err := client.Connect(ctx, w.transport(t), &mcp.ClientSessionOptions{ProtocolVersion: w.Version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != w.Version {
		t.Fatalf("the session has revision %s, want %s", got, w.Version)
	}
	v.session = session
	return v
}

func (w testSetup) transport(t *testing.T) mcp.Transport {
	t.Helper()
	if w.Target.URL != "" {
		return &mcp.StreamableClientTransport{Endpoint: w.Target.URL}
	}
	cmd := exec.Command(w.Target.Command, w.Target.Args...)
	for name, value := range w.Target.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stderr strings.Builder
	cmd.Stderr, cmd.WaitDelay = &stderr, time.Second
	t.Cleanup(func() {
		if text := stderr.String(); t.Failed() {
			t.Logf("stderr (last %d bytes):\n%s", logTail, text[max(0, len(text)-logTail):])
		}
	})
	return &mcp.CommandTransport{Command: cmd}
}

// serverClient is an sdkClient for one of the servers.
type serverClient struct {
	*sdkClient
	server setupServer
}

// toolName is the name of a server's tool, prefixed behind a gateway.
func (g serverClient) toolName(name string) string {
	if g.setup.Gateway {
		return g.server.ID + "::" + name
	}
	return name
}

type args = map[string]any

// callTool calls a tool and returns its text; an error result is an error.
func (v *sdkClient) callTool(ctx context.Context, name string, arguments args) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return v.sendCall(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments})
}

func (v *sdkClient) sendCall(ctx context.Context, params *mcp.CallToolParams) (string, error) {
	result, err := v.session.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	var text []string
	for _, c := range result.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			text = append(text, t.Text)
		}
	}
	all := strings.Join(text, "\n")
	if result.IsError {
		return "", fmt.Errorf("the tool failed: %s", all)
	}
	return all, nil
}

// requireText checks that a call returns a text with a part.
func (v *sdkClient) requireText(t *testing.T, name string, arguments args, want string) bool {
	t.Helper()
	got, err := v.callTool(t.Context(), name, arguments)
	if err != nil || !strings.Contains(got, want) {
		t.Errorf("%s: %v; got %q, want %q in it", name, err, truncate(got, 400), want)
		return false
	}
	return true
}

// waitForTools waits until all servers are listed and returns all names.
func (v *sdkClient) waitForTools(t *testing.T) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	var names []string
	missing := func(m setupServer) bool {
		return !slices.Contains(names, serverClient{v, m}.toolName(sampleTool[m.Kind]))
	}
	err := wait.Until(startLimit, "tools/list did not become complete", func() (bool, error) {
		names = nil
		for tool, err := range v.session.Tools(ctx, nil) {
			if err != nil {
				return false, err
			}
			names = append(names, tool.Name)
		}
		return !slices.ContainsFunc(v.setup.Servers, missing), nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, strings.Join(names, ", "))
	}
	return names
}

// sampleTool is a tool of each kind of server.
var sampleTool = map[string]string{"everything": "echo", "filesystem": "read_text_file", "memory": "read_graph"}

// The Go SDK in both revisions sees four servers as one (A3, A4, A5, A6, A13, G3, G+1), over stdio, through a bridge to a
// gateway in the background, and over HTTP.
func TestGoSDK(t *testing.T) {
	for _, e := range []revision{legacy, modern} {
		for _, transport := range []string{"stdio", "bridge", "http"} {
			t.Run(string(e)+"/"+transport, func(t *testing.T) { testSetupServers(t, newGatewaySetup(t, e, transport)) })
		}
	}
}

// server-everything asks for roots a moment after its start. A subscription that a client made before still gets updates then.
func TestSubscriptionBeforeRootsRequest(t *testing.T) {
	for _, e := range []revision{legacy, modern} {
		t.Run(string(e), func(t *testing.T) {
			command, home := bridgeCommand(t, server{ID: "everything", Command: npmEverything(t)})
			v := connectSetup(t, testSetup{
				Target: stdioTarget(command, home), Revision: e, Version: e.version(), Gateway: true, Root: t.TempDir(), Servers: allServers[:1],
				home: home, isBridge: true,
			})
			v.waitForTools(t)
			subscribe(t, serverClient{v, allServers[0]})
		})
	}
}

func TestGoSDKDirect(t *testing.T) {
	for _, of := range allServers[:2] {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(string(of.Revision)+"/"+transport, func(t *testing.T) { testSetupServers(t, newDirectSetup(t, of.Revision, of, transport)) })
		}
	}
}

// testSetupServers runs the checks for every server of a setup.
func testSetupServers(t *testing.T, w testSetup) {
	v := connectSetup(t, w)
	names := v.waitForTools(t)
	for _, name := range names {
		if w.Gateway && !strings.Contains(name, "::") && name != "recover_text" {
			t.Errorf("A3: tool %q", name)
		}
	}
	for _, m := range w.Servers {
		for _, c := range checkTable[m.Kind] {
			t.Run(m.ID+"/"+c.name, func(t *testing.T) { c.do(t, serverClient{v, m}) })
		}
	}
	if w.Gateway {
		t.Run("recover", func(t *testing.T) { checkRecover(t, v) })
	}
}
