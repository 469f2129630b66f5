package keyring

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

// Value is a small value of a tenant, such as a token. It is stored encrypted, and pinned so that texts do not
// evict it.
type Value struct {
	Name string // any bytes; the store has only its hash
	Data []byte
}

// valueKey is the key of a value in the store.
func (t *Tenant) valueKey(name string) string {
	h := hmac.New(sha256.New, t.Derive("value", 32))
	_, _ = h.Write([]byte(name))
	return "value/" + t.Tag + "/" + hex.EncodeToString(h.Sum(nil)[:16])
}

// PutValue stores a value for a tenant, instead of what is stored under its name.
func (k *Keyring) PutValue(ctx context.Context, tenant string, v Value) error {
	t := k.Tenants(tenant)[0]
	s, err := t.SecretForStoring(ctx)
	if err != nil {
		return err
	}
	key := t.valueKey(v.Name)
	c, err := t.Cipher(s, key)
	if err != nil {
		return err
	}
	return s.Put(ctx, k.store, state.Item{Key: key, Group: key, Value: c.Seal(v.Data, []byte(key)), Pinned: true, Archived: true})
}

// GetValue returns a value of a tenant, or an error of kind UnknownHandle if there is none that can be read.
// Values that were stored under an old root secret are found, too.
func (k *Keyring) GetValue(ctx context.Context, tenant, name string) ([]byte, error) {
	for _, t := range k.Tenants(tenant) {
		data, err := t.readValue(ctx, name)
		if err == nil || fault.KindOf(err) != fault.UnknownHandle {
			return data, err
		}
	}
	return nil, state.ErrUnknown
}

func (t *Tenant) readValue(ctx context.Context, name string) ([]byte, error) {
	s, err := t.Secret(ctx)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, state.ErrUnknown
	}
	key := t.valueKey(name)
	sealed, err := t.ring.store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	c, err := t.Cipher(s, key)
	if err != nil {
		return nil, err
	}
	data, err := c.Open(sealed, []byte(key))
	if err != nil {
		return nil, fault.Wrap(fault.UnknownHandle, state.ErrUnknown.Error(), fmt.Errorf("reading a value of a tenant: %w", err))
	}
	return data, nil
}

// TouchValue keeps a value that is used from expiring, and says whether there is one.
func (k *Keyring) TouchValue(ctx context.Context, tenant, name string) (found bool, err error) {
	for _, t := range k.Tenants(tenant) {
		ok, err := k.store.Touch(ctx, t.valueKey(name))
		if err != nil {
			return false, err
		}
		found = found || ok
	}
	return found, nil
}

// DropValue removes a value.
func (k *Keyring) DropValue(ctx context.Context, tenant, name string) error {
	for _, t := range k.Tenants(tenant) {
		if err := k.store.Drop(ctx, t.valueKey(name)); err != nil {
			return err
		}
	}
	return nil
}
