//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestR21Partial: one of five servers is away when the list is asked for. The other four are
// listed in time, the list says that it will not last, and the return of the fifth is news.
func TestR21Partial(t *testing.T) {
	book := newLedger(t)
	away := startHTTPFake(t, options{server: "e", era: legacy}, book)
	away.end()
	s := newSite(t, book, child("a", book), child("b", book), child("c", book, "-era", string(modern)), child("d", book), far("e", away))
	s.head = `response_timeout = "3s"`
	g := s.start(t)
	p := g.web(t, modern)
	begin := time.Now()
	_, err := listPage(t.Context(), p, 1, nil)
	cold := time.Since(begin)
	if err != nil || cold > 4*time.Second {
		t.Errorf("the first list took %s: %v", cold, err)
	}
	ready(t, p, "a", "b", "c", "d")
	begin = time.Now()
	page, err := listPage(t.Context(), p, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	warm := time.Since(begin)
	if page.TTL == nil || *page.TTL != 0 {
		t.Errorf("a list without one server has ttlMs %v, want 0", page.TTL)
	}
	l, err := walkTools(t.Context(), p, 10)
	if err != nil || len(l.names) != 4*len(toolOrder) {
		t.Errorf("%d tools of four servers, want %d: %v", len(l.names), 4*len(toolOrder), err)
	}
	down := one(p, "e", "echo", "", 10*time.Second)
	calls{down}.sound(t, book)
	if down.verdict != failed {
		t.Errorf("a call on a server that is away: %s %s", down.verdict, down.why)
	}

	news := openStreams(t, g, 1)
	if err := away.begin(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	for i, n := range news {
		if !within(35*time.Second, func() bool { return n.count("notifications/tools/list_changed") > 0 }) {
			t.Errorf("stream %d was not told of the server's return", i)
		}
	}
	told := time.Since(back)
	ready(t, p, "e")
	if l, err = walkTools(t.Context(), p, 30); err != nil || len(l.names) != 5*len(toolOrder) {
		t.Errorf("%d tools of five servers: %v", len(l.names), err)
	}
	report(t, "R21", "1 of 5 servers is away when the list is asked for", calls{down}, "cold list %s, warm %s, ttl 0; its return was told after %s; a call on it: %s",
		short(cold), short(warm), short(told), down.why)
}

// TestCatalogOfAThousandTools: twenty servers of fifty tools on pages of seven; three of them
// never answer. From a warm catalog the whole list takes 50 ms at most, and every healthy tool is
// on it, in the same order each time (A2, A6).
func TestCatalogOfAThousandTools(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book)
	var want []string
	for i := range 20 {
		id := fmt.Sprintf("s%02d", i)
		flags := []string{"-tools", "50", "-page", "7"}
		if i%7 == 3 {
			flags = append(flags, "-hang", "tools/list")
		} else {
			want = append(want, id)
		}
		s.servers = append(s.servers, child(id, book, flags...))
	}
	s.head = `response_timeout = "3s"`
	g := s.start(t)
	p := g.web(t, modern)
	begin := time.Now()
	var first listing
	var err error
	if !within(30*time.Second, func() bool {
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
