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

// trouble is what a store can have.
type trouble int32

const (
	none    trouble = iota
	fails           // every operation is an error
	hangs           // no operation ends before its caller gives up
	breaks          // a bug of ours, or of a library
	readsOn         // it can be read, and not written
)

// troubled is a driver that has it.
type troubled struct {
	state.Driver
	has atomic.Int32
}

func (d *troubled) meet(ctx context.Context, writes bool) error {
	switch trouble(d.has.Load()) {
	case none:
		return nil
	case fails:
	case readsOn:
		if !writes {
			return nil
		}
	case hangs:
		<-ctx.Done()
		return ctx.Err()
	case breaks:
		panic("the store's last words")
	}
	return errors.New("the disk is full")
}

func (d *troubled) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	if err := d.meet(ctx, true); err != nil {
		return err
	}
	return d.Driver.Put(ctx, items, lease)
}

func (d *troubled) Get(ctx context.Context, key string, now time.Time) ([]byte, error) {
	if err := d.meet(ctx, false); err != nil {
		return nil, err
	}
	return d.Driver.Get(ctx, key, now)
}

func (d *troubled) Touch(ctx context.Context, group string, lease state.Lease) (bool, error) {
	if err := d.meet(ctx, true); err != nil {
		return false, err
	}
	return d.Driver.Touch(ctx, group, lease)
}

// How long an operation of the store may take here: little only where one hangs, so that a busy
// machine is not taken for a store that does.
const (
	hangTimeout  = 500 * time.Millisecond
	otherTimeout = time.Minute
)

func troubledKeeper(t *testing.T, timeout time.Duration) (*recall.Recall, *troubled) {
	t.Helper()
	d := &troubled{Driver: memory.New()}
	cfg := state.Default()
	cfg.Timeout = seconds(timeout)
	store := state.New(d, cfg, time.Now)
	t.Cleanup(func() { _ = store.Close() })
	r, err := recall.New(store, bytes.Repeat([]byte("s"), recall.MinSecret), recall.Default())
	if err != nil {
		t.Fatal(err)
	}
	return r, d
}

// I1, I10: a store that is down, or hangs, costs the masking and not the request. What was kept
// before stays masked, with the same bytes; what is newly old goes whole until the store is back.
func testOriginalsCannotBeKept(t *testing.T) {
	for name, has := range map[string]trouble{"fails": fails, "hangs": hangs, "panics": breaks, "cannot be written": readsOn} {
		for price, read := range map[string]float64{"": 1, " with a discount": .1} { // where conversations are remembered
			t.Run(name+price, func(t *testing.T) {
				t.Parallel()
				inEachShape(t, func(t *testing.T, w wire) { testTrouble(t, w, has, read) })
			})
		}
	}
}

func testTrouble(t *testing.T, w wire, has trouble, read float64) {
	f := newFar(t, says(http.StatusOK, w.whole))
	timeout := otherTimeout
	if has == hangs {
		timeout = hangTimeout
	}
	r, store := troubledKeeper(t, timeout)
	p := provider("p", w.kind, f.URL, func(p *chat.Provider) { p.Cache.Read = read })
	g := open(t, []chat.Provider{p}, masking(r, func(p *history.Policy) { rolling(p); p.Advance, p.Stride = history.Stride, 1 }))
	send := func(turns int) string {
		t.Helper()
		began := time.Now()
		resp, body := g.post(t, w.path, talks[w.path](turns), nil)
		if took := time.Since(began); resp.StatusCode != http.StatusOK || body != w.whole || took > 10*timeout {
			t.Errorf("%d turns: got %d %s after %s", turns, resp.StatusCode, body, took)
		}
		calls := f.calls()
		return string(calls[len(calls)-1].body)
	}
	store.has.Store(int32(has))
	if got := send(5); got != talks[w.path](5) {
		t.Errorf("without a store it was rewritten: %s", got)
	}
	mended := func() {
		store.has.Store(int32(none))
		if has == hangs {
			time.Sleep(6 * timeout) // for so long it is not asked again
		}
	}
	mended()
	before := placeholder.FindAllString(send(5), -1)
	if len(before) != 3 {
		t.Fatalf("with a store, masked %q", before)
	}
	store.has.Store(int32(has))
	if got := placeholder.FindAllString(send(7), -1); len(got) > 3 {
		t.Errorf("masked what is not kept: %q", got)
	} else if has != breaks && !slices.Equal(got, before) {
		t.Errorf("masked %q, then %q", before, got)
	}
	mended()
	if got := placeholder.FindAllString(send(7), -1); len(got) != 5 || !slices.Equal(got[:3], before) {
		t.Errorf("when the store was back, masked %q", got)
	}
}
