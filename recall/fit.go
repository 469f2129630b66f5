package recall

import (
	"context"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
)

// Clients cut long tool results themselves, for good. With a limit, Shrink cuts a result, recoverably, below what its
// client would cut, in this order:
//
//   - by the policy, if the result fits then;
//   - by a stricter policy: one length that no text exceeds, found so that the whole result fits;
//   - where a result has so many texts that even short ones exceed the limit, blocks in the middle of content are left
//     out as well, but no images and the like, and one marker in their place names them all.
//
// structuredContent that has no long strings or arrays cannot be shortened without breaking its schema, and stays. So
// does everything while originals are not kept: the client's cut loses no more than ours would.

const (
	fitTries    = 8
	minFitChars = 400 // no text is cut to fewer characters: the marker needs room
	markerRoom  = 140 // characters that a marker may have
)

// fittingCut is how a result is cut to fit its client.
type fittingCut struct {
	policy  Policy
	strings []jsonscan.Str
	blocks  *cut // of the blocks that are left out; nil for none
}

// fitTo returns how to cut a reply so that it is within the limit of the request.
func (p Policy) fitTo(ctx context.Context, req ShrinkRequest) fittingCut {
	f := fittingCut{policy: p, strings: req.Strings}
	if p.sharePermille(ctx, req) <= fitPermille {
		return f
	}
	res := findResult(req.Body)
	strict := p.forLimit(res)
	req.Strings = textsOf(req, res)
	if len(req.Strings) == 0 && res.structured.Len() == 0 { // nothing but short blocks
		f = fittingCut{policy: strict.atLength(minFitChars, p)}
		f.leaveOutBlocks(ctx, req, res)
		return f
	}
	level := min(p.MaxChars, commonLength(req.Strings, res, req.Limit.Chars, req.Limit.Bytes))
	for range fitTries {
		f = fittingCut{policy: strict.atLength(level, p), strings: req.Strings}
		share := f.policy.sharePermille(ctx, req)
		if share <= fitPermille {
			return f
		}
		if level == minFitChars {
			break
		}
		level = max(minFitChars, level*(fitPermille-20)/share)
	}
	f.leaveOutBlocks(ctx, req, res)
	return f
}

// forLimit is the policy with which texts are cut to fit: where a policy cuts nothing, masks are used, markers always
// name the id, and structuredContent loses elements of its arrays, too.
func (p Policy) forLimit(res toolResult) Policy {
	if p.Reducer == reduce.None || p.Reducer == "" {
		p.Reducer = reduce.ByMask
	}
	p.RecoverLine = true
	p.JSON = p.JSON || res.structured.Len() > 0
	return p
}

// atLength is the policy under which no text stays longer than level; base gives the proportion of head and tail.
func (p Policy) atLength(level int, base Policy) Policy {
	if level >= base.MaxChars {
		return p
	}
	p.Mask = base.ScaledTo(level, markerRoom)
	return p
}

// sharePermille is how much of the limit a reply uses that is cut by the policy. Nothing is stored.
func (p Policy) sharePermille(ctx context.Context, req ShrinkRequest) int {
	edits := p.plannedEdits(ctx, req)
	if len(edits) == 0 {
		return measureResult(req.Body, req.Limit).sharePermille(req.Limit)
	}
	return measureResult(jsonscan.AppendSpliced(nil, req.Body, edits), req.Limit).sharePermille(req.Limit)
}

// plannedEdits are the edits that Shrink would make, with an id of the same length.
func (p Policy) plannedEdits(ctx context.Context, req ShrinkRequest) []jsonscan.Edit {
	id := ""
	if p.RecoverLine {
		id = formatID([idBytes]byte{})
	}
	var edits []jsonscan.Edit
	for c := range p.cuts(req, p.cutFunc(ctx, req.Body)) {
		shown := id
		if c.needsID {
			shown = formatID([idBytes]byte{})
		}
		edits = append(edits, c.edits(shown)...)
	}
	slices.SortFunc(edits, func(a, b jsonscan.Edit) int { return a.Start - b.Start })
	return edits
}

// textsOf lists the strings of a tool result that may be cut: texts of content, and those of structuredContent.
func textsOf(req ShrinkRequest, res toolResult) []jsonscan.Str {
	var out []jsonscan.Str
	for _, s := range []jsonscan.Span{res.content, res.structured} {
		if s.Len() == 0 {
			continue
		}
		found, _, err := jsonscan.New(s.Of(req.Body), 0).LongStrings(nil, minFitChars)
		if err != nil {
			continue
		}
		for _, str := range found {
			str.Start += s.Start
			str.End += s.Start
			if !isWhole(req.Whole, str.Span) {
				out = append(out, str)
			}
		}
	}
	slices.SortFunc(out, func(a, b jsonscan.Str) int { return a.Start - b.Start })
	return out
}

// isWhole reports whether a string lies in one of the places that are never cut.
func isWhole(whole []jsonscan.Span, s jsonscan.Span) bool {
	return slices.ContainsFunc(whole, func(b jsonscan.Span) bool { return b.Start <= s.Start && s.End <= b.End })
}

