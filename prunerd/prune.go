package prunerd

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/prune"
	"github.com/ctxgate/ctxgate/recall"
)

// Origin is the origin of texts that the pruner stores. A configured server of the id "pruner" has
// another.
var Origin = recall.Origin{Server: recall.BuiltinOrigin(ServerID), Tool: toolPrune}

// job is one call of prune_text.
type job struct {
	text, goal           string
	id                   string
	chars, lines         int
	kind                 prune.Kind
	budget               prune.Budget
	timeout              time.Duration
	lineNumbers, markers bool
}

// outcome is the result of pruning a text.
type outcome struct {
	pruned   []byte        // nil: the text is unchanged
	blocks   []prune.Block // the blocks left out
	fallback bool
	warnings []string
	reranked *rerankOutcome // nil if no reranker was asked
}

// returnWhole leaves the text unchanged, with a warning that says why (P7).
func (o outcome) returnWhole(why string) outcome {
	return outcome{fallback: true, warnings: append(o.warnings, why), reranked: o.reranked}
}

// The warnings of a text that comes back whole.
const (
	warnTooLarge    = "input_too_large"
	warnTimeout     = "timeout"
	warnConstraints = "constraints_unmet"
	warnInternal    = "internal_error"
	warnNotStored   = "recovery_unavailable"
)

// callPrune is the straight line of one call of prune_text: read the arguments, prune the text while its
// original is stored, and show the cut only if both succeed.
func (s *Server) callPrune(ctx context.Context, tenant string, raw []byte) ([]byte, error) {
	began := time.Now()
	scope := membudget.FromContext(ctx)
	if err := scope.Reserve(int64(len(raw))); err != nil { // for the decoded text
		return nil, err
	}
	j, err := parseJob(raw)
	if err != nil {
		return nil, err
	}
	working := bytesPerLine * int64(j.lines)
	if err := scope.Reserve(working); err != nil {
		return nil, err
	}
	p := s.plan.Load()
	j.id = s.deps.Recall.ID(tenant, j.text)
	await := s.startPruning(ctx, p, j)
	_, err = s.deps.Recall.StoreText(ctx, tenant, j.text, Origin)
	out := await()
	scope.Free(working)
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "the store failed; a text is returned unpruned", "error", err)
	}
	if err != nil {
		out = out.returnWhole(warnNotStored)
	}
	front.AddLogAttrs(ctx, slog.Int("lines", j.lines), slog.Int("pruned", countLines(out.blocks)), slog.String("warnings", strings.Join(out.warnings, " ")))
	r := Report{
		ID: j.id, Text: j.text, Pruned: out.pruned, Blocks: out.blocks, Backend: p.backend(),
		Fallback: out.fallback, Warnings: out.warnings, Elapsed: time.Since(began), reranked: out.reranked,
	}
	if err := scope.Reserve(r.estimateSize()); err != nil {
		return nil, err
	}
	document := r.JSON()
	if out.pruned != nil {
		// So that no other part of the gateway cuts the result again.
		if err := s.deps.Recall.MarkShortened(ctx, tenant, j.id, string(document), string(out.pruned)); err != nil {
			slog.DebugContext(ctx, "a pruned text could not be marked: another part of the gateway may cut it again", "error", err)
		}
	}
	return toolResult(document), nil
}

// bytesPerLine is about how much memory pruning takes for each line.
const bytesPerLine = 160

// maxLimit bounds the timeout that a call can ask for.
const maxLimit = time.Hour

func parseJob(raw []byte) (*job, error) {
	a, err := parseArgs(raw, "", "text", "goal_hint", "source_type", "options")
	if err != nil {
		return nil, err
	}
	j := &job{text: a.stringArg("text"), goal: a.stringArg("goal_hint")}
	kind, ok := prune.ParseKind(a.stringArg("source_type"))
	if j.kind = kind; !ok {
		a.reject("source_type", "must be one of code, logs, docs")
	}
	if a.err != nil {
		return nil, a.err
	}
	o, err := parseArgs(a.rawArg("options"), "options", "max_prune_ratio", "min_keep_lines", "timeout_ms", "annotate_lines", "include_markers")
	if err != nil {
		return nil, err
	}
	j.budget = prune.Budget{MaxPruneRatio: o.ratioArg("max_prune_ratio"), MinKeepLines: o.integerArg("min_keep_lines", 0)}
	j.timeout = time.Duration(min(o.integerArg("timeout_ms", 1), int(maxLimit/time.Millisecond))) * time.Millisecond
	j.lineNumbers, j.markers = o.boolArg("annotate_lines"), o.boolArg("include_markers")
	j.chars, j.lines = utf8.RuneCountInString(j.text), strings.Count(j.text, "\n")+1
	return j, o.err
}

// isWithinBudget checks the cut against the caller's bounds (P3). The engine keeps to them; this makes
// sure.
func (j *job) isWithinBudget(blocks []prune.Block) bool {
	pruned := countLines(blocks)
	return float64(pruned) <= math.Floor(j.budget.MaxPruneRatio*float64(j.lines)) && j.lines-pruned >= min(j.budget.MinKeepLines, j.lines)
}

func countLines(blocks []prune.Block) int {
	n := 0
	for _, b := range blocks {
		n += b.LineCount()
	}
	return n
}

// startPruning starts to prune a text and returns a function that waits for the outcome, at most the
// call's timeout. A run whose caller has left goes on until the engine checks its context; it holds its
// slot until then, so that such runs cannot pile up.
func (s *Server) startPruning(ctx context.Context, p *plan, j *job) (await func() outcome) {
	switch {
	case j.chars > p.MaxInputChars:
		return func() outcome { return outcome{}.returnWhole(warnTooLarge) }
	case j.budget.MinKeepLines > j.lines:
		return func() outcome { return outcome{}.returnWhole(warnConstraints) }
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	done := make(chan outcome, 1)
	s.running.Go(func() {
		defer cancel() // after the outcome is sent, or await would report a timeout
		done <- s.pruneText(ctx, p, j)
	})
	return func() outcome {
		select {
		case out := <-done:
			return out
		case <-ctx.Done():
		}
		select {
		case out := <-done: // both are ready: prefer the outcome
			return out
		default:
			return outcome{}.returnWhole(warnTimeout)
		}
	}
}

// pruneText scores and cuts a text. If it panics, the text comes back whole.
func (s *Server) pruneText(ctx context.Context, p *plan, j *job) (out outcome) {
	defer func() {
		if v := recover(); v != nil {
			slog.ErrorContext(ctx, "pruning panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			out = out.returnWhole(warnInternal)
		}
	}()
	doc, err := s.scoreText(ctx, j)
	if err != nil {
		return out.returnWhole(warnTimeout)
	}
	if o := p.reranker.addScores(ctx, doc, j); o != nil {
		out.reranked, out.fallback, out.warnings = o, o.failed, o.warnings
	}
	blocks := doc.Cut(j.budget)
	if !j.isWithinBudget(blocks) {
		return out.returnWhole(warnConstraints)
	}
	out.blocks = blocks
	out.pruned = doc.AppendPruned([]byte{}, blocks, prune.Format{ID: j.id, LineNumbers: j.lineNumbers, Markers: j.markers})
	return out
}

// scoreText scores a text, holding one of the slots.
func (s *Server) scoreText(ctx context.Context, j *job) (*prune.ScoredText, error) {
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer s.slots.Release(1)
	return s.score(ctx, j.text, j.goal, j.kind)
}
