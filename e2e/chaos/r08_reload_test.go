//go:build linux

package chaos

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// reloads are the ways a configuration changes, taken in turn; each fifth is a file that is wrong.
type reloads struct {
	t       *testing.T
	g       *gateway
	n       int
	invalid int
	took    []time.Duration
}

// next changes the configuration once and waits until that has been noticed.
func (r *reloads) next() {
	r.t.Helper()
	r.n++
	if r.n%5 == 0 {
		r.invalid++
		r.put(wrongFile(r.g.text(), r.invalid))
		time.Sleep(250 * time.Millisecond)
		return
	}
	gen := fmt.Sprintf("g%d", r.n)
	last := len(r.g.servers) - 1
	r.g.servers[last] = child("e", r.g.book, "-gen", gen)
	begin := time.Now()
	r.put(r.g.text())
	if !within(5*time.Second, func() bool { e, _ := r.g.book.latest(didListen, "e"); return e.At > begin.UnixNano() }) {
		r.t.Errorf("reload %d was not noticed within 5s", r.n)
	}
	r.took = append(r.took, time.Since(begin))
	time.Sleep(50 * time.Millisecond)
}

// put writes the file in one of three ways: a rename, a rename and SIGHUP, a rewrite in place.
func (r *reloads) put(text string) {
	r.t.Helper()
	err := error(nil)
	switch r.n % 3 {
	case 0:
		err = r.g.write(text)
	case 1:
		if err = r.g.write(text); err == nil {
			r.g.signal(r.t, syscall.SIGHUP)
		}
	case 2:
		err = os.WriteFile(r.g.config, []byte(text), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// wrongFile spoils a configuration in one of several ways.
func wrongFile(text string, n int) string {
	switch n % 4 {
	case 0:
		return text[:len(text)/2] + "\n[["
	case 1:
		return text + "\n[[servers]]\nid = \"a\"\ncommand = [\"true\"]\n" // twice the same id
	case 2:
		return strings.Replace(text, "log_level", "log_levels", 1)
	}
	return text + "\nlisten = 7\n"
}

// TestR8Reload: the configuration changes again and again under load, a fifth of the times into
// something wrong. No call fails, no stream is cut, and children that did not change keep their
// processes.
func TestR8Reload(t *testing.T) {
	book := newLedger(t)
	names := []string{"a", "b", "c", "d", "e"}
	s := newSite(t, book)
	for _, id := range names {
		s.servers = append(s.servers, child(id, book))
	}
	g := s.start(t)
	peers := g.webs(t, 6)
	ready(t, peers[0], names...)
	news := openStreams(t, g, 10)
	kept := firstPids(book, names[:4])

	l := load{rate: pick(100, 200), servers: names, more: `"delay_ms":5`, peers: peers, fresh: g.fresh}
	l.start()
	time.Sleep(time.Second)
	r := &reloads{t: t, g: g}
	for range pick(10, 100) {
		r.next()
	}
	time.Sleep(time.Second)
	cs := l.end()
	cs.sound(t, book)
	cs.allOK(t)
	for i, id := range names[:4] {
		if pids := book.pids(id); !slices.Equal(pids, kept[i:i+1]) {
			t.Errorf("%s did not change, and its processes are %v, were %v", id, pids, kept[i])
		}
	}
	cut := cutStreams(t, news)
	heard := addServer(t, g, news)
	book.obedient(t)
	g.noZombies(t)
	report(t, "R8", fmt.Sprintf("%d reloads (%d of them wrong) under %d rps, 25 %% new connections, 10 streams, 10 subscriptions", r.n, r.invalid, l.rate), cs,
		"%d cut; noticed after p50 %s max %s; %d of %d streams heard of a new server", cut, short(quantile(r.took, 0.5)), short(quantile(r.took, 1)), heard, len(news))
}

// TestR8SlowStart: the server that changes takes a second to start, as real ones do. Its calls go
// on meanwhile: the old process serves until the new one can.
func TestR8SlowStart(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, child("a", book), child("e", book, "-gen", "g0", "-delay", "1s"))
	g := s.start(t)
	peers := g.webs(t, 4)
	ready(t, peers[0], "a", "e")
	l := load{rate: 150, servers: []string{"e"}, more: `"delay_ms":5`, peers: peers}
	l.start()
	time.Sleep(500 * time.Millisecond)
	rounds := pick(2, 10)
	for n := range rounds {
		s.servers[1] = child("e", book, "-gen", fmt.Sprintf("g%d", n+1), "-delay", "1s")
		if err := s.write(s.text()); err != nil {
			t.Fatal(err)
		}
		g.signal(t, syscall.SIGHUP)
		time.Sleep(2 * time.Second)
	}
	cs := l.end()
	cs.sound(t, book)
	cs.allOK(t)
	if last := cs[len(cs)-1]; last.verdict == ok && last.echo.Gen != fmt.Sprintf("g%d", rounds) {
		t.Errorf("the last call was answered by generation %s", last.echo.Gen)
	}
	report(t, "R8", fmt.Sprintf("%d reloads that change a server which takes 1 s to start, 150 rps on it", rounds), cs, "slowest call %s", short(slowestOf(cs)))
}

// TestR8WrittenInPlace: the file is written the careless way, emptied first and filled a moment
// later, and somebody asks for a reload in that moment. An empty file is no wish to have no servers.
func TestR8WrittenInPlace(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, child("a", book), child("b", book))
	g := s.start(t)
	peers := g.webs(t, 2)
	ready(t, peers[0], "a", "b")
	l := load{rate: 100, servers: []string{"a", "b"}, peers: peers}
	l.start()
	rounds := pick(5, 30)
	for range rounds {
		if err := os.Truncate(s.config, 0); err != nil {
			t.Fatal(err)
		}
		g.signal(t, syscall.SIGHUP)
		time.Sleep(30 * time.Millisecond)
		if err := os.WriteFile(s.config, []byte(s.text()), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(250 * time.Millisecond)
	}
	cs := l.end()
	cs.sound(t, book)
	cs.allOK(t)
	if n := len(book.pids("a")) + len(book.pids("b")); n != 2 {
		t.Errorf("nothing changed, and there were %d processes of 2 servers", n)
	}
	report(t, "R8", fmt.Sprintf("the file is emptied, reloaded and filled again ×%d", rounds), cs, "%d processes", len(book.pids("a"))+len(book.pids("b")))
}

// TestR8RemovedServer: a server that the configuration no longer has is refused soon, and its whole
// tree ends, though it ignores every polite request.
func TestR8RemovedServer(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, child("a", book), child("x", book, "-tree", "-stubborn"))
	s.servers[1].more = "shutdown_grace = 1"
	g := s.start(t)
	p := g.web(t, modern)
	ready(t, p, "a", "x")
	within(5*time.Second, func() bool { return len(book.events(didStart)) >= treeSize+1 })
	s.servers = s.servers[:1]
	if err := s.write(s.text()); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	g.signal(t, syscall.SIGHUP)
	var last *call
	if !within(2*time.Second, func() bool { last = one(p, "x", "echo", "", 5*time.Second); return last.verdict != ok }) {
		t.Error("a server that was removed still answers")
	}
	refused := time.Since(begin)
	calls{last}.sound(t, book)
	if !within(8*time.Second, func() bool { return len(book.survivors()) == 1 }) {
		t.Errorf("survivors of a removed server: %+v", book.survivors())
	}
	gone := time.Since(begin)
	if c := one(p, "a", "echo", "", 5*time.Second); c.verdict != ok || len(book.pids("a")) != 1 {
		t.Errorf("the other server: %s %s, processes %v", c.verdict, c.why, book.pids("a"))
	}
	report(t, "R8", "a server is removed, with a tree that ignores TERM and EOF", calls{last}, "refused (%s) after %s; its 8 processes gone after %s", last.why, short(refused), short(gone))
}

// TestR8StreamsOutliveTimeouts: the limits on how long a request may take to arrive are no limits
// on how long its answer may last. Streams, subscriptions and calls go on past all of them.
func TestR8StreamsOutliveTimeouts(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, child("a", book))
	s.tail = "[http]\nheader_timeout = \"1s\"\nbody_timeout = \"1s\"\nidle_timeout = \"1s\""
	g := s.start(t)
	peers := g.webs(t, 2)
	ready(t, peers[0], "a")
	settled(t, peers[1], len(toolOrder))
	news := openStreams(t, g, 1)
	cs := burst(4, 4, peers, []string{"a"}, func(_ int, c *call) { c.more = `"delay_ms":3000` })
	cs.sound(t, book)
	cs.allOK(t)
	cut := cutStreams(t, news)
	heard := addServer(t, g, news)
	report(t, "R8", "streams and calls of 3 s with HTTP timeouts of 1 s", cs, "%d cut; %d of %d streams heard of a new server", cut, heard, len(news))
}

