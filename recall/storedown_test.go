package recall

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/state"
)

// What happens when an original cannot be stored.

// G+2: when the store refuses, the string goes whole.
func TestGPlus2StoreDownPassesWhole(t *testing.T) {
	r, driver := open(t, nil)
	driver.refuse.Store(true)
	body := []byte(`{"a":"` + strings.Repeat("x", 5000) + `","b":"` + strings.Repeat("y", 9000) + `"}`)
	out, s := shrink(t, r, "t", body, DefaultPolicy())
	if !bytes.Equal(out, body) || s.PassedWhole != 2 || s.Recoverable != 0 || s.Err == nil || s.Unrecoverable != 0 {
		t.Errorf("%+v", s)
	}
	driver.refuse.Store(false)
	if out, s := shrink(t, r, "t", body, DefaultPolicy()); s.Recoverable != 2 || bytes.Equal(out, body) {
		t.Errorf("after the store came back: %+v", s)
	}
}

// G+2: over hard_limit_bytes the string is cut for good, without a recover line.
func TestGPlus2HardLimit(t *testing.T) {
	r, driver := open(t, nil)
	driver.refuse.Store(true)
	p := DefaultPolicy()
	p.HardLimit = 6000
	body := []byte(`{"a":"` + strings.Repeat("x", 6000) + `","b":"` + strings.Repeat("y", 6001) + `"}`)
	out, s := shrink(t, r, "t", body, p)
	if s.PassedWhole != 1 || s.Unrecoverable != 1 || !bytes.Contains(out, []byte(strings.Repeat("x", 6000))) || bytes.Contains(out, []byte("prune_id")) {
		t.Errorf("%+v", s)
	}
}

// I10: masking fails open. After a panic in the driver or in recall itself the reply goes whole, and no
// memory stays reserved.
func TestPanicsPassWhole(t *testing.T) {
	r, driver := open(t, nil)
	body := quote(strings.Repeat("x", 5000))
	good := r.store
	r.store = state.New(&panickingDriver{driver}, state.Default(), time.Now)
	for range 200 { // more than the spill holds
		if out, s := shrink(t, r, "t", body, DefaultPolicy()); !bytes.Equal(out, body) || s.PassedWhole != 1 || fault.KindOf(s.Err) != fault.Unavailable {
			t.Fatalf("the driver panics: %+v", s)
		}
	}
	r.store = nil
	if out, s := shrink(t, r, "t", body, DefaultPolicy()); !bytes.Equal(out, body) || s.PassedWhole != 1 || s.Err == nil {
		t.Errorf("recall panics: %+v", s)
	}
	r.store = good
	if !r.spill.TryAcquire(int64(r.cfg.SpillBytes)) {
		t.Error("memory stays reserved")
	}
}

type panickingDriver struct{ state.Driver }

func (*panickingDriver) PutIf(context.Context, state.Condition, []state.Item, state.Lease) (bool, error) {
	panic("a bug")
}

// I1: when one part of a large original is refused, nothing of the string is cut.
func TestStoredBeforeCutAcrossParts(t *testing.T) {
	r, driver := open(t, nil)
	body := quote(strings.Repeat("0123456789abcdef", 200_000))
	fail := &failAfterDriver{Driver: driver, allow: 2}
	r.store = state.New(fail, state.Default(), time.Now)
	if out, s := shrink(t, r, "t", body, DefaultPolicy()); !bytes.Equal(out, body) || s.PassedWhole != 1 {
		t.Errorf("%+v", s)
	}
}

type failAfterDriver struct {
	state.Driver
	allow int
}

func (f *failAfterDriver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	if f.allow--; f.allow < 0 {
		return false, errors.New("disk full")
	}
	return f.Driver.PutIf(ctx, cond, items, lease)
}

// I9: however many replies come at once, the bytes on their way to the store are bounded, and a reply
// that would wait too long is sent whole.
func TestSpillIsBounded(t *testing.T) {
	const limit = 8 << 20
	r, driver := open(t, func(c *Config, s *state.Config) {
		c.SpillBytes = limit
		c.KeepTimeout = unit.Duration(300 * time.Millisecond)
		s.Timeout = unit.Duration(time.Minute)
	})
	driver.block = make(chan struct{})
	random := func(seed int) []byte { // nothing to compress
		b := make([]byte, 0, 900_000)
		for x := uint32(seed + 1); len(b) < 900_000; x = x*1664525 + 1013904223 {
			b = append(b, 'a'+byte(x>>24)%26)
		}
		return quote(string(b))
	}
	var wg sync.WaitGroup
	var whole atomic.Int64
	for i := range 40 {
		wg.Go(func() {
			body := random(i)
			if out, s := shrink(t, r, "t", body, DefaultPolicy()); s.PassedWhole == 1 && bytes.Equal(out, body) {
				whole.Add(1)
			}
		})
	}
	wg.Wait()
	if driver.most.Load() > limit {
		t.Errorf("%d bytes in flight, the limit is %d", driver.most.Load(), limit)
	}
	if whole.Load() != 40 {
		t.Errorf("only %d of 40 were sent whole", whole.Load())
	}
	close(driver.block)
	// On a busy machine one try may take longer than keeping may here.
	for until := time.Now().Add(time.Minute); ; {
		_, s := shrink(t, r, "t", random(99), DefaultPolicy())
		if s.Recoverable == 1 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("memory stays reserved: %+v", s)
		}
	}
}
