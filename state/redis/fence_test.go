package redis

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/keyring"
	"github.com/ctxgate/ctxgate/state"
)

// TestSlowWriterOfAForgottenTenant: a process finds the tenant's secret in the store, is then stopped, and writes after the tenant
// was forgotten and another process has stored under a new secret. In a Cluster no script can look at the secret and write the
// value, which are on different primaries. What was stored under the new secret stays.
func TestSlowWriterOfAForgottenTenant(t *testing.T) {
	s := redisserver.Shared(t, redisserver.Cluster)
	slow, other := mustOpenAt(t, s, "wait-all", t.Name()), mustOpenAt(t, s, "wait-all", t.Name())
	root := bytes.Repeat([]byte("r"), keyring.MinSecretBytes)
	newRing := func(d *Driver) *keyring.Keyring {
		config := state.Default()
		config.Timeout = unit.Duration(time.Minute)
		ring, err := keyring.New(state.New(d, config, time.Now), root)
		if err != nil {
			t.Fatal(err)
		}
		return ring
	}
	slowRing, otherRing := newRing(slow), newRing(other)
	tenant := ""
	for n := 0; tenant == ""; n++ {
		name := fmt.Sprint("tenant ", n)
		if err := slowRing.PutValue(t.Context(), name, keyring.Value{Name: "n", Data: []byte("first")}); err != nil {
			t.Fatal(err)
		}
		places := map[string]bool{}
		entries, err := slow.List(t.Context(), state.ListRequest{Limit: 1000, Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.Contains(e.Group, slowRing.Tenants(name)[0].Tag) {
				p, err := slow.topology.Load().primaryOf(partitionSlots[partitionOf(e.Group)])
				if err != nil {
					t.Fatal(err)
				}
				places[p.addr] = true
			}
		}
		if len(places) == 2 {
			tenant = name
		}
	}

	for _, w := range slow.writers {
		if err := w.queuedBytes.Acquire(t.Context(), maxQueuedBytes); err != nil {
			t.Fatal(err)
		}
	}
	written := make(chan error)
	go func() {
		written <- slowRing.PutValue(t.Context(), tenant, keyring.Value{Name: "n", Data: []byte("slow")})
	}()
	wait.For(t, "the slow writer has checked the condition", func() bool {
		stacks := make([]byte, 1<<20)
		return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("semaphore.(*Weighted).Acquire"))
	})
	if _, err := otherRing.Forget(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if err := otherRing.PutValue(t.Context(), tenant, keyring.Value{Name: "n", Data: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	for _, w := range slow.writers {
		w.queuedBytes.Release(maxQueuedBytes)
	}
	if err := <-written; !errors.Is(err, keyring.ErrForgotten) {
		t.Errorf("the slow writer was told %v", err)
	}
	if got, err := otherRing.GetValue(t.Context(), tenant, "n"); err != nil || string(got) != "new" {
		t.Errorf("the value is %q, %v", got, err)
	}
}
