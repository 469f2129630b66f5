package hub_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
)

// aliveChildren counts the child processes of a server that run.
func (f *fakeServer) aliveChildren() int {
	n := 0
	for _, pid := range f.childPIDs() {
		if alive(pid) {
			n++
		}
	}
	return n
}

// A warm gateway is warm for every class of client: a client that can answer requests gets all lists while no further child
// process starts.
func TestWarmGatewayIsWarmForEveryClass(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsList, pagedList(3, 10))
	free := make(chan struct{})
	var handshakes atomic.Int64
	hello := a.handlers[mcp.Initialize]
	a.handle(mcp.Initialize, func(c *serverCall) string {
		if handshakes.Add(1) > 1 { // only the first child process comes up
			<-free
		}
		return hello(c)
	})
	gw := startGateway(t, nil, a)
	defer close(free)
	want := gw.connect(t, "/mcp", mcp.Legacy, "{}").tools(t)
	for _, protocol := range protocols {
		for _, caps := range []string{"{}", `{"elicitation":{}}`, `{"roots":{}}`, allCapabilities} {
			began := time.Now()
			if got := gw.connect(t, "/mcp", protocol, caps).tools(t); !slices.Equal(got, want) {
				t.Errorf("%s %s: %q", protocol, caps, got)
			}
			if took := time.Since(began); took > patience/2 {
				t.Errorf("%s %s waited %v", protocol, caps, took)
			}
		}
	}
}

// Clients of a server that asks nothing share one child process, whatever they can answer. The process learns once that it may
// ask.
func TestClientsThatCanAnswerShareOneChild(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsList, pagedList(3, 10))
	gw := startGateway(t, nil, a)
	for i, caps := range []string{"{}", `{"elicitation":{}}`, `{"roots":{}}`, allCapabilities, `{"sampling":{}}`} {
		c := gw.connect(t, "/mcp", mcp.Legacy, caps)
		c.tools(t)
		for range 2 {
			if got := c.callResult(t, mcp.ToolsCall, `{"name":"a::t001"}`); strings.HasPrefix(got, "!") {
				t.Errorf("client %d: %s", i, got)
			}
		}
	}
	wait.For(t, "one child process", func() bool { return a.aliveChildren() == 1 })
	if n := len(a.childPIDs()); n != 2 {
		t.Errorf("%d child processes were started, want one, and another for the first client that can answer", n)
	}
}

// A5: a server whose tools ask is served well from the first question on: it reaches the client that caused it, on the process
// that all share, and one that comes later has its own process. (That a session which came before stays there is tested in
// upstream: here its class may read its lists from a process of its own at any moment.)
func TestFirstQuestionOfASharedChild(t *testing.T) {
	t.Parallel()
	a := newAskingServer(t, true)
	gw := startGateway(t, nil, a)
	ask := func(c *client, text string) {
		t.Helper()
		got := c.callAnswering(t, askParams(mcp.ElicitationCreate+` {"message":"`+text+`"}`), func(question string) string {
			if !strings.Contains(question, text) {
				t.Errorf("%s was asked %s", text, question)
			}
			return `{"action":"accept","content":{"who":"` + text + `"}}`
		})
		if !strings.Contains(got, text) {
			t.Errorf("%s got %s", text, got)
		}
	}
	first, plain := gw.connect(t, "/mcp", mcp.Legacy, allCapabilities), gw.connect(t, "/mcp", mcp.Legacy, "{}")
	first.tools(t)
	plain.callResult(t, mcp.ToolsCall, askParams("ping {}"))
	ask(first, "first")
	ask(first, "first again")
	plain.callResult(t, mcp.ToolsCall, askParams("ping {}"))
	first.expectSilence(t, 20*time.Millisecond)
	for i := range 2 {
		ask(gw.connect(t, "/mcp", mcp.Legacy, `{"elicitation":{}}`), fmt.Sprint("later ", i))
	}
	if n := a.aliveChildren(); n < 3 {
		t.Errorf("%d child processes run, want one that is shared and one for each later client", n)
	}
}
