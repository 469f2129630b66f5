// Package seal makes encrypted tokens that clients hold for the gateway: no one else can read, change
// or make one. A token is bound to a purpose and invalid for any other, and names the key it was made
// with, so that keys can be rotated.
//
// Keys are derived once, from the root secret; sealing and opening are one AES-GCM operation each. The
// only error for a token is [ErrInvalid], whatever is wrong with it.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
)

// ErrInvalid refuses a token that this gateway did not make for this purpose.
var ErrInvalid = errors.New("not a token of this gateway")

const keyIDBytes = 4 // before the nonce

// Sealer makes and opens the tokens of one purpose.
type Sealer struct {
	keys []sealKey // the first makes tokens
}

type sealKey struct {
	id   [keyIDBytes]byte
	aead cipher.AEAD
}

// New derives the key of a purpose from the root secret. Tokens that were made with an old root secret are
// opened, too.
func New(root []byte, purpose string, old ...[]byte) (*Sealer, error) {
	s := &Sealer{}
	for _, r := range append([][]byte{root}, old...) {
		key, err := newKey(r, purpose)
		if err != nil {
			return nil, err
		}
		s.keys = append(s.keys, key)
	}
	return s, nil
}

func newKey(root []byte, purpose string) (none sealKey, err error) {
	key, err := hkdf.Key(sha256.New, root, nil, "ctxgate token "+purpose, 32+keyIDBytes)
	if err != nil {
		return none, fmt.Errorf("deriving a key: %w", err)
	}
	block, err := aes.NewCipher(key[:32])
	if err != nil {
		return none, fmt.Errorf("making a cipher: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return none, fmt.Errorf("making a cipher: %w", err)
	}
	return sealKey{id: [keyIDBytes]byte(key[32:]), aead: aead}, nil
}

// Seal makes a token of letters, digits, dashes and underscores.
func (s *Sealer) Seal(plain []byte) string {
	k := s.keys[0]
	out := k.aead.Seal(k.id[:], nil, plain, nil)
	return base64.RawURLEncoding.EncodeToString(out)
}

// Open returns what was sealed.
func (s *Sealer) Open(token string) ([]byte, error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < keyIDBytes {
		return nil, ErrInvalid
	}
	for _, k := range s.keys {
		if k.id != [keyIDBytes]byte(raw[:keyIDBytes]) {
			continue
		}
		if plain, err := k.aead.Open(nil, nil, raw[keyIDBytes:], nil); err == nil {
			return plain, nil
		}
	}
	return nil, ErrInvalid
}
