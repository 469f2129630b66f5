package hub_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/mcp"
)

// A12: a client that starts with Content-Length framing is answered in that framing, and its servers in theirs.
func TestStdioFramingA12(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsCall, respond(`{"content":[]}`))
	gw := buildGateway(t, nil, true, a)
	theirs, ours := pipes(t)
	back, out := pipes(t)
	defer back.Close()
	ended := make(chan error, 1)
	go func() {
		ended <- gw.hub.ServeStdio(context.Background(), theirs, out, hub.StdioOptions{Token: gw.setup.token})
	}()
	for i, m := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"é"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a::x","arguments":{"s":"é"}}}`,
	} {
		fmt.Fprintf(ours, "Content-Length: %d\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n%s", len(m), m)
		got := readFramed(t, back)
		if !strings.Contains(strings.ReplaceAll(got, " ", ""), fmt.Sprintf(`"id":%d`, i)) || strings.Contains(got, "error") {
			t.Errorf("got %s", got)
		}
	}
	if got := string(a.awaitMessage(t, mcp.ToolsCall, 1).Params); got != `{"name":"x","arguments":{"s":"é"}}` {
		t.Errorf("the server got %s", got)
	}
	ours.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// readFramed reads one message after its header, byte by byte so that nothing is read beyond it.
