package meter_test

import (
	"testing"

	"github.com/ctxgate/ctxgate/meter"
)

// stepped charges a request above 100,000 tokens five times as much, as Claude Haiku 5.5 does: 0.1 and 0.5 per
// million below, 0.5 and 2.5 above.
var stepped = meter.Rates{
	Write: 1.25, Read: .1, Long: 2, Input: .1, Output: .5,
	Step: meter.PriceStep{AboveTokens: 100_000, Input: 5, Write: 6.25, Read: .5, Long: 10, Output: 5},
}

// A request is charged by the step of its own size, and compared with the step that it would have had whole. The
// bills are computed by hand from the price list.
func TestPriceSteps(t *testing.T) {
	for name, tt := range map[string]struct {
		e            meter.LedgerEntry
		want         meter.Cost
		spent, saved meter.Money // in millionths
	}{
		"at the step": {
			meter.LedgerEntry{Usage: meter.Tokens{Fresh: 10_000, Cached: 90_000, Output: 1000}},
			meter.Cost{Billed: 10_000 + 9000, Unmasked: 19_000}, 1000 + 900 + 500, 0,
		},
		"one token above": {
			meter.LedgerEntry{Usage: meter.Tokens{Fresh: 10_001, Cached: 90_000, Output: 1000}},
			meter.Cost{Billed: 50_005 + 45_000, Unmasked: 95_005}, 5001 + 4500 + 2500, 0,
		},
		"writes above": {
			meter.LedgerEntry{Usage: meter.Tokens{Cached: 100_000, Created: 20_000, Long: 8000}},
			meter.Cost{Billed: 50_000 + 75_000 + 80_000, Unmasked: 205_000}, 5000 + 7500 + 8000, 0,
		},
		// Whole: 130,000 read at 0.05 and 10,000 written at 0.625 per million, output at 2.5. Sent: 80,000 read
		// at 0.01 and 10,000 written at 0.125, output at 0.5.
		"masking keeps a request below": {
			meter.LedgerEntry{
				Usage: meter.Tokens{Cached: 80_000, Created: 10_000, Output: 1000}, SentTokens: 90_000, OriginalTokens: 140_000, PreviousTokens: 130_000,
				CacheState: meter.CacheWarm, Cuts: []meter.ToolCut{{Tool: "read", Tokens: 30_000}, {Tool: "grep", Tokens: 20_000}},
			},
			meter.Cost{Billed: 8000 + 12_500, Unmasked: 65_000 + 62_500}, 800 + 1250 + 500, (6500 + 6250 + 2500) - (800 + 1250 + 500),
		},
		// Whole: 100,000 read and 8,000 written above the step. Sent: 58,000 written below it.
		"a move below the step": {
			meter.LedgerEntry{
				Usage: meter.Tokens{Created: 58_000, Output: 100}, SentTokens: 58_000, OriginalTokens: 108_000, PreviousTokens: 100_000,
				CacheState: meter.CacheWarm, BoundaryMoved: true, Cuts: []meter.ToolCut{{Tool: "read", Tokens: 50_000, IsNew: true}},
			},
			meter.Cost{Billed: 72_500, Unmasked: 50_000 + 50_000}, 7250 + 50, 2750 + 200,
		},
		"both above": {
			meter.LedgerEntry{
				Usage: meter.Tokens{Cached: 150_000, Output: 100}, SentTokens: 150_000, OriginalTokens: 160_000, PreviousTokens: 160_000,
				CacheState: meter.CacheWarm, Cuts: []meter.ToolCut{{Tool: "read", Tokens: 10_000}},
			},
			meter.Cost{Billed: 75_000, Unmasked: 80_000}, 7500 + 250, 500,
		},
		// What was read back (20,000) is not in the whole request, which then stays below the step.
		"reading back crosses the step": {
			meter.LedgerEntry{
				Usage: meter.Tokens{Cached: 110_000}, SentTokens: 110_000, OriginalTokens: 110_000, PreviousTokens: 110_000,
				CacheState: meter.CacheWarm, Overhead: meter.RecoveryOverhead{Old: 20_000},
			},
			meter.Cost{Billed: 55_000, Unmasked: 9000, Recovery: 10_000}, 5500, 900 - 5500,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMeter()
			e := tt.e
			e.Provider, e.Model, e.Rates = "p", "m", stepped
			if got := m.Charge(e); got != tt.want {
				t.Errorf("cost %+v, want %+v", got, tt.want)
			}
			s := m.Savings()
			if a := s.Total; a.Spent != tt.spent || a.MoneySaved != tt.saved {
				t.Errorf("spent %v, saved %v; want %v and %v", a.Spent, a.MoneySaved, tt.spent, tt.saved)
			}
			sum := meter.Money(0)
			for _, tool := range s.Tools {
				sum += tool.MoneySaved
			}
			if len(e.Cuts) > 0 && sum != tt.saved {
				t.Errorf("the tools saved %v, want %v", sum, tt.saved)
			}
		})
	}
}
