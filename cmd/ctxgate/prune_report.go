package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/prune"
	"github.com/ctxgate/ctxgate/prunerd"
)

// writeDocument writes what prune_text answers (P2), and says how long the text in it is. Bytes that
// are no UTF-8 cannot stand in JSON: there the replacement character stands for them.
func writeDocument(w io.Writer, p *pruning, f *pruneFlags, took time.Duration) (size int, err error) {
	r := prunerd.Report{
		ID: p.id, Text: p.text, Pruned: []byte(strings.ToValidUTF8(p.text, "\ufffd")), Blocks: p.blocks, Backend: prunerd.Heuristic,
		Fallback: p.fallback, Warnings: p.warnings, Took: took,
	}
	if p.doc != nil {
		r.Pruned = []byte(strings.ToValidUTF8(string(p.shown(f)), "\ufffd"))
	}
	_, err = w.Write(append(r.JSON(), '\n'))
	return len(r.Pruned), err
}

// explain writes for every line whether it stays and why: must for what no budget leaves out, the
// words of the goal that it has, and for code what its score is the sum of.
func explain(w io.Writer, p *pruning) error {
	lines := strings.Split(p.text, "\n")
	gone := make([]bool, len(lines))
	for _, b := range p.blocks {
		for n := b.First; n <= b.Last; n++ {
			gone[n-1] = true
		}
	}
	for i, why := range p.doc.Explain() {
		stays := "stays"
		switch {
		case why.Must:
			stays = "must "
		case gone[i]:
			stays = "  -  "
		}
		words := ""
		if len(why.Words) > 0 {
			words = " [" + strings.Join(why.Words, " ") + "]"
		}
		if _, err := fmt.Fprintf(w, "%4d %s %6.2f%s%s\n     | %s\n", i+1, stays, why.Score, partsOf(why.Parts), words, lines[i]); err != nil {
			return err
		}
	}
	return nil
}

// partsOf names what a score is the sum of, the largest first.
func partsOf(parts []prune.Part) string {
	slices.SortStableFunc(parts, func(a, b prune.Part) int {
		return int(1000 * (abs(b.Points) - abs(a.Points)))
	})
	if len(parts) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString(" =")
	for _, p := range parts {
		fmt.Fprintf(&out, " %+.2f %s", p.Points, p.Name)
	}
	return out.String()
}

func abs(x float32) float32 { return max(x, -x) }
