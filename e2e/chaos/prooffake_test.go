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
)

// direct is a client of one fake, with nothing between, by every wire there is.
func direct(t *testing.T, wire string, book *ledger, flags ...string) peer {
	t.Helper()
	e := legacy
	if strings.HasPrefix(wire, "modern") {
		e = modern
	}
	if strings.HasSuffix(wire, "stdio") {
		return directPipe(t, e, book, flags...)
	}
	fake := startHTTPFake(t, options{server: "up", era: e, tools: 50, page: 7}, book)
	client, done := newHTTP()
	t.Cleanup(done)
	web, err := dial(t.Context(), client, fake.url("/mcp"), e, answersAll)
	if err != nil {
		t.Fatal(err)
	}
	return web
}

func directPipe(t *testing.T, e era, book *ledger, flags ...string) *pipeClient {
	t.Helper()
	c, err := spawn(t.Context(), e, answersAll, os.Stderr, append(os.Environ(), quickExit), fakeCommand("up", book, append(flags, "-era", string(e))...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// TestFakesKeepTheProtocol is the fakes at their best: every tool, every page, every wire, and no
// complaint about a client that keeps the protocol too.
func TestFakesKeepTheProtocol(t *testing.T) {
	for _, wire := range []string{"legacy stdio", "modern stdio", "legacy http", "modern http"} {
		t.Run(wire, func(t *testing.T) {
			book := newLedger(t)
			p := direct(t, wire, book, "-tools", "50", "-page", "7")
			l, err := walkTools(t.Context(), p, 10)
			if err != nil || len(l.names) != 50 || l.pages != 8 {
				t.Errorf("%d tools on %d pages: %v", len(l.names), l.pages, err)
			}
			var cs calls
			for i, tool := range []string{"echo", "slow", "progress", "big", "extra_049"} {
				c := &call{id: fmt.Sprint(100 + i), nonce: "n" + tool, tenant: "t", server: "up", tool: tool, token: `"tok"`, more: `"n":3,"mb":1,"delay_ms":5`}
				c.makeAs(t.Context(), p, "")
				cs = append(cs, c)
			}
			cs.sound(t, book)
			cs.allOK(t)
			if got := len(cs[2].got.before); got != 3 {
				t.Errorf("%d progress notifications, want 3", got)
			}
			if said, err := converse(t.Context(), p, "ask", "q1", 200); err != nil || said.Said != "what is q1?" {
				t.Errorf("ask: %+v, %v", said, err)
			}
			book.obedient(t)
		})
	}
}

// TestFakesAnnounce hears of a touched resource and a changed list.
func TestFakesAnnounce(t *testing.T) {
	for _, wire := range []string{"modern stdio", "modern http", "legacy http"} {
		t.Run(wire, func(t *testing.T) {
			book := newLedger(t)
			p := direct(t, wire, book)
			s := standing(t, p, `{"toolsListChanged":true,"resourceSubscriptions":["`+resourceURI+`"]}`)
			for i, tool := range []string{"touch", "change"} {
				if _, err := p.ask(t.Context(), ask{id: fmt.Sprint(50 + i), method: "tools/call", params: fmt.Sprintf(`{"name":%q,"arguments":{"uri":%q}}`, tool, resourceURI)}); err != nil {
					t.Fatal(err)
				}
			}
			for _, method := range []string{"notifications/resources/updated", "notifications/tools/list_changed"} {
				if !within(2*time.Second, func() bool { return s.count(method) == 1 }) {
					t.Errorf("%d %s, want 1", s.count(method), method)
				}
			}
		})
	}
}

// standing opens what the client's era has for news: a stream and resources/subscribe, or a
// subscription.
func standing(t *testing.T, p peer, filter string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	web, isWeb := p.(*webClient)
	var s *stream
	var err error
	if isWeb && web.era == legacy {
		if s, err = web.listen(ctx); err == nil && strings.Contains(filter, resourceURI) {
			_, err = web.ask(ctx, ask{id: `"sub"`, method: "resources/subscribe", params: fmt.Sprintf(`{"uri":%q}`, resourceURI)})
		}
	} else {
		s, err = subscribe(ctx, p, `"sub"`, filter)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// TestFakesMisbehave asks each quirk for what it is: the client, which is strict, must see it.
func TestFakesMisbehave(t *testing.T) {
	for _, quirk := range []struct {
		flags []string
		stray string // what a strict client finds; empty: nothing
	}{
		{[]string{"-crlf"}, ""},
		{[]string{"-idlast"}, ""},
		{[]string{"-pair"}, ""},
		{[]string{"-drip", "1"}, ""},
		{[]string{"-junk", "1"}, "no JSON-RPC message"},
	} {
		t.Run(strings.Join(quirk.flags, " "), func(t *testing.T) {
			book := newLedger(t)
			c := directPipe(t, legacy, book, quirk.flags...)
			one := &call{id: "1", nonce: "n", tenant: "t", server: "up", tool: "echo"}
			one.makeAs(t.Context(), c, "")
			calls{one}.allOK(t)
			found := strings.Join(c.lost(), "\n")
			if quirk.stray == "" && found != "" || !strings.Contains(found, quirk.stray) {
				t.Errorf("strays: %q", found)
			}
		})
	}
}

// TestFakesBreak: a process that ends in the middle of a frame leaves half a line; one that
// answers twice is caught; one that answers with another's id leaves the call alone.
func TestFakesBreak(t *testing.T) {
	for how, stray := range map[string]string{"half": "half a line", "twice": "for nobody", "wrongid": "for nobody", "flood": "no JSON-RPC message"} {
		t.Run(how, func(t *testing.T) {
			book := newLedger(t)
			c := directPipe(t, modern, book)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			one := &call{id: "1", nonce: "n", tenant: "t", server: "up", tool: "broken", more: fmt.Sprintf(`"how":%q,"n":3`, how)}
			one.makeAs(ctx, c, "")
			if !within(time.Second, func() bool { return strings.Contains(strings.Join(c.lost(), "\n"), stray) }) {
				t.Errorf("strays: %q", c.lost())
			}
			if answered := how == "twice" || how == "flood"; (one.verdict == ok) != answered {
				t.Errorf("%s: %s", one.verdict, one.why)
			}
		})
	}
}

// TestFakesStay: one that stops reading answers what it has read, no more, and lives; one that is
// stubborn outlives the end of its input and TERM. Each is alone in its process, with nothing else to
// do, which is what the runtime takes for a deadlock.
func TestFakesStay(t *testing.T) {
	for name, tt := range map[string]struct {
		flags   []string
		provoke func(c *pipeClient) error
	}{
		"deaf": {[]string{"-deaf", "3"}, func(c *pipeClient) error {
			for id, want := range []string{"", "no answer in time"} { // the handshake was two messages
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				one := &call{id: fmt.Sprint(id), nonce: "n", tenant: "t", server: "up", tool: "echo"}
				if one.makeAs(ctx, c, ""); one.why != want {
					return fmt.Errorf("call %d: %s %s", id, one.verdict, one.why)
				}
			}
			return nil
		}},
		"stubborn": {[]string{"-stubborn"}, func(c *pipeClient) error {
			return errors.Join(c.in.Close(), c.cmd.Process.Signal(syscall.SIGTERM))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			book := newLedger(t)
			c := directPipe(t, legacy, book, tt.flags...)
			defer func() { _ = c.cmd.Process.Kill() }()
			if err := tt.provoke(c); err != nil {
				t.Error(err)
			}
			time.Sleep(300 * time.Millisecond)
			if got := book.survivors(); len(got) != 1 {
				t.Errorf("%d of 1 process is there", len(got))
			}
		})
	}
}

// TestFakesAreLate: the progress that no client may see is really sent.
func TestFakesAreLate(t *testing.T) {
	book := newLedger(t)
	c := directPipe(t, legacy, book)
	late := &call{id: "1", token: "1", nonce: "n", tenant: "t", server: "up", tool: "progress", more: `"n":2,"late":true`}
	late.makeAs(t.Context(), c, "")
	calls{late}.allOK(t)
	if !within(time.Second, func() bool { return len(c.lost()) == 3 }) || !strings.Contains(c.lost()[0], "notifications/progress") {
		t.Errorf("after the answer came %q", c.lost())
	}
}

// TestFakeHTTPForgets: an expired session is 404, a restarted server knows nobody, a server
// without a stream says 405, and a cut stream ends.
func TestFakeHTTPForgets(t *testing.T) {
	book := newLedger(t)
	h := startHTTPFake(t, options{server: "up", era: legacy}, book)
	client, done := freshHTTP()
	defer done()
	web, err := dial(t.Context(), client, h.url("/mcp"), legacy, answersNothing)
	if err != nil {
		t.Fatal(err)
	}
	s := standing(t, web, `{}`)
	h.cutStreams()
	if !within(time.Second, func() bool { ended, _, _ := s.state(); return ended }) {
		t.Error("the stream was not cut")
	}
	h.noGET.Store(true)
	if _, err := web.listen(t.Context()); err == nil || !strings.Contains(err.Error(), "405") {
		t.Errorf("GET: %v", err)
	}
	for _, forget := range []func(){h.expire, func() { _ = h.restart(0) }} {
		forget()
		one := &call{id: "1", nonce: "n", tenant: "t", server: "up", tool: "echo"}
		if one.makeAs(t.Context(), web, ""); one.verdict != lost || one.got.status != 404 {
			t.Errorf("%s, HTTP %d: %s", one.verdict, one.got.status, one.why)
		}
		if web, err = dial(t.Context(), client, h.url("/mcp"), legacy, answersNothing); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSurvivorsAreSeen grows the tree of R2, kills only its root, and finds all the others.
func TestSurvivorsAreSeen(t *testing.T) {
	book := newLedger(t)
	t.Cleanup(book.reap)
	c := directPipe(t, legacy, book, "-tree", "-stubborn")
	within(5*time.Second, func() bool { return len(book.events(didStart)) == treeSize })
	if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !within(2*time.Second, func() bool { return len(book.survivors()) == treeSize-2 }) {
		t.Errorf("%d survivors of %d processes, want all but the root and the daemon's parent: %+v",
			len(book.survivors()), len(book.events(didStart)), book.survivors())
	}
	book.reap()
	if !within(2*time.Second, func() bool { return len(book.survivors()) == 0 }) {
		t.Error("reap left somebody")
	}
}
