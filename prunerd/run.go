package prunerd

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/ctxgate/ctxgate/prune"
)

// start begins to read a text, and gives a function that waits for what comes of it, no longer
// than the call's own limit. A run that nobody waits for any more goes on to where the engine
// looks at its context; it holds its slot until then, so that such runs cannot pile up.
func (s *Server) start(ctx context.Context, p *plan, j *job) (await func() outcome) {
	switch {
	case j.chars > p.MaxInputChars:
		return func() outcome { return outcome{}.whole(warnTooLarge) }
	case j.budget.MinKeep > j.lines:
		return func() outcome { return outcome{}.whole(warnConstraints) }
	}
	ctx, cancel := context.WithTimeout(ctx, j.limit)
	done := make(chan outcome, 1)
	s.runs.Go(func() {
		defer cancel() // after the outcome is there, or it would be taken for the limit
		done <- s.run(ctx, p, j)
	})
	return func() outcome {
		select {
		case out := <-done:
			return out
		case <-ctx.Done():
		}
		select {
		case out := <-done: // both; what is there is better than what is not
			return out
		default:
			return outcome{}.whole(warnTimeout)
		}
	}
}

// run reads a text and cuts it. A mistake of ours costs the saving, not the text.
func (s *Server) run(ctx context.Context, p *plan, j *job) (out outcome) {
	defer func() {
		if v := recover(); v != nil {
			slog.ErrorContext(ctx, "pruning panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			out = out.whole(warnInternal)
		}
	}()
	doc, err := s.engine(ctx, j)
	if err != nil {
		return out.whole(warnTimeout)
	}
	if o := p.far.ask(ctx, doc, j); o != nil {
		out.opinion, out.fallback, out.warnings = o, o.failed, o.warnings
	}
	blocks := doc.Cut(j.budget)
	if !j.allows(blocks) {
		return out.whole(warnConstraints)
	}
	out.blocks = blocks
	out.pruned = doc.Append(nil, blocks, prune.Style{ID: j.id, Number: j.number, Markers: j.markers})
	return out
}

// engine reads a text in a slot of its own.
func (s *Server) engine(ctx context.Context, j *job) (*prune.Doc, error) {
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer s.slots.Release(1)
	return s.read(ctx, j.text, j.goal, j.kind)
}
