//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// connectDirect returns a client of a test server without a gateway, over any transport.
func connectDirect(t *testing.T, wire string, events *mcpserver.EventLog, flags ...string) mcpclient.Client {
	t.Helper()
	e := mcpwire.Legacy
	if strings.HasPrefix(wire, "modern") {
		e = mcpwire.Modern
	}
	if strings.HasSuffix(wire, "stdio") {
		return connectDirectStdio(t, e, events, flags...)
	}
	server := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "up", Revision: e, ToolCount: 50, PageSize: 7}, events)
	client, done := newHTTP()
	t.Cleanup(done)
	web, err := mcpclient.ConnectHTTP(t.Context(), client, server.URL("/mcp"), e, mcpclient.AllCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	return web
}

func connectDirectStdio(t *testing.T, e mcpwire.Revision, events *mcpserver.EventLog, flags ...string) *mcpclient.StdioClient {
	t.Helper()
	c, err := mcpclient.StartStdio(t.Context(), e, mcpclient.AllCapabilities, os.Stderr, append(os.Environ(), quickExit), serverCommand("up", events, append(flags, "-revision", string(e))...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestServerFollowsProtocol: without quirks the server works over every transport, with every tool and page,
// and reports no violation of a correct client.
func TestServerFollowsProtocol(t *testing.T) {
	for _, wire := range []string{"legacy stdio", "modern stdio", "legacy http", "modern http"} {
		t.Run(wire, func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			p := connectDirect(t, wire, events, "-tools", "50", "-page-size", "7")
			l, err := walkTools(t.Context(), p, 10)
			if err != nil || len(l.names) != 50 || l.pages != 8 {
				t.Errorf("%d tools on %d pages: %v", len(l.names), l.pages, err)
			}
			var cs calls
			for i, tool := range []string{"echo", "slow", "progress", "big", "extra_049"} {
				c := &call{id: fmt.Sprint(100 + i), nonce: "n" + tool, tenant: "t", server: "up", tool: tool, progressToken: `"tok"`, extraArgs: `"n":3,"mb":1,"delay_ms":5`}
				c.sendAs(t.Context(), p, "")
				cs = append(cs, c)
			}
			cs.requireSound(t, events)
			cs.requireAllOK(t)
			if got := len(cs[2].got.Notifications); got != 3 {
				t.Errorf("%d progress notifications, want 3", got)
			}
			if result, err := callWithElicitation(t.Context(), p, "ask", "q1", 200); err != nil || result.Answer != "what is q1?" {
				t.Errorf("ask: %+v, %v", result, err)
			}
			events.RequireNoViolations(t)
		})
	}
}

// TestServerNotifies: clients are notified of a touched resource and a changed list.
func TestServerNotifies(t *testing.T) {
	for _, wire := range []string{"modern stdio", "modern http", "legacy http"} {
		t.Run(wire, func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			p := connectDirect(t, wire, events)
			s := openSubscription(t, p, `{"toolsListChanged":true,"resourceSubscriptions":["`+mcpserver.ResourceURI+`"]}`)
			for i, tool := range []string{"touch", "change"} {
				if _, err := p.Call(t.Context(), mcpclient.Request{ID: fmt.Sprint(50 + i), Method: "tools/call", Params: fmt.Sprintf(`{"name":%q,"arguments":{"uri":%q}}`, tool, mcpserver.ResourceURI)}); err != nil {
					t.Fatal(err)
				}
			}
			for _, method := range []string{"notifications/resources/updated", "notifications/tools/list_changed"} {
				if !wait.True(2*time.Second, func() bool { return s.Count(method) == 1 }) {
					t.Errorf("%d %s, want 1", s.Count(method), method)
				}
			}
		})
	}
}

// openSubscription opens a stream and resources/subscribe, or a modern subscription.
func openSubscription(t *testing.T, p mcpclient.Client, filter string) *mcpclient.Stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	web, isWeb := p.(*mcpclient.HTTPClient)
	var s *mcpclient.Stream
	var err error
	if isWeb && web.Revision == mcpwire.Legacy {
		if s, err = web.OpenStream(ctx); err == nil && strings.Contains(filter, mcpserver.ResourceURI) {
			_, err = web.Call(ctx, mcpclient.Request{ID: `"sub"`, Method: "resources/subscribe", Params: fmt.Sprintf(`{"uri":%q}`, mcpserver.ResourceURI)})
		}
	} else {
		s, err = mcpclient.Subscribe(ctx, p, `"sub"`, filter)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestServerQuirks: a strict client notices each quirk.
func TestServerQuirks(t *testing.T) {
	for _, quirk := range []struct {
		flags []string
		stray string // what a strict client finds
	}{
		{[]string{"-crlf"}, ""},
		{[]string{"-id-last"}, ""},
		{[]string{"-pair-frames"}, ""},
		{[]string{"-byte-delay-ms", "1"}, ""},
		{[]string{"-junk-every", "1"}, "not a JSON-RPC message"},
	} {
		t.Run(strings.Join(quirk.flags, " "), func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			c := connectDirectStdio(t, mcpwire.Legacy, events, quirk.flags...)
			one := &call{id: "1", nonce: "n", tenant: "t", server: "up", tool: "echo"}
			one.sendAs(t.Context(), c, "")
			calls{one}.requireAllOK(t)
			found := strings.Join(c.Unexpected(), "\n")
			if quirk.stray == "" && found != "" || !strings.Contains(found, quirk.stray) {
				t.Errorf("strays: %q", found)
			}
		})
	}
}

// TestServerBreaks: a process that exits in the middle of a frame leaves half a line; two responses are
// noticed; a response with another id does not end the call.
func TestServerBreaks(t *testing.T) {
	for how, stray := range map[string]string{"half": "half a line", "twice": "for no request", "wrongid": "for no request", "flood": "not a JSON-RPC message"} {
		t.Run(how, func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			c := connectDirectStdio(t, mcpwire.Modern, events)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			one := &call{id: "1", nonce: "n", tenant: "t", server: "up", tool: "broken", extraArgs: fmt.Sprintf(`"how":%q,"n":3`, how)}
			one.sendAs(ctx, c, "")
			if !wait.True(time.Second, func() bool { return strings.Contains(strings.Join(c.Unexpected(), "\n"), stray) }) {
				t.Errorf("strays: %q", c.Unexpected())
			}
			if answered := how == "twice" || how == "flood"; (one.verdict == ok) != answered {
				t.Errorf("%s: %s", one.verdict, one.reason)
			}
		})
	}
}

