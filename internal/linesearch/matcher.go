package linesearch

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"regexp/syntax"
	"unicode/utf8"
)

// ErrWorkLimit is returned when a search has used up its work limit.
var ErrWorkLimit = errors.New("the search took more work than one call may")

// Work is counted in units of about the same time, a few nanoseconds.
const (
	costByte  = 1   // to follow a cached transition
	costWide  = 6   // the same for a non-ASCII character
	costFeed  = 10  // to begin a block
	costState = 120 // to make a state, without its instructions
	costInst  = 6   // to look at one instruction

	checkEvery    = 1 << 18 // units between two checks of the context
	maxCacheBytes = 1 << 21 // of states; the cache is cleared when it is full
)

// Matcher matches lines against a pattern, one after the other. It is not safe for concurrent use.
type Matcher struct {
	p         *Pattern
	workLimit int64 // 0 for none
	work      int64
	nextCheck int64 // the work at which the context is checked next

	first       *state // at the beginning of a line
	current     *state
	states      map[string]*state
	cachedBytes int
	reached     instSet // the result of closure
	next        instSet // instructions of the state that is being made
	stack       []uint16
	key         []byte
}

// state is a state of the DFA: the instructions to run when the next character is known, which decides
// whether $ and \b hold.
type state struct {
	pcs  []uint16
	prev charKind
	to   [utf8.RuneSelf]*state // by ASCII character
	wide map[int32]*state      // by class of other characters
	end  int8                  // whether the line matches when it ends here: 1 yes, -1 no, 0 not known yet
}

// The two states that further characters do not change.
var (
	stateMatch = &state{}
	stateFail  = &state{}
)

// charKind is what empty-width conditions distinguish about a character.
type charKind uint8

const (
	kindEdge  charKind = iota // the beginning or the end of the line
	kindWord                  // a character of a word
	kindOther                 // any other
)

// NewMatcher makes a matcher with a limit of work; 0 for none.
func NewMatcher(p *Pattern, workLimit int64) *Matcher {
	words := (len(p.inst) + 63) / 64
	s := &Matcher{p: p, workLimit: workLimit, nextCheck: checkEvery, states: map[string]*state{}, reached: make(instSet, words), next: make(instSet, words)}
	s.next.insert(p.start)
	s.first = s.internState(kindEdge)
	s.StartLine()
	return s
}

// Work is the work done so far.
func (s *Matcher) Work() int64 { return s.work }

// StartLine begins a new line.
func (s *Matcher) StartLine() { s.current = s.first }

// Decided says whether the rest of the line cannot change the result.
func (s *Matcher) Decided() bool { return s.current == stateMatch || s.current == stateFail }

// Matched says whether the line matches, whatever follows.
func (s *Matcher) Matched() bool { return s.current == stateMatch }

// Feed reads the next block of the line. A block does not split a character and holds no line break.
// The error is [ErrWorkLimit] or that of the context.
func (s *Matcher) Feed(ctx context.Context, block []byte) error {
	if err := s.addWork(ctx, costFeed); err != nil {
		return err
	}
	for len(block) > 0 && !s.Decided() {
		used, err := s.feedBlock(ctx, block[:min(len(block), checkEvery)])
		if err != nil {
			return err
		}
		block = block[used:]
	}
	return nil
}

// feedBlock reads a short block and returns how many bytes it used: all but an incomplete last
// character.
func (s *Matcher) feedBlock(ctx context.Context, block []byte) (int, error) {
	now, i := s.current, 0
	for i < len(block) && now != stateMatch && now != stateFail {
		r, size := rune(block[i]), 1
		var to *state
		if r < utf8.RuneSelf {
			to = now.to[r]
		} else {
			if i > 0 && !utf8.FullRune(block[i:]) {
				break // Feed calls again with the bytes after it, if there are any
			}
			r, size = utf8.DecodeRune(block[i:])
			to = now.wide[s.p.classOf(r)]
			s.work += costWide
		}
		if to == nil {
			to = s.makeTransition(now, r)
			if err := s.addWork(ctx, 0); err != nil {
				return 0, err
			}
		}
		now = to
		i += size
	}
	s.current = now
	return i, s.addWork(ctx, int64(i)*costByte)
}

// EndLine ends the line and says whether it matches.
func (s *Matcher) EndLine() bool {
	if s.Decided() {
		return s.current == stateMatch
	}
	if s.current.end == 0 {
		s.current.end = -1
		if s.closure(s.current, kindEdge) {
			s.current.end = 1
		}
	}
	return s.current.end > 0
}

// addWork counts work, and checks the limit and the context.
func (s *Matcher) addWork(ctx context.Context, work int64) error {
	s.work += work
	if s.workLimit > 0 && s.work > s.workLimit {
		return ErrWorkLimit
	}
	if s.work >= s.nextCheck {
		s.nextCheck = s.work + checkEvery
		return ctx.Err()
	}
	return nil
}

// makeTransition computes and caches the state that follows a character.
func (s *Matcher) makeTransition(from *state, r rune) *state {
	kind := kindOf(r)
	to := stateMatch
	if !s.closure(from, kind) {
		clear(s.next)
		if !s.p.anchored {
			s.next.insert(s.p.start)
		}
		s.reached.each(func(pc uint16) {
			in := &s.p.inst[pc]
			if matches(in, r) {
				s.next.insert(uint16(in.Out))
			}
			s.work += costInst + int64(bits.Len(uint(len(in.Rune)))) // a class is a binary search
		})
		if to = stateFail; !s.next.isEmpty() {
			to = s.internState(kind)
		}
	}
	if r < utf8.RuneSelf {
		from.to[r] = to
		return to
	}
	if from.wide == nil {
		from.wide = map[int32]*state{}
	}
	from.wide[s.p.classOf(r)] = to
	s.cachedBytes += 64
	return to
}

func matches(in *syntax.Inst, r rune) bool {
	switch in.Op { //nolint:exhaustive // the others match no character
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return in.MatchRune(r)
	}
	return false
}

// closure collects in s.reached the instructions that can be reached without reading a character, if
// the next one is of this kind, and says whether a match is among them.
func (s *Matcher) closure(from *state, next charKind) bool {
	flags := conditions[from.prev][next]
	clear(s.reached)
	s.stack = append(s.stack[:0], from.pcs...)
	for len(s.stack) > 0 {
		pc := s.stack[len(s.stack)-1]
		s.stack = s.stack[:len(s.stack)-1]
		if !s.reached.insert(pc) {
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

// internState returns the state of the instructions in s.next after a character of this kind.
func (s *Matcher) internState(prev charKind) *state {
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
	if s.cachedBytes > maxCacheBytes { // s.current stays valid until the next transition
		clear(s.states)
		s.cachedBytes = 0
		if s.first != nil {
			*s.first = state{pcs: s.first.pcs, prev: s.first.prev}
		}
	}
	s.states[string(s.key)] = st
	s.cachedBytes += 1300 + len(s.key) + 4*len(st.pcs)
	return st
}

func kindOf(r rune) charKind {
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

// instSet is a set of instructions.
type instSet []uint64

// insert says whether the instruction is new.
func (s instSet) insert(pc uint16) bool {
	word, bit := pc/64, uint64(1)<<(pc%64)
	if s[word]&bit != 0 {
		return false
	}
	s[word] |= bit
	return true
}

func (s instSet) isEmpty() bool {
	for _, word := range s {
		if word != 0 {
			return false
		}
	}
	return true
}

func (s instSet) each(f func(pc uint16)) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			f(uint16(i*64 + bits.TrailingZeros64(word)))
		}
	}
}
