package meter_test

import (
	"math/rand/v2"
	"testing"

	"github.com/ctxgate/ctxgate/meter"
)

// The parts of one reply, worked out by hand: cuts at the hub, shortened and masked results at the price of their
// place in the cache, what the cache cost when the boundary moved, and what a price step saved.
func TestSavedParts(t *testing.T) {
	hub := func(tokens int, isNew bool) meter.ToolCut {
		return meter.ToolCut{Tool: "logs", Tokens: tokens, NeverSent: true, IsNew: isNew, AtHub: true}
	}
	for name, tt := range map[string]struct {
		e    meter.LedgerEntry
		cost meter.Cost
		want meter.SavedParts
	}{
		"a result that the hub cut is new: it would have been written": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 9000, Created: 1000}, SentTokens: 10000, OriginalTokens: 14000, PreviousTokens: 9000, CacheState: meter.CacheWarm, Cuts: []meter.ToolCut{hub(4000, true)}},
			meter.Cost{Billed: 2150, Unmasked: 2150 + 5000}, meter.SavedParts{AtHub: 5000},
		},
		"a turn later it would have been read": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 10000}, SentTokens: 10000, OriginalTokens: 14000, PreviousTokens: 14000, CacheState: meter.CacheWarm, Cuts: []meter.ToolCut{hub(4000, false)}},
			meter.Cost{Billed: 1000, Unmasked: 1400}, meter.SavedParts{AtHub: 400},
		},
		"all kinds": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 9000, Created: 1000}, SentTokens: 10000, OriginalTokens: 18000, PreviousTokens: 14000, CacheState: meter.CacheWarm, Overhead: meter.RecoveryOverhead{Old: 500},
				Cuts: []meter.ToolCut{hub(4000, false), {Tool: "read", Tokens: 1000, NeverSent: true, IsNew: true}, {Tool: "read", Tokens: 3000}}},
			meter.Cost{Billed: 2150, Unmasked: 2150 - 50 + 400 + 1250 + 300, Recovery: 50}, meter.SavedParts{AtHub: 400, Shortened: 1250, Masked: 300},
		},
		// Whole: 14000 read, 1000 written. Sent: 2000 read, 6000 written. What was cut would have been read.
		"the boundary moved": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 2000, Created: 6000}, SentTokens: 8000, OriginalTokens: 15000, PreviousTokens: 14000, CacheState: meter.CacheWarm, BoundaryMoved: true,
				Cuts: []meter.ToolCut{hub(2000, false), {Tool: "read", Tokens: 5000, IsNew: true}}},
			meter.Cost{Billed: 200 + 7500, Unmasked: 1400 + 1250}, meter.SavedParts{AtHub: 200, Masked: 500, Cache: 2650 - 7700 - 700},
		},
		"below a price step": {
			meter.LedgerEntry{Rates: stepped, Usage: meter.Tokens{Cached: 80_000, Created: 10_000}, SentTokens: 90_000, OriginalTokens: 140_000, PreviousTokens: 130_000, CacheState: meter.CacheWarm,
				Cuts: []meter.ToolCut{hub(50_000, false)}},
			meter.Cost{Billed: 20_500, Unmasked: 127_500}, meter.SavedParts{AtHub: 5000, Steps: 102_000},
		},
		"a request that only reads back": {
			meter.LedgerEntry{Rates: cheap, Usage: meter.Tokens{Cached: 9000, Created: 1000}, SentTokens: 10000, OriginalTokens: 14000, PreviousTokens: 13000, CacheState: meter.CacheWarm, PreviousOutput: 40,
				Overhead: meter.RecoveryOverhead{New: 900, OnlyReadBack: true}, Cuts: []meter.ToolCut{hub(4000, false)}},
			meter.Cost{Billed: 2150, Recovery: 2150, RecoveryOutput: 40}, meter.SavedParts{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMeter()
			tt.e.Provider, tt.e.Model = "p", "m"
			if got := m.Charge(tt.e); got != tt.cost {
				t.Errorf("cost %+v, want %+v", got, tt.cost)
			}
			if got := m.Savings().Total.Parts; got != tt.want {
				t.Errorf("parts %+v, want %+v", got, tt.want)
			}
		})
	}
}

