// Package keyring holds the keys of tenants.
//
// Names are derived from the root secret and the tenant's name, so that they are the same in every process:
// ids, keys of the store, owners. What encrypts a tenant's data also takes a random secret of the tenant. It
// is made when something is first stored for the tenant, and is in the store, encrypted under a key that is
// derived from the root secret. [Keyring.Forget] destroys it: all that was encrypted with it is unreadable
// from then on, wherever a copy of it may be.
//
// Path through the files: keyring.go has the root secrets and the names of a tenant, secret.go the random
// secret, cipher.go encrypts with it, value.go stores small values, forget.go destroys the secret.
//
// Invariants:
//   - Nothing is stored under a secret that is not in the store: every Put is conditional on it.
//   - A process uses a secret that it has in memory for at most [RecheckEvery] without looking into the
//     store, so that a secret that another process destroyed is not used after that.
//   - Of several processes that make a tenant's secret at once, one does, and all use that one.
//   - A secret lives longer than all that is stored under it, and is not evicted.
//
// The first root secret makes names and keys. With further ones, what was stored under them is still found
// and read: each root secret has names and random secrets of its own.
//
// When the store is down, no secret can be checked and every method returns the store's error.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ctxgate/ctxgate/state"
)

// MinSecretBytes is the shortest root secret.
const MinSecretBytes = 32

const maxTenants = 1 << 12 // whose keys are in memory

// Keyring holds the keys of all tenants.
type Keyring struct {
	store *state.Store
	roots [][]byte

	tenants sync.Map     // []*Tenant by name
	derived atomic.Int64 // how many were added to tenants since it was cleared

	hooksMu sync.Mutex
	hooks   []func(tenant string)
}

// New makes a keyring over a store. All processes that share the store need the same root secret; the old ones
// are only used to read what was stored under them.
func New(store *state.Store, root []byte, old ...[]byte) (*Keyring, error) {
	k := &Keyring{store: store, roots: append([][]byte{root}, old...)}
	for _, r := range k.roots {
		if len(r) < MinSecretBytes {
			return nil, fmt.Errorf("a root secret must have at least %d bytes", MinSecretBytes)
		}
	}
	return k, nil
}

// OnForget calls f when this process finds that a tenant was forgotten, by itself or another process, so that
// what it has in memory for the tenant can be dropped.
func (k *Keyring) OnForget(f func(tenant string)) {
	k.hooksMu.Lock()
	defer k.hooksMu.Unlock()
	k.hooks = append(k.hooks, f)
}

func (k *Keyring) callHooks(tenant string) {
	k.hooksMu.Lock()
	hooks := k.hooks
	k.hooksMu.Unlock()
	for _, f := range hooks {
		f(tenant)
	}
}

// Tenant is a tenant under one root secret: nothing of another tenant can be named, found or read with it.
type Tenant struct {
	Name string
	Tag  string // begins or is part of the tenant's keys in the store, and begins its owner

	ring    *Keyring
	root    []byte
	sealKey []byte      // of the root secret's part in encryption
	wrapper cipher.AEAD // encrypts the random secret

	current atomic.Pointer[checkedSecret]
	renewed atomic.Int64 // when the lease of the secret was last renewed, in Unix nanoseconds
}

// Tenants returns a tenant under every root secret. The first makes names; the others are only read.
func (k *Keyring) Tenants(name string) []*Tenant {
	if t, ok := k.tenants.Load(name); ok {
		return t.([]*Tenant)
	}
	made := make([]*Tenant, len(k.roots))
	for i, root := range k.roots {
		made[i] = newTenant(k, root, name)
	}
	if k.derived.Add(1) > maxTenants {
		k.tenants.Clear()
		k.derived.Store(0)
	}
	t, _ := k.tenants.LoadOrStore(name, made)
	return t.([]*Tenant)
}

func newTenant(k *Keyring, root []byte, name string) *Tenant {
	t := &Tenant{Name: name, ring: k, root: root}
	t.Tag = hex.EncodeToString(t.Derive("tag", 8))
	t.sealKey = t.Derive("seal", 32)
	var err error
	if t.wrapper, err = newGCM(t.Derive("wrap", 32)); err != nil {
		panic(err) // only for a key of another length
	}
	return t
}

// Derive returns the key for a use: the same in every process, and of no use to learn another.
func (t *Tenant) Derive(use string, bytes int) []byte {
	key, err := hkdf.Expand(sha256.New, t.root, "ctxgate/"+use+"/v1\x00"+t.Name, bytes)
	if err != nil {
		panic(err) // only for a length that HKDF cannot give
	}
	return key
}

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("making a cipher: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

var errSealed = errors.New("keyring: a stored value cannot be decrypted")
