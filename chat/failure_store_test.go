package chat_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// storeFault is how a store misbehaves.
type storeFault int32

const (
	noFault    storeFault = iota
	failAll               // every operation returns an error
	hangAll               // every operation blocks until its context ends
	panicAll              // every operation panics
	failWrites            // reads work, writes fail
)

// faultyDriver is a driver with a fault that can be set.
type faultyDriver struct {
	state.Driver
	fault atomic.Int32
}

func (d *faultyDriver) injectFault(ctx context.Context, writes bool) error {
	switch storeFault(d.fault.Load()) {
	case noFault:
		return nil
	case failAll:
	case failWrites:
		if !writes {
			return nil
		}
	case hangAll:
		<-ctx.Done()
		return ctx.Err()
	case panicAll:
		panic("the store panics")
	}
	return errors.New("the disk is full")
}

func (d *faultyDriver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	if err := d.injectFault(ctx, true); err != nil {
		return false, err
	}
	return d.Driver.PutIf(ctx, cond, items, lease)
}

func (d *faultyDriver) Get(ctx context.Context, group, key string, now time.Time) ([]byte, error) {
	if err := d.injectFault(ctx, false); err != nil {
		return nil, err
	}
	return d.Driver.Get(ctx, group, key, now)
}

func (d *faultyDriver) Touch(ctx context.Context, group string, lease state.Lease) (bool, error) {
	if err := d.injectFault(ctx, true); err != nil {
		return false, err
	}
	return d.Driver.Touch(ctx, group, lease)
}

// The store's timeout. It is short only where the store hangs, so that a busy machine does not look like one.
const (
	hangTimeout  = 500 * time.Millisecond
	otherTimeout = time.Minute
)

func newFaultyRecall(t *testing.T, timeout time.Duration) (*recall.Recall, *faultyDriver) {
	t.Helper()
	d := &faultyDriver{Driver: memory.New()}
	cfg := state.Default()
	cfg.Timeout = unitDuration(timeout)
	store := state.New(d, cfg, time.Now)
	t.Cleanup(func() { _ = store.Close() })
	r, err := recall.New(store, bytes.Repeat([]byte("s"), recall.MinSecretBytes), recall.Default())
	if err != nil {
		t.Fatal(err)
	}
	return r, d
}

// I1, I10: a store that fails or hangs disables masking, not the request. Results stored before stay masked
// with the same bytes; others are sent whole until the store is back.
func testOriginalsCannotBeStored(t *testing.T) {
	for name, has := range map[string]storeFault{"fails": failAll, "hangs": hangAll, "panics": panicAll, "cannot be written": failWrites} {
		for price, read := range map[string]float64{"": 1, " with a discount": .1} { // a discount makes the masker keep conversation state
			t.Run(name+price, func(t *testing.T) {
				t.Parallel()
				forEachWire(t, func(t *testing.T, w wire) { testStoreFault(t, w, has, read) })
			})
		}
	}
}

func testStoreFault(t *testing.T, w wire, has storeFault, read float64) {
	f := newStubProvider(t, respond(http.StatusOK, w.reply))
	timeout := otherTimeout
	if has == hangAll {
		timeout = hangTimeout
	}
	r, store := newFaultyRecall(t, timeout)
	p := providerConfig("p", w.kind, f.URL, func(p *chat.Provider) { p.Cache.Read = read })
	g := newGateway(t, []chat.Provider{p}, withMasking(r, func(p *history.Policy) { twoTurnWindow(p); p.Advance, p.Stride = history.AdvanceStride, 1 }))
	send := func(turns int) string {
		t.Helper()
		began := time.Now()
		resp, body := g.post(t, w.path, requestBodies[w.path](turns), nil)
		if took := time.Since(began); resp.StatusCode != http.StatusOK || body != w.reply || took > 10*timeout {
			t.Errorf("%d turns: got %d %s after %s", turns, resp.StatusCode, body, took)
		}
		calls := f.requests()
		return string(calls[len(calls)-1].body)
	}
	store.fault.Store(int32(has))
	if got := send(5); got != requestBodies[w.path](5) {
		t.Errorf("without a store the request was changed: %s", got)
	}
	repair := func() {
		store.fault.Store(int32(noFault))
		if has == hangAll {
			time.Sleep(6 * timeout) // until the circuit breaker closes
		}
	}
	repair()
	before := placeholder.FindAllString(send(5), -1)
	if len(before) != 3 {
		t.Fatalf("with a store, masked %q, want 3", before)
	}
	store.fault.Store(int32(has))
	if got := placeholder.FindAllString(send(7), -1); len(got) > 3 {
		t.Errorf("masked results that are not stored: %q", got)
	} else if has != panicAll && !slices.Equal(got, before) {
		t.Errorf("masked %q, then %q", before, got)
	}
	repair()
	if got := placeholder.FindAllString(send(7), -1); len(got) != 5 || !slices.Equal(got[:3], before) {
		t.Errorf("after the store was back, masked %q", got)
	}
}
