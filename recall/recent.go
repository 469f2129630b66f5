package recall

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/internal/lately"
	"github.com/ctxgate/ctxgate/state"
)

// Kept says that an original is in the store. It holds until Until, and only while the store's
// epoch is Epoch: a store that was emptied, replaced or put back from a copy has another.
type Kept struct {
	ID    string // "" when it could not be kept
	Until time.Time
	Epoch state.Epoch
}

// Holds says whether it can be relied on without asking the store again. Epoch is the store's own,
// read since the request came.
func (k Kept) Holds(now time.Time, epoch state.Epoch) bool {
	return k.ID != "" && k.Epoch == epoch && now.Before(k.Until)
}

// Epoch is the store's epoch. While the store does not answer it is the last one known: a store that
// says nothing does not say that it lost something.
func (r *Recall) Epoch(ctx context.Context) state.Epoch {
	epoch, err := r.store.Epoch(ctx)
	if err != nil {
		return state.Epoch(r.recent.epoch.Load())
	}
	r.recent.epoch.Store(uint64(epoch))
	return epoch
}

// recent remembers which originals this process kept, or found kept, a short while ago. A
// conversation shows the same texts on every turn; their leases need no renewal each time, and
// their ids no hashing.
//
// What is remembered was acknowledged by the store within the last span, which is at most half of
// what the store spares, and under the epoch that the store still has. Nothing counts for longer
// than that, however often it is asked for: then the store is asked again.
type recent struct {
	span   time.Duration
	marker lately.Marker
	known  *lately.Map[lately.Mark, Kept]
	epoch  atomic.Uint64 // the last one known
}

const recentMost = 1 << 16 // texts in each half

func newRecent(span time.Duration) *recent {
	return &recent{span: span, marker: lately.NewMarker(), known: lately.NewMap[lately.Mark, Kept](recentMost)}
}

// mark tells a tenant's texts of an origin apart.
func (c *recent) mark(tenant string, t *Text) lately.Mark {
	return c.marker.Mark(func(h *maphash.Hash) {
		for _, s := range []string{tenant, t.From.Server, t.From.Tool} {
			_, _ = h.WriteString(s)
			_ = h.WriteByte(0)
		}
		for _, raw := range t.Raw {
			maphash.WriteComparable(h, len(raw))
			_, _ = h.Write(raw)
		}
	})
}

// get is how a text was kept lately; false when it was not.
func (c *recent) get(m lately.Mark, now time.Time, epoch state.Epoch) (Kept, bool) {
	kept, ok := c.known.Get(m)
	return kept, ok && kept.Holds(now, epoch)
}

// put remembers that a text was kept. asked is when the store was asked, and epoch what it said
// before that.
func (c *recent) put(m lately.Mark, id string, asked time.Time, epoch state.Epoch) Kept {
	kept := Kept{ID: id, Until: asked.Add(c.span), Epoch: epoch}
	c.known.Put(m, kept, 1)
	return kept
}
