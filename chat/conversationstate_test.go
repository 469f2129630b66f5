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
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/recall"
)

// markLast puts a cache_control on the last block of a /v1/messages request, as coding agents do on
// every turn.
func markLast(body string) string {
	return strings.TrimSuffix(body, `}]}]}`) + `,"cache_control":{"type":"ephemeral"}}]}]}`
}

// markedRequest is a request of n turns with a cache_control on its last block.
func markedRequest(n int) string { return markLast(requestBodies["/v1/messages"](n)) }

// clock is a clock that tests set.
type clock struct{ now time.Time }

func (c *clock) time() time.Time { return c.now }

// newReplica is a gateway on a shared store, in front of a provider with discounted cache reads.
func newReplica(t *testing.T, f *stubProvider, r *recall.Recall, c *clock, change func(*history.Policy)) *gateway {
	t.Helper()
	p := providerConfig("p", "anthropic", f.URL, func(p *chat.Provider) {
		p.Cache.Write, p.Cache.Read, p.Cache.TTL = 1.25, .1, unitDuration(5*time.Minute)
	})
	return newGateway(t, []chat.Provider{p}, func(s *chat.Settings, d *chat.Deps) {
		d.Shrink = masking.New(r, c.time).Shrink
		twoTurnWindow(&s.Chat.ObservationMasking.Schema1)
		change(&s.Chat.ObservationMasking.Schema1)
	})
}

// sendAndCapture posts a request and returns the body that the provider received.
func (g *gateway) sendAndCapture(t *testing.T, f *stubProvider, body string) string {
	t.Helper()
	g.post(t, "/v1/messages", body, nil)
	calls := f.requests()
	return string(calls[len(calls)-1].body)
}

// beforeLastMark is the body up to its last cache_control: the prefix that the next request should share.
func beforeLastMark(body string) string {
	at := strings.LastIndex(body, `,"cache_control"`)
	return body[:at]
}

// H+1: nothing at or before the last cache_control is rewritten while the provider's cache may be
// alive. Once it has certainly expired, one sweep masks the old results, and from then on every
// replica sends the same bytes.
func TestHPlus1SweepWhenCacheExpired(t *testing.T) {
	f, r, c := newStubProvider(t, respond(http.StatusOK, `{}`)), newRecall(t, nil), &clock{time.Now()}
	auto := func(p *history.Policy) { p.Advance = history.AdvanceAuto }
	one, two := newReplica(t, f, r, c, auto), newReplica(t, f, r, c, auto)

	for n := 1; n <= 6; n++ {
		c.now = c.now.Add(time.Minute)
		if got := one.sendAndCapture(t, f, markedRequest(n)); got != markedRequest(n) {
			t.Fatalf("turn %d was rewritten: %s", n, got)
		}
	}
	c.now = c.now.Add(6 * time.Minute) // it may be alive: the stored time of the last request is approximate
	if got := two.sendAndCapture(t, f, markedRequest(7)); got != markedRequest(7) {
		t.Fatalf("rewritten after six minutes: %s", got)
	}
	c.now = c.now.Add(time.Hour)
	swept := two.sendAndCapture(t, f, markedRequest(8))
	if masks := placeholder.FindAllString(swept, -1); len(masks) != 6 {
		t.Fatalf("%d results masked after an hour: %s", len(masks), swept)
	}
	last := beforeLastMark(swept)
	for n := 9; n <= 14; n++ {
		c.now = c.now.Add(time.Minute)
		g := map[bool]*gateway{true: one, false: two}[n%2 == 0]
		got := g.sendAndCapture(t, f, markedRequest(n))
		if !strings.HasPrefix(got, last) {
			t.Fatalf("turn %d does not extend turn %d:\n%s\n%s", n, n-1, got, last)
		}
		last = beforeLastMark(got)
	}
}

