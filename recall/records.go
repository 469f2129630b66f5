package recall

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/keyring"
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
	keys    tenantKeys
	key     string
	cipher  keyring.Cipher
	renewed *atomic.Int64 // when the lease was last renewed, in Unix nanoseconds
}

type recordName struct {
	tenant *keyring.Tenant
	name   string
}

const recordSlotsSize = 1 << 11 // slots in each generation of the cache

// recordSlot returns the slot of a record under the secret of k.
func (r *Recall) recordSlot(k tenantKeys, name string) (recordSlot, error) {
	cacheKey := recordName{k.tenant, name}
	slot, ok := r.recordSlots.Get(cacheKey)
	if ok && slot.keys.secret == k.secret {
		return slot, nil
	}
	h := hmac.New(sha256.New, k.record) // the name may hold text of the conversation
	_, _ = h.Write([]byte(name))
	slot = recordSlot{keys: k, key: "note/" + k.tag + "/" + crockford.EncodeToString(h.Sum(nil)[:idBytes]), renewed: new(atomic.Int64)}
	var err error
	if slot.cipher, err = k.cipher(slot.key); err != nil {
		return slot, err
	}
	r.recordSlots.Put(cacheKey, slot, 1)
	return slot, nil
}

// PutRecords stores records, all or none. They replace those of the same names.
func (r *Recall) PutRecords(ctx context.Context, tenant string, records ...Record) error {
	if !r.cfg.Enabled {
		return errDisabled
	}
	_, err := retryConflicts(func() (struct{}, error) {
		k, err := r.keysForStoring(ctx, tenant)
		if err != nil {
			return struct{}{}, err
		}
		items := make([]state.Item, 0, len(records))
		for _, record := range records {
			slot, err := r.recordSlot(k, record.Name)
			if err != nil {
				return struct{}{}, err
			}
			items = append(items, state.Item{Key: slot.key, Group: slot.key, Value: sealPart(slot.cipher, slot.key, manifestPart, record.Value)})
		}
		return struct{}{}, r.put(ctx, k, items...)
	})
	return err
}

// UpdateRecord replaces a record by what change makes of it, in one step that no other process can come between: if one
// does, change is called again. Its argument is nil if there is no record; if it returns nil, the record stays.
func (r *Recall) UpdateRecord(ctx context.Context, tenant, name string, change func(old []byte) ([]byte, error)) error {
	if !r.cfg.Enabled {
		return errDisabled
	}
	_, err := retryConflicts(func() (struct{}, error) {
		k, err := r.keysForStoring(ctx, tenant)
		if err != nil {
			return struct{}{}, err
		}
		slot, err := r.recordSlot(k, name)
		if err != nil {
			return struct{}{}, err
		}
		sealed, err := r.store.Get(ctx, slot.key)
		if err = ignoreUnknown(err); err != nil {
			return struct{}{}, err
		}
		var old []byte
		if sealed != nil {
			old, err = unsealPart(slot.cipher, slot.key, manifestPart, sealed)
		} else { // perhaps under an old root secret
			old, err = r.GetRecord(ctx, tenant, name)
		}
		if err != nil && fault.KindOf(asUnknown(err)) != fault.UnknownHandle {
			return struct{}{}, err
		}
		next, err := change(old)
		if err != nil || next == nil {
			return struct{}{}, err
		}
		return struct{}{}, r.put(ctx, k, state.Item{
			Key: slot.key, Group: slot.key, Value: sealPart(slot.cipher, slot.key, manifestPart, next), Over: &state.Expected{Value: sealed},
		})
	})
	return err
}

// GetRecord returns the value of a record, or an error of kind UnknownHandle when there is none.
// Reading it renews its lease, but not on every request. A record that was stored under an old root secret is
// found, too.
func (r *Recall) GetRecord(ctx context.Context, tenant, name string) ([]byte, error) {
	if !r.cfg.Enabled {
		return nil, errDisabled
	}
	keys, err := r.keysForReading(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		var value []byte
		if value, err = r.readRecord(ctx, k, name); err == nil || fault.KindOf(err) != fault.UnknownHandle {
			return value, err
		}
	}
	return nil, err
}

func (r *Recall) readRecord(ctx context.Context, k tenantKeys, name string) ([]byte, error) {
	slot, err := r.recordSlot(k, name)
	if err != nil {
		return nil, err
	}
	sealed, err := r.store.GetQuick(ctx, slot.key)
	if err != nil {
		return nil, err
	}
	value, err := unsealPart(slot.cipher, slot.key, manifestPart, sealed)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if last := slot.renewed.Load(); now.Sub(time.Unix(0, last)) >= r.receipts.lifetime && slot.renewed.CompareAndSwap(last, now.UnixNano()) {
		_, _ = r.store.Touch(ctx, slot.key) // a store that cannot write may still be read
	}
	return value, nil
}
