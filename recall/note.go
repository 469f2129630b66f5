package recall

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"time"

	"github.com/ctxgate/ctxgate/state"
)

// Note is something small that is remembered for a tenant, such as what was decided for a
// conversation. It is sealed as originals are, and lives as long.
type Note struct {
	Name  string // any bytes; it says what the note is about, and nobody can tell it from the store
	Value []byte
}

// noteKey is where a note is. The name is hashed: it may be made of what was said.
func (k tenantKeys) noteKey(name string) string {
	h := hmac.New(sha256.New, k.note)
	_, _ = h.Write([]byte(name))
	return "note/" + k.tag + "/" + crockford.EncodeToString(h.Sum(nil)[:idBytes])
}

// PutNotes remembers notes, all or none, in the place of those of the same names.
func (r *Recall) PutNotes(ctx context.Context, tenant string, notes ...Note) error {
	if !r.cfg.Enabled {
		return errOff
	}
	k := r.keysOf(tenant)
	items := make([]state.Item, 0, len(notes))
	for _, n := range notes {
		key := k.noteKey(n.Name)
		aead, err := k.aead(key)
		if err != nil {
			return err
		}
		items = append(items, state.Item{Key: key, Group: key, Value: seal(aead, key, manifestPart, n.Value)})
	}
	return r.store.Put(ctx, items...)
}

// GetNote is the value of a note; an error of kind Unknown when there is none. One that is read
// lives on.
func (r *Recall) GetNote(ctx context.Context, tenant, name string) ([]byte, error) {
	if !r.cfg.Enabled {
		return nil, errOff
	}
	k := r.keysOf(tenant)
	key := k.noteKey(name)
	sealed, err := r.store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	aead, err := k.aead(key)
	if err != nil {
		return nil, err
	}
	value, err := unseal(aead, key, manifestPart, sealed)
	if err == nil {
		r.renew(ctx, tenant, key)
	}
	return value, err
}

// renew lets a note live on that is read, now and then: it is read with every request.
func (r *Recall) renew(ctx context.Context, tenant, key string) {
	m := r.recent.mark(tenant, &Text{Raw: [][]byte{[]byte(key)}, From: Origin{Server: "note"}})
	if now := time.Now(); r.recent.id(m, now) == "" {
		_, _ = r.store.Touch(ctx, key) // a store that cannot note that can still be read
		r.recent.note(m, key, now)
	}
}
