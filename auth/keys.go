package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"

	"github.com/ctxgate/ctxgate/fault"
)

// key is a public key of the identity provider.
type key struct {
	id     string
	public any    // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
	alg    string // the only algorithm it is for; "" for any that fits
}

// keySet is what the provider published at one time. It does not change.
type keySet struct {
	source []byte // as it was published
	keys   []key
}

// maxKeys bounds the keys of a set.
const maxKeys = 100

// parseKeySet reads a JWK set (RFC 7517). Keys that are not for signatures, or that the gateway cannot use, are left
// out: providers publish those of all their products together.
func parseKeySet(source []byte) (*keySet, error) {
	if _, err := strictObject(source); err != nil {
		return nil, fmt.Errorf("the provider's key set: %w", err)
	}
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(source, &doc); err != nil {
		return nil, fmt.Errorf("the provider's key set: %w", err)
	}
	if len(doc.Keys) > maxKeys {
		return nil, fmt.Errorf("the provider's key set has more than %d keys", maxKeys)
	}
	set := &keySet{source: source}
	for _, raw := range doc.Keys {
		if k, ok := parseKey(raw); ok {
			set.keys = append(set.keys, k)
		}
	}
	if len(set.keys) == 0 {
		return nil, errors.New("the provider's key set has no key that can be used")
	}
	return set, nil
}

// The sizes of RSA keys: shorter ones can be broken, longer ones are slow on purpose.
const minRSABits, maxRSABits = 2048, 8192

func parseKey(raw []byte) (key, bool) {
	var written jwkset.JWKMarshal
	if json.Unmarshal(raw, &written) != nil {
		return key{}, false
	}
	if written.USE != "" && written.USE != jwkset.UseSig || len(written.KEYOPS) > 0 && !slices.Contains(written.KEYOPS, jwkset.KeyOpsVerify) {
		return key{}, false
	}
	written.X5U, written.X5C, written.X5T, written.X5TS256 = "", nil, "", "" // the key counts, not its certificate
	parsed, err := jwkset.NewJWKFromMarshal(written, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return key{}, false
	}
	k := key{id: written.KID, public: parsed.Key(), alg: written.ALG.String()}
	if k.alg != "" && !k.isFor(k.alg) {
		return key{}, false
	}
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		return k, public.N.BitLen() >= minRSABits && public.N.BitLen() <= maxRSABits
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return k, true
	}
	return key{}, false
}

// isFor says whether signatures of an algorithm may be checked with the key.
func (k key) isFor(alg string) bool {
	if k.alg != "" && k.alg != alg {
		return false
	}
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")
	case *ecdsa.PublicKey:
		return alg == map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[public.Curve.Params().BitSize]
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false
}

// publicKey returns the key of a token: the one with its key id or, without an id, the only one that fits.
func (s *keySet) publicKey(id, alg string) (any, bool) {
	var fitting []key
	for _, k := range s.keys {
		if (id == "" || k.id == id) && k.isFor(alg) {
			fitting = append(fitting, k)
		}
	}
	if len(fitting) != 1 {
		return nil, false
	}
	return fitting[0].public, true
}

// When keys are fetched. An outage of the provider is bridged for maxKeyAge; a key that the provider withdrew is
// forgotten after refreshAfter. Whatever tokens are sent, the provider is asked once in fetchInterval.
const (
	refreshAfter  = 5 * time.Minute
	maxKeyAge     = time.Hour
	fetchInterval = 10 * time.Second
	maxWaiting    = 256 // requests that wait for a fetch
)

// keys are the provider's keys, fetched when they are needed. They are safe for concurrent use.
type keys struct {
	issuer string
	now    func() time.Time
	fetch  func(context.Context) (*keySet, error)

	mu      sync.Mutex
	set     *keySet       // nil before the first fetch
	fetched time.Time     // when set was
	tried   time.Time     // when the last fetch began
	running chan struct{} // closed when the fetch under way has ended; nil for none
	waiting int
}

var (
	errNoKeys     = fault.New(fault.Unavailable, "the identity provider cannot be asked now: try again later")
	errUnknownKey = errors.New("the token's key is not among the provider's")
)

// current are the keys that may be used now; nil if there are none. Old ones are fetched again meanwhile.
func (k *keys) current() *keySet {
	k.mu.Lock()
	defer k.mu.Unlock()
	set := k.usable()
	if set != nil && k.now().Sub(k.fetched) >= refreshAfter {
		k.startFetch()
	}
	return set
}

// usable is the set, unless it is too old; k.mu is held.
func (k *keys) usable() *keySet {
	if k.set == nil || k.now().Sub(k.fetched) >= maxKeyAge {
		return nil
	}
	return k.set
}

// startFetch begins a fetch, unless one is under way or the last began just now; k.mu is held.
func (k *keys) startFetch() {
	if k.running != nil || !k.tried.IsZero() && k.now().Sub(k.tried) < fetchInterval {
		return
	}
	k.tried, k.running = k.now(), make(chan struct{})
	go k.finishFetch(k.running)
}

func (k *keys) finishFetch(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*providerTimeout)
	defer cancel()
	set, err := k.fetch(ctx)
	if err != nil {
		slog.Warn("the keys of the identity provider cannot be fetched: those that are known are used for an hour", "issuer", k.issuer, "error", fault.ClipTo(err.Error(), 500))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.fetched = k.tried
		if k.set == nil || !bytes.Equal(k.set.source, set.source) {
			k.set = set // tokens that were checked with another set are checked again
		}
	}
	k.running = nil
	close(done)
}

// fetchKey returns the key of a token, and the set that it is in. If the key is unknown, the keys are fetched again.
func (k *keys) fetchKey(ctx context.Context, id, alg string) (any, *keySet, error) {
	if public, set, err := k.lookUp(id, alg); err == nil {
		return public, set, nil
	}
	k.mu.Lock()
	k.startFetch()
	done := k.running
	if done == nil || k.waiting >= maxWaiting {
		k.mu.Unlock()
		return k.lookUp(id, alg)
	}
	k.waiting++
	k.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	k.mu.Lock()
	k.waiting--
	k.mu.Unlock()
	return k.lookUp(id, alg)
}

func (k *keys) lookUp(id, alg string) (any, *keySet, error) {
	set := k.current()
	if set == nil {
		return nil, nil, errNoKeys
	}
	public, ok := set.publicKey(id, alg)
	if !ok {
		return nil, set, errUnknownKey
	}
	return public, set, nil
}
