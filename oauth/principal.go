package oauth

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/ctxgate/ctxgate/internal/seal"
	"github.com/ctxgate/ctxgate/state"
)

// defaultTenant is the tenant of callers whose credential names none.
const defaultTenant = "default"

// Principal is whose token a token is: one caller's, or one of a tenant that all of its callers use.
type Principal struct {
	Tenant  string `json:"tenant"`
	Issuer  string `json:"issuer,omitempty"`  // vouches for the subject; "" for credentials of the gateway's configuration
	Subject string `json:"subject,omitempty"` // "" for all callers of the tenant
}

// isCaller reports whether the token belongs to one caller alone.
func (p Principal) isCaller() bool { return p.Subject != "" }

// Key identifies the principal. No two have the same.
func (p Principal) Key() string {
	b := make([]byte, 0, 12+len(p.Tenant)+len(p.Issuer)+len(p.Subject))
	for _, part := range [...]string{p.Tenant, p.Issuer, p.Subject} {
		b = append(append(strconv.AppendInt(b, int64(len(part)), 10), ':'), part...)
	}
	return string(b)
}

// ErrUnreadable is the failure of a stored token that cannot be opened: the secret that it was sealed with is gone.
var ErrUnreadable = errors.New("the stored token cannot be opened")

// Grants stores the tokens of tenants, sealed so that one tenant's cannot be read with another's key. Get returns an error
// of kind UnknownHandle where there is none, and ErrUnreadable where it cannot be opened.
type Grants struct {
	Get   func(ctx context.Context, tenant, name string) ([]byte, error)
	Put   func(ctx context.Context, tenant, name string, value []byte) error
	Touch func(ctx context.Context, tenant, name string) (found bool, err error) // keeps it from expiring
	Drop  func(ctx context.Context, tenant, name string) error
}

// DropOldGrants removes what versions before there were Grants have stored for a tenant.
func DropOldGrants(ctx context.Context, store *state.Store, tenant string) error {
	for after := ""; ; {
		found, err := store.List(ctx, state.ListRequest{Prefix: oldPrefix + tenant + "\x00", Groups: oldPrefix + tenant + "\x00", After: after, Limit: 100})
		if err != nil || len(found) == 0 {
			return err
		}
		for _, e := range found {
			if err := store.Drop(ctx, e.Key); err != nil {
				return err
			}
			after = e.Key
		}
	}
}

// oldPrefix begins the keys of tokens that one secret seals.
const oldPrefix = "oauth\x00"

// sealedGrants keeps tokens in a store under keys that one secret seals, as all tokens were kept before tenants had secrets of
// their own.
func sealedGrants(store *state.Store, sealer *seal.Sealer) Grants {
	key := func(tenant, name string) string { return oldPrefix + tenant + "\x00" + name }
	return Grants{
		Get: func(ctx context.Context, tenant, name string) ([]byte, error) {
			sealed, err := store.Get(ctx, key(tenant, name))
			if err != nil {
				return nil, err
			}
			text, err := sealer.Open(string(sealed))
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
			}
			return text, nil
		},
		Put: func(ctx context.Context, tenant, name string, value []byte) error {
			k := key(tenant, name)
			return store.Put(ctx, state.Item{Key: k, Group: k, Value: []byte(sealer.Seal(value)), Pinned: true, Archived: true})
		},
		Touch: func(ctx context.Context, tenant, name string) (bool, error) {
			return store.Touch(ctx, key(tenant, name))
		},
		Drop: func(ctx context.Context, tenant, name string) error { return store.Drop(ctx, key(tenant, name)) },
	}
}
