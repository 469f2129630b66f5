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

// Record is a small value that is stored for a tenant, such as what was decided for a conversation.
// It is sealed as originals are, and lives as long.
type Record struct {
	Name  string // any bytes; the store holds only its hash
	Value []byte
}

// recordSlot is the key of a record and the cipher that seals it. Slots are cached: a conversation's
// record is read with every request, and deriving the slot takes longer than reading the record.
type recordSlot struct {
	key     string
	aead    cipher.AEAD
	renewed atomic.Int64 // when the lease was last renewed, in Unix nanoseconds
}

type recordName struct{ tenant, name string }

const recordSlotsSize = 1 << 11 // slots in each generation of the cache

func (r *Recall) recordSlot(tenant, name string) (*recordSlot, error) {
	cacheKey := recordName{tenant, name}
	if slot, ok := r.recordSlots.Get(cacheKey); ok {
		return slot, nil
	}
	k := r.keysOf(tenant)
	h := hmac.New(sha256.New, k.record) // the name may hold text of the conversation
	_, _ = h.Write([]byte(name))
	key := "note/" + k.tag + "/" + crockford.EncodeToString(h.Sum(nil)[:idBytes])
	aead, err := k.aead(key)
	if err != nil {
		return nil, err
	}
	slot := &recordSlot{key: key, aead: aead}
	r.recordSlots.Put(cacheKey, slot, 1)
	return slot, nil
}

// PutRecords stores records, all or none. They replace those of the same names.
func (r *Recall) PutRecords(ctx context.Context, tenant string, records ...Record) error {
	if !r.cfg.Enabled {
		return errDisabled
	}
	items := make([]state.Item, 0, len(records))
	for _, record := range records {
		slot, err := r.recordSlot(tenant, record.Name)
		if err != nil {
			return err
		}
		items = append(items, state.Item{Key: slot.key, Group: slot.key, Value: sealPart(slot.aead, slot.key, manifestPart, record.Value)})
	}
	return r.store.Put(ctx, items...)
}

// GetRecord returns the value of a record, or an error of kind UnknownHandle when there is none.
// Reading it renews its lease, but not on every request.
func (r *Recall) GetRecord(ctx context.Context, tenant, name string) ([]byte, error) {
	if !r.cfg.Enabled {
		return nil, errDisabled
	}
	slot, err := r.recordSlot(tenant, name)
	if err != nil {
		return nil, err
	}
	sealed, err := r.store.Get(ctx, slot.key)
	if err != nil {
		return nil, err
	}
	value, err := unsealPart(slot.aead, slot.key, manifestPart, sealed)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if last := slot.renewed.Load(); now.Sub(time.Unix(0, last)) >= r.receipts.lifetime && slot.renewed.CompareAndSwap(last, now.UnixNano()) {
		_, _ = r.store.Touch(ctx, slot.key) // a store that cannot write may still be read
	}
	return value, nil
}
