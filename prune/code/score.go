// Package code scores the lines of source code for a goal and says which of them must stay and which
// cannot be read without others. It does not parse any language: lexer.go tracks comments, strings
// and brackets by six dialects, traits.go tells what a line is by its words, structure.go finds blocks
// by indentation and definitions, score.go weighs it all. Anything is accepted as code; a text that is
// none has a structure of little use.
package code

import (
	"github.com/ctxgate/ctxgate/prune/relevance"
)

// scorer scores the lines of code for a goal.
type scorer struct {
	*Structure
	goal       *relevance.Goal
	index      *relevance.Index
	weights    relevance.TermWeights
	lineScores []float32 // of each line by itself
	nearScores []float32 // the same, blurred
	unitScores []float32 // of each unit as a whole
}

// signals are the reasons to keep a line of code for a goal. The weights were fitted on the
// development half of the benchmark, cross-validated by repository.
var signals = []relevance.Signal[*scorer]{
	{Name: "near", Weight: .75, Measure: func(c *scorer, out []float32) { copy(out, c.nearScores) }},
	{Name: "far", Weight: .15, Measure: func(c *scorer, out []float32) { relevance.Blur(c.lineScores, .95, out) }},
	{Name: "unit", Weight: .15, Measure: func(c *scorer, out []float32) { c.spreadGroups(c.unit, c.unitScores, out) }},
	{Name: "stanza", Weight: .5, Measure: (*scorer).stanzaSignal},
	{Name: "path", Weight: .65, Measure: (*scorer).pathSignal},
	{Name: "around", Weight: .3, Measure: (*scorer).aroundSignal},
	{Name: "called", Weight: .3, Measure: (*scorer).calledSignal},
}

// priors are added for what a line is, whatever the goal.
var priors = []struct {
	name   string
	is     trait
	weight float32
}{
	{"return", isReturn, .2},
	{"call", isCall, .15},
	{"blank", isBlank, -2},
	{"marks", isPunctuation, -2},
	{"comment", isComment, -.5},
	{"import", isImport, -1.7},
	{"def", isDef, -.25},
	{"trivial", isTrivial, -1.4},
}

// Score scores every line for a goal.
func Score(c *Structure, g *relevance.Goal, x *relevance.Index) []float32 {
	score := relevance.SumSignals(newScorer(c, g, x), c.Count(), signals)
	for i, is := range c.traits {
		for _, p := range priors {
			if is&p.is != 0 {
				score[i] += p.weight
			}
		}
	}
	return score
}

// EachPart calls add with every number that the score of a line is the sum of.
func EachPart(c *Structure, g *relevance.Goal, x *relevance.Index, add func(line int, name string, points float32)) {
	for i, is := range c.traits {
		for _, p := range priors {
			if is&p.is != 0 {
				add(i, p.name, p.weight)
			}
		}
	}
	relevance.EachSignal(newScorer(c, g, x), c.Count(), signals, func(name string, points []float32) {
		for i, p := range points {
			if p != 0 {
				add(i, name, p)
			}
		}
	})
}

func newScorer(text *Structure, g *relevance.Goal, x *relevance.Index) *scorer {
	c := &scorer{Structure: text, goal: g, index: x, weights: x.Weights(g)}
	c.lineScores = c.scoreLines()
	c.nearScores = make([]float32, len(c.lineScores))
	relevance.Blur(c.lineScores, .75, c.nearScores)
	c.unitScores = relevance.GroupScores(g, x, c.unit, len(c.unitHead))
	return c
}

// scoreLines scores lines by the terms in them: BM25, as if a line had each term once.
func (c *scorer) scoreLines() []float32 {
	const k1, b = .9, .3
	out := make([]float32, len(c.traits))
	for i := range out {
		if c.index.Exact[i]|c.index.Variant[i] != 0 {
			length := float32(float64(c.index.WordCounts[i]) / c.index.MeanWords)
			out[i] = c.weights.Sum(c.index.Exact[i], c.index.Variant[i]) * (k1 + 1) / (1 + k1*(1-b+b*length))
		}
	}
	return out
}

func (c *scorer) spreadGroups(of []int32, values, out []float32) {
	for i, group := range of {
		out[i] = values[group]
	}
}

func (c *scorer) stanzaSignal(out []float32) {
	n := int(c.stanza[len(c.stanza)-1]) + 1
	c.spreadGroups(c.stanza, relevance.GroupScores(c.goal, c.index, c.stanza, n), out)
}

// pathSignal weighs the terms of a line and of all lines that it is nested in.
func (c *scorer) pathSignal(out []float32) {
	exact, variant := make([]uint64, len(out)), make([]uint64, len(out))
	for i := range out { // a parent comes before its children
		exact[i], variant[i] = c.index.Exact[i], c.index.Variant[i]
		if p := c.parent[i]; p >= 0 {
			exact[i] |= exact[p]
			variant[i] |= variant[p]
		}
		out[i] = c.weights.Sum(exact[i], variant[i])
	}
}

// aroundSignal weighs the distinct terms within 15 lines.
func (c *scorer) aroundSignal(out []float32) {
	const reach = 15
	exact, variant := make([]uint64, len(out)), make([]uint64, len(out))
	for i := range out {
		if c.index.Exact[i]|c.index.Variant[i] == 0 {
			continue
		}
		for j := max(0, i-reach); j <= min(len(out)-1, i+reach); j++ {
			exact[j] |= c.index.Exact[i]
			variant[j] |= c.index.Variant[i]
		}
	}
	for i := range out {
		if i > 0 && exact[i] == exact[i-1] && variant[i] == variant[i-1] {
			out[i] = out[i-1]
			continue
		}
		out[i] = c.weights.Sum(exact[i], variant[i])
	}
}

// calledSignal lifts definitions that are called from lines with high scores.
func (c *scorer) calledSignal(out []float32) {
	units := map[string]int32{}
	for i, is := range c.traits {
		if is&isDef != 0 {
			eachCall(c.At(i), func(name string) bool {
				units[name] = c.unit[i]
				return false
			})
		}
	}
	lift := make([]float32, len(c.unitHead))
	nearTop, unitTop := relevance.Peak(c.nearScores), relevance.Peak(c.unitScores)
	for i, is := range c.traits {
		heat := c.nearScores[i]/nearTop + c.unitScores[c.unit[i]]/unitTop
		if is&isDef != 0 || heat == 0 {
			continue
		}
		eachCall(c.At(i), func(name string) bool {
			if u, ok := units[name]; ok && u != c.unit[i] {
				lift[u] = max(lift[u], heat)
			}
			return true
		})
	}
	c.spreadGroups(c.unit, lift, out)
}

// eachCall calls each with every name before an opening parenthesis, until it returns false.
func eachCall(line string, each func(name string) bool) {
	for i := 1; i < len(line); i++ {
		if line[i] != '(' || !isNameByte(line[i-1]) {
			continue
		}
		start := i
		for start > 0 && isNameByte(line[start-1]) {
			start--
		}
		if !each(line[start:i]) {
			return
		}
	}
}