// H+1: a sweep of one conversation does not apply to a fork of it.
func TestHPlus1ForkIsNotSwept(t *testing.T) {
	f, r, c := newStubProvider(t, respond(http.StatusOK, `{}`)), newRecall(t, nil), &clock{time.Now()}
	g := newReplica(t, f, r, c, func(p *history.Policy) { p.Advance = history.AdvanceAuto })
	g.sendAndCapture(t, f, markedRequest(6))
	c.now = c.now.Add(time.Hour)
	if got := g.sendAndCapture(t, f, markedRequest(7)); !placeholder.MatchString(got) {
		t.Fatal("nothing was swept")
	}
	fork := strings.Replace(markedRequest(7), "line of result 4", "LINE of result 4", 1)
	if got := g.sendAndCapture(t, f, fork); got != fork {
		t.Errorf("rewritten: %s", got)
	}
}

// H+1: a result that was masked after the last cache mark stays masked, with the same bytes, when
// the client moves its mark past it, on every replica.
func TestHPlus1MaskedResultsStayMasked(t *testing.T) {
	f, r, c := newStubProvider(t, respond(http.StatusOK, `{}`)), newRecall(t, nil), &clock{time.Now()}
	stride := func(p *history.Policy) { p.Advance, p.Stride = history.AdvanceStride, 4 }
	one, two := newReplica(t, f, r, c, stride), newReplica(t, f, r, c, stride)
	markedEarly := func(n int) string { // a mark on the first result
		return strings.Replace(requestBodies["/v1/messages"](n), `"tool_use_id":"c0",`, `"tool_use_id":"c0","cache_control":{"type":"ephemeral"},`, 1)
	}
	for n := 1; n <= 7; n++ {
		one.sendAndCapture(t, f, markedEarly(n))
	}
	before := placeholder.FindAllString(one.sendAndCapture(t, f, markedEarly(7)), -1)
	if len(before) == 0 || strings.Contains(before[0], "c0 ") {
		t.Fatalf("masked %q", before)
	}
	after := placeholder.FindAllString(two.sendAndCapture(t, f, markedRequest(8)), -1)
	if fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("masked %q, then %q", before, after)
	}
}

// H+1: with past_breakpoints the window moves as it does for a provider that caches automatically.
func TestHPlus1PastBreakpoints(t *testing.T) {
	f, r, c := newStubProvider(t, respond(http.StatusOK, `{}`)), newRecall(t, nil), &clock{time.Now()}
	pastBreakpoints := func(p *history.Policy) { p.Advance, p.Stride, p.PastBreakpoints = history.AdvanceStride, 4, true }
	one, two := newReplica(t, f, r, c, pastBreakpoints), newReplica(t, f, r, c, pastBreakpoints)
	breaks, last := 0, ""
	for n := 1; n <= 20; n++ {
		g := map[bool]*gateway{true: one, false: two}[n%3 == 0]
		got := g.sendAndCapture(t, f, markedRequest(n))
		if !strings.HasPrefix(got, last) {
			breaks++
		}
		last = beforeLastMark(got)
	}
	if masks := placeholder.FindAllString(last, -1); len(masks) < 14 || breaks > 5 {
		t.Errorf("%d results masked, the prefix broke %d times", len(masks), breaks)
	}
}

// I10: if the store fails, requests are sent unchanged.
func TestConversationStateFailsOpen(t *testing.T) {
	f, c := newStubProvider(t, respond(http.StatusOK, `{}`)), &clock{time.Now()}
	g := newReplica(t, f, newRecall(t, func(k *recall.Config) { k.Enabled = false }), c, func(p *history.Policy) { p.Advance = history.AdvanceAuto })
	for n := 1; n <= 3; n++ {
		if got := g.sendAndCapture(t, f, markedRequest(n)); got != markedRequest(n) {
			t.Errorf("turn %d was rewritten: %s", n, got)
		}
		c.now = c.now.Add(time.Hour)
	}
}

