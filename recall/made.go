package recall

import (
	"context"
	"iter"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

// The store remembers, under a keyed hash, each text that this gateway made of another. That alone
// tells such a text from any other: a marker is a word that anybody can write.

// isOurs says whether a text is, to the byte, one that was made here for the tenant. What it was made
// of is shown with it, and lives on. With an error nobody knows.
func (r *Recall) isOurs(ctx context.Context, k tenantKeys, text iter.Seq[[]byte]) (bool, error) {
	id, err := r.store.Get(ctx, k.madeKey(hash128(k.made, text)))
	if err != nil {
		if fault.KindOf(err) == fault.Unknown {
			err = nil
		}
		return false, err
	}
	if len(id) > 0 {
		_, _ = r.store.Touch(ctx, k.group(string(id))) // a store that cannot note that can still be read
	}
	return true, nil
}

// NoteMade remembers texts that somebody else made of an original, which was kept for the tenant, so
// that they are not cut again.
func (r *Recall) NoteMade(ctx context.Context, tenant, id string, texts ...string) error {
	if !r.cfg.Enabled {
		return errOff
	}
	k := r.keysOf(tenant)
	items := make([]state.Item, len(texts))
	for i, text := range texts {
		items[i] = state.Item{Key: k.madeKey(hash128(k.made, pieces(text))), Group: k.group(id), Value: []byte(id)}
	}
	return r.store.Put(ctx, items...)
}
