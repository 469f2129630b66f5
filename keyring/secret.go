package keyring

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

// RecheckEvery is how long a process uses a secret that it has in memory without looking into the store.
const RecheckEvery = 250 * time.Millisecond

const (
	secretBytes = 32

	// A secret is leased for leaseMargin longer than what is stored under it, and its lease is renewed every
	// renewEvery while the tenant calls.
	leaseMargin = 30 * 24 * time.Hour
	renewEvery  = time.Hour
)

// ErrForgotten refuses to store what was encrypted with a secret that was destroyed in this moment. The next
// try uses the tenant's new secret.
var ErrForgotten error = fault.New(fault.Unavailable, "the tenant's secret has just been destroyed")

// Secret is the random secret of a tenant.
type Secret struct {
	// Owner is the owner of all that is stored under the secret: after the secret was destroyed, what was
	// stored under it can be told from what is stored under the next one.
	Owner string

	tenant  *Tenant
	fence   uint64 // later secrets of the tenant have a larger one
	wrapped []byte // as the store has it
	sealKey []byte // of both secrets, the root and the random one
}

// checkedSecret is what the store had at a time; the secret is nil if it had none.
type checkedSecret struct {
	*Secret
	at time.Time
}

// storeKey is the key of the tenant's secret in the store.
func (t *Tenant) storeKey() string { return "tenant/" + t.Tag + "/key" }

// Secret returns the tenant's secret, nil if nothing was stored for the tenant.
func (t *Tenant) Secret(ctx context.Context) (*Secret, error) {
	s, _, err := t.loadSecret(ctx, false)
	return s, err
}

// SecretForStoring returns the tenant's secret and makes it if there is none. It looks into the store each time:
// what is found stored already, and needs no Put, must not be of a secret that was destroyed.
func (t *Tenant) SecretForStoring(ctx context.Context) (*Secret, error) {
	for range 3 {
		s, stored, err := t.loadSecret(ctx, true)
		if s != nil || err != nil {
			return s, err
		}
		random := make([]byte, secretBytes)
		_, _ = rand.Read(random) // never fails
		wrapped := t.wrap(random, uint64(time.Now().UnixMilli()))
		// A stored value that cannot be decrypted is replaced: nothing can be read with it.
		item := state.Item{Key: t.storeKey(), Group: t.storeKey(), Value: wrapped, Pinned: true, Archived: true}
		if _, err := t.leased().PutIf(ctx, state.Condition{Group: t.storeKey(), Key: t.storeKey(), Value: stored}, item); err != nil {
			return nil, err
		}
		// Now there is this one, or one that another process has just made.
	}
	return nil, ErrForgotten
}

// leased is the store with the lifetime of secrets.
func (t *Tenant) leased() *state.Store { return t.ring.store.WithTTL(t.ring.store.TTL() + leaseMargin) }

// loadSecret returns the tenant's secret, from the store if the one in memory has not been checked lately. A
// stored value that cannot be decrypted is returned without a secret.
func (t *Tenant) loadSecret(ctx context.Context, fresh bool) (s *Secret, stored []byte, err error) {
	now := time.Now() // before the store is asked
	last := t.current.Load()
	if !fresh && last != nil && last.Secret != nil && now.Sub(last.at) < RecheckEvery {
		return last.Secret, nil, nil
	}
	stored, err = t.ring.store.Get(ctx, t.storeKey())
	if err != nil && fault.KindOf(err) != fault.UnknownHandle {
		return nil, nil, err
	}
	if last != nil && last.Secret != nil && bytes.Equal(last.wrapped, stored) {
		s = last.Secret
	} else if stored != nil {
		s = t.unwrap(stored)
	}
	if s != nil && now.UnixNano()-t.renewed.Load() >= int64(renewEvery) {
		if _, err := t.leased().Touch(ctx, t.storeKey()); err == nil { // a store that cannot write may still be read
			t.renewed.Store(now.UnixNano())
		}
	}
	next := &checkedSecret{s, now}
	t.setCurrent(next)
	return next.Secret, stored, nil
}

// setCurrent replaces what is in memory, unless that was checked later.
func (t *Tenant) setCurrent(next *checkedSecret) {
	for {
		last := t.current.Load()
		if last != nil && last.at.After(next.at) {
			return
		}
		hadSecret := last != nil && last.Secret != nil
		isSame := hadSecret && next.Secret != nil && bytes.Equal(last.wrapped, next.wrapped)
		if isSame {
			next.Secret = last.Secret // what is derived from it is cached
		}
		if t.current.CompareAndSwap(last, next) {
			if hadSecret && !isSame {
				t.ring.callHooks(t.Name)
			}
			return
		}
	}
}

// wrappedBytes is the length of a wrapped secret without a fence, as versions before there were fences wrote it.
const wrappedBytes = 12 + secretBytes + 16

// wrap encrypts a secret for the store. Its fence, the time at which it was made, is before it.
func (t *Tenant) wrap(random []byte, fence uint64) []byte {
	head := binary.BigEndian.AppendUint64(nil, fence)
	return t.wrapper.Seal(head, nil, random, append([]byte(t.Tag), head...))
}

// unwrap decrypts a stored secret, nil if that is not possible.
func (t *Tenant) unwrap(wrapped []byte) *Secret {
	head, sealed := []byte(nil), wrapped
	if len(wrapped) > wrappedBytes {
		head, sealed = wrapped[:8], wrapped[8:]
	}
	random, err := t.wrapper.Open(nil, nil, sealed, append([]byte(t.Tag), head...))
	if err != nil {
		return nil
	}
	var fence uint64
	if head != nil {
		fence = binary.BigEndian.Uint64(head)
	}
	sealKey, err := hkdf.Extract(sha256.New, t.sealKey, random)
	if err != nil {
		panic(err) // only with a hash that FIPS 140 does not allow
	}
	sum := sha256.Sum256(wrapped)
	return &Secret{Owner: t.Tag + "/" + hex.EncodeToString(sum[:4]), tenant: t, fence: fence, wrapped: wrapped, sealKey: sealKey}
}

// Put stores what was encrypted with the secret, if the secret is still in the store. The store may be one with
// another lifetime over the same driver.
func (s *Secret) Put(ctx context.Context, store *state.Store, items ...state.Item) error {
	for i := range items {
		items[i].Owner, items[i].Fence = s.Owner, s.fence
	}
	ok, err := store.PutIf(ctx, state.Condition{Group: s.tenant.storeKey(), Key: s.tenant.storeKey(), Value: s.wrapped}, items...)
	if err == nil && !ok {
		s.tenant.setCurrent(&checkedSecret{nil, time.Now()})
		err = ErrForgotten
	}
	return err
}
