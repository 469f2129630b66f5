package hub_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
)

// stalled is a server that does not answer its greeting until the test lets it. The reply to a client's
// initialize waits a while for it.
func stalled(t *testing.T, id string) (f *far, free func()) {
	t.Helper()
	let := make(chan struct{})
	f = newFar(t, id, mcp.EraModern, false)
	answer := f.acts[mcp.Discover]
	f.on(mcp.Discover, func(c *turn) string {
		select {
		case <-let:
			return answer(c)
		case <-c.over:
			return ""
		}
	})
	return f, func() { close(let) }
}

const (
	aQuestion = `{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{}}`
	aNote     = `{"jsonrpc":"2.0","method":"notifications/odd","params":{"n":1}}`
)

// On stdio nothing but the answer to a ping is written before the reply to initialize: no notification
// and no reply to a request that came behind it. A server's question waits for the client to go on.
func TestStdioInitializeIsAnsweredFirst(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, true).on(mcp.ToolsCall, func(c *turn) string {
		c.send(`{"jsonrpc":"2.0","method":"notifications/during","params":{}}`)
		return `{"content":[]}`
	})
	slow, free := stalled(t, "slow")
	y := build(t, nil, true, a, slow)
	theirs, ours := pipes(t)
	back, out := pipes(t)
	ended := make(chan error, 1)
	go func() { ended <- y.door.ServeStdio(context.Background(), theirs, out) }()
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
		`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":`+able+`,"clientInfo":`+info+`}}`,
		`{"jsonrpc":"2.0","id":"ping","method":"ping"}`,
	)
	if got := next(); !strings.Contains(got, `"id":"ping"`) {
		t.Errorf("a ping waits: %s", got)
	}
	a.await(t, mcp.Initialized, 1)
	a.push(t, aNote)
	a.push(t, aQuestion)
	write(`{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"a::x"}}`)
	if got := next(); !strings.Contains(got, `"id":"init"`) {
		t.Fatalf("before the reply to initialize came %s", got)
	}
	free()
	var rest string // the call is a request: from then on the client may be asked as well
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

// A question that belongs to no call is put to a client when it has said that it is initialized, or makes
// a request, and not before; what merely tells it something comes as soon as it listens.
func TestQuestionsWaitForInitialized(t *testing.T) {
	t.Parallel()
	for name, goOn := range map[string]func(t *testing.T, c *client){
		"initialized": func(t *testing.T, c *client) { c.tell(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`) },
		"a request":   func(t *testing.T, c *client) { c.ask(t, mcp.ToolsList, `{}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newFar(t, "a", mcp.EraLegacy, true)
			c := newClient(t, mcp.EraLegacy, able)
			c.yard, c.path = start(t, nil, a), "/mcp"
			g := c.call(t, mcp.Initialize, fmt.Sprintf(`{"protocolVersion":"2025-11-25","capabilities":%s,"clientInfo":%s}`, c.caps, c.info))
			c.session = g.head.Get(mcp.HeaderSession)
			stop, _ := c.listen(t)
			defer stop()
			a.await(t, mcp.Initialized, 2) // everybody's program and the client's own
			a.push(t, aQuestion)
			a.push(t, aNote)
			// Of its own program: what everybody's says is for those that have called it.
			if got := c.next(t); strings.Contains(got.text, "roots/list") {
				t.Fatalf("it was asked too early: %s", got.text)
			}
			c.ask(t, mcp.Ping, `{}`)
			c.quiet(t, 50*time.Millisecond)
			goOn(t, c)
			c.answer(t, c.nextOf(t, mcp.RootsList), `{"roots":[]}`)
			eventually(t, "answer at the server", func() bool { return strings.Contains(fmt.Sprint(raws(a.got(""))), `"roots":[]`) })
		})
	}
}

func raws(turns []*turn) (out []string) {
	for _, c := range turns {
		out = append(out, c.raw)
	}
	return out
}
