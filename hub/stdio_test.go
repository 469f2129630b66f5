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

	"github.com/ctxgate/ctxgate/mcp"
)

// A12: a client that begins with Content-Length is answered in that framing, and its servers are
// spoken to in theirs.
func TestStdioFramingA12(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, true).on(mcp.ToolsCall, says(`{"content":[]}`))
	y := build(t, nil, true, a)
	theirs, ours := pipes(t)
	back, out := pipes(t)
	defer back.Close()
	ended := make(chan error, 1)
	go func() { ended <- y.door.ServeStdio(context.Background(), theirs, out) }()
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
	if got := string(a.await(t, mcp.ToolsCall, 1).Params); got != `{"name":"x","arguments":{"s":"é"}}` {
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

// A12, A13: what comes before a client has said who it is does not decide who it is.
func TestStdioMeeting(t *testing.T) {
	t.Parallel()
	const hello = `{"protocolVersion":"2025-06-18","capabilities":` + able + `,"clientInfo":` + info + `}`
	for name, before := range map[string]func(t *testing.T, c *client){
		"at once": func(*testing.T, *client) {},
		"after a ping": func(t *testing.T, c *client) {
			if got := c.ask(t, mcp.Ping, `{}`); got != `{}` {
				t.Errorf("got %s", got)
			}
		},
		"after a notification": func(t *testing.T, c *client) { c.tell(t, `{"jsonrpc":"2.0","method":"notifications/odd"}`) },
		"after nonsense": func(t *testing.T, c *client) {
			c.tell(t, `nonsense`)
			c.tell(t, `{"jsonrpc":"2.0"}`)
		},
		"after a revision that is not spoken": func(t *testing.T, c *client) {
			got := c.ask(t, mcp.Discover, `{"_meta":{"`+mcp.KeyVersion+`":"2027-01-01","`+mcp.KeyCapabilities+`":{}}}`)
			if !strings.HasPrefix(got, `!{"code":-32022,`) {
				t.Errorf("got %s", got)
			}
		},
		"after a look in the newer era": func(t *testing.T, c *client) {
			got := c.ask(t, mcp.Discover, `{"_meta":{"`+mcp.KeyVersion+`":"2026-07-28","`+mcp.KeyCapabilities+`":`+able+`}}`)
			if !strings.Contains(got, `"supportedVersions"`) {
				t.Errorf("got %s", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := asking(t, true)
			c := connectStdio(t, nil, mcp.EraLegacy, able, a)
			before(t, c)
			if got := c.ask(t, mcp.Initialize, hello); !strings.HasPrefix(got, `{"protocolVersion":"2025-06-18",`) {
				t.Errorf("got %s", got)
			}
			c.tell(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			got := c.converse(t, asks(mcp.Elicit+` {}`), func(string) string { return `{"action":"accept"}` })
			if !strings.Contains(got, "accept") {
				t.Errorf("the client was not asked: %s", got)
			}
			if hello := a.await(t, mcp.Initialize, 1).raw; !strings.Contains(hello, able) {
				t.Errorf("the server was told %s", hello)
			}
			a.on(mcp.ToolsList, page("tools", named("x")...))
			a.push(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			c.nextOf(t, mcp.ToolsChanged)
		})
	}
}

// A12: calls under way when the client closes its side are answered first; one that it cancels is
// cancelled at the server.
func TestStdioEnds(t *testing.T) {
	t.Parallel()
	for _, era := range both {
		release := make(chan struct{})
		a := newFar(t, "a", mcp.EraLegacy, true).on(mcp.ToolsCall, func(c *turn) string {
			select {
			case <-release:
				return `{"content":[{"type":"text","text":"late"}]}`
			case <-c.over:
				return ""
			}
		})
		c := onStdio(t, nil, era, "{}", a)
		id, gone := c.begin(t, mcp.ToolsCall, `{"name":"a::x"}`)
		a.await(t, mcp.ToolsCall, 1)
		c.tell(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":`+c.dress(`{"requestId":`+id+`}`)+`}`)
		a.await(t, mcp.Cancelled, 1)
		_, late := c.begin(t, mcp.ToolsCall, `{"name":"a::x"}`)
		a.await(t, mcp.ToolsCall, 2)
		_ = c.in.(io.Closer).Close()
		time.Sleep(50 * time.Millisecond)
		close(release)
		if got := wait(t, late, "the last answer").body; !strings.Contains(got, "late") {
			t.Errorf("got %s", got)
		}
		select {
		case g := <-gone:
			t.Errorf("what was cancelled was answered: %s", g.body)
		default:
		}
	}
}

// A12: what is no message is answered or passed over, and the next one is served.
func TestStdioStrayLines(t *testing.T) {
	t.Parallel()
	c := onStdio(t, func(s *setup) { s.http.MaxRequestBytes = 4 << 10 }, mcp.EraLegacy, "{}", newFar(t, "a", mcp.EraModern, false))
	null := make(chan got, 10)
	c.mu.Lock()
	c.waiting["null"] = null
	c.mu.Unlock()
	for _, tt := range []struct{ line, want string }{
		{`{"jsonrpc":"2.0","id":`, `-32700`},
		{`nonsense`, ``},
		{`{"id":null,"method":"ping"}`, `-32600`},
		{`{"jsonrpc":"2.0","id":null,"method":"ping","params":"` + strings.Repeat("x", 8<<10) + `"}`, `-31413`},
		{`[]`, `-32600`},
	} {
		c.tell(t, tt.line)
		if tt.want == "" {
			continue
		}
		if got := wait(t, null, tt.line).body; !strings.Contains(got, `"code":`+tt.want) {
			t.Errorf("%.60s: got %s", tt.line, got)
		}
	}
	c.tell(t, ``)
	if got := c.ask(t, mcp.Ping, `{}`); got != `{}` {
		t.Errorf("got %s", got)
	}
}

// A client on stdin that reads late gets every reply, though more of them wait than the queue holds.
func TestStdioRepliesWaitForTheClient(t *testing.T) {
	t.Parallel()
	const calls = 8
	large := `{"content":[` + strings.Repeat(`{"type":"text","text":"0123456789"},`, 100_000) + `{"type":"text","text":"end"}]}`
	a := newFar(t, "a", mcp.EraLegacy, true).on(mcp.ToolsCall, says(large)) // 3.6 MB
	y := build(t, func(s *setup) { s.budget = 48 << 20 }, true, a)
	theirs, ours := pipes(t)
	back, out := pipes(t)
	defer back.Close()
	ended := make(chan error, 1)
	go func() { ended <- y.door.ServeStdio(context.Background(), theirs, out) }()
	fmt.Fprintln(ours, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"late"}}}`)
	lines := bufio.NewReaderSize(back, 1<<20)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for i := range calls {
		fmt.Fprintf(ours, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a::x"}}`+"\n", i+1)
	}
	a.await(t, mcp.ToolsCall, 1)
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
