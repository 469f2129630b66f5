package auth

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// callerRecord is a caller as one replica tells another.
type callerRecord struct {
	Tenant      string         `json:"tenant"`
	Subject     string         `json:"subject"`
	Issuer      string         `json:"issuer,omitempty"`
	Credential  string         `json:"credential"`
	Roles       []string       `json:"roles,omitempty"`
	Claims      map[string]any `json:"claims,omitempty"`
	Proof       []byte         `json:"proof,omitempty"`
	Expires     time.Time      `json:"expires,omitzero"`
	Source      string         `json:"source,omitempty"`
	AccessToken string         `json:"access_token,omitempty"`
}

// EncodeCaller returns a caller for another replica of this gateway, which need not authenticate it again: a signed
// request is accepted once, and a certificate is seen only by the replica that the client is connected to. It may
// contain the caller's access token, so it may be sent only where nobody else can read it.
func EncodeCaller(c Caller) ([]byte, error) {
	r := callerRecord{
		Tenant: c.id.tenant, Subject: c.id.subject, Issuer: c.id.issuer, Credential: c.id.credential, Roles: c.id.roles, Claims: c.id.claims,
		Expires: c.id.expires, Source: c.id.source, AccessToken: c.AccessToken().Reveal(),
	}
	if c.id.proof != [sha256.Size]byte{} {
		r.Proof = c.id.proof[:]
	}
	out, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding a caller: %w", err)
	}
	return out, nil
}

// DecodeCaller returns a caller that another replica has authenticated. The bytes must come from a replica: whoever
// can choose them is any caller.
func DecodeCaller(raw []byte) (Caller, error) {
	var r callerRecord
	if err := json.Unmarshal(raw, &r); err != nil {
		return Caller{}, fmt.Errorf("decoding a caller: %w", err)
	}
	if r.Tenant == "" || r.Subject == "" || len(r.Proof) != 0 && len(r.Proof) != sha256.Size {
		return Caller{}, errors.New("decoding a caller: it is incomplete")
	}
	id := identity{
		tenant: r.Tenant, subject: r.Subject, issuer: r.Issuer, credential: r.Credential, roles: r.Roles, claims: r.Claims, expires: r.Expires, source: r.Source,
	}
	copy(id.proof[:], r.Proof)
	if r.AccessToken != "" {
		token := secret.Literal(r.AccessToken)
		id.accessToken = &token
	}
	return newCaller(id), nil
}
