package keyring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

var rootA, rootB = []byte("the first root secret of 32 bytes"), []byte("another root secret of 32 bytes!")

func openStore(t *testing.T, driver state.Driver) *state.Store {
	t.Helper()
	cfg := state.Default()
	cfg.Timeout = unit.Duration(time.Minute) // the machine may be busy
	return state.New(driver, cfg, time.Now)
}

func open(t *testing.T, driver state.Driver, root []byte, old ...[]byte) *Keyring {
	t.Helper()
	k, err := New(openStore(t, driver), root, old...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func putValue(t *testing.T, k *Keyring, tenant, name, data string) {
	t.Helper()
	if err := k.PutValue(t.Context(), tenant, Value{Name: name, Data: []byte(data)}); err != nil {
		t.Fatal(err)
	}
}

// reads checks a value; "" for one that is not there.
func reads(t *testing.T, k *Keyring, tenant, name, want string) {
	t.Helper()
	got, err := k.GetValue(t.Context(), tenant, name)
	if want == "" && fault.KindOf(err) != fault.UnknownHandle || want != "" && (err != nil || string(got) != want) {
		t.Errorf("GetValue(%s, %s) = %q, %v; want %q", tenant, name, got, err, want)
	}
}

func TestShortRootSecretIsRefused(t *testing.T) {
	for _, roots := range [][][]byte{{rootA[:31]}, {rootA[:32], rootB[:31]}} {
		if _, err := New(nil, roots[0], roots[1:]...); err == nil {
			t.Errorf("%q was accepted", roots)
		}
	}
	if _, err := New(nil, rootA[:32], rootB[:32]); err != nil {
		t.Error(err)
	}
}

func TestNamesAreDeterministic(t *testing.T) {
	a, b := open(t, memory.New(), rootA), open(t, memory.New(), rootA)
	x, y := a.Tenants("x")[0], b.Tenants("x")[0]
	if x.Tag != y.Tag || !bytes.Equal(x.Derive("id", 32), y.Derive("id", 32)) {
		t.Error("two processes derive different names")
	}
	if a.Tenants("x")[0] != x {
		t.Error("the keys of a tenant are not cached")
	}
	other, third := a.Tenants("other")[0], open(t, memory.New(), rootB).Tenants("x")[0]
	if other.Tag == x.Tag || third.Tag == x.Tag || bytes.Equal(x.Derive("id", 32), x.Derive("call", 32)) {
		t.Error("another tenant, root secret or use has the same name")
	}
}

func TestKeysInMemoryAreBounded(t *testing.T) {
	k := open(t, memory.New(), rootA)
	for i := range maxTenants + 10 {
		k.Tenants(fmt.Sprint(i))
	}
	n := 0
	k.tenants.Range(func(any, any) bool { n++; return true })
	if n == 0 || n > maxTenants {
		t.Errorf("the keys of %d tenants are in memory", n)
	}
}

// What is stored is sealed with a secret that neither the root secret nor the store alone reveals.
func TestValues(t *testing.T) {
	d := memory.New()
	k := open(t, d, rootA)
	reads(t, k, "x", "token", "")
	putValue(t, k, "x", "token", "s3cret")
	putValue(t, k, "x", "other", "")
	reads(t, k, "x", "token", "s3cret")
	reads(t, k, "y", "token", "")
	reads(t, open(t, d, rootA), "x", "token", "s3cret") // another process
	reads(t, open(t, d, rootB), "x", "token", "")
	entries, err := d.List(t.Context(), state.ListRequest{Limit: 100, Now: time.Now()})
	if err != nil || len(entries) != 3 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for _, e := range entries {
		value, err := d.Get(t.Context(), e.Key, e.Key, time.Now())
		if err != nil || bytes.Contains(value, []byte("s3cret")) || strings.Contains(e.Key, "token") {
			t.Errorf("%s: %q, %v", e.Key, value, err)
		}
	}
	if stat, err := d.Stat(t.Context()); err != nil || stat.Bytes != 0 || stat.Pinned == 0 {
		t.Errorf("%+v, %v: not all is pinned", stat, err)
	}
	if found, err := k.TouchValue(t.Context(), "x", "token"); !found || err != nil {
		t.Errorf("TouchValue = %v, %v", found, err)
	}
	if err := k.DropValue(t.Context(), "x", "token"); err != nil {
		t.Error(err)
	}
	if found, err := k.TouchValue(t.Context(), "x", "token"); found || err != nil {
		t.Errorf("TouchValue of what was dropped = %v, %v", found, err)
	}
	reads(t, k, "x", "token", "")
}

// A value cannot be put in another's place.
func TestValuesAreBoundToTheirPlace(t *testing.T) {
	d := memory.New()
	k := open(t, d, rootA)
	putValue(t, k, "x", "a", "of a")
	putValue(t, k, "x", "b", "of b")
	x := k.Tenants("x")[0]
	stolen, err := d.Get(t.Context(), x.valueKey("b"), x.valueKey("b"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	swap := state.Item{Key: x.valueKey("a"), Group: x.valueKey("a"), Value: stolen}
	if err := k.store.Put(t.Context(), swap); err != nil {
		t.Fatal(err)
	}
	reads(t, k, "x", "a", "")
	reads(t, k, "x", "b", "of b")
}

// Of processes that make a tenant's secret at once, one does, and all read what any of them stored.
func TestProcessesAgreeOnASecret(t *testing.T) {
	d := memory.New()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { putValue(t, open(t, d, rootA), "x", fmt.Sprint(i), fmt.Sprint("value ", i)) })
	}
	wg.Wait()
	k := open(t, d, rootA)
	for i := range 20 {
		reads(t, k, "x", fmt.Sprint(i), fmt.Sprint("value ", i))
	}
}

// A secret that cannot be decrypted is replaced when something is stored.
func TestDamagedSecretIsReplaced(t *testing.T) {
	d := memory.New()
	k := open(t, d, rootA)
	putValue(t, k, "x", "a", "lost")
	key := k.Tenants("x")[0].storeKey()
	if err := k.store.Put(t.Context(), state.Item{Key: key, Group: key, Value: []byte("damaged"), Pinned: true}); err != nil {
		t.Fatal(err)
	}
	again := open(t, d, rootA)
	reads(t, again, "x", "a", "")
	putValue(t, again, "x", "b", "new")
	reads(t, again, "x", "b", "new")
	reads(t, again, "x", "a", "")
}

// Forget makes a tenant's values unreadable in every process, and nobody else's.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.New()
		here, there := open(t, d, rootA), open(t, d, rootA)
		var forgotten []string
		there.OnForget(func(tenant string) { forgotten = append(forgotten, tenant) })
		for _, tenant := range []string{"x", "y"} {
			putValue(t, here, tenant, "a", "of "+tenant)
			reads(t, there, tenant, "a", "of "+tenant)
		}
		copied := map[string][]byte{} // an attacker has a copy of the store
		entries, _ := d.List(t.Context(), state.ListRequest{Limit: 100, Now: time.Now()})
		for _, e := range entries {
			copied[e.Key], _ = d.Get(t.Context(), e.Key, e.Key, time.Now())
		}
		before, _ := here.store.Epoch(t.Context())
		got, err := here.Forget(t.Context(), "x")
		if err != nil || got.Secrets != 1 || got.Groups != 1 || got.Bytes == 0 {
			t.Errorf("Forget = %+v, %v", got, err)
		}
		if after, _ := here.store.Epoch(t.Context()); after == before {
			t.Error("the epoch is the same: receipts would stay valid")
		}
		for _, k := range []*Keyring{here, there, open(t, d, rootA)} {
			reads(t, k, "x", "a", "")
			reads(t, k, "y", "a", "of y")
		}
		if len(forgotten) != 1 || forgotten[0] != "x" {
			t.Errorf("the hook was called for %q", forgotten)
		}
		// The tenant calls again, with a new secret. What was copied stays unreadable, even in its old place.
		putValue(t, there, "x", "b", "new")
		key := here.Tenants("x")[0].valueKey("a")
		if err := here.store.Put(t.Context(), state.Item{Key: key, Group: key, Value: copied[key]}); err != nil {
			t.Fatal(err)
		}
		reads(t, here, "x", "a", "")
		reads(t, here, "x", "b", "new")
		again, err := here.Forget(t.Context(), "nobody")
		if err != nil || again != (Forgotten{}) {
			t.Errorf("Forget of nobody = %+v, %v", again, err)
		}
	})
}

