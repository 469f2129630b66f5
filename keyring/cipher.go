package keyring

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// sealedVersion begins a value that was encrypted with the tenant's random secret. Versions of ctxgate before
// there was one wrote no version; what they wrote begins with a random nonce.
const sealedVersion = 2

// Cipher encrypts the values of one name, such as the parts of one original. Its key is the name's own, so
// that random nonces of 96 bits are safe however many names a tenant has.
type Cipher struct {
	tenant  *Tenant
	name    string
	current cipher.AEAD // nil for a tenant without a random secret: then it only decrypts what has no version
}

// Cipher returns the cipher of a name. The secret is nil for a tenant that has none.
func (t *Tenant) Cipher(s *Secret, name string) (Cipher, error) {
	c := Cipher{tenant: t, name: name}
	var err error
	if s != nil {
		c.current, err = deriveAEAD(s.sealKey, name)
	}
	return c, err
}

func deriveAEAD(key []byte, name string) (cipher.AEAD, error) {
	own, err := hkdf.Expand(sha256.New, key, name, 32)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	return newGCM(own)
}

// Seal encrypts a value and binds it to its place: with another place it cannot be opened.
func (c Cipher) Seal(plain, place []byte) []byte {
	return c.current.Seal([]byte{sealedVersion}, nil, plain, place)
}

// Open decrypts a value. A value without a version was encrypted before there were random secrets.
func (c Cipher) Open(sealed, place []byte) ([]byte, error) {
	if c.current != nil && len(sealed) > 0 && sealed[0] == sealedVersion {
		if plain, err := c.current.Open(nil, nil, sealed[1:], place); err == nil {
			return plain, nil
		}
	}
	old, err := deriveAEAD(c.tenant.sealKey, c.name)
	if err != nil {
		return nil, err
	}
	plain, err := old.Open(nil, nil, sealed, place)
	if err != nil { // a wrong or destroyed secret, or a damaged store
		return nil, errSealed
	}
	return plain, nil
}

// IsCurrent says whether a value was encrypted with a random secret.
func IsCurrent(sealed []byte) bool { return len(sealed) > 0 && sealed[0] == sealedVersion }
