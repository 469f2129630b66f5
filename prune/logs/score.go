// Package logs scores the lines of a log, most of all of builds and tests, for a goal. Every line is
// cleaned and read once (read.go): for its role (role.go) and for how bad its words are (severity.go).
// sections.go finds what failing tests wrote and what a CI folds away. score.go lets repeats fade,
// spreads severity to the lines around, lifts what precedes a failed command, and adds position and
// goal. Any text is accepted, and the work is bounded by its length.
package logs

import (
	"math"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// The weights were set on logs of public builds. Each can be halved or doubled without much harm.
const (
	weightLocation     = 2.  // it names a place in a source file: x.go:12
	weightRed          = 1.  // it is coloured red
	weightTestFail     = 5.  // it reports a failed test
	weightExitCode     = 3.  // it names the exit code of a failed command
	weightCommandFail  = 1.5 // it reports a failed command without a code: make: *** [all]
	weightInFailedTest = 5.  // a failing test wrote it
	weightRare         = .25 // no other line has its template
	factorEarly        = .35 // on severity, at the start of the log; 1 more at its end
	weightTail         = 1.5 // the last line; less before it
	weightGoal         = 2.  // a term of the goal that only this line has
	repeatFade         = 1.  // how fast repeats lose severity
	shareFolded        = .6  // of a line in a folded section
	shareQuiet         = .3  // of a line that only reports a start or a success
	shareEmpty         = .2  // of a line without words
)

// logLine is what is known of a line.
type logLine struct {
	severity float32 // how bad its words are, less for repeats
	template uint32  // hash; lines of one template differ only in words with digits
	testHash uint32  // hash of the test it names; 0 for none
	role     logRole
	section  logSection
}

// logSection is a set of the sections a line is in.
type logSection uint8

const (
	inFold logSection = 1 << iota // folded away by a CI
	inFail                        // written by a failing test
	inPass                        // written by a test that passed
)

// Score scores every line for a goal.
func Score(l relevance.Lines, g *relevance.Goal, x *relevance.Index) []float32 {
	ls, counts := readLines(l)
	markTests(ls)
	markFolds(ls)
	fadeRepeats(ls, len(counts))
	out := spreadSeverity(ls)
	lift := liftBeforeFailure(ls)
	aim := make([]float32, len(ls))
	relevance.Blur(goalScores(g, x), goalDecay, aim)
	last := float32(max(1, len(ls)-1))
	for i := range out {
		p := &ls[i]
		pos := float32(i) / last
		v := out[i]*(factorEarly+pos) + weightGoal*aim[i]
		if p.role != roleBlank {
			v += (weightRare + lift[i] + weightTail*pos*pos*pos) * novelty(counts[p.template])
		}
		out[i] = v * p.scoreShare()
		if p.section&inFail != 0 && p.role != roleBlank {
			out[i] += weightInFailedTest
		}
	}
	return out
}

// scoreShare is the share of its score that a line keeps because of its role and sections.
func (p *logLine) scoreShare() float32 {
	s := float32(1)
	switch p.role {
	case roleBlank:
		s = shareEmpty
	case roleTestStart, rolePass, roleCommandOK, roleCommand, roleFoldStart, roleFoldEnd:
		s = shareQuiet
	}
	if p.section&inFold != 0 {
		s *= shareFolded
	}
	if p.section&inPass != 0 {
		s *= shareQuiet
	}
	return s
}

// MustKeep returns the lines that stay whatever the budget (P8): those with "error", "exception" or
// "traceback", in any case, also inside words.
func MustKeep(l relevance.Lines) []bool {
	out := make([]bool, l.Count())
	for i := range out {
		out[i] = mentionsError(l.At(i))
	}
	return out
}

func mentionsError(line string) bool {
	for i := 0; i+4 < len(line); i++ {
		switch line[i] | 0x20 {
		case 'e':
			if foldPrefix(line[i:], "error") || foldPrefix(line[i:], "exception") {
				return true
			}
		case 't':
			if foldPrefix(line[i:], "traceback") {
				return true
			}
		}
	}
	return false
}

// foldPrefix reports whether a text begins with word, which is lower-case ASCII, in any case.
func foldPrefix(text, word string) bool {
	if len(text) < len(word) {
		return false
	}
	for i := 1; i < len(word); i++ { // the first byte is compared last: the caller has looked at it
		if text[i]|0x20 != word[i] {
			return false
		}
	}
	return text[0]|0x20 == word[0]
}

// novelty weighs position down for a line that has n of its template.
func novelty(n uint32) float32 { return 1 / float32(math.Sqrt(float64(n))) }

// Severity spreads to the lines around and decays with every line, by that line's role. It spreads
// further down than up: programs print what went wrong and then the details.
const (
	downContinuation = .96 // stack frames, carets, hunks
	downPlain        = .85
	downBlank        = .8
	downBoundary     = .4 // another test or command begins
	upPlain          = .7
	upBlank          = .7
	upBoundary       = .3
	bothSides        = .7 // of the smaller value, for a line with severe lines on both sides
)

// Lines before a failed command are lifted, the last one the most.
const (
	beforeExit   = 4.
	exitDecay    = .88
	exitBoundary = .1 // of the lift, before the start of the command
)

// goalDecay is how a line's goal score decays with every line of distance.
const goalDecay = .6

// spreadSeverity gives every line the highest severity that reaches it from above and below.
func spreadSeverity(ls []logLine) []float32 {
	out := make([]float32, len(ls))
	flow := float32(0)
	for i := range ls {
		flow = max(ls[i].severity, flow*decayDown(ls[i].role))
		out[i] = flow
	}
	flow = 0
	for i := len(ls) - 1; i >= 0; i-- {
		flow = max(ls[i].severity, flow*decayUp(ls[i].role))
		out[i] = max(out[i], flow) + bothSides*min(out[i], flow)
	}
	return out
}

func decayDown(r logRole) float32 {
	switch r {
	case roleContinuation:
		return downContinuation
	case roleBlank:
		return downBlank
	case roleTestStart, rolePass, roleCommandOK, roleCommand, roleFoldStart, roleFoldEnd:
		return downBoundary
	}
	return downPlain
}

func decayUp(r logRole) float32 {
	switch r {
	case roleBlank:
		return upBlank
	case roleTestStart, rolePass, roleCommandOK, roleCommand, roleFoldStart, roleFoldEnd:
		return upBoundary
	}
	return upPlain
}

// liftBeforeFailure scores lines for their distance to a failed command, or to the end of the log.
func liftBeforeFailure(ls []logLine) []float32 {
	out := make([]float32, len(ls))
	lift := float32(beforeExit)
	for i := len(ls) - 1; i >= 0; i-- {
		switch ls[i].role {
		case roleCommandFail:
			lift = beforeExit
		case roleBlank:
		case roleCommandOK, roleCommand, roleFoldStart, roleFoldEnd:
			lift *= exitBoundary
		default:
			lift *= exitDecay
			out[i] = lift
		}
	}
	return out
}

// goalScores weighs the terms of the goal in each line, rare ones more.
func goalScores(g *relevance.Goal, x *relevance.Index) []float32 {
	out := make([]float32, len(x.Exact))
	w := relevance.TermWeights{Exact: make([]float64, len(g.Terms)), Variant: make([]float64, len(g.Terms))}
	for t, term := range g.Terms {
		if !questionWords[term.Word] {
			w.Exact[t] = term.Weight * scarcity(x.ExactFreq[t], x)
			w.Variant[t] = x.VariantShare(t) * term.Weight * scarcity(x.AnyFreq[t], x)
		}
	}
	for i := range out {
		out[i] = w.Sum(x.Exact[i], x.Variant[i])
	}
	return out
}

// scarcity is 1 for a term that one line has and 0 for one that all lines have.
func scarcity(df int, x *relevance.Index) float64 {
	if df == 0 {
		return 0
	}
	rare := 1 - math.Log(float64(df))/math.Log(x.LineCount+1)
	return rare * rare
}

// questionWords are in many questions about logs. They do not count as terms: the words of failure
// have their weight already.
var questionWords = relevance.WordSet(`build builds test tests testing command commands fail fails failed failing failure failures
error errors exception ci cause broke break broken red wrong diagnose keyword keywords reason find log logs job
run exit exited code status went pipeline problem issue debug
échec échoue échoué erreur erreurs cause build test tests 失败 错误 原因 日志 为什 什么`)
