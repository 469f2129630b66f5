//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// TestR21Partial: one of five servers is down when tools are listed. The other four are listed in time, the
// list has ttlMs 0, and clients are notified when the fifth returns.
func TestR21Partial(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	away := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "e", Revision: mcpwire.Legacy}, events)
	away.Stop()
	s := newSite(t, events, stdioServer("a", events), stdioServer("b", events), stdioServer("c", events, "-revision", string(mcpwire.Modern)), stdioServer("d", events), httpServer("e", away))
	s.topLevel = `response_timeout = "3s"`
	g := s.start(t)
	p := g.connect(t, mcpwire.Modern)
	begin := time.Now()
	_, err := listPage(t.Context(), p, 1, nil)
	cold := time.Since(begin)
	if err != nil || cold > 4*time.Second {
		t.Errorf("the first list took %s: %v", cold, err)
	}
	waitReady(t, p, "a", "b", "c", "d")
	begin = time.Now()
	page, err := listPage(t.Context(), p, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	warm := time.Since(begin)
	if page.TTL == nil || *page.TTL != 0 {
		t.Errorf("an incomplete list has ttlMs %v, want 0", page.TTL)
	}
	l, err := walkTools(t.Context(), p, 10)
	if err != nil || len(l.names) != 4*len(mcpserver.ToolNames) {
		t.Errorf("%d tools of four servers, want %d: %v", len(l.names), 4*len(mcpserver.ToolNames), err)
	}
	down := callOnce(p, "e", "echo", "", 10*time.Second)
	calls{down}.requireSound(t, events)
	if down.verdict != failed {
		t.Errorf("a call on a server that is down: %s %s", down.verdict, down.reason)
	}

	news := openStreams(t, g, 1)
	if err := away.Listen(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	for i, n := range news {
		if !wait.True(35*time.Second, func() bool { return n.Count("notifications/tools/list_changed") > 0 }) {
			t.Errorf("stream %d was not notified of the server's return", i)
		}
	}
	notifiedAfter := time.Since(back)
	waitReady(t, p, "e")
	if l, err = walkTools(t.Context(), p, 30); err != nil || len(l.names) != 5*len(mcpserver.ToolNames) {
		t.Errorf("%d tools of five servers: %v", len(l.names), err)
	}
	report(t, "R21", "1 of 5 servers is down when tools are listed", calls{down}, "cold list %s, warm %s, ttl 0; its return was notified after %s; a call on it: %s",
		short(cold), short(warm), short(notifiedAfter), down.reason)
}

// TestCatalogOfAThousandTools: twenty servers with fifty tools on pages of seven; three never reply. From a
// warm catalog the whole list takes at most 50 ms and contains every tool of the healthy servers, always in
// the same order (A2, A6).
func TestCatalogOfAThousandTools(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events)
	var want []string
	for i := range 20 {
		id := fmt.Sprintf("s%02d", i)
		flags := []string{"-tools", "50", "-page-size", "7"}
		if i%7 == 3 {
			flags = append(flags, "-hang", "tools/list")
		} else {
			want = append(want, id)
		}
		s.servers = append(s.servers, stdioServer(id, events, flags...))
	}
	s.topLevel = `response_timeout = "3s"`
	g := s.start(t)
	p := g.connect(t, mcpwire.Modern)
	begin := time.Now()
	var first toolListing
	var err error
	if !wait.True(30*time.Second, func() bool {
		first, err = walkTools(t.Context(), p, 1)
		return err == nil && len(first.names) >= 50*len(want)
	}) {
		t.Fatalf("%d tools on %d pages: %v", len(first.names), first.pages, err)
	}
	names := first.names
	warm := time.Since(begin)
	missing := missingTools(names, want)
	if len(missing) > 0 || len(names) != 50*len(want) {
		t.Errorf("%d tools, want %d; missing %v", len(names), 50*len(want), missing[:min(5, len(missing))])
	}
	var took []time.Duration
	for i := range 50 {
		again, err := walkTools(t.Context(), p, 1000+100*i)
		took = append(took, again.took)
		if err != nil || !slices.Equal(again.names, names) {
			t.Errorf("list %d differs: %d tools, %v", i, len(again.names), err)
		}
	}
	if m := quantile(took, 0.5); m > 50*time.Millisecond {
		t.Errorf("a warm list takes %s; the bar is 50 ms", m)
	}
	report(t, "A6", "1,000 tools on 20 servers, 3 of which never list theirs", nil, "%d tools on %d pages; warm after %s; a whole list p50 %s max %s",
		len(names), first.pages, short(warm), short(quantile(took, 0.5)), short(quantile(took, 1)))
}

func missingTools(names, servers []string) []string {
	seen := map[string]int{}
	for _, n := range names {
		id, _, _ := strings.Cut(n, "::")
		seen[id]++
	}
	var out []string
	for _, id := range servers {
		if seen[id] != 50 {
			out = append(out, fmt.Sprintf("%s has %d", id, seen[id]))
		}
	}
	return out
}
