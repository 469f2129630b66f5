package recall

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/internal/membudget"
)

// How much of an original one call may read, whoever asks. ctxgate's own command line has no limits.
const (
	searchWork = 1 << 23 // units of linesearch: 8 MiB of plain text; tens of milliseconds at worst
	maxRanges  = 2000    // of lines, in one call
	noteRoom   = 200     // characters for the note that says how to read on
	pastLast   = 999_999_999
)

// Limit bounds one reading. Zero stands for no limit.
type Limit struct {
	Bytes int   // of the text, line numbers and the note about the rest included
	Chars int   // the same in characters
	Work  int64 // of a search
}

// Limit is the limit of a reading for a client. chars is the client's own limit; 0 where it has none.
func (r *Recall) Limit(chars int) Limit {
	return Limit{Bytes: int(r.cfg.ReadBytes), Chars: chars, Work: searchWork}
}

// besideNote is what is left for the text when a note follows it.
func (l Limit) besideNote() Limit {
	if l.Bytes > 0 {
		l.Bytes = max(l.Bytes-noteRoom, 1)
	}
	if l.Chars > 0 {
		l.Chars = max(l.Chars-noteRoom, 1)
	}
	return l
}

func (l Limit) holds(bytes, chars int) bool {
	return (l.Bytes == 0 || bytes <= l.Bytes) && (l.Chars == 0 || chars <= l.Chars)
}

func (l Limit) fits(text []byte) bool {
	return l.holds(len(text), 0) && (l.Chars == 0 || len(text) <= l.Chars || utf8.RuneCount(text) <= l.Chars)
}

// prefix is how many bytes of a text are within the limit, without splitting a character.
func (l Limit) prefix(text []byte) int {
	if l.Bytes > 0 && len(text) > l.Bytes {
		text = text[:wholeText(text[:l.Bytes])]
	}
	if l.Chars > 0 {
		return skipText(text, l.Chars)
	}
	return len(text)
}

// Reading is what was read of an original.
type Reading struct {
	Text []byte
	Rest *Rest // what is missing; nil when nothing is
}

// Rest is what a reading left out of what was asked for, and how to ask for it.
type Rest struct {
	Line   int   // the first line that is missing, or that is not whole
	Lines  Range // what to ask for next; unless Inside
	More   int   // how many ranges come after that
	Inside bool  // the cut is inside of a line: Chars is what to ask for next
	Chars  Range
	All    int64 // characters of the original
	Search bool  // it was a search
	Work   bool  // that took too long
}

// Note says in one line what is missing and how to ask for it.
func (r *Rest) Note(id string) string {
	id = strings.TrimSpace(id)
	var b strings.Builder
	switch {
	case r.Inside && r.Work:
		fmt.Fprintf(&b, "[the search stopped in line %d, which is too long to be searched at once: read it with prune_id=%s chars=%d-%d, or search from start_line %d on]",
			r.Line, id, r.Chars.First, r.Chars.Last, r.Line+1)
		return b.String()
	case r.Inside && r.Line > 0:
		fmt.Fprintf(&b, "[cut inside line %d: ask for the rest with prune_id=%s chars=%d-%d]", r.Line, id, r.Chars.First, r.Chars.Last)
		return b.String()
	case r.Inside:
		fmt.Fprintf(&b, "[cut after %d of %d characters: ask for the rest with prune_id=%s chars=%d-%d]", r.Chars.First-1, r.All, id, r.Chars.First, r.Chars.Last)
		return b.String()
	case r.Work:
		fmt.Fprintf(&b, "[the search stopped before line %d: search on with the same pattern, prune_id=%s", r.Line, id)
	case r.Search:
		fmt.Fprintf(&b, "[cut before line %d: search on with the same pattern, prune_id=%s", r.Line, id)
	default:
		fmt.Fprintf(&b, "[cut before line %d: ask for the rest with prune_id=%s", r.Line, id)
	}
	fmt.Fprintf(&b, ` ranges=[{"start_line":%d,"end_line":%d}]`, r.Lines.First, r.Lines.Last)
	if r.More > 0 {
		fmt.Fprintf(&b, ", then the %d ranges after it", r.More)
	}
	b.WriteString("]")
	return b.String()
}

