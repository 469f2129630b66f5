package recall

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"runtime"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"
)

// tenantKeys are one tenant's: nothing of one tenant can be named, found or read with another's.
type tenantKeys struct {
	tag  string // what the tenant's keys in the store start with
	id   []byte // keys the hash that makes ids
	made []byte // keys the hash that recognises our own texts
	note []byte // keys the hash that names notes
	seal []byte // the root of the keys that seal originals
}

// keysOf are a tenant's keys. Deriving them takes longer than most of what they are used for.
func (r *Recall) keysOf(tenant string) tenantKeys {
	if k, ok := r.keys.Load(tenant); ok {
		return k.(tenantKeys)
	}
	k := r.derive(tenant)
	if r.derived.Add(1) > maxTenants { // whoever names ever new ones makes the others derive again
		r.keys.Clear()
		r.derived.Store(0)
	}
	r.keys.Store(tenant, k)
	return k
}

const maxTenants = 1 << 12

func (r *Recall) derive(tenant string) tenantKeys {
	derive := func(use string, n int) []byte {
		key, err := hkdf.Expand(sha256.New, r.root, "ctxgate/"+use+"/v1\x00"+tenant, n)
		if err != nil {
			panic(err) // only for a length that HKDF cannot give
		}
		return key
	}
	return tenantKeys{
		tag:  hex.EncodeToString(derive("tag", 8)),
		id:   derive("id", 32),
		made: derive("made", 32),
		note: derive("note", 32),
		seal: derive("seal", 32),
	}
}

// hash128 hashes pieces of text under key.
func hash128(key []byte, pieces iter.Seq[[]byte]) (sum [idBytes]byte) {
	h, err := blake3.NewKeyed(key)
	if err != nil {
		panic(err) // only for a key that is not 32 bytes
	}
	for p := range pieces {
		_, _ = h.Write(p)
	}
	_, _ = h.Digest().Read(sum[:])
	return sum
}

// aead is the sealer of one original. Its key is the original's own, so that random nonces of
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

// codec compresses parts; one is shared by all, bounded by the cores.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() (*codec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(partSize),
		zstd.WithLowerEncoderMem(true), zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)))
	if err != nil {
		return nil, fmt.Errorf("making a compressor: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(2*partSize), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(runtime.GOMAXPROCS(0)))
	if err != nil {
		return nil, fmt.Errorf("making a decompressor: %w", err)
	}
	return &codec{enc, dec}, nil
}