// commonLength is the length to which all longer texts have to be cut so that their sum is within the limit; the
// largest number if the limits count only lines. structuredContent counts as one text.
func commonLength(strs []jsonscan.Str, res toolResult, limits ...int) int {
	limit := math.MaxInt
	for _, l := range limits {
		if l > 0 {
			limit = min(limit, l)
		}
	}
	lengths := make([]int, 0, len(strs)+1)
	for _, s := range strs {
		if s.Start < res.structured.Start || s.End > res.structured.End {
			lengths = append(lengths, s.Chars)
		}
	}
	if n := res.structured.Len(); n > 0 {
		lengths = append(lengths, n)
	}
	if limit == math.MaxInt {
		return max(minFitChars, slices.Max(append(lengths, minFitChars)))
	}
	slices.Sort(lengths)
	left := limit * fitPermille / 1000
	for i, n := range lengths {
		if each := left / (len(lengths) - i); n > each {
			return max(minFitChars, each)
		}
		left -= n
	}
	return max(minFitChars, limit)
}

// leaveOutBlocks leaves blocks without binary data out of the middle of content, so that the rest is within the limit.
func (f *fittingCut) leaveOutBlocks(ctx context.Context, req ShrinkRequest, res toolResult) {
	shortened := f.policy.plannedEdits(ctx, req)
	blocks := resultBlocks(req.Body, res, req.Limit.AsJSON)
	var used resultSize // by what stays in any case, and by the marker
	used.add(resultSize{chars: 2 * markerRoom, bytes: 2 * markerRoom, lines: 3})
	if !req.Limit.StructuredInstead || res.structured.Len() == 0 {
		used.add(measureJSON(jsonscan.AppendSpliced(nil, res.structured.Of(req.Body), editsIn(shortened, res.structured))))
	}
	for i := range blocks {
		b := &blocks[i]
		if inside := editsIn(shortened, b.Span); len(inside) > 0 {
			wrapped := slices.Concat([]byte(`{"result":{"content":[`), jsonscan.AppendSpliced(nil, b.Of(req.Body), inside), []byte(`]}}`))
			b.size = measureResult(wrapped, req.Limit)
		}
		if b.hasBinary {
			used.add(b.size)
		}
	}
	keep := keptBlocks(blocks, used, func(s resultSize) bool { return s.sharePermille(req.Limit) <= fitPermille })
	if left := newBlockCut(req.Body, blocks, keep); left != nil {
		f.blocks = left
		f.strings = slices.DeleteFunc(slices.Clone(req.Strings), func(s jsonscan.Str) bool {
			after, _ := slices.BinarySearchFunc(blocks, s.Start+1, func(b block, at int) int { return b.Start - at })
			return after > 0 && s.End <= blocks[after-1].End && !keep[blocks[after-1].Start]
		})
	}
}

// editsIn returns the edits inside a span, as edits of the span's own bytes. The edits are in order.
func editsIn(edits []jsonscan.Edit, s jsonscan.Span) []jsonscan.Edit {
	var out []jsonscan.Edit
	first, _ := slices.BinarySearchFunc(edits, s.Start, func(e jsonscan.Edit, at int) int { return e.Start - at })
	for _, e := range edits[first:] {
		if e.End > s.End {
			break
		}
		e.Start -= s.Start
		e.End -= s.Start
		out = append(out, e)
	}
	return out
}

// keptBlocks decides which blocks stay, by their starts: as many from either end, in turn, as fit.
func keptBlocks(blocks []block, used resultSize, fits func(resultSize) bool) map[int]bool {
	keep := map[int]bool{}
	for first, last := 0, len(blocks)-1; first <= last; {
		for _, at := range []*int{&first, &last} {
			if first > last {
				break
			}
			b := blocks[*at]
			if !b.hasBinary {
				used.add(b.size)
				if !fits(used) {
					return keepBinary(blocks, keep)
				}
			}
			keep[b.Start] = true
			if at == &first {
				first++
			} else {
				last--
			}
		}
	}
	return keep
}

func keepBinary(blocks []block, keep map[int]bool) map[int]bool {
	for _, b := range blocks {
		if b.hasBinary {
			keep[b.Start] = true
		}
	}
	return keep
}

// newBlockCut leaves out the blocks that do not stay; nil when all do. The original is their JSON, one block after the
// other, each on lines of its own.
func newBlockCut(body []byte, blocks []block, keep map[int]bool) *cut {
	var original []byte
	var spans []jsonscan.Span // of the blocks left out, those without a block between them joined
	count, end := 0, -1
	for i, b := range blocks {
		if keep[b.Start] {
			continue
		}
		original = append(append(original, b.Of(body)...), '\n')
		count++
		switch {
		case len(spans) > 0 && end == i-1:
			spans[len(spans)-1].End = b.End
		case len(spans) > 0:
			spans = append(spans, jsonscan.Span{Start: blocks[i-1].End, End: b.End}) // with the comma before it
		default:
			spans = append(spans, b.Span)
		}
		end = i
	}
	if count == 0 {
		return nil
	}
	all := strconv.Itoa(count) + " of " + strconv.Itoa(len(blocks)) + " content blocks left out"
	shorten := func(id string) []jsonscan.Edit {
		text := "[… " + all + "]"
		if id != "" {
			text = "[… " + all + "; call recover_text with prune_id=" + id + "]"
		}
		marker := append(jsonscan.AppendQuoted([]byte(`{"type":"text","text":`), text), '}')
		edits := []jsonscan.Edit{{Span: spans[0], Text: marker}}
		for _, s := range spans[1:] {
			edits = append(edits, jsonscan.Edit{Span: s})
		}
		return edits
	}
	region := jsonscan.Span{Start: spans[0].Start, End: spans[len(spans)-1].End}
	return &cut{
		parts: []part{{Span: region, isValue: true, decoded: original, shorten: shorten}},
		chars: utf8.RuneCount(original), charsCut: utf8.RuneCount(original), needsID: true,
	}
}
