package recall

import (
	"bytes"
	"context"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/prune"
)

// Focus is what a reader looks for in a reply. Of a text that is too long the lines stay that
// matter for it, and a line of the contract's form (P4) stands for each block of others.
type Focus struct {
	Goal   string
	Kind   func(text string) prune.Kind // says what sort of text a text is
	Budget prune.Budget
}

// maxFocus is the most bytes of a text that is read for a goal, which takes a second for every
// 30 MB and a few times the text in memory. A longer one is masked.
const maxFocus = 16 << 20

// byLines cuts strings to the lines that matter for what d's reader looks for. One from which
// that leaves nothing out is masked. A result often says the same twice: it is read once.
func (p Policy) byLines(ctx context.Context, d Doc) cutter {
	var text string
	var blocks []prune.Block
	return func(str jsonscan.Str) (cut, bool) {
		masked, ok := p.mask(d.Body, str)
		raw := str.Of(d.Body)
		if !ok || len(raw) > maxFocus || !mayBreak(raw) {
			return masked, ok
		}
		if now := string(jsonscan.AppendText(nil, raw)); now != text {
			text, blocks = now, d.Focus.cut(ctx, now)
		}
		if len(blocks) == 0 {
			return masked, true
		}
		return leaveOut(d.Body, str, blocks, masked), true
	}
}

// mayBreak spares a text of one line, in which a line break would be an escape, from being read.
func mayBreak(raw []byte) bool {
	return bytes.Contains(raw, []byte(`\n`)) || bytes.Contains(raw, []byte(`\u000`))
}

// cut is what to leave out of a text; nothing when there is no time to find out.
func (f *Focus) cut(ctx context.Context, text string) []prune.Block {
	doc, err := prune.Read(ctx, text, f.Goal, f.Kind(text))
	if err != nil {
		return nil
	}
	return doc.Cut(f.Budget)
}

// leaveOut is the cut that leaves blocks of lines out of a string. What stays keeps its bytes.
func leaveOut(body []byte, str jsonscan.Str, blocks []prune.Block, masked cut) cut {
	spans := spansOf(body, str.Span, blocks)
	c := cut{chars: str.Chars, bare: &masked}
	for _, s := range spans {
		c.left += jsonscan.CountChars(s.Of(body))
	}
	c.parts = []part{{Span: str.Span, shorten: func(id string) []jsonscan.Edit {
		edits := make([]jsonscan.Edit, len(blocks))
		for i, b := range blocks {
			edits[i] = jsonscan.Edit{Span: spans[i], Text: jsonscan.AppendRaw(nil, b.Marker(id))}
		}
		return edits
	}}}
	return c
}

// spansOf says where blocks of lines stand in a string of body, each without the line break at
// its end. Lines are counted in the raw bytes, where a break is an escape.
func spansOf(body []byte, str jsonscan.Span, blocks []prune.Block) []jsonscan.Span {
	spans := make([]jsonscan.Span, 0, len(blocks))
	line, start := 1, str.Start
	end := func(at int) { // of the line
		if len(spans) < len(blocks) && blocks[len(spans)].Last == line {
			spans = append(spans, jsonscan.Span{Start: start, End: at})
		}
	}
	for at := str.Start; ; {
		n := bytes.IndexByte(body[at:str.End], '\\')
		if n < 0 {
			break
		}
		at += n
		r, size := jsonscan.DecodeChar(body[at:str.End])
		if r == '\n' {
			end(at)
			line++
			if len(spans) < len(blocks) && blocks[len(spans)].First == line {
				start = at + size
			}
		}
		at += size
	}
	end(str.End)
	return spans
}
