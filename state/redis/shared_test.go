package redis

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/statetest"
)

var modes = []redisserver.Mode{redisserver.Single, redisserver.Sentinel, redisserver.Cluster}

var sharedPrefix atomic.Int64

// openShared opens drivers with one prefix, as replicas do.
func openShared(t testing.TB, s *redisserver.Server, count int) []*Driver {
	t.Helper()
	prefix := fmt.Sprintf("shared%d:", sharedPrefix.Add(1))
	var all []*Driver
	for range count {
		link := s.URL()
		if s.Mode == redisserver.Single {
			link += "?prefix=" + prefix
		} else {
			link += "&prefix=" + prefix
		}
		d, err := Open(t.Context(), Config{URL: link, Durability: "none"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		all = append(all, d)
	}
	return all
}

func TestShared(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			s := redisserver.Shared(t, mode)
			statetest.TestShared(t, func(t *testing.T) (state.Shared, state.Shared) {
				two := openShared(t, s, 2)
				return two[0], two[1]
			})
		})
	}
}

// R13: the script gives the answers of [state.Rate.Use], which equals a model over rational numbers, on random traces. The
// million traces of CTXGATE_LONG=1 take minutes.
func TestR13ScriptEqualsModel(t *testing.T) {
	traces := 300
	if os.Getenv("CTXGATE_LONG") != "" {
		traces = 1_000_000
	}
	d := openShared(t, redisserver.Shared(t, redisserver.Single), 1)[0]
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test
	between := func(low, high int64) int64 { return low + random.Int64N(high-low+1) }
	for trace := range traces {
		rates := make([]state.Rate, between(1, 3))
		full := make([]state.Moment, len(rates))
		step := int64(0)
		for i := range rates {
			r := state.Rate{Calls: between(1, 10), Every: time.Duration(between(1, 1000)) * time.Microsecond, Burst: between(1, 10)}
			if random.IntN(2) == 0 {
				r = state.Rate{Calls: between(1, 100_000_000), Every: time.Duration(between(int64(time.Hour), int64(366*24*time.Hour))), Burst: between(1, 100_000_000)}
				if r.Refill(r.Burst).Micros > int64(366*24*time.Hour/time.Microsecond) {
					r.Burst = r.Calls
				}
			}
			r.Group, r.Key = "g", "trace"+strconv.Itoa(trace)+"rate"+strconv.Itoa(i)
			rates[i] = r
			step = max(step, r.Refill(1).Micros)
		}
		now := time.Now().UnixMicro()
		for range 8 {
			now += between(0, 3) * between(0, step)
			ok, limit, retry := true, 0, time.Duration(0)
			next, spent, extras := make([]state.Moment, len(rates)), make([]state.Moment, len(rates)), make([]int64, len(rates))
			for i := range rates {
				r := &rates[i]
				r.Cost, r.Extra, r.Spent = between(0, 2), max(0, between(-5, 5)), 0
				if random.IntN(4) == 0 {
					r.Cost, r.Extra, r.Spent = between(0, r.Burst), max(0, between(-1_000_000, 1_000_000)), between(-r.Burst, r.Burst)
				}
				only := *r
				only.Cost, only.Extra = 0, 0
				spent[i], _, _ = only.Use(full[i], now)
				var wait time.Duration
				if next[i], extras[i], wait = r.Use(full[i], now); wait > retry {
					ok, limit, retry = false, i, wait
				}
			}
			got, err := d.takeOnce(t.Context(), rates, strconv.FormatInt(now, 10))
			if err != nil {
				t.Fatal(err)
			}
			if got.OK != ok || got.Limit != limit || got.Retry != retry || ok && fmt.Sprint(got.Extra) != fmt.Sprint(extras) {
				t.Fatalf("trace %d: %+v at %d, full at %v: %+v; want %t, rate %d, %v, %v", trace, rates, now, full, got, ok, limit, retry, extras)
			}
			for i, r := range rates {
				if ok {
					full[i] = next[i]
				} else if r.Spent != 0 {
					full[i] = spent[i]
				}
			}
		}
	}
}

// A subscriber whose connection is lost is told that it may have missed something, and then gets signals again.
func TestSubscribeAgain(t *testing.T) {
	s := redisserver.Start(t, redisserver.Single, redisserver.Options{AppendFsync: "off"})
	d := openShared(t, s, 1)[0]
	var begun, got atomic.Int64
	d.Subscribe(t.Context(), "t", func(payload []byte) {
		if payload == nil {
			begun.Add(1)
		} else {
			got.Add(1)
		}
	})
	wait.For(t, "the subscription", func() bool { return begun.Load() == 1 })
	if _, err := s.Nodes[0].Do("CLIENT", "KILL", "TYPE", "pubsub"); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the second subscription", func() bool { return begun.Load() >= 2 })
	wait.For(t, "a signal", func() bool {
		_ = d.Publish(t.Context(), "t", []byte("x")) // its connection may have been lost, too
		return got.Load() > 0
	})
}
