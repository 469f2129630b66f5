//nolint:staticcheck // deprecated features must pass through the gateway as long as they are used
package peers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// serverProcesses counts the processes of a home that run a Node program: the servers.
func serverProcesses(t *testing.T, home string) (n int) {
	t.Helper()
	program := []byte(node(t))
	for _, pid := range survivors(home) {
		if command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.HasPrefix(command, program) {
			n++
		}
	}
	return n
}

// A warm gateway with four servers from npm is warm for a client that declares elicitation: it has all tools at once, and when it
// has used them, no server has a second process. One that also has roots has its own processes of the servers that ask for them.
func TestWarmGatewaySharesNpmServers(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("processes are counted in /proc")
	}
	home := t.TempDir()
	s, err := newSite(home, []server{
		{ID: "files", Command: npmFilesystem(t, home)}, {ID: "memory", Command: npmMemory(t)},
		{ID: "everything", Command: npmEverything(t)}, {ID: "notes", Command: npmMemory(t)},
	})
	if err != nil {
		t.Fatal(err)
	}
	url := serveSite(t, s).URL + "/mcp"
	names := []string{"files::list_allowed_directories", "memory::read_graph", "everything::echo", "notes::read_graph"}
	connectWith := func(capabilities *mcp.ClientCapabilities) *mcp.ClientSession {
		t.Helper()
		began := time.Now()
		options := &mcp.ClientOptions{Capabilities: capabilities}
		if capabilities.Elicitation != nil {
			options.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "decline"}, nil
			}
		}
		session, err := connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, legacy, options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		listed := map[string]bool{}
		for tool, err := range session.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			listed[tool.Name] = true
		}
		t.Logf("the first list came after %v", time.Since(began))
		for _, name := range names {
			if !listed[name] {
				t.Errorf("%s is not listed", name)
			}
		}
		return session
	}
	connectWith(&mcp.ClientCapabilities{}) // the gateway is ready: it has read all lists
	if n := serverProcesses(t, home); n != 4 {
		t.Fatalf("%d processes run for four servers", n)
	}
	callAll := func(session *mcp.ClientSession) {
		t.Helper()
		for _, name := range names {
			got, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args{"message": "hello"}})
			if err != nil || got.IsError {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
	}
	for range 3 {
		callAll(connectWith(&mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{}}))
	}
	err = wait.Until(startLimit, "some servers have a second process", func() (bool, error) { return serverProcesses(t, home) == 4, nil })
	if err != nil {
		t.Errorf("%v: %d", err, serverProcesses(t, home))
	}
	callAll(connectWith(&mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{}}))
	err = wait.Until(startLimit, "the servers that ask for roots have no process for the client", func() (bool, error) { return serverProcesses(t, home) == 6, nil })
	if err != nil {
		t.Errorf("%v: %d", err, serverProcesses(t, home))
	}
}
