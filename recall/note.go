package recall

import (
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"sync/atomic"
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

// place is where a note is, and what seals it. A conversation's is asked for with every request, and
// to find out takes longer than to read it.
type place struct {
	key     string
	aead    cipher.AEAD
	renewed atomic.Int64 // when its lease was last renewed, in nanoseconds of Unix
}

type noteName struct{ tenant, name string }

const mostPlaces = 1 << 11 // in each half of those that are remembered

func (r *Recall) place(tenant, name string) (*place, error) {
	of := noteName{tenant, name}
	if p, ok := r.places.Get(of); ok {
		return p, nil
	}
	k := r.keysOf(tenant)
	key := k.noteKey(name)
	aead, err := k.aead(key)
	if err != nil {
		return nil, err
	}
	p := &place{key: key, aead: aead}
	r.places.Put(of, p, 1)
	return p, nil
}

// PutNotes remembers notes, all or none, in the place of those of the same names.
func (r *Recall) PutNotes(ctx context.Context, tenant string, notes ...Note) error {
	if !r.cfg.Enabled {
		return errOff
	}
	items := make([]state.Item, 0, len(notes))
	for _, n := range notes {
		p, err := r.place(tenant, n.Name)
		if err != nil {
			return err
		}
		items = append(items, state.Item{Key: p.key, Group: p.key, Value: seal(p.aead, p.key, manifestPart, n.Value)})
	}
	return r.store.Put(ctx, items...)
}

// GetNote is the value of a note; an error of kind Unknown when there is none. One that is read
// lives on.
func (r *Recall) GetNote(ctx context.Context, tenant, name string) ([]byte, error) {
	if !r.cfg.Enabled {
		return nil, errOff
	}
	p, err := r.place(tenant, name)
	if err != nil {
		return nil, err
	}
	sealed, err := r.store.Get(ctx, p.key)
	if err != nil {
		return nil, err
	}
	value, err := unseal(p.aead, p.key, manifestPart, sealed)
	if err == nil {
		r.renew(ctx, p)
	}
	return value, err
}

// renew lets a note live on that is read, now and then: it is read with every request.
func (r *Recall) renew(ctx context.Context, p *place) {
	now := time.Now()
	if last := p.renewed.Load(); now.Sub(time.Unix(0, last)) >= r.recent.span && p.renewed.CompareAndSwap(last, now.UnixNano()) {
		_, _ = r.store.Touch(ctx, p.key) // a store that cannot note that can still be read
	}
}
