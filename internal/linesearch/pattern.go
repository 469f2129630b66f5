// Package linesearch says which lines of a text match a regular expression. The expression comes
// from somebody who may wish us harm, so its size, the memory and the work of a search are bounded,
// and a search ends when its context does.
//
// The syntax and the meaning are those of package regexp ([Compile] takes what regexp.Compile
// takes, within the bounds), but only "does this line match" is answered. That is what allows the
// bounds: a [Search] runs the program of regexp/syntax as a deterministic automaton whose states are
// made when they are first needed and kept in a cache of fixed size. It reads a line in blocks, so a
// line of any length takes no memory, and it counts every step.
//
// pattern.go checks and compiles an expression; search.go runs it.
package linesearch

import (
	"errors"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"github.com/ctxgate/ctxgate/fault"
)

// What an expression may be. Each bound is checked before the work that it bounds is done.
const (
	maxLength      = 512  // bytes
	maxInst        = 4096 // instructions of the program, as estimated before repetitions are expanded
	maxTables      = 64   // classes such as \pL, which are tables of hundreds of ranges
	maxFoldedSpans = 2    // ranges of a class beyond ASCII under (?i): the parser takes milliseconds for each
)

var (
	errSyntax   = fault.New(fault.BadParams, "pattern is not a regular expression (RE2 syntax)")
	errTooLong  = fault.New(fault.BadParams, "pattern is too long: at most 512 bytes")
	errTooLarge = fault.New(fault.BadParams, "pattern is too large: use smaller or fewer counted repetitions such as {0,1000}, fewer classes such as \\pL, and fewer wide ranges under (?i)")
)

// largeCodes are the reasons for which the parser itself refuses an expression as too large.
var largeCodes = []syntax.ErrorCode{syntax.ErrInvalidRepeatSize, syntax.ErrNestingDepth, syntax.ErrLarge}

// Pattern is a compiled expression. It can be used by many searches at once.
type Pattern struct {
	inst     []syntax.Inst
	start    uint16
	anchored bool   // a match can only begin where the line does
	bounds   []rune // where classes of characters that are not ASCII begin: within one, all behave alike
}

// Compile checks and compiles an expression. Every error is of kind BadParams.
func Compile(expr string) (*Pattern, error) {
	if len(expr) > maxLength {
		return nil, errTooLong
	}
	if foldedSpans(expr) > maxFoldedSpans || strings.Count(strings.ToLower(expr), `\p`) > maxTables {
		return nil, errTooLarge
	}
	tree, err := syntax.Parse(expr, syntax.Perl)
	var refused *syntax.Error
	if errors.As(err, &refused) && slices.Contains(largeCodes, refused.Code) {
		return nil, errTooLarge
	}
	if refused != nil { // the code is one of a few texts, and nothing of the expression
		return nil, fault.New(fault.BadParams, errSyntax.Public+": "+refused.Code.String())
	}
	if err != nil {
		return nil, errSyntax
	}
	if size(tree) > maxInst {
		return nil, errTooLarge
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil || len(prog.Inst) > 2*maxInst { // size is an estimate
		return nil, errTooLarge
	}
	return &Pattern{
		inst: prog.Inst, start: uint16(prog.Start), bounds: boundsOf(prog.Inst),
		anchored: prog.StartCond()&(syntax.EmptyBeginText|syntax.EmptyBeginLine) != 0, // a line has no line break inside
	}, nil
}

// foldedSpans counts what may be ranges of a class that reach beyond ASCII, where any part of an
// expression ignores case. It may count too many, never too few.
func foldedSpans(expr string) int {
	if !foldsCase(expr) {
		return 0
	}
	spans := 0
	for i := 0; i+1 < len(expr); i++ {
		if next := expr[i+1]; expr[i] == '-' && (next == '\\' || next >= 0x80) {
			spans++
		}
	}
	return spans
}

// foldsCase says whether there is a group of flags with an i in it.
func foldsCase(expr string) bool {
	for rest := expr; ; {
		_, after, found := strings.Cut(rest, "(?")
		if !found {
			return false
		}
		for i := 0; i < len(after) && after[i] != ')' && after[i] != ':' && after[i] != '<'; i++ {
			if after[i] == 'i' {
				return true
			}
		}
		rest = after
	}
}

// size is how many instructions a tree becomes when its repetitions are expanded, or a little more.
// It is at most a little over maxInst, however large the tree is.
func size(re *syntax.Regexp) int {
	n := 1
	switch re.Op { //nolint:exhaustive // the others are one instruction
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCapture:
		n = 2
	case syntax.OpAlternate:
		n = len(re.Sub)
	}
	for _, sub := range re.Sub {
		if n += size(sub); n > maxInst {
			return maxInst + 1
		}
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, maxInst+1)
}

// boundsOf are the characters where the answer of any instruction changes.
func boundsOf(inst []syntax.Inst) []rune {
	var out []rune
	seen := map[*rune]bool{} // an expanded repetition has one class many times
	add := func(low, high rune) { out = append(out, low, high+1) }
	for i := range inst {
		switch inst[i].Op { //nolint:exhaustive // the others match no character
		case syntax.InstRune1:
			add(inst[i].Rune[0], inst[i].Rune[0])
		case syntax.InstRune:
			pairs := inst[i].Rune
			if len(pairs) == 1 {
				add(pairs[0], pairs[0])
				if syntax.Flags(inst[i].Arg)&syntax.FoldCase != 0 {
					for r := unicode.SimpleFold(pairs[0]); r != pairs[0]; r = unicode.SimpleFold(r) {
						add(r, r)
					}
				}
				continue
			}
			if len(pairs) == 0 || seen[&pairs[0]] {
				continue
			}
			seen[&pairs[0]] = true
			for k := 0; k+1 < len(pairs); k += 2 {
				add(pairs[k], pairs[k+1])
			}
		}
	}
	out = slices.DeleteFunc(out, func(r rune) bool { return r < 0x80 })
	slices.Sort(out)
	return slices.Compact(out)
}

// class is a number that all characters have in common that behave alike in every state. ASCII
// characters are their own classes; no other has their numbers.
func (p *Pattern) class(r rune) int32 {
	at, exact := slices.BinarySearch(p.bounds, r)
	if exact {
		at++
	}
	return int32(at)
}
