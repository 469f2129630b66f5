package meter_test

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/ctxgate/ctxgate/meter"
)

func books() *meter.Meter {
	return meter.New("v", func() (meter.Store, bool) { return meter.Store{}, true })
}

var (
	cheap = meter.Rates{Write: 1.25, Read: .1} // as Anthropic
	half  = meter.Rates{Write: 1, Read: .5}
)

// What one reply cost, would have cost, and why, reckoned by hand. A request that goes out as 1000
// estimated tokens and is billed as 1000 makes an estimated token one of the provider's.
func TestReckoning(t *testing.T) {
	cut := func(tokens int) []meter.Cut { return []meter.Cut{{Tool: "read", Tokens: tokens}} }
	fresh := func(tokens int) []meter.Cut { return []meter.Cut{{Tool: "read", Tokens: tokens, New: true}} }
	for name, tt := range map[string]struct {
		e     meter.Entry
		want  meter.Cost
		cause meter.Cause
		miss  int64
	}{
		"nothing is known of the request": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Fresh: 100, Cached: 900, Created: 80}},
			meter.Cost{Billed: 100 + 90 + 100, Unmasked: 290}, meter.Hit, 0,
		},
		"some is written for an hour": {
			meter.Entry{Rates: meter.Rates{Write: 1.25, Read: .1, Long: 2}, Used: meter.Tokens{Cached: 900, Created: 1000, Long: 400}},
			meter.Cost{Billed: 90 + 750 + 800, Unmasked: 1640}, meter.Hit, 0,
		},
		"nothing was cut": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 9000, Created: 1000}, Sent: 10000, Came: 10000, Before: 9000, Standing: meter.Warm},
			meter.Cost{Billed: 900 + 1250, Unmasked: 2150}, meter.Hit, 0,
		},
		"a hit: what is old would have been read": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 9000, Created: 1000}, Sent: 10000, Came: 15000, Before: 14000, Standing: meter.Warm, Cuts: cut(5000)},
			meter.Cost{Billed: 2150, Unmasked: 2150 + 500}, meter.Hit, 0,
		},
		"an estimated token is 0.8 of the provider's": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 7000, Created: 1000}, Sent: 10000, Came: 15000, Before: 14000, Standing: meter.Warm, Cuts: cut(5000)},
			meter.Cost{Billed: 700 + 1250, Unmasked: 1950 + 400}, meter.Hit, 0,
		},
		"an estimated token counts for 1.5 at most": {
			meter.Entry{Rates: half, Used: meter.Tokens{Cached: 8000}, Sent: 1000, Came: 1100, Before: 1000, Standing: meter.Warm, Cuts: cut(100)},
			meter.Cost{Billed: 4000, Unmasked: 4000 + 75}, meter.Hit, 0,
		},
		"cut at birth: it would have been written": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 9000, Created: 1000}, Sent: 10000, Came: 14000, Before: 9000, Standing: meter.Warm, Cuts: []meter.Cut{{Tool: "read", Tokens: 4000, Born: true, New: true}}},
			meter.Cost{Billed: 2150, Unmasked: 2150 + 5000}, meter.Hit, 0,
		},
		"cut at birth, and nothing is said of writing": {
			meter.Entry{Rates: half, Used: meter.Tokens{Cached: 9000, Fresh: 1000}, Sent: 10000, Came: 14000, Before: 9000, Standing: meter.Warm, Cuts: []meter.Cut{{Tool: "read", Tokens: 4000, Born: true, New: true}}},
			meter.Cost{Billed: 5500, Unmasked: 5500 + 4000}, meter.Hit, 0,
		},
		"cut at birth, some turns ago": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 9000, Created: 1000}, Sent: 10000, Came: 14000, Before: 13000, Standing: meter.Warm, Cuts: []meter.Cut{{Tool: "read", Tokens: 4000, Born: true}}},
			meter.Cost{Billed: 2150, Unmasked: 2150 + 400}, meter.Hit, 0,
		},
		// The last request was 14000 long and in the cache: .1 of these, and 1.25 of the 1000 that
		// are new. 2000 before the first cut were still read; 14000-2000 were shown and lost, of
		// which 8000 are in this request.
		"our move": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 2000, Created: 8000}, Sent: 10000, Came: 15000, Before: 14000, Standing: meter.Warm, Moved: true, Cuts: fresh(5000)},
			meter.Cost{Billed: 200 + 10000, Unmasked: 1400 + 1250}, meter.ByUs, 8000,
		},
		// As much was cut before, and is again: the last request showed 20000-6000.
		"our second move": {
			meter.Entry{Rates: half, Used: meter.Tokens{Cached: 4000, Fresh: 6000}, Sent: 10000, Came: 21000, Before: 20000, Standing: meter.Warm, Moved: true, Cuts: append(cut(6000), fresh(5000)...)},
			meter.Cost{Billed: 2000 + 6000, Unmasked: 10000 + 1000}, meter.ByUs, 6000,
		},
		"the same request again, after our move": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 10000}, Sent: 10000, Came: 15000, Before: 15000, Standing: meter.Warm, Cuts: cut(5000)},
			meter.Cost{Billed: 1000, Unmasked: 1500}, meter.Hit, 0,
		},
		"a move while nothing is cached": {
			meter.Entry{Rates: meter.Rates{Write: 1, Read: 1}, Used: meter.Tokens{Fresh: 10000}, Sent: 10000, Came: 15000, Moved: true, Cuts: fresh(5000)},
			meter.Cost{Billed: 10000, Unmasked: 15000}, meter.Hit, 0,
		},
		"no prices": {
			meter.Entry{Used: meter.Tokens{Fresh: 5000, Cached: 5000}, Sent: 10000, Came: 15000, Moved: true, Cuts: fresh(5000)},
			meter.Cost{Billed: 10000, Unmasked: 15000}, meter.Hit, 0,
		},
		"messages without marks": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 1000, Fresh: 9000}, Sent: 10000, Came: 15000, Before: 14000, Standing: meter.Warm, Moved: true, Unmarked: true, Cuts: fresh(5000)},
			meter.Cost{Billed: 100 + 9000, Unmasked: 9100 + 5000}, meter.Hit, 0,
		},
		"the first request": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Created: 10000}, Sent: 10000, Came: 10000},
			meter.Cost{Billed: 12500, Unmasked: 12500}, meter.Cold, 10000,
		},
		"the first that is seen of an old conversation": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Created: 10000}, Sent: 10000, Came: 15000, Moved: true, Cuts: fresh(5000)},
			meter.Cost{Billed: 12500, Unmasked: 12500 + 6250}, meter.Cold, 10000,
		},
		"too short for a cache": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Fresh: 1000}, Sent: 1000, Came: 1000},
			meter.Cost{Billed: 1000, Unmasked: 1000}, meter.Hit, 0,
		},
		// It would all have been written but for the tenth that the cache still had; of the last
		// request 9000 were shown.
		"expired": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 1000, Created: 9000}, Sent: 10000, Came: 15000, Before: 14000, Standing: meter.Expired, Cuts: cut(5000)},
			meter.Cost{Billed: 100 + 11250, Unmasked: 11350 + 5000*.1*.1 + 5000*.9*1.25}, meter.Lapsed, 8000,
		},
		"expired, and all that is old swept": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Created: 10000}, Sent: 10000, Came: 15000, Before: 14000, Standing: meter.Expired, Moved: true, Cuts: fresh(5000)},
			meter.Cost{Billed: 12500, Unmasked: 12500 + 6250}, meter.Lapsed, 10000,
		},
		"said to be expired, yet there": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 10000}, Sent: 10000, Came: 15000, Before: 14000, Standing: meter.Expired, Cuts: cut(5000)},
			meter.Cost{Billed: 1000, Unmasked: 1000 + 500}, meter.Hit, 0,
		},
		"the client changed it": {
			meter.Entry{Rates: half, Used: meter.Tokens{Cached: 2000, Fresh: 8000}, Sent: 10000, Came: 15000, Before: 14000, Standing: meter.Changed, Cuts: cut(5000)},
			meter.Cost{Billed: 9000, Unmasked: 9000 + 5000*.2*.5 + 5000*.8}, meter.ByClient, 7000,
		},
		// 9000 should have been there and a third was: of what was cut a third would have been read.
		"the provider forgot": {
			meter.Entry{Rates: half, Used: meter.Tokens{Cached: 3000, Fresh: 7000}, Sent: 10000, Came: 16000, Before: 15000, Standing: meter.Warm, Cuts: cut(6000)},
			meter.Cost{Billed: 8500, Unmasked: 8500 + 1000 + 4000}, meter.ByOther, 6000,
		},
		"a request of a recovery": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 9000, Created: 1000}, Sent: 10000, Came: 15000, Before: 14000, Standing: meter.Warm, Cuts: cut(5000), Round: 1, Asked: 40},
			meter.Cost{Billed: 2150, Recovery: 2150, Recalled: 40}, meter.Hit, 0,
		},
		"a request for what was read back": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 9000, Created: 1000}, Sent: 10000, Came: 15000, Before: 14000, Standing: meter.Warm, Cuts: cut(5000), Burden: meter.Burden{New: 900, Extra: true}},
			meter.Cost{Billed: 2150, Recovery: 2150}, meter.Hit, 0,
		},
		"what was read back stays": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 9000, Created: 1000}, Sent: 10000, Came: 15000, Before: 14000, Standing: meter.Warm, Cuts: cut(5000), Burden: meter.Burden{New: 400, Old: 1000}},
			meter.Cost{Billed: 2150, Unmasked: 2150 + 500 - 500 - 100, Recovery: 600}, meter.Hit, 0,
		},
		"what was read back is written late": {
			meter.Entry{Rates: cheap, Used: meter.Tokens{Cached: 8000, Created: 2000}, Sent: 10000, Came: 10000, Before: 9000, Standing: meter.Warm, Burden: meter.Burden{Old: 1500, Late: 1000}},
			meter.Cost{Billed: 800 + 2500, Unmasked: 3300 - 1300, Recovery: 1250 + 50}, meter.Hit, 0,
		},
		// Without what was read back: 14000 of which 13000 were in the last request.
		"our move, and what was read back stays": {
			meter.Entry{Rates: half, Used: meter.Tokens{Cached: 2000, Fresh: 8000}, Sent: 10000, Came: 15000, Before: 14000, Standing: meter.Warm, Moved: true, Cuts: fresh(5000), Burden: meter.Burden{Old: 1000}},
			meter.Cost{Billed: 9000, Unmasked: 6500 + 1000, Recovery: 900}, meter.ByUs, 8000,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := books()
			if got := m.Charge(tt.e); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			total := m.Savings().Total
			for cause, miss := range total.Misses {
				want := meter.Miss{}
				if meter.Cause(cause) == tt.cause {
					want = meter.Miss{Requests: 1, Tokens: tt.miss}
				}
				if miss != want {
					t.Errorf("%v: got %+v, want %+v", meter.Cause(cause), miss, want)
				}
			}
		})
	}
}

