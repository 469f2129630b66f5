package redis

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/state"
)

func newItem(key, value string) state.Item {
	return state.Item{Key: key, Group: key, Value: []byte(value)}
}

func newLease() state.Lease {
	now := time.Now().Truncate(time.Millisecond)
	return state.Lease{LastUsed: now, Expires: now.Add(time.Hour), Granularity: time.Minute}
}

// put puts one item with the time that a store gives it.
func put(ctx context.Context, d *Driver, item state.Item) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return d.Put(ctx, []state.Item{item}, newLease())
}

func mustPut(t *testing.T, d *Driver, item state.Item) {
	t.Helper()
	if err := put(t.Context(), d, item); err != nil {
		t.Fatal(err)
	}
}

// TestMissingReplica: while one replica of two does not have the writes, nothing is acknowledged, and what was written all the
// same is not vouched for. What was acknowledged before is read.
func TestMissingReplica(t *testing.T) {
	s := redisserver.Start(t, redisserver.Sentinel, redisserver.Options{})
	d := mustOpen(t, s, "wait-all")
	mustPut(t, d, newItem("before", "x"))
	primary, err := s.Primary()
	if err != nil {
		t.Fatal(err)
	}
	replica := s.ReplicasOf(primary)[0]
	for name, outage := range map[string]struct{ begin, end func() error }{
		"paused": {replica.Pause, replica.Resume},
		"killed": {func() error { replica.Kill(); return nil }, func() error { return s.Rejoin(replica) }},
	} {
		if err := outage.begin(); err != nil {
			t.Fatal(err)
		}
		if name == "killed" { // known without a write
			wait.For(t, "the missing replica is known", func() bool { return d.Status().ReplicasMissing == 1 })
		}
		if err := put(t.Context(), d, newItem(name, "x")); fault.KindOf(err) != fault.Unavailable {
			t.Fatalf("%s: %v", name, err)
		}
		if got := d.Status(); got.ReplicasMissing != 1 || !strings.Contains(got.Problem, "missing") {
			t.Errorf("%s: %+v", name, got)
		}
		// The second is refused at once, before anything is written.
		start := time.Now()
		if err := put(t.Context(), d, newItem(name+" again", "x")); fault.KindOf(err) != fault.Unavailable || time.Since(start) > time.Second {
			t.Errorf("%s: %v after %v", name, err, time.Since(start))
		}
		if got, err := d.Get(t.Context(), "before", "before", time.Now()); err != nil || string(got) != "x" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if name == "paused" {
			if _, err := d.Get(t.Context(), name, name, time.Now()); err != nil {
				t.Errorf("the write that was not acknowledged is not there, so that this tests nothing: %v", err)
			}
			if found, err := d.Touch(t.Context(), name, newLease()); found || fault.KindOf(err) != fault.Unavailable {
				t.Errorf("a write that a replica does not have is vouched for: %v, %v", found, err)
			}
			cond := state.Condition{Group: name, Key: name, Value: []byte("x")}
			if ok, err := d.PutIf(t.Context(), cond, []state.Item{newItem("other", "x")}, newLease()); ok || err == nil {
				t.Errorf("a condition that a replica does not have holds: %v, %v", ok, err)
			}
		}
		if found, err := d.Touch(t.Context(), "before", newLease()); !found || err != nil {
			t.Errorf("%s: what replicas have is not found: %v, %v", name, found, err)
		}
		if err := outage.end(); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "writes go on", func() bool { return put(t.Context(), d, newItem("after "+name, "x")) == nil })
		if got := d.Status(); got.ReplicasMissing != 0 || got.Problem != "" {
			t.Errorf("%s: %+v", name, got)
		}
		if found, err := d.Touch(t.Context(), "paused", newLease()); name == "paused" && (!found || err != nil) {
			t.Errorf("now replicas have it: %v, %v", found, err)
		}
	}
}

// TestMarks: a group that replicas have loses its mark, so that a touch within the granularity is a read.
func TestMarks(t *testing.T) {
	d := mustOpen(t, redisserver.Shared(t, redisserver.Cluster), "wait-all")
	for n := range 20 {
		mustPut(t, d, newItem(fmt.Sprint(n), "x"))
	}
	wait.For(t, "no group is marked", func() bool {
		for n := range 20 {
			if marked, _ := d.client.Do(t.Context(), d.client.B().Hexists().Key(d.groupKey(fmt.Sprint(n))).Field("u").Build()).AsBool(); marked {
				return false
			}
		}
		return true
	})
}

func TestUnsafeSettings(t *testing.T) {
	s := redisserver.Start(t, redisserver.Single, redisserver.Options{AppendFsync: "everysec"})
	if _, err := Open(t.Context(), Config{URL: s.URL()}); err == nil || !strings.Contains(fault.PublicOf(err), "appendfsync everysec") {
		t.Errorf("%v", err)
	}
	for _, durability := range []string{"server", "none"} {
		d := mustOpen(t, s, durability)
		mustPut(t, d, newItem("a", "x"))
	}
	if err := s.ConfigSet("appendfsync", "always"); err != nil {
		t.Fatal(err)
	}
	d := mustOpen(t, s, "wait-all")
	mustPut(t, d, newItem("a", "x"))
	if err := s.ConfigSet("maxmemory-policy", "allkeys-lru"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{URL: s.URL()}); err == nil || !strings.Contains(fault.PublicOf(err), "maxmemory-policy allkeys-lru") {
		t.Errorf("%v", err)
	}
	// A user who may not read settings is warned, and the store is used.
	if _, err := s.Nodes[0].Do("ACL", "SETUSER", "plain", "on", ">secret", "~*", "&*", "+@all", "-config"); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("plain", "secret")
	plain, err := Open(t.Context(), Config{URL: u.String()})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	mustPut(t, plain, newItem("b", "x"))
	u.User = url.UserPassword("plain", "wrong")
	if _, err := Open(t.Context(), Config{URL: u.String()}); err == nil || strings.Contains(err.Error(), "wrong:") {
		t.Errorf("%v", err)
	}
}