// Noted is the text, and after it, where something is missing, a line that says so.
func (r Reading) Noted(id string) []byte {
	if r.Rest == nil {
		return r.Text
	}
	out := r.Text[:len(r.Text):len(r.Text)]
	if n := len(out); n > 0 && (out[n-1] != '\n' || r.Rest.Inside) {
		out = append(out, '\n')
	}
	return append(out, r.Rest.Note(id)...)
}

// errEnough ends the reading of an original of which no more is needed.
var errEnough = errors.New("enough was read")

// reader reads a text block by block. Blocks do not split characters.
type reader interface {
	read(ctx context.Context, block []byte) error
	finish() error                 // the text has ended
	result(allChars int64) Reading // allChars are those of the whole text
}

// Read reads what is wished for. What does not fit into the limit is left out, and said to be. The
// memory is taken from the budget of the context, and held until its scope is released.
func (o *Original) Read(ctx context.Context, w Wish, limit Limit) (Reading, error) {
	scope := membudget.From(ctx)
	working := 3 * min(o.Bytes, partSize) // the part as it is stored, and as it is read
	if err := scope.Take(working); err != nil {
		return Reading{}, err
	}
	defer scope.Give(working)
	r := w.reader(buffer{scope: scope, limit: limit})
	err := o.blocks(ctx, func(block []byte) error { return r.read(ctx, block) })
	if err == nil {
		err = r.finish()
	}
	if err != nil && !errors.Is(err, errEnough) {
		return Reading{}, err
	}
	return r.result(o.Chars), nil
}

func (w Wish) reader(buf buffer) reader {
	switch {
	case w.Chars != nil:
		return &charReader{buffer: buf, first: w.Chars.First, last: w.Chars.Last}
	case w.Pattern != nil:
		return newSearcher(buf, w)
	case len(w.Ranges) > 0 || w.Number:
		return newLineReader(buf, w)
	}
	return &charReader{buffer: buf, first: 1, last: maxLine}
}

// charReader reads characters, counted from 1.
type charReader struct {
	buffer
	first, last int
	at          int // characters passed
	out         []byte
	over        bool
}

func (c *charReader) read(_ context.Context, block []byte) error {
	if c.at < c.first-1 {
		if n := utf8.RuneCount(block); n <= c.first-1-c.at {
			c.at += n
			return nil
		}
		skipped := c.first - 1 - c.at
		block = block[skipText(block, skipped):]
		c.at += skipped
	}
	if c.last != maxLine {
		block = block[:skipText(block, c.last-c.at)]
		c.at += utf8.RuneCount(block)
	}
	// A little more than may be given, so that it shows that there is more.
	if c.limit.Bytes > 0 {
		block = block[:min(len(block), c.limit.Bytes+utf8.UTFMax-len(c.out))]
	}
	if c.limit.Chars > 0 {
		block = block[:min(len(block), (c.limit.Chars+1)*utf8.UTFMax-len(c.out))]
	}
	var err error
	if c.out, err = c.append(c.out, block...); err != nil {
		return err
	}
	if c.over = !c.limit.fits(c.out); c.over || c.at >= c.last {
		return errEnough
	}
	return nil
}

func (c *charReader) finish() error { return nil }

func (c *charReader) result(all int64) Reading {
	if !c.over {
		return Reading{Text: c.out}
	}
	c.out = c.out[:c.limit.besideNote().prefix(c.out)]
	return Reading{Text: c.out, Rest: &Rest{Inside: true, All: all, Chars: Range{c.first + utf8.RuneCount(c.out), min(c.last, int(all))}}}
}

// buffer is memory that is taken from a budget.
type buffer struct {
	scope   *membudget.Scope
	limit   Limit
	scratch []byte // for line numbers
}

// append appends to a slice that grows only by append.
func (b *buffer) append(dst []byte, more ...byte) ([]byte, error) {
	if need := len(dst) + len(more); need > cap(dst) {
		size := max(need, 2*cap(dst), 512)
		if err := b.scope.Take(int64(size)); err != nil {
			return dst, err
		}
		old := cap(dst)
		dst = append(make([]byte, 0, size), dst...)
		b.scope.Give(int64(old))
	}
	return append(dst, more...), nil
}

func (b *buffer) free(text []byte) { b.scope.Give(int64(cap(text))) }

var lineBreak = []byte("\n")

// skipText is where the first n characters of a text end.
func skipText(text []byte, n int) int {
	at := 0
	for ; n > 0 && at < len(text); n-- {
		_, size := utf8.DecodeRune(text[at:])
		at += size
	}
	return at
}
