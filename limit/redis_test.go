package limit

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/state/redis"
)

// redisReplicas are the limiters of four processes, each with connections of its own.
func redisReplicas(t *testing.T, s *redisserver.Server, cfg Config, timeout time.Duration) []*Limiter {
	t.Helper()
	var all []*Limiter
	for range replicaCount {
		d, err := redis.Open(t.Context(), redis.Config{URL: s.URL(), Durability: "none"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		l := New(cfg, time.Now)
		l.Share(Shared{Counters: d, Replicas: func() int { return replicaCount }, Timeout: timeout})
		all = append(all, l)
	}
	return all
}

// runOut calls until a call is refused, and returns when that was sent.
func (o *load) runOut(l *Limiter, start time.Time) time.Duration {
	time.Sleep(maxRefusal) // what was refused before is not repeated
	for {
		var h Hold
		before := time.Since(start)
		if l.Enter(Caller{Tenant: "a"}, Target{Server: "fs"}, &h) != nil {
			return before
		}
		o.accepted = append(o.accepted, before)
	}
}

// R13 with a real store: four replicas under ten times the limit accept at most the limit, the burst and 1 %, and at least 99 % of
// all that is allowed.
func TestR13Redis(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and waits most of the time")
	}
	span, modes := 2*time.Second, []redisserver.Mode{redisserver.Single, redisserver.Cluster}
	cases := []struct{ perSecond, burst int }{{400, 4000}}
	if os.Getenv("CTXGATE_LONG") != "" {
		cases = append(cases, cases[0])
		cases[0].perSecond, cases[0].burst = 100, 500
		span, modes = time.Minute, append(modes, redisserver.Sentinel)
	}
	for _, mode := range modes {
		s := redisserver.Start(t, mode, redisserver.Options{AppendFsync: "off"})
		for _, c := range cases {
			t.Run(fmt.Sprintf("%s, %d per second, burst %d", mode, c.perSecond, c.burst), func(t *testing.T) {
				// A busy machine must not look like a store that is away. The bucket takes seconds to fill, so that no call is
				// lost while the machine does something else.
				replicas := redisReplicas(t, s, sharedLimit(c.perSecond, c.burst), 20*time.Second)
				var o load
				start := time.Now()
				o.run(replicas, 10, time.Second*replicaCount/time.Duration(c.perSecond+2*c.burst/3), span)
				// When one more call is refused, all that was allowed until then was used.
				before := o.runOut(replicas[0], start)
				allowed := func(span time.Duration) float64 { return float64(c.burst) + float64(c.perSecond)*span.Seconds() }
				least, most, got := allowed(before), allowed(time.Since(start)), float64(len(o.accepted))
				t.Logf("%d calls in %v, %.0f accepted; %.0f are allowed", o.asked, before, got, least)
				if got > most+max(1, most/100) || got < 0.99*least-1 {
					t.Errorf("%.0f of %.0f allowed were accepted", got, least)
				}
			})
		}
	}
}

// R13 with a real store that stops for a while: at most 1.2 times the limit is accepted.
func TestR13RedisAway(t *testing.T) {
	s := redisserver.Start(t, redisserver.Single, redisserver.Options{AppendFsync: "off"})
	const perSecond, burst = 100, 100
	replicas := redisReplicas(t, s, sharedLimit(perSecond, burst), 0)
	const span = 3 * time.Second
	go func() {
		for range 2 {
			time.Sleep(700 * time.Millisecond)
			_ = s.Nodes[0].Pause()
			time.Sleep(700 * time.Millisecond)
			_ = s.Nodes[0].Resume()
		}
	}()
	var o load
	start := time.Now()
	o.run(replicas, 3, 10*time.Millisecond, span)
	allowed := burst + perSecond*time.Since(start).Seconds()
	t.Logf("%d calls, %d accepted; %.0f are allowed", o.asked, len(o.accepted), allowed)
	if got := float64(len(o.accepted)); got > 1.2*allowed {
		t.Errorf("%.0f of %.0f allowed were accepted", got, allowed)
	}
}
