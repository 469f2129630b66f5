package app

import (
	"context"
	"errors"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/keyring"
	"github.com/ctxgate/ctxgate/oauth"
)

// ForgetTenant makes all that is stored for a tenant unreadable, in every process that uses the store, and removes
// it: originals, the state of conversations, hidden rounds, tokens. A gateway that runs drops what it has in memory
// within a second. onForget is called with what was removed, even if that failed half-way; nil for none.
func ForgetTenant(ctx context.Context, cfg config.Config, tenant string, onForget func(keyring.Forgotten, error)) (forgotten keyring.Forgotten, err error) {
	storage, err := OpenStorage(ctx, cfg)
	if err != nil {
		return forgotten, err
	}
	defer func() { err = errors.Join(err, storage.Close()) }()
	forgotten, err = storage.Keys.Forget(ctx, tenant)
	if err == nil {
		err = oauth.DropOldGrants(ctx, storage.Store, tenant)
	}
	if onForget != nil {
		onForget(forgotten, err)
	}
	return forgotten, err
}
