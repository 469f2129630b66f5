package recall

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/linesearch"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// The limits of what one call may read of an original. ctxgate's own command line has no limits.
const (
	searchWork = 1 << 23 // units of linesearch: 8 MiB of plain text; tens of milliseconds at worst
	maxRanges  = 2000    // of lines, in one call
	hintChars  = 200     // characters reserved for the hint how to read on
	pastLast   = 999_999_999
)

// ReadRequest asks for an original, or a part of it.
type ReadRequest struct {
	ID          string              // of the original, as the reader spelled it
	Ranges      []Range             // lines, in this order; a line is returned once, where it is first asked for
	Pattern     *linesearch.Pattern // only lines that match, within Ranges if there are any, in the order of the text
	Chars       *Range              // characters instead of lines, counted from 1
	LineNumbers bool                // put its number before each line
	JoinLines   bool                // join lines by line breaks, instead of ending each with one
}

// KnownID is the id in the form that is stored; "" for a text that is no id.
func (r ReadRequest) KnownID() string {
	id, err := ParseID(r.ID)
	if err != nil {
		return ""
	}
	return id
}

var (
	// ErrRange refuses ranges of lines that cannot exist.
	ErrRange error = fault.New(fault.BadParams, "lines are counted from 1, and start_line is not after end_line")

	errTooManyRanges = fault.New(fault.BadParams, "ranges: at most "+strconv.Itoa(maxRanges)+" in one call; join them, or ask again for the rest")
)

func badArgument(text string) error { return fault.New(fault.BadParams, text) }

// ParseReadRequest reads the arguments of recover_text: prune_id, and those of ranges, pattern, chars
// and include_line_numbers that are there. Its errors are of kind BadParams.
func ParseReadRequest(args []byte) (req ReadRequest, err error) {
	s := jsonscan.New(args, 0) // a model may have written anything
	if _, err = s.Skip(); err == nil {
		err = s.End()
	}
	var fields jsonscan.Fields
	if err == nil {
		fields, err = jsonscan.FieldsOf(args)
	}
	if err != nil {
		return req, badArgument("arguments are missing, or no JSON object")
	}
	for _, f := range fields.All() {
		value := f.Value.Of(args)
		if string(value) == "null" { // some models leave an argument out this way
			continue
		}
		switch f.Key {
		case "prune_id":
			req.ID = jsonscan.DecodeString(value)
		case "include_line_numbers":
			req.LineNumbers = string(value) == "true"
		case "pattern":
			req.Pattern, err = linesearch.Compile(jsonscan.DecodeString(value))
		case "chars":
			ranges, rangeErr := ParseRanges(jsonscan.DecodeString(value))
			if rangeErr != nil || len(ranges) != 1 {
				return req, badArgument("chars must be first-last, such as 2001-8000")
			}
			req.Chars = &ranges[0]
		case "ranges":
			req.Ranges, err = parseLineRanges(value)
		default:
			return req, badArgument("there is no argument " + strconv.Quote(fault.Clip(f.Key)))
		}
		if err != nil {
			return req, err
		}
	}
	if strings.TrimSpace(req.ID) == "" {
		return req, badArgument("prune_id is missing")
	}
	return req, nil
}

func parseLineRanges(raw []byte) ([]Range, error) {
	var out []Range
	err := jsonscan.EachElement(raw, jsonscan.Span{End: len(raw)}, func(s jsonscan.Span) error {
		f, err := jsonscan.ReadFields(raw, s)
		if err != nil {
			return err
		}
		first, _ := f.Get("start_line")
		last, _ := f.Get("end_line")
		a, errA := strconv.Atoi(string(first))
		b, errB := strconv.Atoi(string(last))
		if errA != nil || errB != nil || a < 1 || b < a {
			return ErrRange
		}
		out = append(out, Range{First: a, Last: b})
		return CheckRangeCount(len(out))
	})
	if errors.Is(err, errTooManyRanges) {
		return nil, err
	}
	if err != nil {
		return nil, ErrRange
	}
	return out, nil
}

// CheckRangeCount refuses more ranges than one call may ask for, with an error of kind BadParams.
func CheckRangeCount(n int) error {
	if n > maxRanges {
		return errTooManyRanges
	}
	return nil
}

// RecoverText answers a recover_text call: it returns what is asked for of an original that was stored
// for the tenant and whose origin its reader may call, with a hint at the end where that is not all.
// maxChars is the most characters of the answer; 0 for the configured limit alone. An original that is
// not there is [ErrUnknown].
func (r *Recall) RecoverText(ctx context.Context, tenant string, req ReadRequest, mayCall Access, maxChars int) ([]byte, error) {
	original, err := r.OpenFor(ctx, tenant, req.ID, mayCall)
	if err != nil {
		return nil, err
	}
	got, err := original.Read(ctx, req, r.ReadLimit(maxChars))
	if err != nil {
		return nil, err
	}
	return got.TextWithHint(original.ID), nil
}

