package main

import (
	"encoding/json"
	"io"
	"math"
	"time"

	"github.com/ctxgate/ctxgate/prune"
)

// document is what prune_text answers (P2), member for member.
type document struct {
	ID          string       `json:"prune_id"`
	Text        string       `json:"pruned_text"`
	Annotations []annotation `json:"annotations"`
	Stats       pruneStats   `json:"stats"`
	Warnings    []string     `json:"warnings"`
}

type annotation struct {
	Kind   string `json:"kind"`
	First  int    `json:"original_start_line"`
	Last   int    `json:"original_end_line"`
	Lines  int    `json:"pruned_line_count"`
	Reason string `json:"reason"`
	Marker string `json:"marker"`
}

type pruneStats struct {
	Backend   string  `json:"backend"`
	Lines     int     `json:"original_lines"`
	Kept      int     `json:"kept_lines"`
	Pruned    int     `json:"pruned_lines"`
	Ratio     float64 `json:"pruned_ratio"`
	Before    int     `json:"tokens_est_before"`
	After     int     `json:"tokens_est_after"`
	Saved     int     `json:"tokens_saved_est"`
	Cost      float64 `json:"cost_estimated_usd"`
	ElapsedMS int64   `json:"elapsed_ms"`
	Fallback  bool    `json:"used_fallback"`
}

// The pruner's own estimates; a test holds the two documents side by side.
const (
	tenthsPerToken  = 34   // bytes a token, in tenths
	pricePerMillion = 0.60 // US dollars for a million tokens
)

func tokens(bytes int) int { return (10*bytes + tenthsPerToken - 1) / tenthsPerToken }

// rounded is a number with at most so many digits after the point.
func rounded(v float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(v*unit) / unit
}

// writeDocument writes the document, and says how long the text in it is. Bytes that are no UTF-8
// cannot stand in JSON: there the replacement character stands for them.
func writeDocument(w io.Writer, p *pruning, f *pruneFlags, took time.Duration) (size int, err error) {
	text := p.text
	if p.doc != nil {
		text = string(p.shown(f))
	}
	before, after, kept := tokens(len(p.text)), tokens(len(text)), p.kept()
	d := document{ID: p.id, Text: text, Annotations: []annotation{}, Warnings: append([]string{}, p.warnings...)}
	for _, b := range p.blocks {
		d.Annotations = append(d.Annotations, annotation{"pruned_block", b.First, b.Last, b.Lines(), prune.Reason, b.Marker(p.id)})
	}
	d.Stats = pruneStats{
		Backend: "heuristic", Lines: p.lines, Kept: kept, Pruned: p.lines - kept, Ratio: rounded(float64(p.lines-kept)/float64(p.lines), 4),
		Before: before, After: after, Saved: before - after, Cost: rounded(float64(before-after)*pricePerMillion/1e6, 8),
		ElapsedMS: took.Milliseconds(), Fallback: p.fallback,
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return len(text), e.Encode(d)
}
