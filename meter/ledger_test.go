package meter_test

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"testing"

	"github.com/ctxgate/ctxgate/meter"
)

func newMeter() *meter.Meter {
	return meter.New("v", func() (meter.StoreStats, bool) { return meter.StoreStats{}, true })
}

var (
	cheap = meter.Rates{Write: 1.25, Read: .1} // Anthropic's
	half  = meter.Rates{Write: 1, Read: .5}
)

// The cost of one reply, its cost without masking and the cause of a cache miss agree with figures worked out by
// hand. Estimated tokens are scaled to the provider's by the ratio of billed to estimated tokens sent.
func TestCostModel(t *testing.T) {
	cut := func(tokens int) []meter.ToolCut { return []meter.ToolCut{{Tool: "read", Tokens: tokens}} }
	fresh := func(tokens int) []meter.ToolCut { return []meter.ToolCut{{Tool: "read", Tokens: tokens, IsNew: true}} }
	for name, tt := range map[string]struct {
		e     meter.LedgerEntry
		want  meter.Cost
		cause meter.MissCause
		miss  int64
	}{
		"unknown request": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Fresh: 100, Cached: 900, Created: 80}},
			meter.Cost{Billed: 100 + 90 + 100, Unmasked: 290}, meter.CacheHit, 0,
		},
		"part is cached for an hour": {
			meter.LedgerEntry{Rates: meter.Rates{Write: 1.25, Read: .1, Long: 2}, Usage: meter.Tokens{Cached: 900, Created: 1000, Long: 400}},
			meter.Cost{Billed: 90 + 750 + 800, Unmasked: 1640}, meter.CacheHit, 0,
		},
		"no cuts": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 9000, Created: 1000}, SentTokens: 10000, OriginalTokens: 10000, PreviousTokens: 9000, CacheState: meter.CacheWarm},
			meter.Cost{Billed: 900 + 1250, Unmasked: 2150}, meter.CacheHit, 0,
		},
		"hit: old cuts would have been read from the cache": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 9000, Created: 1000}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm, Cuts: cut(5000)},
			meter.Cost{Billed: 2150, Unmasked: 2150 + 500}, meter.CacheHit, 0,
		},
		"an estimated token is 0.8 of the provider's": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 7000, Created: 1000}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm, Cuts: cut(5000)},
			meter.Cost{Billed: 700 + 1250, Unmasked: 1950 + 400}, meter.CacheHit, 0,
		},
		"an estimated token counts for 1.5 at most": {
			meter.LedgerEntry{Rates: half, Usage: meter.Tokens{Cached: 8000}, SentTokens: 1000, OriginalTokens: 1100, PreviousTokens: 1000, CacheState: meter.CacheWarm, Cuts: cut(100)},
			meter.Cost{Billed: 4000, Unmasked: 4000 + 75}, meter.CacheHit, 0,
		},
		"reduced when new: it would have been written to the cache": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 9000, Created: 1000}, SentTokens: 10000, OriginalTokens: 14000, PreviousTokens: 9000, CacheState: meter.CacheWarm, Cuts: []meter.ToolCut{{Tool: "read", Tokens: 4000, NeverSent: true, IsNew: true}}},
			meter.Cost{Billed: 2150, Unmasked: 2150 + 5000}, meter.CacheHit, 0,
		},
		"reduced when new, provider reports no cache writes": {
			meter.LedgerEntry{Rates: half, Usage: meter.Tokens{Cached: 9000, Fresh: 1000}, SentTokens: 10000, OriginalTokens: 14000, PreviousTokens: 9000, CacheState: meter.CacheWarm, Cuts: []meter.ToolCut{{Tool: "read", Tokens: 4000, NeverSent: true, IsNew: true}}},
			meter.Cost{Billed: 5500, Unmasked: 5500 + 4000}, meter.CacheHit, 0,
		},
		"reduced when new, some turns ago": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 9000, Created: 1000}, SentTokens: 10000, OriginalTokens: 14000, PreviousTokens: 13000, CacheState: meter.CacheWarm, Cuts: []meter.ToolCut{{Tool: "read", Tokens: 4000, NeverSent: true}}},
			meter.Cost{Billed: 2150, Unmasked: 2150 + 400}, meter.CacheHit, 0,
		},
		// Unmasked: 14000 of the last request read at .1, and 1000 new ones written at 1.25. Masked: 2000
		// before the first cut were still read; of the other 14000-2000, 8000 are sent again.
		"the boundary moved": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 2000, Created: 8000}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm, BoundaryMoved: true, Cuts: fresh(5000)},
			meter.Cost{Billed: 200 + 10000, Unmasked: 1400 + 1250}, meter.MissByMasking, 8000,
		},
		// 6000 were cut before too: the last request sent 20000-6000.
		"the boundary moved a second time": {
			meter.LedgerEntry{Rates: half, Usage: meter.Tokens{Cached: 4000, Fresh: 6000}, SentTokens: 10000, OriginalTokens: 21000, PreviousTokens: 20000, CacheState: meter.CacheWarm, BoundaryMoved: true, Cuts: append(cut(6000), fresh(5000)...)},
			meter.Cost{Billed: 2000 + 6000, Unmasked: 10000 + 1000}, meter.MissByMasking, 6000,
		},
		"the same request repeated after a move": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 10000}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 15000, CacheState: meter.CacheWarm, Cuts: cut(5000)},
			meter.Cost{Billed: 1000, Unmasked: 1500}, meter.CacheHit, 0,
		},
		"a move while nothing is cached": {
			meter.LedgerEntry{Rates: meter.Rates{Write: 1, Read: 1}, Usage: meter.Tokens{Fresh: 10000}, SentTokens: 10000, OriginalTokens: 15000, BoundaryMoved: true, Cuts: fresh(5000)},
			meter.Cost{Billed: 10000, Unmasked: 15000}, meter.CacheHit, 0,
		},
		"no prices": {
			meter.LedgerEntry{Usage: meter.Tokens{Fresh: 5000, Cached: 5000}, SentTokens: 10000, OriginalTokens: 15000, BoundaryMoved: true, Cuts: fresh(5000)},
			meter.Cost{Billed: 10000, Unmasked: 15000}, meter.CacheHit, 0,
		},
		"messages without marks": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 1000, Fresh: 9000}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm, BoundaryMoved: true, NothingMarked: true, Cuts: fresh(5000)},
			meter.Cost{Billed: 100 + 9000, Unmasked: 9100 + 5000}, meter.CacheHit, 0,
		},
		"the first request": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Created: 10000}, SentTokens: 10000, OriginalTokens: 10000},
			meter.Cost{Billed: 12500, Unmasked: 12500}, meter.MissCold, 10000,
		},
		"the first request seen of a long conversation": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Created: 10000}, SentTokens: 10000, OriginalTokens: 15000, BoundaryMoved: true, Cuts: fresh(5000)},
			meter.Cost{Billed: 12500, Unmasked: 12500 + 6250}, meter.MissCold, 10000,
		},
		"too short for a cache": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Fresh: 1000}, SentTokens: 1000, OriginalTokens: 1000},
			meter.Cost{Billed: 1000, Unmasked: 1000}, meter.CacheHit, 0,
		},
		// Unmasked, all would have been written but for the tenth that was still cached. The last request
		// sent 9000.
		"expired": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 1000, Created: 9000}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheExpired, Cuts: cut(5000)},
			meter.Cost{Billed: 100 + 11250, Unmasked: 11350 + 5000*.1*.1 + 5000*.9*1.25}, meter.MissExpired, 8000,
		},
		"expired, followed by a sweep": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Created: 10000}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheExpired, BoundaryMoved: true, Cuts: fresh(5000)},
			meter.Cost{Billed: 12500, Unmasked: 12500 + 6250}, meter.MissExpired, 10000,
		},
		"expected to be expired but still cached": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 10000}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheExpired, Cuts: cut(5000)},
			meter.Cost{Billed: 1000, Unmasked: 1000 + 500}, meter.CacheHit, 0,
		},
		"the client changed the prefix": {
			meter.LedgerEntry{Rates: half, Usage: meter.Tokens{Cached: 2000, Fresh: 8000}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.PrefixChanged, Cuts: cut(5000)},
			meter.Cost{Billed: 9000, Unmasked: 9000 + 5000*.2*.5 + 5000*.8}, meter.MissByClient, 7000,
		},
		// 9000 should have been cached and a third was: a third of the cuts would have been read.
		"the provider evicted the prefix": {
			meter.LedgerEntry{Rates: half, Usage: meter.Tokens{Cached: 3000, Fresh: 7000}, SentTokens: 10000, OriginalTokens: 16000, PreviousTokens: 15000, CacheState: meter.CacheWarm, Cuts: cut(6000)},
			meter.Cost{Billed: 8500, Unmasked: 8500 + 1000 + 4000}, meter.MissByProvider, 6000,
		},
		"a recovery round": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 9000, Created: 1000}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm, Cuts: cut(5000), Round: 1, PreviousOutput: 40},
			meter.Cost{Billed: 2150, Recovery: 2150, RecoveryOutput: 40}, meter.CacheHit, 0,
		},
		"a request that only reads back": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 9000, Created: 1000}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm, Cuts: cut(5000), Overhead: meter.RecoveryOverhead{New: 900, OnlyReadBack: true}},
			meter.Cost{Billed: 2150, Recovery: 2150}, meter.CacheHit, 0,
		},
		"read-back text stays in the conversation": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 9000, Created: 1000}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm, Cuts: cut(5000), Overhead: meter.RecoveryOverhead{New: 400, Old: 1000}},
			meter.Cost{Billed: 2150, Unmasked: 2150 + 500 - 500 - 100, Recovery: 600}, meter.CacheHit, 0,
		},
		"read-back text is cached late": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 8000, Created: 2000}, SentTokens: 10000, OriginalTokens: 10000, PreviousTokens: 9000, CacheState: meter.CacheWarm, Overhead: meter.RecoveryOverhead{Old: 1500, Uncached: 1000}},
			meter.Cost{Billed: 800 + 2500, Unmasked: 3300 - 1300, Recovery: 1250 + 50}, meter.CacheHit, 0,
		},
		// Without the read-back text: 14000, of which 13000 were in the last request.
		"the boundary moved while read-back text stays": {
			meter.LedgerEntry{Rates: half, Usage: meter.Tokens{Cached: 2000, Fresh: 8000}, SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm, BoundaryMoved: true, Cuts: fresh(5000), Overhead: meter.RecoveryOverhead{Old: 1000}},
			meter.Cost{Billed: 9000, Unmasked: 6500 + 1000, Recovery: 900}, meter.MissByMasking, 8000,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMeter()
			if got := m.Charge(tt.e); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			total := m.Savings().Total
			for cause, miss := range total.CacheMisses {
				want := meter.CacheMiss{}
				if meter.MissCause(cause) == tt.cause {
					want = meter.CacheMiss{Requests: 1, Tokens: tt.miss}
				}
				if miss != want {
					t.Errorf("%v: got %+v, want %+v", meter.MissCause(cause), miss, want)
				}
			}
		})
	}
}

