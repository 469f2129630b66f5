// Package prune keeps the lines of a text that matter for a goal. It is pure and deterministic: a
// text, a goal and a budget in, the blocks to leave out of it out; no clock, no store, no network,
// no model. What a cut needs before it may be shown (its original kept) is recall's business.
//
// [Read] splits a text, finds the words of the goal in it and scores its lines; [Doc.Cut] fills a
// budget with the best of them and says which blocks go; [Doc.Append] writes what stays, with a
// marker for each block.
//
// Path through the files: prune.go is the straight line. lines.go and words.go part a text, goal.go
// says what is looked for and finds it, with lexicon.go for what means the same, index.go keeps for
// each line what was found. signal.go holds what scorers share; code.go, logs.go and docs.go score
// the three kinds of text, each with the files of its prefix beside it. shape.go says what stays
// and what stays together, codekeep.go for code. cut.go fills the budget, marker.go writes. chunk.go
// is for rerankers, guess.go tells the kinds apart.
//
// The laws, checked by properties and fuzzing in laws_test.go: what stays and what goes tile the
// text, in its order; never more goes than the budget allows; what must stay does (P8); no marker
// is longer than what it stands for; the same input gives the same bytes, in every process.
package prune

import (
	"context"
)

// Kind is what sort of text a text is.
type Kind uint8

// The kinds of text.
const (
	Code Kind = iota
	Logs
	Docs
)

var kindNames = [...]string{Code: "code", Logs: "logs", Docs: "docs"}

func (k Kind) String() string { return kindNames[k] }

// ParseKind reads the name of a kind.
func ParseKind(name string) (Kind, bool) {
	for k, n := range kindNames {
		if n == name {
			return Kind(k), true
		}
	}
	return 0, false
}

// Doc is a text that was read for a goal: its lines, and how much each of them matters.
type Doc struct {
	lines lines
	goal  *goal
	index *index
	score []float32
	shape shape
}

// Read splits a text and scores its lines. It fails only when ctx ends first.
func Read(ctx context.Context, text, goal string, kind Kind) (*Doc, error) {
	d := &Doc{lines: split(text), goal: newGoal(goal)}
	switch kind {
	case Logs:
		both(func() { d.index = newIndex(d.lines, d.goal) }, func() { d.shape.must = mustLogs(d.lines) })
		if ctx.Err() == nil {
			d.score = scoreLogs(d.lines, d.goal, d.index)
		}
	case Docs:
		var doc *docShape
		both(func() { d.index = newIndex(d.lines, d.goal) }, func() { doc = newDocShape(d.lines) })
		d.score = scoreDocs(d.lines, d.goal, d.index, doc)
		d.shape = doc.shape()
	default:
		var c *code
		both(func() { d.index = newIndex(d.lines, d.goal) }, func() { c = readCode(d.lines) })
		d.score = scoreCode(c, d.goal, d.index)
		d.shape = c.shape()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.shape.finish(d.lines)
	return d, nil
}

// both does two things at once. A panic of either is the caller's.
func both(one, other func()) {
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

// Len is how many lines the text has, the empty one after a last line break among them.
func (d *Doc) Len() int { return d.lines.count() }

// Scores is how much each line matters: what has more stays longer. It is d's own.
func (d *Doc) Scores() []float32 { return d.score }

// Text is lines first to last, counted from 1, without the last one's line break.
func (d *Doc) Text(first, last int) string {
	return d.lines.text[d.lines.start[first-1] : d.lines.start[last]-1]
}
