package reduce

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/prune"
)

// pruneReducer keeps the lines that matter for the goal; a marker (of the contract's form, P4, or a plain
// one) replaces each block of others.
var pruneReducer = Reducer{
	Name: "prune", NeedsGoal: true, NeedsRecovery: true, KeepsErrors: true, HoldsLimit: true,
	Cutter: pruneCutter,
}

// PruneOptions are the configuration keys of the reducer prune.
type PruneOptions struct {
	// For reduce = "prune": the kind of text: "code", "logs", "docs", or "auto" to decide for each text.
	// Default "auto".
	Type string `key:"prune_type" oneof:"auto,code,logs,docs"`

	// For reduce = "prune": the largest share of lines to leave out of a text. Default 0.7. More are left
	// out where the rest would be longer than max_chars.
	Ratio float64 `key:"prune_ratio" min:"0" max:"1"`

	// For reduce = "prune": the fewest lines of a text to keep, if they are within max_chars. Default 20.
	MinKeep int `key:"prune_min_keep" min:"0"`
}

// autoType detects the kind of each text.
const autoType = "auto"

// DefaultPruneOptions are the options of an empty configuration.
func DefaultPruneOptions() PruneOptions { return PruneOptions{Type: autoType, Ratio: 0.7, MinKeep: 20} }

// Validate reports every problem, each starting with its key.
func (o PruneOptions) Validate() []error {
	var problems []error
	if _, ok := prune.ParseKind(o.Type); !ok && o.Type != autoType && o.Type != "" {
		problems = append(problems, fmt.Errorf("prune_type: %q is none of auto, code, logs, docs", o.Type))
	}
	if !(o.Ratio >= 0 && o.Ratio <= 1) { // NaN too
		problems = append(problems, errors.New("prune_ratio: must be between 0 and 1"))
	}
	if o.MinKeep < 0 {
		problems = append(problems, errors.New("prune_min_keep: must not be negative"))
	}
	return problems
}

// maxPruned bounds the text that is scored, which takes a second for every 30 MB and a few times the
// text in memory. Of a longer one the head and the tail stay.
const maxPruned = 16 << 20

// pruneCutter keeps the best lines within MaxChars characters, markers included. Where none fits or is
// relevant, the head and the tail stay.
func pruneCutter(ctx context.Context, p Policy) Cutter {
	scored := cmp.Or(p.Scored, &ScoredText{})
	return func(body []byte, str jsonscan.Str) (Cut, bool) {
		raw := str.Of(body)
		// A text of one line, in which a line break would be an escape, is not worth decoding.
		if !bytes.Contains(raw, []byte(`\n`)) && !bytes.Contains(raw, []byte(`\u000`)) {
			return Cut{}, false
		}
		if len(raw) > maxPruned {
			return p.cutWithin(body, str, prune.IDLen)
		}
		if text := string(jsonscan.AppendDecoded(nil, raw)); text != scored.text || scored.doc == nil {
			doc, err := prune.Score(ctx, text, p.Goal, p.kindOf(text))
			if err != nil { // ctx ended
				return p.cutWithin(body, str, prune.IDLen)
			}
			*scored = ScoredText{text, doc}
		}
		longLine := p.longLine(str.Chars)
		lines, ok := scored.doc.CutToFit(prune.Budget{MaxPruneRatio: p.Prune.Ratio, MinKeepLines: p.Prune.MinKeep},
			prune.Limit{MaxChars: p.MaxChars, LongLine: longLine.MaxChars, PlainMarkers: p.Markers == PlainMarkers})
		if !ok {
			return p.cutWithin(body, str, prune.IDLen)
		}
		return cutLines(body, str, lines, longLine), true
	}
}

// ScoredText is the last text that was scored. A result often has the same text in content and in structuredContent.
type ScoredText struct {
	text string
	doc  *prune.ScoredText
}

// longLine is how a long line that stays is cut, in a text of so many characters: to half of MaxChars, so that others
// stay beside it. Its MaxChars is 0 where the marker would be most of what is left.
func (m Mask) longLine(textChars int) Mask {
	half, marker := m.MaxChars/2, longestStringMarker(m.Markers, textChars, prune.IDLen)
	if half < 2*marker {
		return Mask{Markers: m.Markers}
	}
	return m.ScaledTo(half, marker)
}

// kindOf is the kind of a text; one that reports a failure is a log, of which lines with errors stay.
func (c Choice) kindOf(text string) prune.Kind {
	if c.IsError {
		return prune.Logs
	}
	if kind, ok := prune.ParseKind(c.Prune.Type); ok {
		return kind
	}
	return prune.DetectKind(text)
}

// cutLines leaves blocks of lines out of a string, and the middle of long lines. What stays keeps its bytes.
func cutLines(body []byte, str jsonscan.Str, lines prune.Fitted, longLine Mask) Cut {
	marker := prune.Block.Marker
	if longLine.Markers == PlainMarkers {
		marker = prune.Block.PlainMarker
	}
	runs := slices.Clone(lines.Blocks)
	for _, n := range lines.LongLines {
		runs = append(runs, prune.Block{First: n, Last: n})
	}
	slices.SortFunc(runs, func(a, b prune.Block) int { return a.First - b.First })
	var c Cut
	write := make([]func(id string) string, len(runs)) // what replaces each run
	spans := blockSpans(body, str.Span, runs)
	at, before := str.Start, 0 // characters before a place
	for i, b := range runs {
		before, at = before+jsonscan.CountChars(body[at:spans[i].Start]), spans[i].Start
		write[i] = func(id string) string { return marker(b, id) }
		if _, isLong := slices.BinarySearch(lines.LongLines, b.First); isLong {
			line, _ := longLine.CutString(body, jsonscan.Str{Span: spans[i], Chars: jsonscan.CountChars(spans[i].Of(body))})
			spans[i] = line.Gap
			line.before = before
			write[i] = line.Marker
		}
		c.OmittedChars += jsonscan.CountChars(spans[i].Of(body))
	}
	c.Edits = func(id string) []jsonscan.Edit {
		edits := make([]jsonscan.Edit, len(runs))
		for i, s := range spans {
			edits[i] = jsonscan.Edit{Span: s, Text: jsonscan.AppendEscaped(nil, write[i](id))}
		}
		return edits
	}
	return c
}

// blockSpans returns where blocks of lines are in a string of body, each without its last line break.
// Lines are counted in the raw bytes, where a line break is an escape.
func blockSpans(body []byte, str jsonscan.Span, blocks []prune.Block) []jsonscan.Span {
	spans := make([]jsonscan.Span, 0, len(blocks))
	line, start := 1, str.Start
	endLine := func(at int) {
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
			endLine(at)
			line++
			if len(spans) < len(blocks) && blocks[len(spans)].First == line {
				start = at + size
			}
		}
		at += size
	}
	endLine(str.End)
	return spans
}