// Accounts add up over models and over tools.
func TestAccounts(t *testing.T) {
	m := newMeter()
	m.AddProvider("idle")
	rates := meter.Rates{Write: 1, Read: .1, Input: 3, Output: 15}
	hit := meter.LedgerEntry{
		Tenant: "a", Provider: "p", Model: "m1", Rates: rates, Usage: meter.Tokens{Fresh: 1000, Cached: 9000, Output: 200},
		SentTokens: 10000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm,
		Cuts: []meter.ToolCut{{Tool: "read", Tokens: 3000}, {Tool: "grep", Tokens: 1000}, {Tool: "read", Tokens: 1000}},
	}
	m.Charge(hit)
	again := hit
	again.Round, again.PreviousOutput = 1, 30
	m.Charge(again)
	unpriced := meter.LedgerEntry{Tenant: "b", Provider: "p", Model: "m2", Usage: meter.Tokens{Fresh: 10, Output: 1}}
	m.Charge(unpriced)

	s := m.Savings()
	want := []meter.Account{
		{
			Tenant: "a", Provider: "p", Model: "m1", Requests: 2, Recoveries: 1, Usage: meter.Tokens{Fresh: 2000, Cached: 18000, Output: 400},
			Cost: meter.Cost{Billed: 3800, Unmasked: 2400, Recovery: 1900, RecoveryOutput: 30}, Parts: meter.SavedParts{Masked: 500}, MoneyParts: meter.SavedMoney{Masked: 1500},
			// 3800 input at 3 per million, 400 output at 15; saved are -1400 input and -30 output.
			Spent: 11400 + 6000, MoneySaved: -4200 - 450, MoneyRecovery: 5700 + 450, CacheMisses: meter.CacheMisses{meter.CacheHit: {Requests: 2}},
		},
		{Tenant: "b", Provider: "p", Model: "m2", Requests: 1, Unpriced: 1, Usage: meter.Tokens{Fresh: 10, Output: 1}, Cost: meter.Cost{Billed: 10, Unmasked: 10}, CacheMisses: meter.CacheMisses{meter.CacheHit: {Requests: 1}}},
	}
	if fmt.Sprint(s.Models) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", s.Models, want)
	}
	tools := []meter.ToolAccount{
		{Tenant: "a", Provider: "p", Model: "m1", Tool: "grep", Results: 1, Tokens: 1000, Saved: 100, Parts: meter.SavedParts{Masked: 100}, MoneySaved: 300},
		{Tenant: "a", Provider: "p", Model: "m1", Tool: "read", Results: 2, Tokens: 4000, Saved: 400, Parts: meter.SavedParts{Masked: 400}, MoneySaved: 1200},
		{Tenant: "a", Provider: "p", Model: "m1", Tool: "recover_text", Saved: -1900, MoneySaved: -5700 - 450},
	}
	if fmt.Sprint(s.Tools) != fmt.Sprint(tools) {
		t.Errorf("got  %+v\nwant %+v", s.Tools, tools)
	}
	if c := s.Total; c.Requests != 3 || c.Cost.Saved() != -1400 || c.Spent != 17400 || c.Unpriced != 1 || s.Since.IsZero() {
		t.Errorf("total: %+v", c)
	}
	checkLines(t, scrape(t, m),
		`ctxgate_llm_input_cost_tokens_total{kind="billed",provider="p"} 3810`,
		`ctxgate_llm_input_cost_tokens_total{kind="unmasked",provider="p"} 2410`,
		`ctxgate_llm_input_cost_tokens_total{kind="recovery",provider="p"} 1900`,
		`ctxgate_llm_input_cost_tokens_total{kind="billed",provider="idle"} 0`,
		`ctxgate_llm_cache_misses_total{cause="ours",provider="idle"} 0`,
		`ctxgate_llm_cache_missed_tokens_total{cause="cold",provider="idle"} 0`,
	)
	m.Charge(meter.LedgerEntry{Provider: "p", Rates: rates, Usage: meter.Tokens{Fresh: 5000}, SentTokens: 5000, OriginalTokens: 5000})
	checkLines(t, scrape(t, m), `ctxgate_llm_cache_misses_total{cause="cold",provider="p"} 1`, `ctxgate_llm_cache_missed_tokens_total{cause="cold",provider="p"} 5000`)
}

