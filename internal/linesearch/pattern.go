// Package linesearch finds the lines of a text that match a regular expression. The expression is
// untrusted, so its size, the memory and the work of a search are bounded, and a search ends when its
// context does.
//
// Syntax and meaning are those of package regexp ([Compile] accepts what regexp.Compile accepts, within
// the bounds), but the only answer is whether a line matches. That allows the bounds: a [Matcher] runs
// the program of regexp/syntax as a lazy DFA with a state cache of fixed size. It reads a line in
// blocks, so the length of a line takes no memory, and it counts every step.
//
// pattern.go checks and compiles an expression; matcher.go runs it.
package linesearch

import (
	"errors"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"github.com/ctxgate/ctxgate/fault"
)

// The bounds of an expression. Each is checked before the work that it bounds.
const (
	maxLength      = 512  // bytes
	maxInst        = 4096 // instructions of the program, estimated before repetitions are expanded
	maxTables      = 64   // classes such as \pL, which are tables of hundreds of ranges
	maxFoldedSpans = 2    // ranges of a class beyond ASCII under (?i): the parser takes milliseconds for each
)

var (
	errSyntax   = fault.New(fault.BadParams, "pattern is not a regular expression (RE2 syntax)")
	errTooLong  = fault.New(fault.BadParams, "pattern is too long: at most 512 bytes")
	errTooLarge = fault.New(fault.BadParams, "pattern is too large: use smaller or fewer counted repetitions such as {0,1000}, fewer classes such as \\pL, and fewer wide ranges under (?i)")
)

// tooLargeCodes are the parser's own errors for an expression that is too large.
var tooLargeCodes = []syntax.ErrorCode{syntax.ErrInvalidRepeatSize, syntax.ErrNestingDepth, syntax.ErrLarge}

// Pattern is a compiled expression. It is safe for concurrent use.
type Pattern struct {
	inst     []syntax.Inst
	start    uint16
	anchored bool   // a match can only begin at the start of the line
	bounds   []rune // where classes of non-ASCII characters begin: within one, all characters behave alike
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
	if errors.As(err, &refused) && slices.Contains(tooLargeCodes, refused.Code) {
		return nil, errTooLarge
	}
	if refused != nil { // the code is a fixed text and quotes nothing of the expression
		return nil, fault.New(fault.BadParams, errSyntax.Public+": "+refused.Code.String())
	}
	if err != nil {
		return nil, errSyntax
	}
	if instCount(tree) > maxInst {
		return nil, errTooLarge
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil || len(prog.Inst) > 2*maxInst { // instCount is an estimate
		return nil, errTooLarge
	}
	return &Pattern{
		inst: prog.Inst, start: uint16(prog.Start), bounds: classBounds(prog.Inst),
		anchored: prog.StartCond()&(syntax.EmptyBeginText|syntax.EmptyBeginLine) != 0, // a line has no line break inside
	}, nil
}

// foldedSpans counts ranges of a class that may reach beyond ASCII, if any part of the expression
// ignores case. It may count too many, never too few.
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

// foldsCase says whether a group of flags has an i in it.
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

// instCount estimates, from above, how many instructions a tree has when its repetitions are expanded.
// It stops counting above maxInst.
func instCount(re *syntax.Regexp) int {
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
		if n += instCount(sub); n > maxInst {
			return maxInst + 1
		}
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, maxInst+1)
}

// classBounds are the characters at which the answer of any instruction changes.
func classBounds(inst []syntax.Inst) []rune {
	var out []rune
	seen := map[*rune]bool{} // an expanded repetition repeats one class
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

// classOf numbers the classes of non-ASCII characters: those of one class behave alike in every state.
func (p *Pattern) classOf(r rune) int32 {
	at, exact := slices.BinarySearch(p.bounds, r)
	if exact {
		at++
	}
	return int32(at)
}
