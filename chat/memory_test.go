package chat_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/recall"
)

// markLast puts a cache_control on the last block of a conversation at /v1/messages, as coding
// agents do on every turn.
func markLast(body string) string {
	return strings.TrimSuffix(body, `}]}]}`) + `,"cache_control":{"type":"ephemeral"}}]}]}`
}

// marked is a conversation of n turns with such a mark.
func marked(n int) string { return markLast(talks["/v1/messages"](n)) }

// clock is a time that tests move.
type clock struct{ now time.Time }

func (c *clock) time() time.Time { return c.now }

// replica is a gateway over a store that others share, in front of a provider whose cache gives a
// discount.
func replica(t *testing.T, f *far, r *recall.Recall, c *clock, change func(*history.Policy)) *gate {
	t.Helper()
	p := provider("p", "anthropic", f.URL, func(p *chat.Provider) {
		p.Cache.Write, p.Cache.Read, p.Cache.TTL = 1.25, .1, seconds(5*time.Minute)
	})
	return open(t, []chat.Provider{p}, func(s *chat.Settings, d *chat.Deps) {
		d.Shrink = chat.Mask(r, c.time)
		rolling(&s.Chat.Observation.Schema1)
		change(&s.Chat.Observation.Schema1)
	})
}

// sent posts a conversation and says what the provider got.
func (g *gate) sent(t *testing.T, f *far, body string) string {
	t.Helper()
	g.post(t, "/v1/messages", body, nil)
	calls := f.calls()
	return string(calls[len(calls)-1].body)
}

// unmarked is a body without its last mark and what follows: what the next request begins with.
func unmarked(body string) string {
	at := strings.LastIndex(body, `,"cache_control"`)
	return body[:at]
}

// H+1: nothing at or before the last cache_control is rewritten while the provider's cache may
// live. Once it has surely died, one sweep masks what is old, and from then on any replica sends
// the same bytes.
func TestHPlus1ASweepWhenTheCacheIsDead(t *testing.T) {
	f, r, c := newFar(t, says(http.StatusOK, `{}`)), keeper(t, nil), &clock{time.Now()}
	auto := func(p *history.Policy) { p.Advance = history.Auto }
	one, two := replica(t, f, r, c, auto), replica(t, f, r, c, auto)

	for n := 1; n <= 6; n++ {
		c.now = c.now.Add(time.Minute)
		if got := one.sent(t, f, marked(n)); got != marked(n) {
			t.Fatalf("turn %d was rewritten: %s", n, got)
		}
	}
	c.now = c.now.Add(6 * time.Minute) // it may live: the store knows the last request only roughly
	if got := two.sent(t, f, marked(7)); got != marked(7) {
		t.Fatalf("rewritten after six minutes: %s", got)
	}
	c.now = c.now.Add(time.Hour)
	swept := two.sent(t, f, marked(8))
	if masks := placeholder.FindAllString(swept, -1); len(masks) != 6 {
		t.Fatalf("%d results masked after an hour: %s", len(masks), swept)
	}
	last := unmarked(swept)
	for n := 9; n <= 14; n++ {
		c.now = c.now.Add(time.Minute)
		g := map[bool]*gate{true: one, false: two}[n%2 == 0]
		got := g.sent(t, f, marked(n))
		if !strings.HasPrefix(got, last) {
			t.Fatalf("turn %d does not extend turn %d:\n%s\n%s", n, n-1, got, last)
		}
		last = unmarked(got)
	}
}

// H+1: another conversation that began alike has its own past.
func TestHPlus1AForkWasNotSwept(t *testing.T) {
	f, r, c := newFar(t, says(http.StatusOK, `{}`)), keeper(t, nil), &clock{time.Now()}
	g := replica(t, f, r, c, func(p *history.Policy) { p.Advance = history.Auto })
	g.sent(t, f, marked(6))
	c.now = c.now.Add(time.Hour)
	if got := g.sent(t, f, marked(7)); !placeholder.MatchString(got) {
		t.Fatal("nothing was swept")
	}
	fork := strings.Replace(marked(7), "line of result 4", "LINE of result 4", 1)
	if got := g.sent(t, f, fork); got != fork {
		t.Errorf("rewritten: %s", got)
	}
}

// H+1: what was masked behind a mark stays masked, with the same bytes, when the client moves its
// mark past it, on every replica.
func TestHPlus1WhatWasMaskedStaysSo(t *testing.T) {
	f, r, c := newFar(t, says(http.StatusOK, `{}`)), keeper(t, nil), &clock{time.Now()}
	stride := func(p *history.Policy) { p.Advance, p.Stride = history.Stride, 4 }
	one, two := replica(t, f, r, c, stride), replica(t, f, r, c, stride)
	early := func(n int) string { // a mark on the first result
		return strings.Replace(talks["/v1/messages"](n), `"tool_use_id":"c0",`, `"tool_use_id":"c0","cache_control":{"type":"ephemeral"},`, 1)
	}
	for n := 1; n <= 7; n++ {
		one.sent(t, f, early(n))
	}
	before := placeholder.FindAllString(one.sent(t, f, early(7)), -1)
	if len(before) == 0 || strings.Contains(before[0], "c0 ") {
		t.Fatalf("masked %q", before)
	}
	after := placeholder.FindAllString(two.sent(t, f, marked(8)), -1)
	if fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("masked %q, then %q", before, after)
	}
}