// The number of accounts is bounded although clients choose the names; the rest is charged to "other".
func TestAccountsAreBounded(t *testing.T) {
	m := newMeter()
	const many = 3000
	var busy sync.WaitGroup
	for half := range 2 {
		busy.Go(func() {
			for i := half; i < many; i += 2 {
				m.Charge(meter.LedgerEntry{
					Tenant: "t", Provider: "p", Model: fmt.Sprint("m", i), Usage: meter.Tokens{Fresh: 10}, SentTokens: 10, OriginalTokens: 20,
					Cuts: []meter.ToolCut{{Tool: fmt.Sprint("tool", i), Tokens: 10}},
				})
			}
		})
	}
	busy.Wait()
	s := m.Savings()
	if n := len(s.Models); n > 1001 || s.Total.Requests != many || s.Total.Cost.Saved() != many*10 {
		t.Errorf("%d model accounts, total %+v", n, s.Total)
	}
	sum := int64(0)
	for _, tool := range s.Tools {
		sum += tool.Saved
	}
	if n := len(s.Tools); n > 1001 || sum != many*10 {
		t.Errorf("%d tool accounts saved %d", n, sum)
	}
}

// Absurd figures and prices neither panic nor overflow a sum.
func TestAbsurdFiguresAreClamped(t *testing.T) {
	m := newMeter()
	figures := []int64{math.MinInt64, -1, 0, 1, meter.MaxTokens, meter.MaxTokens + 1, math.MaxInt64}
	prices := []float64{0, 3, 1e300, math.Inf(1), math.NaN()}
	charged := 0
	for _, a := range figures {
		for _, b := range figures {
			for _, p := range prices {
				used := meter.Tokens{Fresh: a, Cached: b, Created: a, Long: b, Output: b}
				m.CountTokens("p", used)
				m.Charge(meter.LedgerEntry{
					Tenant: "t", Provider: "p", Model: "m", Usage: used, Rates: meter.Rates{Write: 1.25, Read: .1, Input: p, Output: p}, SentTokens: 1000, OriginalTokens: 2000, PreviousTokens: 500,
					CacheState: meter.CacheWarm, BoundaryMoved: true, PreviousOutput: a, Cuts: []meter.ToolCut{{Tool: "read", Tokens: 1000, IsNew: true}},
				})
				charged++
			}
		}
	}
	total := m.Savings().Total
	if total.Requests != int64(charged) || total.Usage.Fresh <= 0 || total.Usage.Output <= 0 || total.Cost.Billed <= 0 || total.Cost.Unmasked <= 0 || total.Spent <= 0 || total.Spent < total.MoneyRecovery {
		t.Errorf("got %+v", total)
	}
}

