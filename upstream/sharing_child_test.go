package upstream_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// initializeParams is what the child that answers got with initialize.
func (n *testClient) initializeParams(t *testing.T) string {
	t.Helper()
	for _, text := range n.resultLines(t, "received") {
		if strings.Contains(text, `"method":"initialize"`) {
			return text
		}
	}
	return ""
}

const (
	toldNothing = `"capabilities":{}`
	toldAll     = `"capabilities":{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{"listChanged":true}}`
)

var answering = mcp.Client{Capabilities: []byte(`{"elicitation":{}}`)}

// A child that clients share is told that everything can be asked for as soon as a client has come that can answer something:
// before its start, or later by another handshake, which loses no call.
func TestSharedChildIsToldOfCapabilities(t *testing.T) {
	t.Parallel()
	n := newChild(t, childEntry(), nil)
	n.NoteClient(answering)
	n.Start()
	if got := n.initializeParams(t); !strings.Contains(got, toldAll) {
		t.Errorf("it got %s", got)
	}
	n = launchChild(t, childEntry(), nil)
	if got := n.initializeParams(t); !strings.Contains(got, toldNothing) {
		t.Errorf("without such a client it got %s", got)
	}
	pid := n.resultLines(t, "pid")
	inFlight := make(chan error, 1)
	go func() {
		_, err := n.call(t, mcp.ToolsCall, `{"name":"slow","arguments":{"n":500}}`)
		inFlight <- err
	}()
	wait.For(t, "a call is in flight", func() bool { return upstream.CallCount(n.SharedConn()) == 1 })
	n.NoteClient(answering)
	n.NoteClient(answering)
	if got := n.initializeParams(t); !strings.Contains(got, toldAll) {
		t.Errorf("the next call got %s", got)
	}
	if err := <-inFlight; err != nil || n.count.Load() != 0 || slices.Equal(n.resultLines(t, "pid"), pid) {
		t.Errorf("the call in flight: %v; failures: %d", err, n.count.Load())
	}
	if st := n.Status(); st.State != upstream.StateUp || st.Restarts != 0 {
		t.Errorf("got %+v", st)
	}
}

// A child of which shared is set is told nothing.
func TestChildWithSharedSetIsToldNothing(t *testing.T) {
	t.Parallel()
	shared := true
	for _, set := range []*bool{&shared, new(bool)} {
		n := launchChild(t, childEntry(), func(_ *upstream.Config, s *upstream.ServerConfig) { s.Shared = set })
		n.NoteClient(answering)
		if got := n.initializeParams(t); !strings.Contains(got, toldNothing) {
			t.Errorf("shared = %v: it got %s", *set, got)
		}
	}
}

// A5: a child that asks for roots right after the handshake is told of no client's, and started again without that capability.
// Clients with roots have their own from then on, the others share it.
func TestChildThatAsksForRootsAtTheStart(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	n := newChild(t, childEntry("roots", "log="+log), nil)
	n.NoteClient(answering)
	n.Start()
	wait.For(t, "it was started again", func() bool {
		data, _ := os.ReadFile(log)
		return strings.Count(string(data), "start") == 2 && n.Status().State == upstream.StateUp
	})
	if got := n.initializeParams(t); strings.Contains(got, `"roots"`) || !strings.Contains(got, `"elicitation"`) {
		t.Errorf("it got %s", got)
	}
	if n.count.Load() != 0 || upstream.SentRequests(n.Server) != mcp.RootsList {
		t.Errorf("%d failures were counted, and it sent %s", n.count.Load(), upstream.SentRequests(n.Server))
	}
	for capabilities, own := range map[string]bool{`{"roots":{}}`: true, `{"elicitation":{}}`: false, `{}`: false} {
		conn, release, err := n.Acquire(t.Context(), upstream.Caller{Client: mcp.Client{Capabilities: []byte(capabilities)}, SessionID: capabilities, Operation: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if conn.IsShared() == own {
			t.Errorf("%s: shared %v", capabilities, conn.IsShared())
		}
		release()
	}
}
