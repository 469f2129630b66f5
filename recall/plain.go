package recall

import (
	"context"
	"iter"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/fault"
)

// errOff is what becomes of a text that is to be kept where nothing is.
var errOff = fault.New(fault.Unavailable, "originals are not kept here (recall.enabled)")

// Keep keeps a plain text, not a string of a reply, for whoever cuts it by other rules than
// [Recall.Shrink], and gives its id. The id is the text's own, and comes with an error too: then
// nothing can be read back under it, and nothing may be cut from the text.
func (r *Recall) Keep(ctx context.Context, tenant, text string, from Origin) (id string, err error) {
	if !r.cfg.Enabled {
		return r.ID(tenant, text), errOff
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.KeepTimeout.D())
	defer cancel()
	need := 3 * min(int64(len(text)), partSize) // as in keeper.take
	if err := r.spill.Acquire(ctx, need); err != nil {
		return r.ID(tenant, text), fault.Wrap(fault.Full, "too many originals on their way to the store", err)
	}
	defer r.spill.Release(need)
	k := r.keysOf(tenant)
	o := newOriginal(k, pieces(text), len(text), utf8.RuneCountInString(text))
	items, err := r.items(ctx, k, o, from)
	if err != nil {
		return o.id, err
	}
	return o.id, r.store.Put(ctx, items...)
}

// ID is the id of a text, kept or not: the same as for a string of a reply that says the same.
func (r *Recall) ID(tenant, text string) string {
	return formatID(hash128(r.keysOf(tenant).id, pieces(text)))
}

// pieces are a text in pieces of at most a part, each only valid until the next.
func pieces(text string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var buf []byte
		for rest := text; len(rest) > 0; {
			n := min(len(rest), partSize)
			buf = append(buf[:0], rest[:n]...)
			if rest = rest[n:]; !yield(buf) {
				return
			}
		}
	}
}