// H+1: with past_breakpoints the window moves as for a provider that caches by itself.
func TestHPlus1PastBreakpoints(t *testing.T) {
	f, r, c := newFar(t, says(http.StatusOK, `{}`)), keeper(t, nil), &clock{time.Now()}
	past := func(p *history.Policy) { p.Advance, p.Stride, p.PastBreakpoints = history.Stride, 4, true }
	one, two := replica(t, f, r, c, past), replica(t, f, r, c, past)
	broken, last := 0, ""
	for n := 1; n <= 20; n++ {
		g := map[bool]*gate{true: one, false: two}[n%3 == 0]
		got := g.sent(t, f, marked(n))
		if !strings.HasPrefix(got, last) {
			broken++
		}
		last = unmarked(got)
	}
	if masks := placeholder.FindAllString(last, -1); len(masks) < 14 || broken > 5 {
		t.Errorf("%d results masked, the prefix broke %d times", len(masks), broken)
	}
}

// I10: a store that fails costs no request.
func TestMemoryFailsOpen(t *testing.T) {
	f, c := newFar(t, says(http.StatusOK, `{}`)), &clock{time.Now()}
	g := replica(t, f, keeper(t, func(k *recall.Config) { k.Enabled = false }), c, func(p *history.Policy) { p.Advance = history.Auto })
	for n := 1; n <= 3; n++ {
		if got := g.sent(t, f, marked(n)); got != marked(n) {
			t.Errorf("turn %d was rewritten: %s", n, got)
		}
		c.now = c.now.Add(time.Hour)
	}
}

// H+1: a provider that caches by itself forgets too.
func TestHPlus1ASweepInEveryShape(t *testing.T) {
	for path, kind := range map[string]string{"/v1/chat/completions": "openai", "/v1/responses": "openai"} {
		t.Run(path, func(t *testing.T) {
			f, r, c := newFar(t, says(http.StatusOK, `{}`)), keeper(t, nil), &clock{time.Now()}
			p := provider("p", kind, f.URL, func(p *chat.Provider) { p.Cache.Write, p.Cache.Read = 1, .1 })
			g := open(t, []chat.Provider{p}, func(s *chat.Settings, d *chat.Deps) {
				d.Shrink = chat.Mask(r, c.time)
				rolling(&s.Chat.Observation.Schema1)
				s.Chat.Observation.Schema1.Advance = history.Pressure // which such small ones never feel
			})
			ask := func(n int) string {
				g.post(t, path, talks[path](n), nil)
				calls := f.calls()
				return string(calls[len(calls)-1].body)
			}
			if got := ask(6); got != talks[path](6) {
				t.Fatalf("rewritten: %s", got)
			}
			c.now = c.now.Add(time.Hour)
			swept := ask(7)
			if masks := placeholder.FindAllString(swept, -1); len(masks) != 5 {
				t.Fatalf("%d results masked after an hour: %s", len(masks), swept)
			}
			if got := ask(8); !strings.HasPrefix(got, strings.TrimSuffix(swept, "]}")) {
				t.Errorf("turn 8 does not extend turn 7: %s", got)
			}
		})
	}
}

// I4, H+1: replicas that take turns, each of which mostly trusts what it knows itself, send what one
// would that has the conversation to itself; also at sweeps, whoever made them.
func TestHPlus1ReplicasTakeTurns(t *testing.T) {
	const path = "/v1/chat/completions"
	sweeps := 0
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		f, c := newFar(t, says(http.StatusOK, `{}`)), &clock{time.Now()}
		gateway := func(r *recall.Recall) *gate {
			p := provider("p", "openai", f.URL, func(p *chat.Provider) { p.Cache.Write, p.Cache.Read, p.Cache.TTL = 1, .1, seconds(5*time.Minute) })
			return open(t, []chat.Provider{p}, func(s *chat.Settings, d *chat.Deps) {
				d.Shrink = chat.Mask(r, c.time)
				rolling(&s.Chat.Observation.Schema1)
				s.Chat.Observation.Schema1.Advance = history.Pressure // which such small ones never feel
			})
		}
		lasts := ""
		ask := func(g *gate, n int) string {
			g.post(t, path, strings.Replace(talks[path](n), "{", "{"+lasts, 1), nil)
			calls := f.calls()
			return string(calls[len(calls)-1].body)
		}
		alone, shared := gateway(keeper(t, nil)), keeper(t, nil)
		replicas := []*gate{gateway(shared), gateway(shared), gateway(shared)}
		masked := 0
		for n := 4; n < 40; n++ {
			lasts = []string{"", "", `"prompt_cache_retention":"24h",`}[rnd.IntN(3)]
			want := ask(alone, n)
			if got := ask(replicas[rnd.IntN(len(replicas))], n); got != want {
				t.Fatalf("seed %d, turn %d:\n%s\n%s", seed, n, got, want)
			}
			if now := len(placeholder.FindAllString(want, -1)); now > masked {
				masked = now
				sweeps++
			}
			c.now = c.now.Add([]time.Duration{time.Second, 40 * time.Second, time.Minute, 100 * time.Second, time.Hour}[rnd.IntN(5)])
		}
	}
	if sweeps < 20 {
		t.Errorf("%d sweeps", sweeps)
	}
}

// I10: requests of one conversation at once, while the store cannot be read, do not share what each
// of them decides.
func TestMemoryAtOnce(t *testing.T) {
	f, c := newFar(t, says(http.StatusOK, `{}`)), &clock{time.Now()}
	r, store := troubledKeeper(t, otherTimeout)
	g := replica(t, f, r, c, func(p *history.Policy) { p.Advance, p.Stride = history.Stride, 2 })
	early := func(n int) string {
		return strings.Replace(talks["/v1/messages"](n), `"content":"go"`, `"content":[{"type":"text","text":"go","cache_control":{"type":"ephemeral"}}]`, 1)
	}
	for n := 1; n <= 9; n++ {
		g.sent(t, f, early(n))
	}
	store.has.Store(int32(fails))
	c.now = c.now.Add(time.Hour)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { g.post(t, "/v1/messages", early(10+i), nil) })
	}
	all.Wait()
}
