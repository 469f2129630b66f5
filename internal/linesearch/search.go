package linesearch

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"regexp/syntax"
	"unicode/utf8"
)

// ErrWork is returned when a search has done all the work that it may.
var ErrWork = errors.New("the search took more work than one call may")

// Steps are counted in units that take about the same time each, a few nanoseconds.
const (
	costByte  = 1   // to follow a transition that is in the cache
	costWide  = 6   // the same for a character that is not ASCII
	costFeed  = 10  // to begin a line or a block of one
	costState = 120 // to make a state, beside its instructions
	costInst  = 6   // to look at one instruction

	checkEvery = 1 << 18 // units between two looks at the context
	maxCache   = 1 << 21 // bytes of states; when they are more, all are forgotten
)

// Search matches lines against a pattern, one after the other. It is not for concurrent use.
type Search struct {
	p     *Pattern
	limit int64 // of work; 0: none
	work  int64
	check int64 // the context is looked at when work gets here

	first  *state // at the beginning of a line
	now    *state
	states map[string]*state
	cached int // bytes
	seen   set // instructions that were looked at
	next   set // instructions of the state that is being made
	stack  []uint16
	key    []byte
}

// state is what can follow what was read of a line: instructions that are to be looked at when the
// next character is known, since that says whether $ and \b hold.
type state struct {
	pcs  []uint16
	prev kind
	to   [utf8.RuneSelf]*state // by ASCII character
	wide map[int32]*state      // by class of other characters
	end  int8                  // whether the line matches when it ends here: 0 is not known yet, 1 yes, -1 no
}

// The two states that no more characters change.
var (
	stateMatch = &state{}
	stateFail  = &state{}
)

// kind is what empty-width conditions ask of a character.
type kind uint8

const (
	kindEdge  kind = iota // the beginning or the end of the line
	kindWord              // a character of a word
	kindOther             // any other
)

// New is a search that may do so much work; 0 for any amount.
func New(p *Pattern, work int64) *Search {
	words := (len(p.inst) + 63) / 64
	s := &Search{p: p, limit: work, check: checkEvery, states: map[string]*state{}, seen: make(set, words), next: make(set, words)}
	s.next.add(p.start)
	s.first = s.intern(kindEdge)
	s.Begin()
	return s
}

// Work is how much work was done so far.
func (s *Search) Work() int64 { return s.work }

// Begin begins a line.
func (s *Search) Begin() { s.now = s.first }

// Decided says whether the rest of the line can change nothing.
func (s *Search) Decided() bool { return s.now == stateMatch || s.now == stateFail }

// Matched says whether the line matches, whatever follows.
func (s *Search) Matched() bool { return s.now == stateMatch }

// Feed reads on in the line. A block may end anywhere but inside of a character, and holds no line
// break. The error is [ErrWork] or that of the context.
func (s *Search) Feed(ctx context.Context, block []byte) error {
	if err := s.spent(ctx, costFeed); err != nil {
		return err
	}
	for len(block) > 0 && !s.Decided() {
		used, err := s.feed(ctx, block[:min(len(block), checkEvery)])
		if err != nil {
			return err
		}
		block = block[used:]
	}
	return nil
}

// feed reads a short block, but for a last character that is not whole, and says how far it came.
func (s *Search) feed(ctx context.Context, block []byte) (int, error) {
	now, i := s.now, 0
	for i < len(block) && now != stateMatch && now != stateFail {
		r, size := rune(block[i]), 1
		var to *state
		if r < utf8.RuneSelf {
			to = now.to[r]
		} else {
			if i > 0 && !utf8.FullRune(block[i:]) {
				break // Feed comes back with the bytes after it, if there are any
			}
			r, size = utf8.DecodeRune(block[i:])
			to = now.wide[s.p.class(r)]
			s.work += costWide
		}
		if to == nil {
			to = s.step(now, r)
			if err := s.spent(ctx, 0); err != nil {
				return 0, err
			}
		}
		now = to
		i += size
	}
	s.now = now
	return i, s.spent(ctx, int64(i)*costByte)
}

// End ends the line and says whether it matches.
func (s *Search) End() bool {
	if s.Decided() {
		return s.now == stateMatch
	}
	if s.now.end == 0 {
		s.now.end = -1
		if s.closure(s.now, kindEdge) {
			s.now.end = 1
		}
	}
	return s.now.end > 0
}

