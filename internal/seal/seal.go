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
	id   [keyIDBytes]byte
	aead cipher.AEAD
}

// New derives the key of a purpose from the root secret.
func New(root []byte, purpose string) (*Sealer, error) {
	key, err := hkdf.Key(sha256.New, root, nil, "ctxgate token "+purpose, 32+keyIDBytes)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	block, err := aes.NewCipher(key[:32])
	if err != nil {
		return nil, fmt.Errorf("making a cipher: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("making a cipher: %w", err)
	}
	return &Sealer{id: [keyIDBytes]byte(key[32:]), aead: aead}, nil
}

// Seal makes a token of letters, digits, dashes and underscores.
func (s *Sealer) Seal(plain []byte) string {
	out := s.aead.Seal(s.id[:], nil, plain, nil)
	return base64.RawURLEncoding.EncodeToString(out)
}

// Open returns what was sealed.
func (s *Sealer) Open(token string) ([]byte, error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < keyIDBytes || [keyIDBytes]byte(raw[:keyIDBytes]) != s.id {
		return nil, ErrInvalid
	}
	plain, err := s.aead.Open(nil, nil, raw[keyIDBytes:], nil)
	if err != nil {
		return nil, ErrInvalid
	}
	return plain, nil
}
