package prunerd

import (
	"strings"
	"testing"
)

// Line numbers can make a text longer than it was. Then the saving is 0, not negative.
func TestSavingIsNeverNegative(t *testing.T) {
	s, _ := open(t, nil)
	for _, text := range []string{"", "a", "a\nb\nc", strings.Repeat("\n", 3000), noise(40, 7)} {
		for _, ratio := range []float64{0, .1, .5, 1} {
			for _, kind := range []string{"code", "logs", "docs"} {
				o := options{Ratio: ratio, MinKeep: 1, Timeout: 10_000, Number: true, Markers: true}
				d := s.mustPrune(t, text, "lighthouse", kind, o)
				tokens, _ := d.Stats["tokens_saved_est"].(float64)
				cost, _ := d.Stats["cost_estimated_usd"].(float64)
				if tokens < 0 || cost < 0 {
					t.Errorf("%s, ratio %v, %d bytes: %v tokens, %v USD saved", kind, ratio, len(text), tokens, cost)
				}
			}
		}
	}
}
