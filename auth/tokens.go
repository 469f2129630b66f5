package auth

import (
	"cmp"
	"crypto/sha256"
	"time"
)

// tokens are the tokens of the configuration by their SHA-256. A look-up by hash takes a time that depends on the hash
// alone, of which a caller can choose nothing, so it reveals nothing of the tokens.
type tokens map[[sha256.Size]byte]Caller

func newTokens(cfg Config) tokens {
	byHash := tokens{}
	if t := cfg.Token.Reveal(); t != "" {
		sum := sha256.Sum256([]byte(t))
		byHash[sum] = newCaller(identity{tenant: DefaultTenant, subject: "token", credential: "auth_token", proof: sum})
	}
	for _, t := range cfg.Tokens {
		sum, ok := t.hash()
		if !ok {
			continue // its secret is not resolved: nobody can have it
		}
		id := t.identity()
		id.proof = sum
		byHash[sum] = newCaller(id)
	}
	return byHash
}

// identity is who has the token.
func (t Token) identity() identity {
	expires, _ := parseExpiry(t.Expires)
	return identity{
		tenant: cmp.Or(t.Tenant, DefaultTenant), subject: cmp.Or(t.Subject, t.Name), credential: t.Name, roles: t.Roles, expires: expires,
	}
}

// findToken returns the caller of a hash.
func (t tokens) findToken(sum [sha256.Size]byte, now time.Time) (Caller, bool) {
	c, ok := t[sum]
	if !ok || c.id.isExpired(now) {
		return Caller{}, false
	}
	return c, true
}

func (id *identity) isExpired(now time.Time) bool {
	return !id.expires.IsZero() && !now.Before(id.expires)
}
