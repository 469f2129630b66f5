//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestR19Storm: two upstreams change their lists a thousand times a second and say so each time,
// and one has no stream to say anything on. Clients hear of it at most twice a second, and no
// other upstream's tools ever disappear.
func TestR19Storm(t *testing.T) {
	book := newLedger(t)
	storm := startHTTPFake(t, options{server: "x-http", era: legacy, storm: 1000}, book)
	still := startHTTPFake(t, options{server: "no-get", era: legacy}, book)
	still.noGET.Store(true)
	s := newSite(t, book, child("a", book), child("x-stdio", book, "-storm", "1000"), far("x-http", storm), far("no-get", still))
	g := s.start(t)
	p := g.web(t, modern)
	ready(t, p, "a", "x-stdio", "x-http", "no-get")
	news := openStreams(t, g, 2)

	window := time.Duration(pick(4, 20)) * time.Second
	own, _ := cpuOf(g.pid())
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
	spent, _ := cpuOf(g.pid())
	most := 0
	for _, n := range news {
		most = max(most, n.count("notifications/tools/list_changed"))
	}
	if limit := int(2*window.Seconds()) + 2; most > limit {
		t.Errorf("a client was told %d times in %s; the bar is 2 a second", most, window)
	}
	cs := burst(100, 4, []peer{p}, []string{"a", "no-get"}, nil)
	cs.sound(t, book)
	cs.allOK(t)
	report(t, "R19", fmt.Sprintf("2 × 1,000 list changes a second for %s, one server without GET", window), cs,
		"≤ %d notifications a client; %d lists complete, p50 %s max %s; gateway %.0f %% of a core", most, lists, short(quantile(took, 0.5)), short(quantile(took, 1)), 100*(spent-own).Seconds()/window.Seconds())
}
