//nolint:staticcheck // what is deprecated must pass the gateway as long as it is spoken
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
)

const callLimit = 10 * time.Second

// visitor is a client of the Go SDK in a world, and what it heard there.
type visitor struct {
	world   world
	session *mcp.ClientSession

	mu    sync.Mutex
	heard []string // in a word each: what was asked, logged, updated
}

func (v *visitor) hear(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard = append(v.heard, fmt.Sprintf(format, args...))
}

// listened waits until something was heard since the last forget.
func (v *visitor) listened(t *testing.T, word string) {
	t.Helper()
	err := within(callLimit, "did not hear "+word, func() (bool, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		return slices.ContainsFunc(v.heard, func(s string) bool { return strings.Contains(s, word) }), nil
	})
	if err != nil {
		t.Errorf("%v; heard %q", err, v.heard)
	}
}

func (v *visitor) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard = nil
}

func (v *visitor) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{}},
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			v.hear("sampling for %v", r.Params.Meta["ctxgate/server"])
			return &mcp.CreateMessageResult{Model: "peers", Role: "assistant", Content: &mcp.TextContent{Text: "sampled by peers"}}, nil
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			v.hear("elicitation for %v", r.Params.Meta["ctxgate/server"])
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) { v.hear("log %v", r.Params.Data) },
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			v.hear("updated %s", r.Params.URI)
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			v.hear("progress %v of %v for %v", r.Params.Progress, r.Params.Total, r.Params.ProgressToken)
		},
	}
}

// visit connects to a world.
func visit(t *testing.T, w world) *visitor {
	t.Helper()
	v := &visitor{world: w}
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
		t.Fatalf("the session speaks %s, wanted %s", got, w.Version)
	}
	v.session = session
	return v
}

func (w world) transport(t *testing.T) mcp.Transport {
	t.Helper()
	if w.Target.URL != "" {
		return &mcp.StreamableClientTransport{Endpoint: w.Target.URL}
	}
	cmd := exec.Command(w.Target.Command, w.Target.Args...)
	for name, value := range w.Target.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var said strings.Builder
	cmd.Stderr, cmd.WaitDelay = &said, time.Second
	t.Cleanup(func() {
		if text := said.String(); t.Failed() {
			t.Logf("stderr (last %d bytes):\n%s", tellMost, text[max(0, len(text)-tellMost):])
		}
	})
	return &mcp.CommandTransport{Command: cmd}
}

// guest is a visitor at one of the servers.
type guest struct {
	*visitor
	at member
}

// own is what a name of the server is here.
func (g guest) own(name string) string {
	if g.world.Gateway {
		return g.at.ID + "::" + name
	}
	return name
}

type args = map[string]any

// call calls a tool and gives its text; a result that is an error is one.
func (v *visitor) call(ctx context.Context, name string, arguments args) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return v.send(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments})
}

func (v *visitor) send(ctx context.Context, params *mcp.CallToolParams) (string, error) {
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

// says holds that a call gives a text with something in it.
func (v *visitor) says(t *testing.T, name string, arguments args, want string) bool {
	t.Helper()
	got, err := v.call(t.Context(), name, arguments)
	if err != nil || !strings.Contains(got, want) {
		t.Errorf("%s: %v; got %q, want %q in it", name, err, cut(got, 400), want)
		return false
	}
	return true
}

// tools waits until all servers are there, and gives all names.
func (v *visitor) tools(t *testing.T) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	var names []string
	missing := func(m member) bool { return !slices.Contains(names, guest{v, m}.own(sample[m.Kind])) }
	err := within(startLimit, "tools/list did not become complete", func() (bool, error) {
		names = nil
		for tool, err := range v.session.Tools(ctx, nil) {
			if err != nil {
				return false, err
			}
			names = append(names, tool.Name)
		}
		return !slices.ContainsFunc(v.world.Servers, missing), nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, strings.Join(names, ", "))
	}
	return names
}

// sample is a tool by which one knows that a server is there.
var sample = map[string]string{"everything": "echo", "filesystem": "read_text_file", "memory": "read_graph"}

// The Go SDK in both eras sees four servers as one: A3, A4, A5, A6 and A13, G3 and G+1.
func TestGoSDK(t *testing.T) {
	for _, e := range []era{legacy, modern} {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(string(e)+"/"+transport, func(t *testing.T) { tour(t, gated(t, e, transport)) })
		}
	}
}

func TestGoSDKDirect(t *testing.T) {
	for _, of := range everybody[:2] {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(string(of.Era)+"/"+transport, func(t *testing.T) { tour(t, bare(t, of.Era, of, transport)) })
		}
	}
}

// tour visits every server of a world.
func tour(t *testing.T, w world) {
	v := visit(t, w)
	names := v.tools(t)
	for _, name := range names {
		if w.Gateway && !strings.Contains(name, "::") && name != "recover_text" {
			t.Errorf("A3: tool %q", name)
		}
	}
	for _, m := range w.Servers {
		for _, c := range stations[m.Kind] {
			t.Run(m.ID+"/"+c.name, func(t *testing.T) { c.do(t, guest{v, m}) })
		}
	}
	if w.Gateway {
		t.Run("recover", func(t *testing.T) { recovers(t, v) })
	}
}
