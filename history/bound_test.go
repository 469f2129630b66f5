package history

import (
	"strings"
	"testing"
)

// modelPrices are what today's models charge, and how their caches are read.
var modelPrices = []CachePrices{
	{Write: 1.25, Read: .025, MinTokens: 512, Lookback: 20},
	{Write: 1.25, Read: .05, MinTokens: 512, Lookback: 20},
	{Write: 1.25, Read: .1, MinTokens: 4096, Lookback: 20},
	{Write: 2, Read: .1, MinTokens: 1024, Lookback: 20},
	{Write: 1.25, Read: .05, MinTokens: 1024, Lookback: 50},
	{Write: 1.25, Read: .1, MinTokens: 1024, Lookback: 50},
	{Write: 1, Read: .02, LongestPrefix: true},
	{Write: 1, Read: .1, MinTokens: 4096, LongestPrefix: true},
	{Write: 1, Read: .186, LongestPrefix: true},
	{Write: 1, Read: .25, MinTokens: 1024, LongestPrefix: true},
	{Write: 1, Read: .5, MinTokens: 1024, LongestPrefix: true},
}

// H+1: with today's prices no conversation has cost more than 1.06 of what it would have cost without masking, at
// whatever turn it ends, by the size of its requests and a cache that is read only where the provider's is.
func TestHPlus1AutoIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	const maxWorst, conversations = 1.06, 60
	for _, c := range modelPrices {
		shape := openAIChat
		if c.Lookback == 20 {
			shape = anthropicMessages
		}
		sum, plain, ended := 0.0, 0.0, 0
		for seed := range uint64(conversations) {
			p := policyWithAdvance(AdvanceAuto)
			p.PastBreakpoints, p.Agents, p.WindowTurns = true, true, 1+int(seed%8)
			full := agentTranscript(seed)
			if seed%3 == 0 {
				full[0].user = strings.Repeat("a long task ", 2000)
			}
			d := mustRead(t, shape, full.render(shape, renderOptions{marks: []int{0}, system: strings.Repeat("s", 9000)}))
			b := d.Bill(p, c)
			for i := range b.Plain {
				if worst := b.Masked[i] / b.Plain[i]; worst > maxWorst {
					t.Fatalf("%+v, seed %d, window %d: %.3f after %d of %d turns", c, seed, p.WindowTurns, worst, i+1, len(d.Turns))
				}
			}
			if b.Ratio() > 1 {
				ended++
			}
			sum, plain = sum+b.Masked[len(b.Masked)-1], plain+b.Plain[len(b.Plain)-1]
		}
		t.Logf("%+v: %.2f, %d of %d ended above 1", c, sum/plain, ended, conversations)
		if sum > plain || ended > conversations/10 {
			t.Errorf("%+v: auto costs %.3f; %d of %d conversations ended above 1", c, sum/plain, ended, conversations)
		}
	}
}
