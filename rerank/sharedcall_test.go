package rerank

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// still is a client with fake time, whose server takes a while for each reply.
func still(cfg Config, serve func(n int64, r *http.Request) *http.Response) (*Client, *atomic.Int64) {
	calls := new(atomic.Int64)
	cfg.Shape, cfg.URL, cfg.Key = DeepInfra, "https://api.example/v1/inference/m", secret.Literal(testKey)
	return New(cfg, roundTrip(func(r *http.Request) (*http.Response, error) {
		n := calls.Add(1)
		if resp := serve(n, r); resp != nil {
			return resp, nil
		}
		<-r.Context().Done()
		return nil, r.Context().Err()
	})), calls
}

func after(d time.Duration, resp func() *http.Response) func(int64, *http.Request) *http.Response {
	return func(_ int64, r *http.Request) *http.Response {
		select {
		case <-time.After(d):
			return resp()
		case <-r.Context().Done():
			return nil
		}
	}
}

func scored() *http.Response { return reply(200, `{"scores":[0.5]}`) }

// P10: MCP_PRUNER_CACHE_TTL_S. P11: a cached result needs no request and no time.
func TestCacheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, calls := still(Config{CacheTTL: 30 * time.Second, CacheEntries: 8}, after(time.Second, scored))
		ask := func(cached bool, sofar int64) {
			t.Helper()
			got, err := client.Score(t.Context(), "q", []string{"a"})
			if err != nil || got.Cached != cached || !slices.Equal(got.Scores, []float64{0.5}) || got.Status != 200 {
				t.Errorf("got %+v, %v", got, err)
			}
			if want := map[bool]time.Duration{true: 0, false: time.Second}[cached]; got.Latency != want {
				t.Errorf("latency %v, want %v", got.Latency, want)
			}
			if n := calls.Load(); n != sofar {
				t.Errorf("%d requests, want %d", n, sofar)
			}
			clear(got.Scores) // what a caller does to its answer is its own business
		}
		ask(false, 1)
		ask(true, 1)
		time.Sleep(30*time.Second - time.Nanosecond)
		ask(true, 1)
		time.Sleep(time.Nanosecond)
		ask(false, 2)
		ask(true, 2)
	})
}

// P10: MCP_PRUNER_CACHE_MAX_ITEMS.
func TestCacheEvictsTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := still(Config{CacheTTL: time.Hour, CacheEntries: 3}, after(time.Second, scored))
		ask := func(query string) bool {
			got, err := client.Score(t.Context(), query, []string{"a"})
			if err != nil {
				t.Error(err)
			}
			return got.Cached
		}
		for _, step := range []struct {
			query  string
			cached bool
		}{{"1", false}, {"2", false}, {"3", false}, {"1", true}, {"4", false}, {"2", true}, {"3", true}, {"4", true}, {"1", false}, {"2", false}} {
			if got := ask(step.query); got != step.cached {
				t.Errorf("query %s: cached %v", step.query, got)
			}
		}
		for i := range 100 {
			ask(fmt.Sprint("many ", i))
			if i%10 == 0 {
				time.Sleep(2 * time.Hour)
			}
		}
		if k, o := len(client.cache.entries), len(client.cache.order); k != o || k > 3 {
			t.Errorf("%d answers are kept, %d in order", k, o)
		}
	})
}

func TestNoCache(t *testing.T) {
	for _, cfg := range []Config{{}, {CacheTTL: time.Hour}, {CacheEntries: 9}} {
		synctest.Test(t, func(t *testing.T) {
			client, calls := still(cfg, after(time.Second, scored))
			for range 2 {
				if got, err := client.Score(t.Context(), "q", []string{"a"}); err != nil || got.Cached {
					t.Errorf("got %+v, %v", got, err)
				}
			}
			if n := calls.Load(); n != 2 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// Failures are not cached, and queries differ if the boundaries of their texts do.
func TestCacheTellsQueriesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, calls := still(Config{CacheTTL: time.Hour, CacheEntries: 99}, func(n int64, _ *http.Request) *http.Response {
			if n == 1 {
				return reply(401, "")
			}
			return reply(200, `{"scores":[0.5]}`)
		})
		if _, err := client.Score(t.Context(), "ab", []string{"c"}); err == nil {
			t.Error("no error")
		}
		for _, q := range [][2]string{{"ab", "c"}, {"a", "bc"}, {"abc", "c"}, {"c", "ab"}} {
			if got, err := client.Score(t.Context(), q[0], q[1:]); err != nil || got.Cached {
				t.Errorf("%q: got %+v, %v", q, got, err)
			}
		}
		if n := calls.Load(); n != 5 {
			t.Errorf("%d requests", n)
		}
	})
}

// Concurrent calls with the same query share one request.
func TestCallsShareARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, calls := still(Config{CacheTTL: time.Minute, CacheEntries: 9}, after(time.Second, scored))
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				got, err := client.Score(t.Context(), "q", []string{"a"})
				if err != nil || got.Cached || got.Latency != time.Second || !slices.Equal(got.Scores, []float64{0.5}) {
					t.Errorf("got %+v, %v", got, err)
				}
				clear(got.Scores)
			})
		}
		all.Wait()
		if n := calls.Load(); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// The call that started a request may be cancelled; the last waiter that leaves cancels the request.
func TestLeavingASharedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int64
		client, calls := still(Config{Timeout: time.Minute}, func(_ int64, r *http.Request) *http.Response {
			context.AfterFunc(r.Context(), func() { ended.Add(1) })
			select {
			case <-time.After(10 * time.Second):
				return scored()
			case <-r.Context().Done():
				return nil
			}
		})
		first, leaveFirst := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := client.Score(first, "q", []string{"a"}); !errors.Is(err, context.Canceled) {
				t.Errorf("the first got %v", err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if got, err := client.Score(t.Context(), "q", []string{"a"}); err != nil || got.Scores[0] != 0.5 {
				t.Errorf("the second got %+v, %v", got, err)
			}
		})
		time.Sleep(time.Second)
		leaveFirst()
		all.Wait()
		if n := calls.Load(); n != 1 {
			t.Errorf("%d requests", n)
		}

		synctest.Wait()
		before := ended.Load()
		only, leave := context.WithTimeout(t.Context(), 3*time.Second)
		defer leave()
		if _, err := client.Score(only, "other", []string{"a"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if ended.Load() != before+1 || len(client.calls) != 0 {
			t.Errorf("a request without waiting callers goes on")
		}
	})
}

// A call that has more time than the one it joined starts a new request within its own deadline.
func TestEachCallHasItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, calls := still(Config{Timeout: 20 * time.Second}, after(5*time.Second, scored))
		hurried, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := client.Score(hurried, "q", []string{"a"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the hurried call got %v", err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			got, err := client.Score(t.Context(), "q", []string{"a"})
			if err != nil || time.Since(start) != 7*time.Second || got.Latency != 5*time.Second {
				t.Errorf("the patient call got %+v, %v after %v", got, err, time.Since(start))
			}
		})
		all.Wait()
		if n := calls.Load(); n != 2 {
			t.Errorf("%d requests", n)
		}
	})
}

// A busy server gets four attempts, with growing delays, and not before its Retry-After.
func TestBackoff(t *testing.T) {
	for _, tt := range []struct {
		name     string
		after    string
		timeout  time.Duration
		calls    int64
		min, max time.Duration
	}{
		{"no Retry-After", "", time.Minute, 4, 700 * time.Millisecond, 1400 * time.Millisecond},
		{"invalid Retry-After", "soon", time.Minute, 4, 700 * time.Millisecond, 1400 * time.Millisecond},
		{"seconds", "3", time.Minute, 4, 9 * time.Second, 9 * time.Second},
		{"seconds that fit once", "3", 5 * time.Second, 2, 3 * time.Second, 3 * time.Second},
		{"seconds that do not fit", "5", 5 * time.Second, 1, 0, 0},
		{"a date", time.Date(2000, 1, 1, 0, 0, 2, 0, time.UTC).Format(http.TimeFormat), time.Minute, 4, 2 * time.Second, 4 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // whose clock begins with the year 2000
				client, calls := still(Config{Timeout: tt.timeout}, func(int64, *http.Request) *http.Response {
					return reply(429, "", "Retry-After", tt.after)
				})
				start := time.Now()
				_, err := client.Score(t.Context(), "q", []string{"a"})
				var e *Error
				if !errors.As(err, &e) || e.Status != 429 {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); calls.Load() != tt.calls || took < tt.min || took > tt.max {
					t.Errorf("%d requests in %v", calls.Load(), took)
				}
			})
		})
	}
}
