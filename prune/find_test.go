package prune

import (
	"testing"

	"pgregory.net/rapid"
)

// TestFastFindIsSlowFind: the pass over ASCII finds what the words and parts of any text have.
func TestFastFindIsSlowFind(t *testing.T) {
	g := newGoal("readHTTPBody of max_size settings v2 connexion 连接超时 a1B2")
	piece := rapid.SampledFrom([]string{
		"read", "HTTP", "Body", "max", "size", "_", "__", "2", "v", "V", "configuration", "cfg", " ", "\t", ".", "连接", "超", "é",
		"connexion", "a", "1", "B", "Setting", "s", "\xff", "́", "conn", "TIMEOUT", "Read",
	})
	rapid.Check(t, func(t *rapid.T) {
		line := ""
		for _, p := range rapid.SliceOfN(piece, 0, 12).Draw(t, "line") {
			line += p
		}
		slow := finding{goal: g}
		slow.slow(line)
		has, near, words := g.find(line)
		if has != slow.has || near != slow.near || words != slow.words {
			t.Fatalf("%q: has %b near %b words %d, want %b %b %d", line, has, near, words, slow.has, slow.near, slow.words)
		}
	})
}
