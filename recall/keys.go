package recall

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"iter"
	"runtime"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"

	"github.com/ctxgate/ctxgate/fault"
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

// tenantKeys are derived for one tenant: with them nothing of another tenant can be named, found or
// read.
type tenantKeys struct {
	tag       string // prefix of the tenant's keys in the store
	id        []byte // keys the hash that makes ids
	shortened []byte // keys the hash that recognises texts this gateway shortened
	record    []byte // keys the hash that names records
	call      []byte // keys the hash of names in the keys of calls
	seal      []byte // root of the keys that seal originals
}

const maxTenants = 1 << 12 // whose keys are cached

// keysOf returns a tenant's keys. They are cached: deriving them takes longer than most of their uses.
func (r *Recall) keysOf(tenant string) tenantKeys {
	if k, ok := r.keys.Load(tenant); ok {
		return k.(tenantKeys)
	}
	derive := func(use string, n int) []byte {
		key, err := hkdf.Expand(sha256.New, r.root, "ctxgate/"+use+"/v1\x00"+tenant, n)
		if err != nil {
			panic(err) // only for a length that HKDF cannot give
		}
		return key
	}
	k := tenantKeys{
		tag:       hex.EncodeToString(derive("tag", 8)),
		id:        derive("id", 32),
		shortened: derive("made", 32),
		record:    derive("note", 32),
		call:      derive("call", 32),
		seal:      derive("seal", 32),
	}
	if r.derived.Add(1) > maxTenants {
		r.keys.Clear()
		r.derived.Store(0)
	}
	r.keys.Store(tenant, k)
	return k
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

// aead returns the cipher of one original. Its key is the original's own, so that random nonces of
// 96 bits are safe however many originals a tenant has.
func (k tenantKeys) aead(id string) (cipher.AEAD, error) {
	key, err := hkdf.Expand(sha256.New, k.seal, id, 32)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("making a cipher: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// manifestPart is the manifest's number among the sealed parts of an original.
const manifestPart = -1

// sealPart encrypts text and binds it to its place: a part cannot replace another part, nor one of
// another original.
func sealPart(aead cipher.AEAD, id string, part int, text []byte) []byte {
	return aead.Seal(nil, nil, text, fmt.Appendf(nil, "%s/%d", id, part))
}

func unsealPart(aead cipher.AEAD, id string, part int, sealed []byte) ([]byte, error) {
	text, err := aead.Open(nil, nil, sealed, fmt.Appendf(nil, "%s/%d", id, part))
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