// ReadLimit bounds one read. Zero stands for no limit.
type ReadLimit struct {
	Bytes      int   // of the text, with line numbers and the hint
	Chars      int   // the same in characters
	SearchWork int64 // in units of linesearch
}

// ReadLimit is the limit of a read for a client. maxChars is the client's own limit; 0 for none.
func (r *Recall) ReadLimit(maxChars int) ReadLimit {
	return ReadLimit{Bytes: int(r.cfg.ReadBytes), Chars: maxChars, SearchWork: searchWork}
}

// withoutHint is the limit of the text when a hint follows it.
func (l ReadLimit) withoutHint() ReadLimit {
	if l.Bytes > 0 {
		l.Bytes = max(l.Bytes-hintChars, 1)
	}
	if l.Chars > 0 {
		l.Chars = max(l.Chars-hintChars, 1)
	}
	return l
}

func (l ReadLimit) allows(bytes, chars int) bool {
	return (l.Bytes == 0 || bytes <= l.Bytes) && (l.Chars == 0 || chars <= l.Chars)
}

func (l ReadLimit) allowsText(text []byte) bool {
	return l.allows(len(text), 0) && (l.Chars == 0 || len(text) <= l.Chars || utf8.RuneCount(text) <= l.Chars)
}

// prefixLen is how many bytes of a text are within the limit, without splitting a character.
func (l ReadLimit) prefixLen(text []byte) int {
	if l.Bytes > 0 && len(text) > l.Bytes {
		text = text[:wholeCharsLen(text[:l.Bytes])]
	}
	if l.Chars > 0 {
		return charOffset(text, l.Chars)
	}
	return len(text)
}

// ReadResult is what was read of an original.
type ReadResult struct {
	Text []byte
	Next *Continuation // what is missing; nil when nothing is
}

// Continuation says what a read left out of what was asked for, and how to ask for it.
type Continuation struct {
	Line         int   // the first line that is missing, or that is not whole
	NextLines    Range // what to ask for next, unless InsideLine
	MoreRanges   int   // ranges after NextLines
	InsideLine   bool  // the text is cut inside a line: ask for NextChars
	NextChars    Range
	TotalChars   int64 // of the original
	IsSearch     bool
	WorkExceeded bool // the search took too long
}

// Hint is one line that tells the reader what is missing and how to ask for it.
func (c *Continuation) Hint(id string) string {
	id = strings.TrimSpace(id)
	var b strings.Builder
	switch {
	case c.InsideLine && c.WorkExceeded:
		fmt.Fprintf(&b, "[the search stopped in line %d, which is too long to be searched at once: read it with prune_id=%s chars=%d-%d, or search from start_line %d on]",
			c.Line, id, c.NextChars.First, c.NextChars.Last, c.Line+1)
		return b.String()
	case c.InsideLine && c.Line > 0:
		fmt.Fprintf(&b, "[cut inside line %d: ask for the rest with prune_id=%s chars=%d-%d]", c.Line, id, c.NextChars.First, c.NextChars.Last)
		return b.String()
	case c.InsideLine:
		fmt.Fprintf(&b, "[cut after %d of %d characters: ask for the rest with prune_id=%s chars=%d-%d]", c.NextChars.First-1, c.TotalChars, id, c.NextChars.First, c.NextChars.Last)
		return b.String()
	case c.WorkExceeded:
		fmt.Fprintf(&b, "[the search stopped before line %d: search on with the same pattern, prune_id=%s", c.Line, id)
	case c.IsSearch:
		fmt.Fprintf(&b, "[cut before line %d: search on with the same pattern, prune_id=%s", c.Line, id)
	default:
		fmt.Fprintf(&b, "[cut before line %d: ask for the rest with prune_id=%s", c.Line, id)
	}
	fmt.Fprintf(&b, ` ranges=[{"start_line":%d,"end_line":%d}]`, c.NextLines.First, c.NextLines.Last)
	if c.MoreRanges > 0 {
		fmt.Fprintf(&b, ", then the %d ranges after it", c.MoreRanges)
	}
	b.WriteString("]")
	return b.String()
}