// A process does not use a secret that another one destroyed for longer than RecheckEvery, and stores nothing
// under it in between.
func TestDestroyedSecretIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.New()
		k := open(t, d, rootA)
		putValue(t, k, "x", "a", "old")
		x := k.Tenants("x")[0]
		old, err := x.Secret(t.Context())
		if err != nil || old == nil {
			t.Fatal(err)
		}
		if err := openStore(t, d).Drop(t.Context(), x.storeKey()); err != nil { // as Forget of another process begins
			t.Fatal(err)
		}
		item := state.Item{Key: "late", Group: "late", Value: []byte("sealed with the old one")}
		if err := old.Put(t.Context(), k.store, item); !errors.Is(err, ErrForgotten) {
			t.Errorf("Put under a destroyed secret: %v", err)
		}
		if _, err := k.store.Get(t.Context(), "late"); fault.KindOf(err) != fault.UnknownHandle {
			t.Errorf("it was stored: %v", err)
		}
		if s, err := x.Secret(t.Context()); s != nil || err != nil {
			t.Errorf("after the Put was refused: %v, %v", s, err)
		}

		putValue(t, k, "y", "a", "old")
		if err := openStore(t, d).Drop(t.Context(), k.Tenants("y")[0].storeKey()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(RecheckEvery)
		reads(t, k, "y", "a", "")
	})
}

