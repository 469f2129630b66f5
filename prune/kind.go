package prune

import (
	"strings"

	"github.com/ctxgate/ctxgate/prune/code"
	"github.com/ctxgate/ctxgate/prune/docs"
	"github.com/ctxgate/ctxgate/prune/logs"
	"github.com/ctxgate/ctxgate/prune/relevance"
)

// Kind is the kind of a text. It decides how lines are scored and which must stay.
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

// detectBytes is how much of a text DetectKind reads.
const detectBytes = 128 << 10

// terminalLines is how many lines with colours or cursor movements show that a program wrote a text for a terminal.
const terminalLines = 3

// DetectKind guesses the kind of a text from its first 128 KiB: output for a terminal is a log; else each
// line outside of fenced blocks votes. Without votes a text is a document.
func DetectKind(text string) Kind {
	l := relevance.Split(text[:min(len(text), detectBytes)])
	if coloured := 0; strings.Contains(l.Text, "\x1b[") {
		for i := range l.Count() {
			if strings.Contains(l.At(i), "\x1b[") {
				coloured++
			}
		}
		if coloured >= terminalLines {
			return Logs
		}
	}
	dialect := code.DetectDialect(l)
	var votes [len(kindNames)]int
	isFenced := false
	for i := range l.Count() {
		line := l.At(i)
		t := strings.TrimSpace(line)
		if strings.HasPrefix(t, "```") {
			isFenced = !isFenced
			votes[Docs]++
		}
		switch {
		case isFenced || t == "":
		case logs.LooksLikeLine(t):
			votes[Logs]++
		case docs.LooksLikeMarkup(t), docs.LooksLikeProse(t):
			votes[Docs]++
		case code.LooksLikeLine(line, dialect):
			votes[Code]++
		}
	}
	best := Docs
	for _, k := range []Kind{Code, Logs} {
		if votes[k] > votes[best] {
			best = k
		}
	}
	return best
}
