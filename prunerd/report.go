package prunerd

import (
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/prune"
)

// bytesPerToken is the mean over code, logs and prose, in English and French, as the tokenizers of
// today's models cut them; in tenths, for the estimate is to be the same on every machine. Chinese
// and Japanese have about one character of three bytes a token, which is close.
const bytesPerToken = 34

// tokens estimates how many tokens a text of n bytes is, rounded up. It is an estimate for the
// statistics; nothing is decided by it.
func tokens(n int) int { return (10*n + bytesPerToken - 1) / bytesPerToken }

// pricePerMillion is what a million tokens of fresh input cost with a mid-sized model, in US
// dollars: the list price of the one that the document's users run. cost_estimated_usd is what the
// tokens saved would have cost at this price each time they are read; an order of magnitude, no bill.
const pricePerMillion = 0.60

// Report is what became of a text, as the document of the specification has it (P2).
type Report struct {
	ID, Text string        // of the original
	Pruned   []byte        // what is shown of it; nil: all
	Blocks   []prune.Block // what is not
	Backend  string
	Fallback bool
	Warnings []string
	Took     time.Duration

	opinion *opinion
}

// blockSize is the most that the annotation of a block takes in a document.
const blockSize = 400

// size is how much memory the reply takes while it is made.
func (r *Report) size() int64 {
	text := jsonscan.RawLen(r.Pruned)
	if r.Pruned == nil {
		text = 2 * len(r.Text) // most escapes are of two bytes
	}
	return resultSize(text, blockSize*len(r.Blocks))
}

// JSON writes the document.
func (r *Report) JSON() []byte {
	text := r.Text
	if r.Pruned != nil {
		text = string(r.Pruned)
	}
	w := writer{b: make([]byte, 0, len(text)+len(text)/8+1024)}
	w.open()
	w.text("prune_id", r.ID)
	w.text("pruned_text", text)
	w.list("annotations", len(r.Blocks), func(i int) { annotate(&w, r.Blocks[i], r.ID) })
	w.key("stats")
	w.open()
	r.stats(&w, len(text))
	w.close()
	w.list("warnings", len(r.Warnings), func(i int) { w.b = jsonscan.AppendString(w.b, r.Warnings[i]) })
	w.close()
	return w.b
}

func annotate(w *writer, b prune.Block, id string) {
	w.open()
	w.text("kind", "pruned_block")
	w.int("original_start_line", b.First)
	w.int("original_end_line", b.Last)
	w.int("pruned_line_count", b.Lines())
	w.text("reason", prune.Reason)
	w.text("marker", b.Marker(id))
	w.close()
}

func (r *Report) stats(w *writer, size int) {
	lines, pruned := strings.Count(r.Text, "\n")+1, prunedLines(r.Blocks)
	before, after := tokens(len(r.Text)), tokens(size)
	saved := max(before-after, 0) // line numbers can make a text longer than it was; that saves nothing
	w.text("backend", r.Backend)
	w.int("original_lines", lines)
	w.int("kept_lines", lines-pruned)
	w.int("pruned_lines", pruned)
	w.float("pruned_ratio", float64(pruned)/float64(lines), 4)
	w.int("tokens_est_before", before)
	w.int("tokens_est_after", after)
	w.int("tokens_saved_est", saved)
	w.float("cost_estimated_usd", float64(saved)*pricePerMillion/1e6, 8)
	if r.opinion != nil {
		r.opinion.stats(w)
	}
	w.int("elapsed_ms", int(r.Took.Milliseconds()))
	w.flag("used_fallback", r.Fallback)
}

// toolResult is a tool's answer: the document as text, for those who read text, and as it is.
func toolResult(document []byte) []byte {
	w := writer{b: make([]byte, 0, 2*len(document)+len(document)/4+128)}
	w.open()
	w.key("content")
	w.b = append(w.b, `[{"type":"text","text":`...)
	w.b = jsonscan.AppendString(w.b, string(document))
	w.b = append(w.b, "}]"...)
	w.raw("structuredContent", document)
	w.flag("isError", false)
	w.close()
	return w.b
}