// The sum adds up exactly, in tokens and in money, over all accounts, over the tools, and over the day.
func TestPartsAddUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := newMeter()
	rates := []meter.Rates{cheap, half, stepped, {Write: 1, Read: .1, Input: .37, Output: 1.73}, {}}
	for range 3000 {
		e := meter.LedgerEntry{
			Tenant: "t", Provider: "p", Model: string(rune('a' + rng.IntN(3))), Rates: rates[rng.IntN(len(rates))], PreviousOutput: rng.Int64N(99),
			Usage:      meter.Tokens{Fresh: rng.Int64N(9000), Cached: rng.Int64N(150_000), Created: rng.Int64N(9000), Output: rng.Int64N(999)},
			SentTokens: rng.IntN(100_000), CacheState: meter.CacheState(rng.IntN(4)), BoundaryMoved: rng.IntN(3) == 0,
			Overhead: meter.RecoveryOverhead{New: rng.IntN(200), Old: rng.IntN(999), OnlyReadBack: rng.IntN(9) == 0},
		}
		e.OriginalTokens = e.SentTokens
		for range rng.IntN(4) {
			c := meter.ToolCut{Tool: string(rune('p' + rng.IntN(4))), Tokens: rng.IntN(9000) - 99, IsNew: rng.IntN(2) == 0, NeverSent: rng.IntN(2) == 0}
			c.AtHub = c.NeverSent && rng.IntN(2) == 0
			e.Cuts, e.OriginalTokens = append(e.Cuts, c), e.OriginalTokens+c.Tokens
		}
		e.PreviousTokens = rng.IntN(max(1, e.OriginalTokens))
		m.Charge(e)
	}
	s := m.Savings()
	for _, a := range append(s.Models, s.Total) {
		if got := a.Cost.Unmasked - a.Parts.Sum() + a.Cost.Recovery; got != a.Cost.Billed || a.Parts.AtHub == 0 || a.Parts.Cache == 0 {
			t.Errorf("%s: the sum is %d, billed %d: %+v", a.Model, got, a.Cost.Billed, a.Parts)
		}
		p := a.MoneyParts
		if got := p.AtHub + p.Shortened + p.Masked + p.Steps + p.Cache - a.MoneyRecovery; got != a.MoneySaved || p.AtHub == 0 {
			t.Errorf("%s: the parts save %v, all saves %v: %+v", a.Model, got, a.MoneySaved, p)
		}
	}
	saved, money, parts := int64(0), meter.Money(0), meter.SavedParts{}
	for _, tool := range s.Tools {
		saved, money = saved+tool.Saved, money+tool.MoneySaved
		parts.AtHub, parts.Cache = parts.AtHub+tool.Parts.AtHub, parts.Cache+tool.Parts.Cache
		if tool.Tool != "recover_text" && tool.Saved != tool.Parts.Sum() {
			t.Errorf("%s: saved %d, parts %+v", tool.Tool, tool.Saved, tool.Parts)
		}
	}
	if saved != s.Total.Cost.Saved() || money != s.Total.MoneySaved || parts.AtHub != s.Total.Parts.AtHub || parts.Cache != s.Total.Parts.Cache {
		t.Errorf("the tools saved %d and %v, all %d and %v; parts %+v, all %+v", saved, money, s.Total.Cost.Saved(), s.Total.MoneySaved, parts, s.Total.Parts)
	}
	d := m.Today()
	if d.Replies != 3000 || d.Unmasked-d.AtHub-d.Shortened-d.Masked-d.Steps-d.Cache+d.Recovery != d.Billed || meter.Money(d.MoneySaved) != s.Total.MoneySaved {
		t.Errorf("the day: %+v", d)
	}
}