func firstPids(book *ledger, names []string) []int {
	var out []int
	for _, id := range names {
		out = append(out, book.pids(id)...)
	}
	return out
}

// openStreams opens n legacy streams and n modern subscriptions.
func openStreams(t *testing.T, g *gateway, n int) []*stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var out []*stream
	for i := range n {
		one, err := g.web(t, legacy).listen(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.close)
		two, err := subscribe(ctx, g.web(t, modern), fmt.Sprint(i+1), `{"toolsListChanged":true}`)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(two.close)
		out = append(out, one, two)
	}
	return out
}

func cutStreams(t *testing.T, news []*stream) int {
	t.Helper()
	cut := 0
	for i, s := range news {
		if ended, _, err := s.state(); ended {
			cut++
			t.Errorf("stream %d was cut: %v", i, err)
		}
	}
	return cut
}

// addServer adds a server, which every stream must hear of: they are not only open, they work.
func addServer(t *testing.T, g *gateway, news []*stream) int {
	t.Helper()
	const changed = "notifications/tools/list_changed"
	before := make([]int, len(news))
	for i, s := range news {
		before[i] = s.count(changed)
	}
	g.servers = append(g.servers, child("f", g.book))
	if err := g.write(g.text()); err != nil {
		t.Fatal(err)
	}
	g.signal(t, syscall.SIGHUP)
	heard := 0
	for i, s := range news {
		if within(5*time.Second, func() bool { return s.count(changed) > before[i] }) {
			heard++
		} else {
			t.Errorf("stream %d did not hear of a new server", i)
		}
	}
	ready(t, g.web(t, modern), "f")
	return heard
}