// spent adds work, and says whether the search has to end.
func (s *Search) spent(ctx context.Context, work int64) error {
	s.work += work
	if s.limit > 0 && s.work > s.limit {
		return ErrWork
	}
	if s.work >= s.check {
		s.check = s.work + checkEvery
		return ctx.Err()
	}
	return nil
}

// step makes the state that follows a character.
func (s *Search) step(from *state, r rune) *state {
	is := kindOf(r)
	to := stateMatch
	if !s.closure(from, is) {
		s.next.clear()
		if !s.p.anchored {
			s.next.add(s.p.start)
		}
		s.seen.each(func(pc uint16) {
			in := &s.p.inst[pc]
			if matches(in, r) {
				s.next.add(uint16(in.Out))
			}
			s.work += costInst + int64(bits.Len(uint(len(in.Rune)))) // a class is searched by halves
		})
		if to = stateFail; !s.next.empty() {
			to = s.intern(is)
		}
	}
	if r < utf8.RuneSelf {
		from.to[r] = to
		return to
	}
	if from.wide == nil {
		from.wide = map[int32]*state{}
	}
	from.wide[s.p.class(r)] = to
	s.cached += 64
	return to
}

func matches(in *syntax.Inst, r rune) bool {
	switch in.Op { //nolint:exhaustive // the others match no character
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return in.MatchRune(r)
	}
	return false
}

// closure collects in s.seen the instructions that can be reached without reading a character, when
// the next one is of this kind, and says whether a match is among them.
func (s *Search) closure(from *state, next kind) bool {
	flags := conditions[from.prev][next]
	s.seen.clear()
	s.stack = append(s.stack[:0], from.pcs...)
	for len(s.stack) > 0 {
		pc := s.stack[len(s.stack)-1]
		s.stack = s.stack[:len(s.stack)-1]
		if !s.seen.add(pc) {
			continue
		}
		s.work += costInst
		switch in := &s.p.inst[pc]; in.Op { //nolint:exhaustive // the others read a character, or fail
		case syntax.InstMatch:
			return true
		case syntax.InstAlt, syntax.InstAltMatch:
			s.stack = append(s.stack, uint16(in.Out), uint16(in.Arg))
		case syntax.InstCapture, syntax.InstNop:
			s.stack = append(s.stack, uint16(in.Out))
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg)&^flags == 0 {
				s.stack = append(s.stack, uint16(in.Out))
			}
		}
	}
	return false
}

// intern is the state of the instructions in s.next after a character of this kind.
func (s *Search) intern(prev kind) *state {
	s.key = append(s.key[:0], byte(prev))
	for _, word := range s.next {
		s.key = binary.LittleEndian.AppendUint64(s.key, word)
	}
	s.work += costState + int64(len(s.next))
	if st := s.states[string(s.key)]; st != nil {
		return st
	}
	st := &state{prev: prev}
	s.next.each(func(pc uint16) { st.pcs = append(st.pcs, pc) })
	if s.cached > maxCache { // what the search holds now is collected when it goes on
		clear(s.states)
		s.cached = 0
		if s.first != nil {
			*s.first = state{pcs: s.first.pcs, prev: s.first.prev}
		}
	}
	s.states[string(s.key)] = st
	s.cached += 1300 + len(s.key) + 4*len(st.pcs)
	return st
}

func kindOf(r rune) kind {
	if syntax.IsWordChar(r) {
		return kindWord
	}
	return kindOther
}

// conditions are the empty-width conditions that hold between two characters.
var conditions = func() (out [3][3]syntax.EmptyOp) {
	example := [3]rune{kindEdge: -1, kindWord: 'a', kindOther: ' '}
	for a, before := range example {
		for b, after := range example {
			out[a][b] = syntax.EmptyOpContext(before, after)
		}
	}
	return out
}()

// set is a set of instructions.
type set []uint64

func (s set) clear() { clear(s) }

// add says whether the instruction is new.
func (s set) add(pc uint16) bool {
	word, bit := pc/64, uint64(1)<<(pc%64)
	if s[word]&bit != 0 {
		return false
	}
	s[word] |= bit
	return true
}

func (s set) empty() bool {
	for _, word := range s {
		if word != 0 {
			return false
		}
	}
	return true
}

func (s set) each(f func(pc uint16)) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			f(uint16(i*64 + bits.TrailingZeros64(word)))
		}
	}
}