// Sums saturate instead of overflowing.
func TestSumsSaturate(t *testing.T) {
	m := newMeter()
	for range 3000 { // each adds 2^53 twice
		m.Charge(meter.LedgerEntry{Provider: "p", Model: "m", Usage: meter.Tokens{Fresh: meter.MaxTokens, Output: meter.MaxTokens}, Rates: meter.Rates{Input: 1e300, Output: 1e300}})
	}
	if total := m.Savings().Total; total.Spent != math.MaxInt64 {
		t.Errorf("spent %d, want the largest value", total.Spent)
	}
}

// H2: a placeholder that is longer than its result costs tokens. They are charged to the tool, and tool accounts
// still add up to the total.
func TestShortResultsCost(t *testing.T) {
	for _, moved := range []bool{false, true} {
		for _, cuts := range [][]meter.ToolCut{
			{{Tool: "list", Tokens: -20}},
			{{Tool: "list", Tokens: -20}, {Tool: "stat", Tokens: -10}},
			{{Tool: "list", Tokens: -20, IsNew: true}, {Tool: "read", Tokens: 1000}},
			{{Tool: "list", Tokens: -20}, {Tool: "read", Tokens: 20}, {Tool: "grep", Tokens: 7, IsNew: true}},
		} {
			m := newMeter()
			c := m.Charge(meter.LedgerEntry{Provider: "p", Usage: meter.Tokens{Fresh: 9000}, SentTokens: 9000, OriginalTokens: 9000, PreviousTokens: 8000, CacheState: meter.CacheWarm, BoundaryMoved: moved, Rates: half, Cuts: cuts})
			sum, s := int64(0), m.Savings()
			for _, tool := range s.Tools {
				sum += tool.Saved
			}
			if len(s.Tools) != len(cuts) || sum != c.Saved() {
				t.Errorf("moved %v, %+v: saved %d, but the tools %d: %+v", moved, cuts, c.Saved(), sum, s.Tools)
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

// A tenant that is forgotten has no accounts any more; the sums stay.
func TestForgetTenant(t *testing.T) {
	m := meter.New("v", func() (meter.StoreStats, bool) { return meter.StoreStats{}, true })
	for _, tenant := range []string{"a", "b"} {
		for _, model := range []string{"m1", "m2"} {
			m.Charge(meter.LedgerEntry{Tenant: tenant, Provider: "p", Model: model, Usage: meter.Tokens{Fresh: 100, Output: 10}, SentTokens: 100,
				Cuts: []meter.ToolCut{{Tool: "read", Results: 1, Tokens: 50}}})
		}
	}
	before := m.Savings()
	m.ForgetTenant("a")
	after := m.Savings()
	if after.Total != before.Total {
		t.Errorf("the total was %+v and is %+v", before.Total, after.Total)
	}
	requests := map[string]int64{}
	for _, a := range after.Models {
		requests[a.Tenant+"/"+a.Model] += a.Requests
	}
	if want := map[string]int64{"other/other": 2, "b/m1": 1, "b/m2": 1}; !maps.Equal(requests, want) {
		t.Errorf("requests %v, want %v", requests, want)
	}
	var results, saved, savedBefore int64
	for _, a := range after.Tools {
		if a.Tenant == "a" {
			t.Errorf("%+v is left", a)
		}
		results, saved = results+a.Results, saved+a.Saved
	}
	for _, a := range before.Tools {
		savedBefore += a.Saved
	}
	if results != 4 || saved != savedBefore {
		t.Errorf("%d results, %d saved; want 4 and %d", results, saved, savedBefore)
	}
}
