//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

// TestR19Storm: two servers send list_changed a thousand times a second, and one has no stream. Clients are
// notified at most twice a second, and the other servers' tools are always listed.
func TestR19Storm(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	storm := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "x-http", Revision: mcpwire.Legacy, ChangesPerSecond: 1000}, events)
	still := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "no-get", Revision: mcpwire.Legacy}, events)
	still.NoGET.Store(true)
	s := newSite(t, events, stdioServer("a", events), stdioServer("x-stdio", events, "-changes-per-second", "1000"), httpServer("x-http", storm), httpServer("no-get", still))
	g := s.start(t)
	p := g.connect(t, mcpwire.Modern)
	waitReady(t, p, "a", "x-stdio", "x-http", "no-get")
	news := openStreams(t, g, 2)

	window := time.Duration(shortOrFull(4, 20)) * time.Second
	own, _ := process.CPUTime(g.PID())
	begin := time.Now()
	lists := 0
	var took []time.Duration
	for ; time.Since(begin) < window; time.Sleep(50 * time.Millisecond) {
		l, err := walkTools(t.Context(), p, 1000+10*lists)
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, l.took)
		lists++
		for _, want := range []string{"a::echo", "no-get::echo", "x-stdio::echo", "x-http::echo"} {
			if !slices.Contains(l.names, want) {
				t.Errorf("list %d is without %s", lists, want)
			}
		}
	}
	spent, _ := process.CPUTime(g.PID())
	most := 0
	for _, n := range news {
		most = max(most, n.Count("notifications/tools/list_changed"))
	}
	if limit := int(2*window.Seconds()) + 2; most > limit {
		t.Errorf("a client was notified %d times in %s, want at most 2 a second", most, window)
	}
	cs := burst(100, 4, []mcpclient.Client{p}, []string{"a", "no-get"}, nil)
	cs.requireSound(t, events)
	cs.requireAllOK(t)
	report(t, "R19", fmt.Sprintf("2 × 1,000 list changes a second for %s, one server without GET", window), cs,
		"≤ %d notifications a client; %d lists complete, p50 %s max %s; gateway %.0f %% of a core", most, lists, short(quantile(took, 0.5)), short(quantile(took, 1)), 100*(spent-own).Seconds()/window.Seconds())
}
