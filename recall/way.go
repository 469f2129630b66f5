package recall

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

// way is the memory that the originals of one reply take on their way to the store: of what all
// replies may take together (spill_bytes), and of what their caller may hold.
type way struct {
	spill *semaphore.Weighted
	scope *membudget.Scope
	held  int64
}

func (r *Recall) newWay(ctx context.Context) way {
	return way{spill: r.spill, scope: membudget.From(ctx)}
}

// take reserves what an original of n raw bytes needs: a part of text, the part compressed and the
// part sealed. Where there is not so much left, what was gathered before is put first: callers that
// each hold some and wait for more would wait for ever.
func (w *way) take(ctx context.Context, n int, put func() error) error {
	need := 3 * min(int64(n), partSize)
	if w.spill.TryAcquire(need) {
		if w.scope.Take(need) == nil {
			w.held += need
			return nil
		}
		w.spill.Release(need)
	}
	if put != nil {
		if err := put(); err != nil {
			return err
		}
	}
	if err := w.spill.Acquire(ctx, need); err != nil {
		return fault.Wrap(fault.Full, "too many originals on their way to the store", err)
	}
	if err := w.scope.Take(need); err != nil {
		w.spill.Release(need)
		return err
	}
	w.held += need
	return nil
}

// release gives everything back.
func (w *way) release() {
	w.spill.Release(w.held)
	w.scope.Give(w.held)
	w.held = 0
}