// What a tenant stores while it is forgotten stays, and is readable.
func TestForgetKeepsWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.New()
		k, other := open(t, d, rootA), open(t, d, rootA)
		putValue(t, k, "x", "a", "old")
		putValue(t, k, "x", "b", "old")
		done := make(chan struct{})
		go func() {
			defer close(done)
			if got, err := k.Forget(t.Context(), "x"); err != nil || got.Groups != 1 {
				t.Errorf("Forget = %+v, %v; want the group that was not put again", got, err)
			}
		}()
		synctest.Wait() // it waits for other processes
		putValue(t, other, "x", "a", "new")
		<-done
		reads(t, k, "x", "a", "new")
		reads(t, k, "x", "b", "")
	})
}

// Forget ends with its context, after the secrets are destroyed.
func TestForgetIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := open(t, memory.New(), rootA)
		putValue(t, k, "x", "a", "old")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { synctest.Wait(); cancel() }()
		if got, err := k.Forget(ctx, "x"); got.Secrets != 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("Forget = %+v, %v", got, err)
		}
		reads(t, k, "x", "a", "")
	})
}

// What was stored under an old root secret is read while it is listed; new values are under the new one.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.New()
		putValue(t, open(t, d, rootA), "x", "a", "old")
		rotating := open(t, d, rootB, rootA)
		reads(t, rotating, "x", "a", "old")
		putValue(t, rotating, "x", "b", "new")
		if found, err := rotating.TouchValue(t.Context(), "x", "a"); !found || err != nil {
			t.Errorf("TouchValue = %v, %v", found, err)
		}
		after := open(t, d, rootB)
		reads(t, after, "x", "a", "")
		reads(t, after, "x", "b", "new")
		got, err := rotating.Forget(t.Context(), "x")
		if err != nil || got.Secrets != 2 || got.Groups != 2 {
			t.Errorf("Forget = %+v, %v; want both secrets", got, err)
		}
		reads(t, rotating, "x", "a", "")
		reads(t, rotating, "x", "b", "")
	})
}

// Watch finds within a second that a tenant was forgotten, though nobody calls.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.New()
		here, there := open(t, d, rootA), open(t, d, rootA)
		putValue(t, here, "x", "a", "of x")
		putValue(t, here, "y", "a", "of y")
		var forgotten atomic.Pointer[string]
		here.OnForget(func(tenant string) { forgotten.Store(&tenant) })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go here.Watch(ctx)
		time.Sleep(time.Minute)
		if n := forgotten.Load(); n != nil {
			t.Errorf("the hook was called for %s", *n)
		}
		go func() { _, _ = there.Forget(t.Context(), "x") }()
		time.Sleep(time.Second)
		if n := forgotten.Load(); n == nil || *n != "x" {
			t.Error("it was not noticed within a second")
		}
	})
}

// A secret outlives what is stored under it, however long the tenant only reads.
func TestSecretOutlivesItsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.New()
		k := open(t, d, rootA)
		putValue(t, k, "x", "a", "kept")
		for range 30 {
			time.Sleep(6 * 24 * time.Hour)
			reads(t, k, "x", "a", "kept")
			if found, err := k.TouchValue(t.Context(), "x", "a"); !found || err != nil {
				t.Fatalf("%v, %v", found, err)
			}
			if _, err := d.Sweep(t.Context(), state.SweepRequest{Now: time.Now(), SpareAfter: time.Now(), MaxBytes: 0}); err != nil {
				t.Fatal(err)
			}
		}
		reads(t, k, "x", "a", "kept")
		// A tenant that does not call any more is gone in the end.
		time.Sleep(k.store.TTL() + leaseMargin)
		if _, err := d.Get(t.Context(), k.Tenants("x")[0].storeKey(), k.Tenants("x")[0].storeKey(), time.Now()); fault.KindOf(err) != fault.UnknownHandle {
			t.Errorf("the secret of a tenant that left: %v", err)
		}
	})
}

// broken is a driver whose reads fail.
type broken struct{ state.Driver }

func (broken) Get(context.Context, string, string, time.Time) ([]byte, error) {
	return nil, errors.New("disk")
}

func TestStoreDown(t *testing.T) {
	k := open(t, broken{memory.New()}, rootA)
	for name, op := range map[string]func() error{
		"PutValue": func() error { return k.PutValue(t.Context(), "x", Value{Name: "a"}) },
		"GetValue": func() error { _, err := k.GetValue(t.Context(), "x", "a"); return err },
		"Forget":   func() error { _, err := k.Forget(t.Context(), "x"); return err },
	} {
		if err := op(); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%s = %v, want the store's error", name, err)
		}
	}
}
