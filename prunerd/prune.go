package prunerd

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/prune"
	"github.com/ctxgate/ctxgate/recall"
)

// Origin is where the originals of the pruner come from. A configured server may be called pruner,
// too: it is not the same.
var Origin = recall.Origin{Server: recall.OwnOrigin("pruner"), Tool: toolPrune}

// job is one call of prune_text.
type job struct {
	text, goal      string
	id              string
	chars, lines    int
	kind            prune.Kind
	budget          prune.Budget
	limit           time.Duration
	number, markers bool
}

// outcome is what became of a text.
type outcome struct {
	pruned   []byte        // the shorter text; nil: it is as it came
	blocks   []prune.Block // what was left out of it
	fallback bool
	warnings []string
	opinion  *opinion // of a reranker; nil where none was asked
}

// whole is the text as it came, for a reason (P7).
func (o outcome) whole(why string) outcome {
	return outcome{fallback: true, warnings: append(o.warnings, why), opinion: o.opinion}
}

// The reasons for which a text comes back whole.
const (
	warnTooLarge    = "input_too_large"
	warnTimeout     = "timeout"
	warnConstraints = "constraints_unmet"
	warnInternal    = "internal_error"
	warnUnkept      = "recovery_unavailable"
)

// prune is the straight line of one call: read the arguments, read the text while the store keeps
// it, and show the cut only when both are done.
func (s *Server) prune(ctx context.Context, tenant string, raw []byte) ([]byte, error) {
	began := time.Now()
	scope := membudget.From(ctx)
	if err := scope.Take(int64(len(raw))); err != nil { // the text, decoded
		return nil, err
	}
	j, err := readJob(raw)
	if err != nil {
		return nil, err
	}
	working := bytesPerLine * int64(j.lines)
	if err := scope.Take(working); err != nil {
		return nil, err
	}
	p := s.plan.Load()
	j.id = s.deps.Recall.ID(tenant, j.text)
	await := s.start(ctx, p, j)
	_, err = s.deps.Recall.Keep(ctx, tenant, j.text, Origin)
	out := await()
	scope.Give(working)
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "an original could not be kept: its text is not pruned", "error", err)
	}
	if err != nil {
		out = out.whole(warnUnkept)
	}
	front.Note(ctx, slog.Int("lines", j.lines), slog.Int("pruned", prunedLines(out.blocks)), slog.String("warnings", strings.Join(out.warnings, " ")))
	r := Report{
		ID: j.id, Text: j.text, Pruned: out.pruned, Blocks: out.blocks, Backend: p.backend(),
		Fallback: out.fallback, Warnings: out.warnings, Took: time.Since(began), opinion: out.opinion,
	}
	if err := scope.Take(r.size()); err != nil {
		return nil, err
	}
	document := r.JSON()
	if out.pruned != nil {
		// The result is one of ours: no other part of the gateway that sees it is to cut it again.
		if err := s.deps.Recall.NoteMade(ctx, tenant, j.id, string(document), string(out.pruned)); err != nil {
			slog.DebugContext(ctx, "a pruned text will not be recognised", "error", err)
		}
	}
	return toolResult(document), nil
}

// bytesPerLine is about how much memory it takes to read and cut a text, for each of its lines.
const bytesPerLine = 160

// maxLimit is the longest a call can ask to be given: longer than any takes.
const maxLimit = time.Hour

func readJob(raw []byte) (*job, error) {
	a, err := readArgs(raw, "", "text", "goal_hint", "source_type", "options")
	if err != nil {
		return nil, err
	}
	j := &job{text: a.text("text"), goal: a.text("goal_hint")}
	kind, ok := prune.ParseKind(a.text("source_type"))
	if j.kind = kind; !ok {
		a.refuse("source_type", "must be one of code, logs, docs")
	}
	if a.err != nil {
		return nil, a.err
	}
	o, err := readArgs(a.raw("options"), "options", "max_prune_ratio", "min_keep_lines", "timeout_ms", "annotate_lines", "include_markers")
	if err != nil {
		return nil, err
	}
	j.budget = prune.Budget{MaxRatio: o.ratio("max_prune_ratio"), MinKeep: o.integer("min_keep_lines", 0)}
	j.limit = time.Duration(min(o.integer("timeout_ms", 1), int(maxLimit/time.Millisecond))) * time.Millisecond
	j.number, j.markers = o.flag("annotate_lines"), o.flag("include_markers")
	j.chars, j.lines = utf8.RuneCountInString(j.text), strings.Count(j.text, "\n")+1
	return j, o.err
}

// allows says whether a cut is within the bounds that the caller set (P3). The engine keeps to
// them; that it does is not left to the engine.
func (j *job) allows(blocks []prune.Block) bool {
	pruned := prunedLines(blocks)
	return float64(pruned) <= math.Floor(j.budget.MaxRatio*float64(j.lines)) && j.lines-pruned >= min(j.budget.MinKeep, j.lines)
}

func prunedLines(blocks []prune.Block) int {
	n := 0
	for _, b := range blocks {
		n += b.Lines()
	}
	return n
}