// The accounts add up: over models, and over tools.
func TestAccounts(t *testing.T) {
	m := books()
	m.Provider("idle")
	rates := meter.Rates{Write: 1, Read: .1, Input: 3, Output: 15}
	hit := meter.Entry{
		Tenant: "a", Provider: "p", Model: "m1", Rates: rates, Used: meter.Tokens{Fresh: 1000, Cached: 9000, Output: 200},
		Sent: 10000, Came: 15000, Before: 14000, Standing: meter.Warm,
		Cuts: []meter.Cut{{Tool: "read", Tokens: 3000}, {Tool: "grep", Tokens: 1000}, {Tool: "read", Tokens: 1000}},
	}
	m.Charge(hit)
	again := hit
	again.Round, again.Asked = 1, 30
	m.Charge(again)
	elsewhere := meter.Entry{Tenant: "b", Provider: "p", Model: "m2", Used: meter.Tokens{Fresh: 10, Output: 1}}
	m.Charge(elsewhere)

	s := m.Savings()
	want := []meter.Account{
		{
			Tenant: "a", Provider: "p", Model: "m1", Requests: 2, Recoveries: 1, Used: meter.Tokens{Fresh: 2000, Cached: 18000, Output: 400},
			Cost: meter.Cost{Billed: 3800, Unmasked: 2400, Recovery: 1900, Recalled: 30},
			// 3800 at 3 a million, 400 at 15; 1400 and 30 lost.
			Spent: 11400 + 6000, MoneySaved: -4200 - 450, MoneyRecall: 5700 + 450, Misses: meter.Misses{meter.Hit: {Requests: 2}},
		},
		{Tenant: "b", Provider: "p", Model: "m2", Requests: 1, Unpriced: 1, Used: meter.Tokens{Fresh: 10, Output: 1}, Cost: meter.Cost{Billed: 10, Unmasked: 10}, Misses: meter.Misses{meter.Hit: {Requests: 1}}},
	}
	if fmt.Sprint(s.Models) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", s.Models, want)
	}
	tools := []meter.ToolAccount{
		{Tenant: "a", Provider: "p", Model: "m1", Tool: "grep", Results: 1, Tokens: 1000, Saved: 100, MoneySaved: 300},
		{Tenant: "a", Provider: "p", Model: "m1", Tool: "read", Results: 2, Tokens: 4000, Saved: 400, MoneySaved: 1200},
		{Tenant: "a", Provider: "p", Model: "m1", Tool: "recover_text", Saved: -1900, MoneySaved: -5700 - 450},
	}
	if fmt.Sprint(s.Tools) != fmt.Sprint(tools) {
		t.Errorf("got  %+v\nwant %+v", s.Tools, tools)
	}
	if c := s.Total; c.Requests != 3 || c.Cost.Saved() != -1400 || c.Spent != 17400 || c.Unpriced != 1 || s.Since.IsZero() {
		t.Errorf("in all: %+v", c)
	}
	has(t, scrape(t, m),
		`ctxgate_llm_input_cost_tokens_total{kind="billed",provider="p"} 3810`,
		`ctxgate_llm_input_cost_tokens_total{kind="unmasked",provider="p"} 2410`,
		`ctxgate_llm_input_cost_tokens_total{kind="recovery",provider="p"} 1900`,
		`ctxgate_llm_input_cost_tokens_total{kind="billed",provider="idle"} 0`,
		`ctxgate_llm_cache_misses_total{cause="ours",provider="idle"} 0`,
		`ctxgate_llm_cache_missed_tokens_total{cause="cold",provider="idle"} 0`,
	)
	m.Charge(meter.Entry{Provider: "p", Rates: rates, Used: meter.Tokens{Fresh: 5000}, Sent: 5000, Came: 5000})
	has(t, scrape(t, m), `ctxgate_llm_cache_misses_total{cause="cold",provider="p"} 1`, `ctxgate_llm_cache_missed_tokens_total{cause="cold",provider="p"} 5000`)
}

