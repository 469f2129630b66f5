package prunerd

import (
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/prune"
)

// bytesPerToken is the mean over code, logs and prose in English and French with the tokenizers of
// today's models, in tenths so that the estimate needs no floats. Chinese and Japanese are close, with
// about one character of three bytes per token.
const bytesPerToken = 34

// estimateTokens estimates the tokens of n bytes, rounded up; for the statistics only.
func estimateTokens(n int) int { return (10*n + bytesPerToken - 1) / bytesPerToken }

// pricePerMillion is the price of a million uncached input tokens in US dollars, for a mid-sized model:
// the list price of the one that the specification's users run. cost_estimated_usd is the price of the
// saved tokens each time they would be read; an order of magnitude.
const pricePerMillion = 0.60

// Report is the result of prune_text in the specification's form (P2).
type Report struct {
	ID, Text string        // of the original
	Pruned   []byte        // what is shown; nil: the text itself
	Blocks   []prune.Block // what is left out
	Backend  string
	Fallback bool
	Warnings []string
	Elapsed  time.Duration

	reranked *rerankOutcome
}

// blockSize bounds the annotation of a block.
const blockSize = 400

// estimateSize bounds the memory for making the reply.
func (r *Report) estimateSize() int64 {
	text := jsonscan.EscapedLen(r.Pruned)
	if r.Pruned == nil {
		text = 2 * len(r.Text) // most escapes have two bytes
	}
	return resultSize(text, blockSize*len(r.Blocks))
}

// JSON encodes the report.
func (r *Report) JSON() []byte {
	text := r.Text
	if r.Pruned != nil {
		text = string(r.Pruned)
	}
	w := jsonWriter{b: make([]byte, 0, len(text)+len(text)/8+1024)}
	w.beginObject()
	w.textMember("prune_id", r.ID)
	w.textMember("pruned_text", text)
	w.arrayMember("annotations", len(r.Blocks), func(i int) { writeAnnotation(&w, r.Blocks[i], r.ID) })
	w.key("stats")
	w.beginObject()
	r.appendStats(&w, len(text))
	w.endObject()
	w.arrayMember("warnings", len(r.Warnings), func(i int) { w.b = jsonscan.AppendQuoted(w.b, r.Warnings[i]) })
	w.endObject()
	return w.b
}

func writeAnnotation(w *jsonWriter, b prune.Block, id string) {
	w.beginObject()
	w.textMember("kind", "pruned_block")
	w.intMember("original_start_line", b.First)
	w.intMember("original_end_line", b.Last)
	w.intMember("pruned_line_count", b.LineCount())
	w.textMember("reason", prune.Reason)
	w.textMember("marker", b.Marker(id))
	w.endObject()
}

func (r *Report) appendStats(w *jsonWriter, size int) {
	lines, pruned := strings.Count(r.Text, "\n")+1, countLines(r.Blocks)
	before, after := estimateTokens(len(r.Text)), estimateTokens(size)
	saved := max(before-after, 0) // with line numbers a text can get longer
	w.textMember("backend", r.Backend)
	w.intMember("original_lines", lines)
	w.intMember("kept_lines", lines-pruned)
	w.intMember("pruned_lines", pruned)
	w.floatMember("pruned_ratio", float64(pruned)/float64(lines), 4)
	w.intMember("tokens_est_before", before)
	w.intMember("tokens_est_after", after)
	w.intMember("tokens_saved_est", saved)
	w.floatMember("cost_estimated_usd", float64(saved)*pricePerMillion/1e6, 8)
	if r.reranked != nil {
		r.reranked.appendStats(w)
	}
	w.intMember("elapsed_ms", int(r.Elapsed.Milliseconds()))
	w.boolMember("used_fallback", r.Fallback)
}

// toolResult is a tool's result: the document as text and as structuredContent.
func toolResult(document []byte) []byte {
	w := jsonWriter{b: make([]byte, 0, 2*len(document)+len(document)/4+128)}
	w.beginObject()
	w.key("content")
	w.b = append(w.b, `[{"type":"text","text":`...)
	w.b = jsonscan.AppendQuoted(w.b, string(document))
	w.b = append(w.b, "}]"...)
	w.rawMember("structuredContent", document)
	w.boolMember("isError", false)
	w.endObject()
	return w.b
}
