package memory_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/state/statetest"
)

func TestDriver(t *testing.T) {
	statetest.Test(t, func(*testing.T) state.Driver { return memory.New() })
}

func TestShared(t *testing.T) {
	statetest.TestShared(t, func(t *testing.T) (state.Shared, state.Shared) {
		d := memory.New()
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		return d, d
	})
}

// What expired does not stay in memory.
func TestSharedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.New()
		for i := range 100_000 {
			key := strconv.Itoa(i)
			if _, err := d.Take(t.Context(), []state.Rate{{Key: key, Calls: 1, Every: time.Second, Burst: 1, Cost: 1}}); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Hold(t.Context(), key, []byte("v"), time.Second); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := d.SharedSize(); n > 8192 {
			t.Errorf("%d entries are stored; 2000 are alive", n)
		}
	})
}
