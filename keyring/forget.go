package keyring

import (
	"context"
	"log/slog"
	"time"

	"github.com/ctxgate/ctxgate/state"
)

// watchEvery is how often [Keyring.Watch] looks whether tenants were forgotten.
const watchEvery = 500 * time.Millisecond

// Forgotten is what [Keyring.Forget] removed.
type Forgotten struct {
	Secrets int   // destroyed; more than one while root secrets are rotated
	Groups  int   // originals, records and other values
	Bytes   int64 // of them
}

// Forget makes all that is stored for a tenant unreadable, in every process that uses the store, and then
// removes it. When it returns, no process uses the tenant's secret any more. What the tenant stores meanwhile,
// under a new secret, stays.
//
// What versions before there were random secrets stored is readable until it is removed, before Forget returns.
func (k *Keyring) Forget(ctx context.Context, name string) (Forgotten, error) {
	var all Forgotten
	tenants := k.Tenants(name)
	for _, t := range tenants {
		_, stored, err := t.loadSecret(ctx, true)
		if err != nil {
			return all, err
		}
		if stored == nil {
			continue
		}
		// The epoch of the store changes with it, and all receipts are void.
		if err := k.store.Drop(ctx, t.storeKey()); err != nil {
			return all, err
		}
		t.setCurrent(&checkedSecret{nil, time.Now()})
		all.Secrets++
	}
	if all.Secrets > 0 {
		select {
		case <-time.After(RecheckEvery):
		case <-ctx.Done():
			return all, ctx.Err()
		}
	}
	for _, t := range tenants {
		s, _, err := t.loadSecret(ctx, true)
		if err != nil {
			return all, err
		}
		keep := ""
		if s != nil {
			keep = s.Owner // it was made since
		}
		dropped, err := k.store.DropOwners(ctx, t.Tag, keep)
		all.Groups += dropped.Groups
		all.Bytes += dropped.Bytes
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// Watch calls the hooks of [Keyring.OnForget] within a second after a tenant was forgotten, until ctx ends.
func (k *Keyring) Watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var last state.Epoch
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		epoch, err := k.store.Epoch(ctx)
		if err != nil || epoch == last {
			continue // a store that does not answer cannot be read either
		}
		if err := k.recheckAll(ctx); err != nil {
			slog.DebugContext(ctx, "the secrets of tenants could not be checked; it is tried again", "error", err)
			continue
		}
		last = epoch
	}
}

// recheckAll compares the secrets in memory with those in the store.
func (k *Keyring) recheckAll(ctx context.Context) (err error) {
	k.tenants.Range(func(_, value any) bool {
		for _, t := range value.([]*Tenant) {
			if last := t.current.Load(); last == nil || last.Secret == nil {
				continue
			}
			if _, _, err = t.loadSecret(ctx, true); err != nil {
				return false
			}
		}
		return true
	})
	return err
}
