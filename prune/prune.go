// Package prune keeps the lines of a text that matter for a goal. It is pure and deterministic: a
// text, a goal and a budget in, the blocks to leave out as the result; no clock, no store, no network,
// no model. Before a cut may be shown its original must be stored; that is recall's job.
//
// [Score] splits a text, finds the words of the goal in it and scores its lines; [ScoredText.Cut] fills
// a budget with the best of them and returns the blocks to leave out; [ScoredText.CutToFit] does so within
// a number of characters; [ScoredText.AppendPruned] writes what stays, with a marker for each block.
//
// Path through the files: prune.go is the straight line. kind.go tells code, logs and documents apart;
// prune/code, prune/logs and prune/docs score them, with the words of the goal from prune/relevance.
// keep.go says which lines stay whatever the budget and which only together, cut.go fills the budget,
// fit.go a number of characters; marker.go writes the result, chunk.go adds the scores of a reranker.
//
// The laws, checked by properties and fuzzing in laws_test.go: kept lines and blocks tile the text, in
// its order; the budget is never exceeded; what must stay does (P8), unless a number of characters is
// given, which is never exceeded either (fit_test.go); no marker is longer than its block; the same input
// gives the same bytes in every process.
package prune

import (
	"context"

	"github.com/ctxgate/ctxgate/prune/code"
	"github.com/ctxgate/ctxgate/prune/docs"
	"github.com/ctxgate/ctxgate/prune/logs"
	"github.com/ctxgate/ctxgate/prune/relevance"
)

// ScoredText is a text whose lines are scored for a goal.
type ScoredText struct {
	lines relevance.Lines
	goal  *relevance.Goal
	index *relevance.Index
	code  *code.Structure // nil for logs and documents
	score []float32
	rules keepRules

	ranksWithoutGoal bool // the scores say something without any word of the goal
}

// Score splits a text and scores its lines. It fails only if ctx ends first.
func Score(ctx context.Context, text, goal string, kind Kind) (*ScoredText, error) {
	d := &ScoredText{lines: relevance.Split(text), goal: relevance.NewGoal(goal)}
	search := func() { d.index = relevance.NewIndex(d.lines, d.goal) }
	switch kind {
	case Logs:
		d.ranksWithoutGoal = true
		runBoth(search, func() { d.rules.must = logs.MustKeep(d.lines) })
		if ctx.Err() == nil {
			d.score = logs.Score(d.lines, d.goal, d.index)
		}
	case Docs:
		var s *docs.Structure
		runBoth(search, func() { s = docs.Parse(d.lines) })
		d.score = docs.Score(d.lines, d.goal, d.index, s)
		d.rules = keepRules{must: s.MustKeep(), atoms: s.Atoms}
	default:
		runBoth(search, func() { d.code = code.Parse(d.lines) })
		d.score = code.Score(d.code, d.goal, d.index)
		d.rules = keepRules{must: d.code.MustKeep(), requires: d.code.Requires}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.rules.addCommonRules(d.lines)
	return d, nil
}

// runBoth runs two functions at once. If one panics, so does the caller.
func runBoth(one, other func()) {
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		other()
	}()
	defer func() {
		<-done
		if panicked != nil {
			panic(panicked)
		}
	}()
	one()
}

// LineCount is the number of lines, the empty one after a last line break included.
func (d *ScoredText) LineCount() int { return d.lines.Count() }

// Scores returns the score of each line; higher ones stay longer. The slice is not a copy.
func (d *ScoredText) Scores() []float32 { return d.score }

// Lines returns lines first to last, counted from 1, without the last line break.
func (d *ScoredText) Lines(first, last int) string {
	return d.lines.Text[d.lines.Start[first-1] : d.lines.Start[last]-1]
}

// Explanation is how a line came to its score.
type Explanation struct {
	Score     float32
	MustKeep  bool        // it stays, whatever its score
	GoalWords []string    // words of the goal in it; in brackets those of which it has a variant
	Parts     []ScorePart // the summands of the score; only for code
}

// ScorePart is what one signal adds to a score.
type ScorePart struct {
	Name   string
	Points float32
}

// Explain explains the score of every line.
func (d *ScoredText) Explain() []Explanation {
	out := make([]Explanation, d.LineCount())
	for i := range out {
		out[i] = Explanation{Score: d.score[i], MustKeep: d.rules.must[i]}
		for t := range relevance.Bits(d.index.Exact[i]) {
			out[i].GoalWords = append(out[i].GoalWords, d.goal.Terms[t].Word)
		}
		for t := range relevance.Bits(d.index.Variant[i]) {
			out[i].GoalWords = append(out[i].GoalWords, "("+d.goal.Terms[t].Word+")")
		}
	}
	if d.code != nil {
		code.EachPart(d.code, d.goal, d.index, func(line int, name string, points float32) {
			out[line].Parts = append(out[line].Parts, ScorePart{name, points})
		})
	}
	return out
}