// Clients choose names; they cannot make accounts without end. What is booked under other is not
// lost.
func TestAccountsAreBounded(t *testing.T) {
	m := books()
	const many = 3000
	var busy sync.WaitGroup
	for half := range 2 {
		busy.Go(func() {
			for i := half; i < many; i += 2 {
				m.Charge(meter.Entry{
					Tenant: "t", Provider: "p", Model: fmt.Sprint("m", i), Used: meter.Tokens{Fresh: 10}, Sent: 10, Came: 20,
					Cuts: []meter.Cut{{Tool: fmt.Sprint("tool", i), Tokens: 10}},
				})
			}
		})
	}
	busy.Wait()
	s := m.Savings()
	if n := len(s.Models); n > 1001 || s.Total.Requests != many || s.Total.Cost.Saved() != many*10 {
		t.Errorf("%d accounts; in all %+v", n, s.Total)
	}
	sum := int64(0)
	for _, tool := range s.Tools {
		sum += tool.Saved
	}
	if n := len(s.Tools); n > 1001 || sum != many*10 {
		t.Errorf("%d accounts of tools saved %d", n, sum)
	}
}

// Absurd figures and prices neither panic nor turn a sum around.
func TestAbsurdFiguresAreClamped(t *testing.T) {
	m := books()
	figures := []int64{math.MinInt64, -1, 0, 1, meter.MostTokens, meter.MostTokens + 1, math.MaxInt64}
	prices := []float64{0, 3, 1e300, math.Inf(1), math.NaN()}
	charged := 0
	for _, a := range figures {
		for _, b := range figures {
			for _, p := range prices {
				used := meter.Tokens{Fresh: a, Cached: b, Created: a, Long: b, Output: b}
				m.CountTokens("p", used)
				m.Charge(meter.Entry{
					Tenant: "t", Provider: "p", Model: "m", Used: used, Rates: meter.Rates{Write: 1.25, Read: .1, Input: p, Output: p}, Sent: 1000, Came: 2000, Before: 500,
					Standing: meter.Warm, Moved: true, Asked: a, Cuts: []meter.Cut{{Tool: "read", Tokens: 1000, New: true}},
				})
				charged++
			}
		}
	}
	total := m.Savings().Total
	if total.Requests != int64(charged) || total.Used.Fresh <= 0 || total.Used.Output <= 0 || total.Cost.Billed <= 0 || total.Cost.Unmasked <= 0 || total.Spent <= 0 || total.Spent < total.MoneyRecall {
		t.Errorf("got %+v", total)
	}
}

