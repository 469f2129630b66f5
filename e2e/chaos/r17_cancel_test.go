//go:build linux

package chaos

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// allServerKinds returns one server of every transport and revision.
func allServerKinds(t *testing.T, events *mcpserver.EventLog) []server {
	t.Helper()
	oldFar := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "old-http", Revision: mcpwire.Legacy}, events)
	newFar := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "new-http", Revision: mcpwire.Modern}, events)
	sse := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "sse", Revision: mcpwire.Legacy}, events)
	return []server{
		stdioServer("old-stdio", events), stdioServer("new-stdio", events, "-revision", string(mcpwire.Modern)),
		httpServer("old-http", oldFar), httpServer("new-http", newFar),
		{id: "sse", url: sse.URL("/sse"), extraTOML: `transport = "sse"`},
	}
}

func idsOf(servers []server) []string {
	var out []string
	for _, s := range servers {
		out = append(out, s.id)
	}
	return out
}

// TestR17Cancel: for all revisions and transports, a cancellation in the client's revision reaches the server
// in the server's revision, with the id that the server knows.
func TestR17Cancel(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, allServerKinds(t, events)...)
	names := idsOf(s.servers)
	g := s.start(t)
	clients := map[string]mcpclient.Client{
		"legacy http": g.connect(t, mcpwire.Legacy), "modern http": g.connect(t, mcpwire.Modern),
		"legacy stdio": s.connectStdio(t, mcpwire.Legacy), "modern stdio": s.connectStdio(t, mcpwire.Modern),
	}
	var took []time.Duration
	for name, p := range clients {
		waitReady(t, p, names...)
		for _, up := range names {
			t.Run(name+" to "+up, func(t *testing.T) {
				if d, ok := cancelCall(t, events, p, up, name == "modern http"); ok {
					took = append(took, d)
				}
			})
		}
	}
	for name, p := range clients {
		if pipe, ok := p.(*mcpclient.StdioClient); ok && len(pipe.Unexpected()) > 0 {
			t.Errorf("%s got unexpected messages: %q", name, pipe.Unexpected())
		}
	}
	events.RequireNoViolations(t)
	report(t, "R17", "cancellation, 4 kinds of client × 5 of upstream", nil, "%d of %d reached the upstream under its own id; p50 %s max %s",
		len(took), len(clients)*len(names), short(quantile(took, 0.5)), short(quantile(took, 1)))
}

// startCall starts a call and waits until the server executes it.
func startCall(ctx context.Context, t *testing.T, events *mcpserver.EventLog, p mcpclient.Client, up, id, more string) (mcpserver.Event, chan *call) {
	t.Helper()
	c := &call{id: id, nonce: rand.Text()[:10], tenant: "t", server: up, tool: "slow", extraArgs: more}
	done := make(chan *call, 1)
	go func() {
		c.send(ctx, p)
		done <- c
	}()
	var ran mcpserver.Event
	if !wait.True(3*time.Second, func() bool {
		if runs := events.Executions()[c.nonce]; len(runs) > 0 {
			ran = runs[0]
		}
		return ran.What != ""
	}) {
		t.Fatalf("%s did not get the call", up)
	}
	return ran, done
}

// cancelCall cancels a call, by disconnecting or by its id, and waits until the server knows.
func cancelCall(t *testing.T, events *mcpserver.EventLog, p mcpclient.Client, up string, hangUp bool) (time.Duration, bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	id := mcpwire.Quote("r17-" + rand.Text()[:6])
	ran, done := startCall(ctx, t, events, p, up, id, `"delay_ms":4000`)
	begin := time.Now()
	if !hangUp {
		if err := p.Notify(t.Context(), "notifications/cancelled", `{"requestId":`+id+`,"reason":"changed my mind"}`); err != nil {
			t.Fatal(err)
		}
	} else {
		cancel()
	}
	var knew mcpserver.Event
	if !wait.True(time.Second, func() bool { knew = findCancellation(events, up, ran); return knew.What != "" }) {
		t.Errorf("%s was not notified; its events after the call: %+v", up, seenSince(events, up, ran))
		return 0, false
	}
	took := knew.Time().Sub(begin)
	if took > time.Duration(shortOrFull(250, 100))*time.Millisecond {
		t.Errorf("the cancellation took %s to reach %s", took, up)
	}
	time.Sleep(50 * time.Millisecond) // a response now would be wrong
	cancel()
	<-done
	return took, true
}

// findCancellation finds the event by which the server learns of it: a disconnect for modern HTTP, otherwise
// a notification with its own id.
func findCancellation(events *mcpserver.EventLog, up string, ran mcpserver.Event) mcpserver.Event {
	for _, e := range events.Events(mcpserver.Cancelled, mcpserver.HungUp) {
		want := mcpserver.Cancelled
		if up == "new-http" {
			want = mcpserver.HungUp
		}
		if e.What == want && e.Server == up && e.ID == ran.ID && e.At >= ran.At {
			return e
		}
	}
	return mcpserver.Event{}
}

func seenSince(events *mcpserver.EventLog, up string, ran mcpserver.Event) []mcpserver.Event {
	var out []mcpserver.Event
	for _, e := range events.Events() {
		if e.Server == up && e.At > ran.At {
			out = append(out, e)
		}
	}
	return out
}

// TestR17LegacyDisconnect: in the legacy revision a disconnect is no cancellation; the call is executed to
// its end.
func TestR17LegacyDisconnect(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, allServerKinds(t, events)...)
	g := s.start(t)
	p := g.connect(t, mcpwire.Legacy)
	names := idsOf(s.servers)
	waitReady(t, p, names...)
	for i, up := range names {
		t.Run(up, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ran, done := startCall(ctx, t, events, p, up, fmt.Sprint(i+1), `"delay_ms":500`)
			cancel()
			<-done
			if !wait.True(2*time.Second, func() bool { return finished(events, ran.Nonce) }) {
				t.Errorf("%s did not finish the call: %+v", up, seenSince(events, up, ran))
			}
			if e := findCancellation(events, up, ran); e.What != "" {
				t.Errorf("%s was asked to cancel: %+v", up, e)
			}
		})
	}
	report(t, "R17", "a legacy client disconnects, 5 kinds of upstream", nil, "no call was cancelled")
}

func finished(events *mcpserver.EventLog, nonce string) bool {
	for _, e := range events.Events(mcpserver.Finished) {
		if e.Nonce == nonce {
			return true
		}
	}
	return false
}
