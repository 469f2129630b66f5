package recall

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

// reservation is the memory that the originals of one reply take on their way to the store: of what all
// replies may take together (spill_bytes), and of what their caller may hold.
type reservation struct {
	spill *semaphore.Weighted
	scope *membudget.Scope
	held  int64
}

func (r *Recall) newReservation(ctx context.Context) reservation {
	return reservation{spill: r.spill, scope: membudget.From(ctx)}
}

// take reserves what an original of n raw bytes needs: a part of text, the part compressed and the
// part sealed. Where there is not so much left, what was gathered before is put first: callers that
// each hold some and wait for more would wait for ever.
func (r *reservation) take(ctx context.Context, n int, put func() error) error {
	need := 3 * min(int64(n), partSize)
	if r.spill.TryAcquire(need) {
		if r.scope.Take(need) == nil {
			r.held += need
			return nil
		}
		r.spill.Release(need)
	}
	if put != nil {
		if err := put(); err != nil {
			return err
		}
	}
	if err := r.spill.Acquire(ctx, need); err != nil {
		return fault.Wrap(fault.Full, "too many originals on their way to the store", err)
	}
	if err := r.scope.Take(need); err != nil {
		r.spill.Release(need)
		return err
	}
	r.held += need
	return nil
}

// release gives everything back.
func (r *reservation) release() {
	r.spill.Release(r.held)
	r.scope.Give(r.held)
	r.held = 0
}