// A sum that is full stays full.
func TestSumsSaturate(t *testing.T) {
	m := books()
	for range 3000 { // each is 2^53 of money, twice
		m.Charge(meter.Entry{Provider: "p", Model: "m", Used: meter.Tokens{Fresh: meter.MostTokens, Output: meter.MostTokens}, Rates: meter.Rates{Input: 1e300, Output: 1e300}})
	}
	if total := m.Savings().Total; total.Spent != math.MaxInt64 {
		t.Errorf("got %d", total.Spent)
	}
}

// H2: a short result whose placeholder is longer has cost something. Tools bear that, and their
// accounts still add up to the total.
func TestShortResultsCost(t *testing.T) {
	for _, moved := range []bool{false, true} {
		for _, cuts := range [][]meter.Cut{
			{{Tool: "list", Tokens: -20}},
			{{Tool: "list", Tokens: -20}, {Tool: "stat", Tokens: -10}},
			{{Tool: "list", Tokens: -20, New: true}, {Tool: "read", Tokens: 1000}},
			{{Tool: "list", Tokens: -20}, {Tool: "read", Tokens: 20}, {Tool: "grep", Tokens: 7, New: true}},
		} {
			m := books()
			c := m.Charge(meter.Entry{Provider: "p", Used: meter.Tokens{Fresh: 9000}, Sent: 9000, Came: 9000, Before: 8000, Standing: meter.Warm, Moved: moved, Rates: half, Cuts: cuts})
			sum, s := int64(0), m.Savings()
			for _, tool := range s.Tools {
				sum += tool.Saved
			}
			if len(s.Tools) != len(cuts) || sum != c.Saved() {
				t.Errorf("moved %v, %+v: saved %d, of which the tools' %d: %+v", moved, cuts, c.Saved(), sum, s.Tools)
			}
		}
	}
}

func TestMoney(t *testing.T) {
	for m, want := range map[meter.Money]string{0: "0.000000", 1: "0.000001", 12_345_678: "12.345678", -1_500_000: "-1.500000", -7: "-0.000007"} {
		if got := m.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
