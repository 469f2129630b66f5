// Package seal makes tokens that the gateway hands out and takes back: nobody else can read,
// change or make one. A token is bound to a purpose, so that one of a kind is no good as another,
// and names the key it was made with, so that keys can be rotated.
//
// Keys are derived once, from the root secret; sealing and opening are one AES-GCM each. A token
// that does not open is refused with [ErrBad] and nothing more.
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

// ErrBad is a token that was not made here, or not for this.
var ErrBad = errors.New("not a token of this gateway")

const keyID = 4 // bytes before the nonce that say which key

// Sealer makes and opens the tokens of one purpose.
type Sealer struct {
	id   [keyID]byte
	aead cipher.AEAD
}

// New derives the key of a purpose from the root secret.
func New(root []byte, purpose string) (*Sealer, error) {
	key, err := hkdf.Key(sha256.New, root, nil, "ctxgate token "+purpose, 32+keyID)
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
	return &Sealer{id: [keyID]byte(key[32:]), aead: aead}, nil
}

// Seal makes a token of letters, digits, dashes and underscores.
func (s *Sealer) Seal(plain []byte) string {
	out := s.aead.Seal(s.id[:], nil, plain, nil)
	return base64.RawURLEncoding.EncodeToString(out)
}

// Open gives back what was sealed.
func (s *Sealer) Open(token string) ([]byte, error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < keyID || [keyID]byte(raw[:keyID]) != s.id {
		return nil, ErrBad
	}
	plain, err := s.aead.Open(nil, nil, raw[keyID:], nil)
	if err != nil {
		return nil, ErrBad
	}
	return plain, nil
}