// H+1: the sweep also happens for providers that cache automatically.
func TestHPlus1SweepWithAutomaticCaching(t *testing.T) {
	for path, kind := range map[string]string{"/v1/chat/completions": "openai", "/v1/responses": "openai"} {
		t.Run(path, func(t *testing.T) {
			f, r, c := newStubProvider(t, respond(http.StatusOK, `{}`)), newRecall(t, nil), &clock{time.Now()}
			p := providerConfig("p", kind, f.URL, func(p *chat.Provider) { p.Cache.Write, p.Cache.Read = 1, .1 })
			g := newGateway(t, []chat.Provider{p}, func(s *chat.Settings, d *chat.Deps) {
				d.Shrink = masking.New(r, c.time).Shrink
				twoTurnWindow(&s.Chat.ObservationMasking.Schema1)
				s.Chat.ObservationMasking.Schema1.Advance = history.AdvancePressure // such small requests never reach its trigger
			})
			sendTurns := func(n int) string {
				g.post(t, path, requestBodies[path](n), nil)
				calls := f.requests()
				return string(calls[len(calls)-1].body)
			}
			if got := sendTurns(6); got != requestBodies[path](6) {
				t.Fatalf("rewritten: %s", got)
			}
			c.now = c.now.Add(time.Hour)
			swept := sendTurns(7)
			if masks := placeholder.FindAllString(swept, -1); len(masks) != 5 {
				t.Fatalf("%d results masked after an hour: %s", len(masks), swept)
			}
			if got := sendTurns(8); !strings.HasPrefix(got, strings.TrimSuffix(swept, "]}")) {
				t.Errorf("turn 8 does not extend turn 7: %s", got)
			}
		})
	}
}

// I4, H+1: replicas that take turns, each trusting its local state for a while, send the same bytes as
// a single gateway, also after sweeps by any of them.
func TestHPlus1ReplicasTakeTurns(t *testing.T) {
	const path = "/v1/chat/completions"
	sweeps := 0
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		f, c := newStubProvider(t, respond(http.StatusOK, `{}`)), &clock{time.Now()}
		gatewayOn := func(r *recall.Recall) *gateway {
			p := providerConfig("p", "openai", f.URL, func(p *chat.Provider) { p.Cache.Write, p.Cache.Read, p.Cache.TTL = 1, .1, unitDuration(5*time.Minute) })
			return newGateway(t, []chat.Provider{p}, func(s *chat.Settings, d *chat.Deps) {
				d.Shrink = masking.New(r, c.time).Shrink
				twoTurnWindow(&s.Chat.ObservationMasking.Schema1)
				s.Chat.ObservationMasking.Schema1.Advance = history.AdvancePressure // such small requests never reach its trigger
			})
		}
		retention := ""
		sendTurns := func(g *gateway, n int) string {
			g.post(t, path, strings.Replace(requestBodies[path](n), "{", "{"+retention, 1), nil)
			calls := f.requests()
			return string(calls[len(calls)-1].body)
		}
		single, shared := gatewayOn(newRecall(t, nil)), newRecall(t, nil)
		replicas := []*gateway{gatewayOn(shared), gatewayOn(shared), gatewayOn(shared)}
		masked := 0
		for n := 4; n < 40; n++ {
			retention = []string{"", "", `"prompt_cache_retention":"24h",`}[rnd.IntN(3)]
			want := sendTurns(single, n)
			if got := sendTurns(replicas[rnd.IntN(len(replicas))], n); got != want {
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
		t.Errorf("only %d sweeps: the test covers too little", sweeps)
	}
}

// I10: concurrent requests of one conversation do not share mutable state while the store is down
// (meaningful with -race).
func TestConversationStateConcurrently(t *testing.T) {
	f, c := newStubProvider(t, respond(http.StatusOK, `{}`)), &clock{time.Now()}
	r, store := newFaultyRecall(t, otherTimeout)
	g := newReplica(t, f, r, c, func(p *history.Policy) { p.Advance, p.Stride = history.AdvanceStride, 2 })
	markedEarly := func(n int) string {
		return strings.Replace(requestBodies["/v1/messages"](n), `"content":"go"`, `"content":[{"type":"text","text":"go","cache_control":{"type":"ephemeral"}}]`, 1)
	}
	for n := 1; n <= 9; n++ {
		g.sendAndCapture(t, f, markedEarly(n))
	}
	store.fault.Store(int32(failAll))
	c.now = c.now.Add(time.Hour)
	var requests sync.WaitGroup
	for i := range 8 {
		requests.Go(func() { g.post(t, "/v1/messages", markedEarly(10+i), nil) })
	}
	requests.Wait()
}
