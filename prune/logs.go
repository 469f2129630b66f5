package prune

import "math"

// How a log is scored, in the order of scoreLogs: every line is cleaned and read once (logread.go)
// for what it is there for (logrole.go) and how bad its words are (logwords.go); what failing tests
// wrote is found (logtest.go); repeats fade; what was said spreads to the lines around, and to what
// stands before a command that failed (logflow.go); then place and goal are weighed in.

// The weights of what makes a line matter. They were set once on logs of other people's builds; each
// can be halved or doubled without much harm, which is why they are round.
const (
	logPlace   = 2.  // a line names a place in a source: x.go:12
	logRed     = 1.  // a program painted it red
	logFailed  = 5.  // it says that a test failed
	logExit    = 3.  // it names the code that a command failed with: why was said before
	logVerdict = 1.5 // it says so without a code: make: *** [all]
	logInTest  = 5.  // a failing test wrote it
	logRare    = .25 // no other line is like it
	logEarly   = .35 // what a bad line counts at the very beginning; at the end it is 1 more
	logTail    = 1.5 // the last line, for being the last
	logAim     = 2.  // a word of the goal that only this line has
	logRepeat  = 1.  // how fast repeats of a line fade
	logFolded  = .6  // a CI folds away what it holds for unimportant
	logQuiet   = .3  // of lines that only say that something began or went well
	logEmpty   = .2  // of lines without words
)

// logLine is what was read of a line.
type logLine struct {
	own  float32 // how bad it is by itself
	kind uint32  // lines of the same kind differ in numbers only
	test uint32  // the test it is about, hashed; 0 for none
	role logRole
	in   logPart
}

// logPart is what a line stands in.
type logPart uint8

const (
	inFold logPart = 1 << iota // folded away
	inFail                     // written by a failing test
	inPass                     // written by one that passed
)

// scoreLogs says how much each line of a log matters.
func scoreLogs(l lines, g *goal, x *index) []float32 {
	ls, counts := readLog(l)
	markTests(ls)
	markFolds(ls)
	fadeRepeats(ls, len(counts))
	out := spreadLog(ls)
	lift := liftLog(ls)
	aim := make([]float32, len(ls))
	blur(aimLog(g, x), aimDecay, aim)
	last := float32(max(1, len(ls)-1))
	for i := range out {
		p := &ls[i]
		pos := float32(i) / last
		v := out[i]*(logEarly+pos) + logAim*aim[i]
		if p.role != roleBlank {
			v += (logRare + lift[i] + logTail*pos*pos*pos) * news(counts[p.kind])
		}
		out[i] = v * p.share()
		if p.in&inFail != 0 && p.role != roleBlank {
			out[i] += logInTest
		}
	}
	return out
}

// share is how much of its score a line keeps, for what it is and stands in.
func (p *logLine) share() float32 {
	s := float32(1)
	switch p.role {
	case roleBlank:
		s = logEmpty
	case roleBegin, rolePass, roleFine, roleCommand, roleOpen, roleClose:
		s = logQuiet
	}
	if p.in&inFold != 0 {
		s *= logFolded
	}
	if p.in&inPass != 0 {
		s *= logQuiet
	}
	return s
}

// mustLogs are the lines that stay whatever the budget (P8): those that speak of an error, an
// exception or a traceback, in any case and inside of any word.
func mustLogs(l lines) []bool {
	out := make([]bool, l.count())
	for i := range out {
		out[i] = tellsError(l.at(i))
	}
	return out
}

func tellsError(line string) bool {
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

// foldPrefix says whether a text begins with a word of lower-case ASCII letters, in any case.
func foldPrefix(text, word string) bool {
	if len(text) < len(word) {
		return false
	}
	for i := 1; i < len(word); i++ { // the first was looked at
		if text[i]|0x20 != word[i] {
			return false
		}
	}
	return text[0]|0x20 == word[0]
}

// news is how much place counts for a line of whose kind there are n.
func news(n uint32) float32 { return 1 / float32(math.Sqrt(float64(n))) }
