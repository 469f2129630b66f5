package recall

import (
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/keyring"
	"github.com/ctxgate/ctxgate/state"
)

// An id is "prn_" and 128 bits in Crockford's base32, lower case: letters that a model copies without
// error and cannot mistake for one another.
const (
	idPrefix = "prn_"
	idBytes  = 16
	idLen    = 26
	alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
)

var crockford = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

func formatID(sum [idBytes]byte) string { return idPrefix + crockford.EncodeToString(sum[:]) }

// ErrUnknown is the one answer for an id that never existed, has expired, is malformed, or belongs
// to another tenant, so that a caller cannot tell which.
var ErrUnknown error = fault.New(fault.UnknownHandle, "unknown or expired prune_id")

// unknownID is ErrUnknown with its cause, for the log.
func unknownID(cause error) error {
	return fault.Wrap(fault.UnknownHandle, ErrUnknown.Error(), cause)
}

// lookalikes maps the letters that Crockford left out to the digits they look like.
var lookalikes = strings.NewReplacer("o", "0", "i", "1", "l", "1")

// ParseID reads an id as a person or a model may have written it: any case, o for 0, i or l for
// 1. It returns the one form that is stored and shown.
func ParseID(s string) (string, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	digits, ok := strings.CutPrefix(s, idPrefix)
	if !ok {
		return "", ErrUnknown
	}
	digits = lookalikes.Replace(digits)
	sum, err := crockford.DecodeString(digits)
	// 26 digits hold two bits more than an id has; those must be zero.
	if err != nil || len(digits) != idLen || crockford.EncodeToString(sum) != digits {
		return "", ErrUnknown
	}
	return idPrefix + digits, nil
}

// tenantKeys are derived for one tenant and one root secret: with them nothing of another tenant can be named,
// found or read.
type tenantKeys struct {
	tenant    *keyring.Tenant
	tag       string // prefix of the tenant's keys in the store
	id        []byte // keys the hash that makes ids
	shortened []byte // keys the hash that recognises texts this gateway shortened
	record    []byte // keys the hash that names records
	call      []byte // keys the hash of names in the keys of calls

	secret *keyring.Secret // encrypts; nil where only names are needed, and for a tenant that has none
}

const keysCacheSize = 1 << 12 // tenants in each generation

// namesOf returns a tenant's keys without the secret: for names alone. They are cached, because deriving them
// takes longer than most of their uses.
func (r *Recall) namesOf(t *keyring.Tenant) tenantKeys {
	if k, ok := r.keys.Get(t); ok {
		return k
	}
	k := tenantKeys{
		tenant: t, tag: t.Tag,
		id: t.Derive("id", 32), shortened: t.Derive("made", 32), record: t.Derive("note", 32), call: t.Derive("call", 32),
	}
	r.keys.Put(t, k, 1)
	return k
}

// keysOf returns the keys that make a tenant's ids, without the secret.
func (r *Recall) keysOf(tenant string) tenantKeys { return r.namesOf(r.ring.Tenants(tenant)[0]) }

// keysForReading returns a tenant's keys under every root secret, the current one first.
func (r *Recall) keysForReading(ctx context.Context, tenant string) ([]tenantKeys, error) {
	tenants := r.ring.Tenants(tenant)
	keys := make([]tenantKeys, len(tenants))
	for i, t := range tenants {
		keys[i] = r.namesOf(t)
		var err error
		if keys[i].secret, err = t.Secret(ctx); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// keysForStoring returns the keys that a tenant's texts are stored with.
func (r *Recall) keysForStoring(ctx context.Context, tenant string) (tenantKeys, error) {
	k := r.keysOf(tenant)
	var err error
	k.secret, err = k.tenant.SecretForStoring(ctx)
	return k, err
}

// put stores items of a tenant. It fails if the tenant was forgotten since k was read: what was sealed with k
// could not be read back.
func (r *Recall) put(ctx context.Context, k tenantKeys, items ...state.Item) error {
	if len(items) == 0 {
		return nil
	}
	return k.secret.Put(ctx, r.store, items...)
}

// maxTries is how often something is stored that others store at the same time.
const maxTries = 8

// isWorthRetrying says whether a put failed because the tenant was forgotten meanwhile, or the store emptied, or because
// another process stored the same text.
func isWorthRetrying(err error) bool {
	return errors.Is(err, keyring.ErrForgotten) || errors.Is(err, state.ErrConflict)
}

// retryConflicts does something again if another process came between: with what that one stored, or with a new secret.
func retryConflicts[T any](do func() (T, error)) (result T, err error) {
	for range maxTries {
		if result, err = do(); !isWorthRetrying(err) {
			break
		}
	}
	return result, err
}

// hash128 hashes the chunks of a text under key.
func hash128(key []byte, chunks iter.Seq[[]byte]) (sum [idBytes]byte) {
	h, err := blake3.NewKeyed(key)
	if err != nil {
		panic(err) // only for a key that is not 32 bytes
	}
	for chunk := range chunks {
		_, _ = h.Write(chunk)
	}
	_, _ = h.Digest().Read(sum[:])
	return sum
}

// cipher returns the cipher of one original.
func (k tenantKeys) cipher(id string) (keyring.Cipher, error) { return k.tenant.Cipher(k.secret, id) }

// manifestPart is the manifest's number among the sealed parts of an original.
const manifestPart = -1

// sealPart encrypts text and binds it to its place: a part cannot replace another part, nor one of
// another original.
func sealPart(c keyring.Cipher, id string, part int, text []byte) []byte {
	return c.Seal(text, fmt.Appendf(nil, "%s/%d", id, part))
}

func unsealPart(c keyring.Cipher, id string, part int, sealed []byte) ([]byte, error) {
	text, err := c.Open(sealed, fmt.Appendf(nil, "%s/%d", id, part))
	if err != nil { // a wrong secret, or a damaged store
		return nil, unknownID(err)
	}
	return text, nil
}

// compressor compresses and decompresses parts, on at most as many goroutines as there are cores.
type compressor struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCompressor() (*compressor, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(partSize),
		zstd.WithLowerEncoderMem(true), zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)))
	if err != nil {
		return nil, fmt.Errorf("making a compressor: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(2*partSize), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(runtime.GOMAXPROCS(0)))
	if err != nil {
		return nil, fmt.Errorf("making a decompressor: %w", err)
	}
	return &compressor{enc, dec}, nil
}