// TestTLS opens a store with TLS, an ACL user, and Sentinels that want a password.
func TestTLS(t *testing.T) {
	s := redisserver.Start(t, redisserver.Sentinel, redisserver.Options{TLS: true, User: "gate", Password: "p@ss/w", SentinelAuth: true})
	query := url.Values{"sentinel_username": {"gate"}, "sentinel_password": {"p@ss/w"}, "tls_ca": {s.CAFile()}}
	var hosts []string
	for _, n := range s.Sentinels {
		hosts = append(hosts, n.Address())
	}
	d, err := Open(t.Context(), Config{URL: "rediss+sentinel://gate:p%40ss%2Fw@" + strings.Join(hosts, ",") + "/" + redisserver.MasterSet + "?" + query.Encode()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	mustPut(t, d, newItem("a", "x"))
}

// TestFull: a server that has used up its memory is full, not down, and a later write works.
func TestFull(t *testing.T) {
	s := redisserver.Start(t, redisserver.Single, redisserver.Options{MaxMemory: "8mb"})
	d := mustOpen(t, s, "wait-all")
	value := strings.Repeat("x", 1<<20)
	var err error
	for n := 0; n < 16 && err == nil; n++ {
		err = put(t.Context(), d, newItem(fmt.Sprint(n), value))
	}
	if fault.KindOf(err) != fault.Full {
		t.Fatalf("%v", err)
	}
	if _, err := d.Get(t.Context(), "0", "0", time.Now()); err != nil {
		t.Error(err)
	}
	if err := s.ConfigSet("maxmemory", "0"); err != nil {
		t.Fatal(err)
	}
	mustPut(t, d, newItem("a", value))
}

// TestEmptied: an operator empties the store and its scripts. The epoch and the totals say so, and the next write works.
func TestEmptied(t *testing.T) {
	s := redisserver.Start(t, redisserver.Single, redisserver.Options{})
	d := mustOpen(t, s, "wait-all")
	for n := range 50 {
		mustPut(t, d, newItem(fmt.Sprint(n), "x"))
	}
	before, err := d.Epoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Nodes[0].Do("SCRIPT", "FLUSH"); err != nil {
		t.Fatal(err)
	}
	if after, err := d.Epoch(t.Context()); err != nil || after == before {
		t.Errorf("the epoch is still %d, %v", after, err)
	}
	if found, err := d.Touch(t.Context(), "1", newLease()); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	mustPut(t, d, newItem("a", "x"))
	wait.For(t, "the totals are those of one item", func() bool {
		stat, err := d.Stat(t.Context())
		return err == nil && stat == state.Stat{Items: 1, Bytes: 3}
	})
}

// TestRecount: groups that went by themselves, as after a long time without a gateway, are taken out of indexes and totals.
func TestRecount(t *testing.T) {
	d := mustOpen(t, redisserver.Shared(t, redisserver.Cluster), "wait-all")
	lease := newLease()
	for n := range 40 {
		item := newItem(fmt.Sprint(n), "x")
		item.Owner = "o"
		if err := d.Put(t.Context(), []state.Item{item}, lease); err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 {
			if err := d.client.Do(t.Context(), d.client.B().Del().Key(d.groupKey(item.Group)).Build()).Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := d.Sweep(t.Context(), state.SweepRequest{Now: lease.Expires, SpareAfter: lease.Expires, MaxBytes: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	owners, ownersErr := d.Owners(t.Context(), "")
	if stat, err := d.Stat(t.Context()); err != nil || ownersErr != nil || stat != (state.Stat{}) || len(owners) > 0 {
		t.Errorf("%+v, %v, %v", stat, owners, err)
	}
}

// TestQueueIsBounded: writes that nobody answers hold a bounded number of bytes, and their callers leave when their contexts end.
func TestQueueIsBounded(t *testing.T) {
	s := redisserver.Start(t, redisserver.Single, redisserver.Options{})
	d := mustOpen(t, s, "wait-all")
	mustPut(t, d, newItem("a", "x"))
	if err := s.Nodes[0].Pause(); err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("x", 4<<20)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := make(chan error)
	for n := range 40 {
		go func() { errs <- d.Put(ctx, []state.Item{newItem(fmt.Sprint(n), value)}, newLease()) }()
	}
	var w *writer
	for _, one := range d.writers {
		w = one
	}
	wait.For(t, "the queue is full", func() bool {
		return !w.queuedBytes.TryAcquire(1) || func() bool { w.queuedBytes.Release(1); return false }()
	})
	if n := len(w.queue); n > maxQueuedBytes/len(value) {
		t.Errorf("%d writes of 4 MiB are in the queue", n)
	}
	cancel()
	for range 40 {
		if err := <-errs; err == nil {
			t.Error("a paused server acknowledged a write")
		}
	}
	if err := s.Nodes[0].Resume(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "writes go on", func() bool { return put(t.Context(), d, newItem("b", "x")) == nil })
	wait.For(t, "the bytes are given back", func() bool {
		ok := w.queuedBytes.TryAcquire(maxQueuedBytes)
		if ok {
			w.queuedBytes.Release(maxQueuedBytes)
		}
		return ok
	})
}
