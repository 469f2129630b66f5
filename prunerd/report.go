package prunerd

import (
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

// report is the document of the specification (P2).
func report(p *plan, j *job, out outcome, took time.Duration) []byte {
	text := j.text
	if out.pruned != nil {
		text = string(out.pruned)
	}
	w := writer{b: make([]byte, 0, len(text)+len(text)/8+1024)}
	w.open()
	w.text("prune_id", j.id)
	w.text("pruned_text", text)
	w.list("annotations", len(out.blocks), func(i int) { annotate(&w, out.blocks[i], j.id) })
	w.key("stats")
	w.open()
	stats(&w, p, j, out, len(text))
	w.int("elapsed_ms", int(took.Milliseconds()))
	w.flag("used_fallback", out.fallback)
	w.close()
	w.list("warnings", len(out.warnings), func(i int) { w.b = jsonscan.AppendString(w.b, out.warnings[i]) })
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

func stats(w *writer, p *plan, j *job, out outcome, size int) {
	pruned := prunedLines(out.blocks)
	before, after := tokens(len(j.text)), tokens(size)
	w.text("backend", p.backend())
	w.int("original_lines", j.lines)
	w.int("kept_lines", j.lines-pruned)
	w.int("pruned_lines", pruned)
	w.float("pruned_ratio", float64(pruned)/float64(j.lines), 4)
	w.int("tokens_est_before", before)
	w.int("tokens_est_after", after)
	w.int("tokens_saved_est", before-after)
	w.float("cost_estimated_usd", float64(before-after)*pricePerMillion/1e6, 8)
	if out.opinion != nil {
		out.opinion.stats(w)
	}
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