// TestServerKeepsRunning: a server that stops reading answers what it has read and keeps running; one that
// ignores signals survives the end of stdin and SIGTERM. Neither has any other goroutine, which the runtime
// must not report as a deadlock.
func TestServerKeepsRunning(t *testing.T) {
	for name, tt := range map[string]struct {
		flags   []string
		provoke func(c *mcpclient.StdioClient) error
	}{
		"stops reading": {[]string{"-stop-reading-after", "3"}, func(c *mcpclient.StdioClient) error {
			for id, want := range []string{"", "no reply in time"} { // the handshake has two messages
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				one := &call{id: fmt.Sprint(id), nonce: "n", tenant: "t", server: "up", tool: "echo"}
				if one.sendAs(ctx, c, ""); one.reason != want {
					return fmt.Errorf("call %d: %s %s", id, one.verdict, one.reason)
				}
			}
			return nil
		}},
		"ignores signals": {[]string{"-ignore-signals"}, func(c *mcpclient.StdioClient) error {
			return errors.Join(c.Stdin.Close(), c.Cmd.Process.Signal(syscall.SIGTERM))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			c := connectDirectStdio(t, mcpwire.Legacy, events, tt.flags...)
			defer func() { _ = c.Cmd.Process.Kill() }()
			if err := tt.provoke(c); err != nil {
				t.Error(err)
			}
			time.Sleep(300 * time.Millisecond)
			if got := events.Survivors(); len(got) != 1 {
				t.Errorf("%d processes are running, want 1", len(got))
			}
		})
	}
}

// TestServerSendsLateProgress: the progress that no client may see is really sent.
func TestServerSendsLateProgress(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	c := connectDirectStdio(t, mcpwire.Legacy, events)
	late := &call{id: "1", progressToken: "1", nonce: "n", tenant: "t", server: "up", tool: "progress", extraArgs: `"n":2,"late":true`}
	late.sendAs(t.Context(), c, "")
	calls{late}.requireAllOK(t)
	if !wait.True(time.Second, func() bool { return len(c.Unexpected()) == 3 }) || !strings.Contains(c.Unexpected()[0], "notifications/progress") {
		t.Errorf("after the response came %q", c.Unexpected())
	}
}

// TestHTTPServerDropsSessions: an expired session and a restart give 404, a server without a GET stream gives
// 405, and a cut stream ends.
func TestHTTPServerDropsSessions(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	h := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "up", Revision: mcpwire.Legacy}, events)
	client, done := freshHTTP()
	defer done()
	web, err := mcpclient.ConnectHTTP(t.Context(), client, h.URL("/mcp"), mcpwire.Legacy, mcpclient.NoCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	s := openSubscription(t, web, `{}`)
	h.CutStreams()
	if !wait.True(time.Second, func() bool { ended, _, _ := s.State(); return ended }) {
		t.Error("the stream was not cut")
	}
	h.NoGET.Store(true)
	if _, err := web.OpenStream(t.Context()); err == nil || !strings.Contains(err.Error(), "405") {
		t.Errorf("GET: %v", err)
	}
	for _, forget := range []func(){h.ExpireSessions, func() { _ = h.Restart(0) }} {
		forget()
		one := &call{id: "1", nonce: "n", tenant: "t", server: "up", tool: "echo"}
		if one.sendAs(t.Context(), web, ""); one.verdict != lost || one.got.Status != 404 {
			t.Errorf("%s, HTTP %d: %s", one.verdict, one.got.Status, one.reason)
		}
		if web, err = mcpclient.ConnectHTTP(t.Context(), client, h.URL("/mcp"), mcpwire.Legacy, mcpclient.NoCapabilities); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSurvivorsAreFound: after killing only the root of R2's tree, all others are found.
func TestSurvivorsAreFound(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	t.Cleanup(events.KillSurvivors)
	c := connectDirectStdio(t, mcpwire.Legacy, events, "-tree", "-ignore-signals")
	wait.True(5*time.Second, func() bool { return len(events.Events(mcpserver.Started)) == mcpserver.TreeSize })
	if err := c.Cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !wait.True(2*time.Second, func() bool { return len(events.Survivors()) == mcpserver.TreeSize-2 }) {
		t.Errorf("%d survivors of %d processes, want all but the root and the daemon's parent: %+v",
			len(events.Survivors()), len(events.Events(mcpserver.Started)), events.Survivors())
	}
	events.KillSurvivors()
	if !wait.True(2*time.Second, func() bool { return len(events.Survivors()) == 0 }) {
		t.Error("KillSurvivors left processes")
	}
}