func readFramed(t *testing.T, r io.Reader) string {
	t.Helper()
	var head strings.Builder
	for !strings.HasSuffix(head.String(), "\r\n\r\n") {
		b := make([]byte, 1)
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatalf("%v after %q", err, head.String())
		}
		head.Write(b)
	}
	var n int
	if _, err := fmt.Sscanf(head.String(), "Content-Length: %d", &n); err != nil {
		t.Fatalf("%q: %v", head.String(), err)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// A12, A13: notifications and pings before the first request do not decide who the client is.
func TestStdioFirstRequestIdentifiesClient(t *testing.T) {
	t.Parallel()
	const hello = `{"protocolVersion":"2025-06-18","capabilities":` + allCapabilities + `,"clientInfo":` + info + `}`
	for name, before := range map[string]func(t *testing.T, c *client){
		"at once": func(*testing.T, *client) {},
		"after a ping": func(t *testing.T, c *client) {
			if got := c.callResult(t, mcp.Ping, `{}`); got != `{}` {
				t.Errorf("got %s", got)
			}
		},
		"after a notification": func(t *testing.T, c *client) { c.notify(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`) },
		"after nonsense": func(t *testing.T, c *client) {
			c.notify(t, `nonsense`)
			c.notify(t, `{"jsonrpc":"2.0"}`)
		},
		"after a revision that is not spoken": func(t *testing.T, c *client) {
			got := c.callResult(t, mcp.ServerDiscover, `{"_meta":{"`+mcp.MetaProtocolVersion+`":"2027-01-01","`+mcp.MetaClientCapabilities+`":{}}}`)
			if !strings.HasPrefix(got, `!{"code":-32022,`) {
				t.Errorf("got %s", got)
			}
		},
		"after modern requests": func(t *testing.T, c *client) {
			got := c.callResult(t, mcp.ServerDiscover, `{"_meta":{"`+mcp.MetaProtocolVersion+`":"2026-07-28","`+mcp.MetaClientCapabilities+`":`+allCapabilities+`}}`)
			if !strings.Contains(got, `"supportedVersions"`) {
				t.Errorf("got %s", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAskingServer(t, true)
			c := connectStdioUninitialized(t, nil, mcp.Legacy, allCapabilities, a)
			before(t, c)
			if got := c.callResult(t, mcp.Initialize, hello); !strings.HasPrefix(got, `{"protocolVersion":"2025-06-18",`) {
				t.Errorf("got %s", got)
			}
			c.notify(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			got := c.callAnswering(t, askParams(mcp.ElicitationCreate+` {}`), func(string) string { return `{"action":"accept"}` })
			if !strings.Contains(got, "accept") {
				t.Errorf("the client was not asked: %s", got)
			}
			if hello := a.awaitMessage(t, mcp.Initialize, 1).raw; !strings.Contains(hello, allCapabilities) {
				t.Errorf("the server got %s", hello)
			}
			a.handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
			a.broadcast(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			c.nextOfMethod(t, mcp.NotifyToolsChanged)
		})
	}
}

// A12: calls in flight when the client closes its side are answered first; a cancelled one is cancelled at the
// server.
func TestStdioEnds(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		release := make(chan struct{})
		a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsCall, func(c *serverCall) string {
			select {
			case <-release:
				return `{"content":[{"type":"text","text":"late"}]}`
			case <-c.done:
				return ""
			}
		})
		c := connectStdio(t, nil, protocol, "{}", a)
		id, gone := c.startCall(t, mcp.ToolsCall, `{"name":"a::x"}`)
		a.awaitMessage(t, mcp.ToolsCall, 1)
		c.notify(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":`+c.withMeta(`{"requestId":`+id+`}`)+`}`)
		a.awaitMessage(t, mcp.NotifyCancelled, 1)
		_, late := c.startCall(t, mcp.ToolsCall, `{"name":"a::x"}`)
		a.awaitMessage(t, mcp.ToolsCall, 2)
		_ = c.in.(io.Closer).Close()
		time.Sleep(50 * time.Millisecond)
		close(release)
		if got := receiveWithin(t, late, "the last answer").body; !strings.Contains(got, "late") {
			t.Errorf("got %s", got)
		}
		select {
		case g := <-gone:
			t.Errorf("what was cancelled was answered: %s", g.body)
		default:
		}
	}
}

// A12: a line that is not a JSON-RPC message is answered or skipped, and the next one is served.
func TestStdioStrayLines(t *testing.T) {
	t.Parallel()
	c := connectStdio(t, func(s *setup) { s.http.MaxRequestBytes = 4 << 10 }, mcp.Legacy, "{}", newFakeServer(t, "a", mcp.Modern, false))
	null := make(chan httpReply, 10)
	c.mu.Lock()
	c.pending["null"] = null
	c.mu.Unlock()
	for _, tt := range []struct{ line, want string }{
		{`{"jsonrpc":"2.0","id":`, `-32700`},
		{`nonsense`, ``},
		{`{"id":null,"method":"ping"}`, `-32600`},
		{`{"jsonrpc":"2.0","id":null,"method":"ping","params":"` + strings.Repeat("x", 8<<10) + `"}`, `-31413`},
		{`[]`, `-32600`},
	} {
		c.notify(t, tt.line)
		if tt.want == "" {
			continue
		}
		if got := receiveWithin(t, null, tt.line).body; !strings.Contains(got, `"code":`+tt.want) {
			t.Errorf("%.60s: got %s", tt.line, got)
		}
	}
	c.notify(t, ``)
	if got := c.callResult(t, mcp.Ping, `{}`); got != `{}` {
		t.Errorf("got %s", got)
	}
}

// A client on stdin that reads late gets every reply, even if more are queued than the queue holds.
func TestStdioRepliesWaitForTheClient(t *testing.T) {
	t.Parallel()
	const calls = 8
	large := `{"content":[` + strings.Repeat(`{"type":"text","text":"0123456789"},`, 100_000) + `{"type":"text","text":"end"}]}`
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsCall, respond(large)) // 3.6 MB
	gw := buildGateway(t, func(s *setup) { s.budget = 48 << 20 }, true, a)
	theirs, ours := pipes(t)
	back, out := pipes(t)
	defer back.Close()
	ended := make(chan error, 1)
	go func() {
		ended <- gw.hub.ServeStdio(context.Background(), theirs, out, hub.StdioOptions{Token: gw.setup.token})
	}()
	fmt.Fprintln(ours, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"late"}}}`)
	lines := bufio.NewReaderSize(back, 1<<20)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for i := range calls {
		fmt.Fprintf(ours, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a::x"}}`+"\n", i+1)
	}
	a.awaitMessage(t, mcp.ToolsCall, 1)
	got := map[string]bool{}
	for len(got) < calls {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %d replies", err, len(got))
		}
		if id := idPattern.FindString(line[:min(len(line), 60)] + line[max(0, len(line)-60):]); id != "" {
			got[id] = true
		}
	}
	ours.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

var idPattern = regexp.MustCompile(`"id": *\d+`)
