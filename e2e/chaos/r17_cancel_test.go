//go:build linux

package chaos

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"
)

// upstreams is one fake of every kind.
func upstreams(t *testing.T, book *ledger) []server {
	t.Helper()
	oldFar := startHTTPFake(t, options{server: "old-http", era: legacy}, book)
	newFar := startHTTPFake(t, options{server: "new-http", era: modern}, book)
	sse := startHTTPFake(t, options{server: "sse", era: legacy}, book)
	return []server{
		child("old-stdio", book), child("new-stdio", book, "-era", string(modern)),
		far("old-http", oldFar), far("new-http", newFar),
		{id: "sse", url: sse.url("/sse"), more: `transport = "sse"`},
	}
}

func idsOf(servers []server) []string {
	var out []string
	for _, s := range servers {
		out = append(out, s.id)
	}
	return out
}

// TestR17Cancel: the matrix of eras and transports. A call that is taken back the way its client's
// era says reaches the upstream the way the upstream's era says, under the upstream's own id.
func TestR17Cancel(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, upstreams(t, book)...)
	names := idsOf(s.servers)
	g := s.start(t)
	clients := map[string]peer{
		"legacy http": g.web(t, legacy), "modern http": g.web(t, modern),
		"legacy stdio": s.pipe(t, legacy), "modern stdio": s.pipe(t, modern),
	}
	var took []time.Duration
	for name, p := range clients {
		ready(t, p, names...)
		for _, up := range names {
			t.Run(name+" to "+up, func(t *testing.T) {
				if d, ok := takeBack(t, book, p, up, name == "modern http"); ok {
					took = append(took, d)
				}
			})
		}
	}
	for name, p := range clients {
		if pipe, ok := p.(*pipeClient); ok && len(pipe.lost()) > 0 {
			t.Errorf("%s got what nobody asked for: %q", name, pipe.lost())
		}
	}
	book.obedient(t)
	report(t, "R17", "cancellation, 4 kinds of client × 5 of upstream", nil, "%d of %d reached the upstream under its own id; p50 %s max %s",
		len(took), len(clients)*len(names), short(quantile(took, 0.5)), short(quantile(took, 1)))
}

// begun is a call that is known to run at the upstream.
func begun(ctx context.Context, t *testing.T, book *ledger, p peer, up, id, more string) (event, chan *call) {
	t.Helper()
	c := &call{id: id, nonce: rand.Text()[:10], tenant: "t", server: up, tool: "slow", more: more}
	done := make(chan *call, 1)
	go func() {
		c.make(ctx, p)
		done <- c
	}()
	var ran event
	if !within(3*time.Second, func() bool {
		if runs := book.executions()[c.nonce]; len(runs) > 0 {
			ran = runs[0]
		}
		return ran.What != ""
	}) {
		t.Fatalf("%s did not get the call", up)
	}
	return ran, done
}

// takeBack cancels a call, by hanging up or by name, and waits until the upstream knows.
func takeBack(t *testing.T, book *ledger, p peer, up string, hangUp bool) (time.Duration, bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	id := quote("r17-" + rand.Text()[:6])
	ran, done := begun(ctx, t, book, p, up, id, `"delay_ms":4000`)
	begin := time.Now()
	if !hangUp {
		if err := p.notify(t.Context(), "notifications/cancelled", `{"requestId":`+id+`,"reason":"changed my mind"}`); err != nil {
			t.Fatal(err)
		}
	} else {
		cancel()
	}
	var knew event
	if !within(time.Second, func() bool { knew = cancelOf(book, up, ran); return knew.What != "" }) {
		t.Errorf("%s was never told; what it saw after the call: %+v", up, seenSince(book, up, ran))
		return 0, false
	}
	took := knew.time().Sub(begin)
	if took > time.Duration(pick(250, 100))*time.Millisecond {
		t.Errorf("the cancellation took %s to reach %s", took, up)
	}
	time.Sleep(50 * time.Millisecond) // an answer now would be one too many
	cancel()
	<-done
	return took, true
}

// cancelOf finds the upstream's own way to learn of it: a hang-up on a modern HTTP server, a
// notification with the id it knows everywhere else.
func cancelOf(book *ledger, up string, ran event) event {
	for _, e := range book.events(didCancel, didHangUp) {
		want := didCancel
		if up == "new-http" {
			want = didHangUp
		}
		if e.What == want && e.Server == up && e.ID == ran.ID && e.At >= ran.At {
			return e
		}
	}
	return event{}
}

func seenSince(book *ledger, up string, ran event) []event {
	var out []event
	for _, e := range book.events() {
		if e.Server == up && e.At > ran.At {
			out = append(out, e)
		}
	}
	return out
}

// TestR17LegacyHangUp: who hangs up in the legacy era has not cancelled; the call runs to its end.
func TestR17LegacyHangUp(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, upstreams(t, book)...)
	g := s.start(t)
	p := g.web(t, legacy)
	names := idsOf(s.servers)
	ready(t, p, names...)
	for i, up := range names {
		t.Run(up, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ran, done := begun(ctx, t, book, p, up, fmt.Sprint(i+1), `"delay_ms":500`)
			cancel()
			<-done
			if !within(2*time.Second, func() bool { return finished(book, ran.Nonce) }) {
				t.Errorf("%s did not finish the call: %+v", up, seenSince(book, up, ran))
			}
			if e := cancelOf(book, up, ran); e.What != "" {
				t.Errorf("%s was told to cancel: %+v", up, e)
			}
		})
	}
	report(t, "R17", "a legacy client hangs up, 5 kinds of upstream", nil, "no call was cancelled")
}

func finished(book *ledger, nonce string) bool {
	for _, e := range book.events(didFinish) {
		if e.Nonce == nonce {
			return true
		}
	}
	return false
}
