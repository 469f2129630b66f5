package reduce

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/prune"
)

// pruneReducer keeps the lines that matter for the goal; a marker (of the contract's form, P4, or a plain
// one) replaces each block of others.
var pruneReducer = Reducer{
	Name: "prune", NeedsGoal: true, NeedsRecovery: true, KeepsErrors: true,
	Cutter: pruneCutter,
}

// PruneOptions are the configuration keys of the reducer prune.
type PruneOptions struct {
	// For reduce = "prune": the kind of text: "code", "logs", "docs", or "auto" to decide for each text.
	// Default "auto".
	Type string `key:"prune_type" oneof:"auto,code,logs,docs"`

	// For reduce = "prune": the largest share of lines to leave out of a text. Default 0.7.
	Ratio float64 `key:"prune_ratio" min:"0" max:"1"`

	// For reduce = "prune": the fewest lines of a text to keep. Default 20.
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
// text in memory. A longer one is masked.
const maxPruned = 16 << 20

// pruneCutter scores a text once if it comes twice in a row: a result often has the same text in
// content and in structuredContent.
func pruneCutter(ctx context.Context, p Policy) Cutter {
	var text string
	var blocks []prune.Block
	return func(body []byte, str jsonscan.Str) (Cut, bool) {
		raw := str.Of(body)
		// A text of one line, in which a line break would be an escape, is not worth decoding.
		if len(raw) > maxPruned || !bytes.Contains(raw, []byte(`\n`)) && !bytes.Contains(raw, []byte(`\u000`)) {
			return Cut{}, false
		}
		if now := string(jsonscan.AppendDecoded(nil, raw)); now != text {
			text, blocks = now, nil
			if doc, err := prune.Score(ctx, text, p.Goal, p.kindOf(text)); err == nil { // or ctx ended
				blocks = doc.Cut(prune.Budget{MaxPruneRatio: p.Prune.Ratio, MinKeepLines: p.Prune.MinKeep})
			}
		}
		if len(blocks) == 0 {
			return Cut{}, false
		}
		return cutBlocks(body, str, blocks, p.Markers), true
	}
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

// cutBlocks leaves blocks of lines out of a string. What stays keeps its bytes.
func cutBlocks(body []byte, str jsonscan.Str, blocks []prune.Block, style Markers) Cut {
	marker := prune.Block.Marker
	if style == PlainMarkers {
		marker = prune.Block.PlainMarker
	}
	spans := blockSpans(body, str.Span, blocks)
	c := Cut{Edits: func(id string) []jsonscan.Edit {
		edits := make([]jsonscan.Edit, len(blocks))
		for i, b := range blocks {
			edits[i] = jsonscan.Edit{Span: spans[i], Text: jsonscan.AppendEscaped(nil, marker(b, id))}
		}
		return edits
	}}
	for _, s := range spans {
		c.OmittedChars += jsonscan.CountChars(s.Of(body))
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
