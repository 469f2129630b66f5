package hub_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
)

// newStalledServer returns a server that does not answer its handshake until the test releases it. The reply to a
// client's initialize waits a while for it.
func newStalledServer(t *testing.T, id string) (f *fakeServer, free func()) {
	t.Helper()
	let := make(chan struct{})
	f = newFakeServer(t, id, mcp.Modern, false)
	answer := f.handlers[mcp.ServerDiscover]
	f.handle(mcp.ServerDiscover, func(c *serverCall) string {
		select {
		case <-let:
			return answer(c)
		case <-c.done:
			return ""
		}
	})
	return f, func() { close(let) }
}

const (
	aQuestion = `{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{}}`
	aNote     = `{"jsonrpc":"2.0","method":"notifications/odd","params":{"n":1}}`
)

// On stdio only the reply to a ping is written before the reply to initialize: no notification and no reply to a
// later request. A server's request waits for the client to follow up.
func TestStdioInitializeIsAnsweredFirst(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsCall, func(c *serverCall) string {
		c.send(`{"jsonrpc":"2.0","method":"notifications/during","params":{}}`)
		return `{"content":[]}`
	})
	slow, free := newStalledServer(t, "slow")
	gw := buildGateway(t, nil, true, a, slow)
	theirs, ours := pipes(t)
	back, out := pipes(t)
	ended := make(chan error, 1)
	go func() {
		ended <- gw.hub.ServeStdio(context.Background(), theirs, out, hub.StdioOptions{Token: gw.setup.token})
	}()
	in := bufio.NewReader(back)
	next := func() string {
		t.Helper()
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	write := func(messages ...string) { _, _ = io.WriteString(ours, strings.Join(messages, "\n")+"\n") }
	write(
		`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":`+allCapabilities+`,"clientInfo":`+info+`}}`,
		`{"jsonrpc":"2.0","id":"ping","method":"ping"}`,
	)
	if got := next(); !strings.Contains(got, `"id":"ping"`) {
		t.Errorf("a ping waits: %s", got)
	}
	a.awaitMessage(t, mcp.NotifyInitialized, 1)
	a.broadcast(t, aNote)
	a.broadcast(t, aQuestion)
	write(`{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"a::x"}}`)
	if got := next(); !strings.Contains(got, `"id":"init"`) {
		t.Fatalf("before the reply to initialize came %s", got)
	}
	free()
	var rest string // the call is a request: from then on the client may be sent requests, too
	for range 4 {
		rest += next()
	}
	for _, word := range []string{"roots/list", "notifications/odd", "notifications/during", `"call"`} {
		if strings.Count(rest, word) != 1 {
			t.Errorf("%s did not come once: %s", word, rest)
		}
	}
	ours.Close()
	go func() { _, _ = io.Copy(io.Discard, in) }()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	out.Close()
}

// A server's request that belongs to no call is sent once the client has sent notifications/initialized, or makes a
// request; a notification is sent as soon as the client opens a stream.
func TestServerRequestsWaitForInitialized(t *testing.T) {
	t.Parallel()
	for name, goOn := range map[string]func(t *testing.T, c *client){
		"initialized": func(t *testing.T, c *client) { c.notify(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`) },
		"a request":   func(t *testing.T, c *client) { c.callResult(t, mcp.ToolsList, `{}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newFakeServer(t, "a", mcp.Legacy, true)
			c := newClient(t, mcp.Legacy, allCapabilities)
			c.gateway, c.path = startGateway(t, ownProcesses, a), "/mcp"
			g := c.call(t, mcp.Initialize, fmt.Sprintf(`{"protocolVersion":"2025-11-25","capabilities":%s,"clientInfo":%s}`, c.caps, c.info))
			c.session = g.head.Get(mcp.HeaderSession)
			stop, _ := c.openStream(t)
			defer stop()
			a.awaitMessage(t, mcp.NotifyInitialized, 2) // the shared child process and the client's own
			a.broadcast(t, aQuestion)
			a.broadcast(t, aNote)
			// From its own child process: notifications of the shared one are for clients that have called it.
			if got := c.nextMessage(t); strings.Contains(got.text, "roots/list") {
				t.Fatalf("it was asked too early: %s", got.text)
			}
			c.callResult(t, mcp.Ping, `{}`)
			c.expectSilence(t, 50*time.Millisecond)
			goOn(t, c)
			c.answer(t, c.nextOfMethod(t, mcp.RootsList), `{"roots":[]}`)
			wait.For(t, "answer at the server", func() bool { return strings.Contains(fmt.Sprint(rawMessages(a.messagesOf(""))), `"roots":[]`) })
		})
	}
}

func rawMessages(turns []*serverCall) (out []string) {
	for _, c := range turns {
		out = append(out, c.raw)
	}
	return out
}