// TextWithHint is the text, followed by the hint where something is missing.
func (r ReadResult) TextWithHint(id string) []byte {
	if r.Next == nil {
		return r.Text
	}
	out := r.Text[:len(r.Text):len(r.Text)]
	if n := len(out); n > 0 && (out[n-1] != '\n' || r.Next.InsideLine) {
		out = append(out, '\n')
	}
	return append(out, r.Next.Hint(id)...)
}

// errEnough ends the read of an original of which no more is needed.
var errEnough = errors.New("enough was read")

// blockReader reads a text block by block. Blocks do not split characters.
type blockReader interface {
	readBlock(ctx context.Context, block []byte) error // errEnough when no more is needed
	finishText() error                                 // the text has ended
	result(totalChars int64) ReadResult                // totalChars is of the whole text
}

// Read reads what req asks for, up to the limit. Its memory comes from the budget of the context and
// is held until its scope is released.
func (o *Original) Read(ctx context.Context, req ReadRequest, limit ReadLimit) (ReadResult, error) {
	scope := membudget.FromContext(ctx)
	working := 3 * min(o.Bytes, partSize) // a part, stored and decompressed
	if err := scope.Reserve(working); err != nil {
		return ReadResult{}, err
	}
	defer scope.Free(working)
	r := newBlockReader(buffer{scope: scope, limit: limit}, req)
	err := o.eachBlock(ctx, func(block []byte) error { return r.readBlock(ctx, block) })
	if err == nil {
		err = r.finishText()
	}
	if err != nil && !errors.Is(err, errEnough) {
		return ReadResult{}, err
	}
	return r.result(o.Chars), nil
}

func newBlockReader(buf buffer, req ReadRequest) blockReader {
	switch {
	case req.Chars != nil:
		return &charReader{buffer: buf, first: req.Chars.First, last: req.Chars.Last}
	case req.Pattern != nil:
		return newLineSearcher(buf, req)
	case len(req.Ranges) > 0 || req.LineNumbers:
		return newLineReader(buf, req)
	}
	return &charReader{buffer: buf, first: 1, last: maxLine}
}

// charReader reads characters, counted from 1.
type charReader struct {
	buffer
	first, last int
	passed      int // characters
	out         []byte
	exceeds     bool // the limit
}

func (c *charReader) readBlock(_ context.Context, block []byte) error {
	if c.passed < c.first-1 {
		if n := utf8.RuneCount(block); n <= c.first-1-c.passed {
			c.passed += n
			return nil
		}
		skipped := c.first - 1 - c.passed
		block = block[charOffset(block, skipped):]
		c.passed += skipped
	}
	if c.last != maxLine {
		block = block[:charOffset(block, c.last-c.passed)]
		c.passed += utf8.RuneCount(block)
	}
	// A little more than the limit, to find out whether there is more.
	if c.limit.Bytes > 0 {
		block = block[:min(len(block), c.limit.Bytes+utf8.UTFMax-len(c.out))]
	}
	if c.limit.Chars > 0 {
		block = block[:min(len(block), (c.limit.Chars+1)*utf8.UTFMax-len(c.out))]
	}
	var err error
	if c.out, err = c.appendTo(c.out, block...); err != nil {
		return err
	}
	if c.exceeds = !c.limit.allowsText(c.out); c.exceeds || c.passed >= c.last {
		return errEnough
	}
	return nil
}

func (c *charReader) finishText() error { return nil }

func (c *charReader) result(totalChars int64) ReadResult {
	if !c.exceeds {
		return ReadResult{Text: c.out}
	}
	c.out = c.out[:c.limit.withoutHint().prefixLen(c.out)]
	next := Range{c.first + utf8.RuneCount(c.out), min(c.last, int(totalChars))}
	return ReadResult{Text: c.out, Next: &Continuation{InsideLine: true, TotalChars: totalChars, NextChars: next}}
}

// buffer allocates output from a memory budget.
type buffer struct {
	scope   *membudget.Scope
	limit   ReadLimit
	scratch []byte // for line numbers
}

// appendTo appends to a slice that grows only by appendTo.
func (b *buffer) appendTo(dst []byte, more ...byte) ([]byte, error) {
	if need := len(dst) + len(more); need > cap(dst) {
		size := max(need, 2*cap(dst), 512)
		if err := b.scope.Reserve(int64(size)); err != nil {
			return dst, err
		}
		old := cap(dst)
		dst = append(make([]byte, 0, size), dst...)
		b.scope.Free(int64(old))
	}
	return append(dst, more...), nil
}

var lineBreak = []byte("\n")

// charOffset is where the first n characters of a text end.
func charOffset(text []byte, n int) int {
	at := 0
	for ; n > 0 && at < len(text); n-- {
		_, size := utf8.DecodeRune(text[at:])
		at += size
	}
	return at
}
