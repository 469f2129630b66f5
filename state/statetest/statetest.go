// Package statetest is the conformance suite of every [state.Driver]. It checks the contract in package
// state and nothing else.
//
// statetest.go has the entry point and shared checks; item.go tests items and totals, list.go lists, lease.go leases
// and expiry, sweep.go eviction, pin.go pinned groups and epochs, owner.go conditional Puts and owners, use.go concurrency, ended contexts and
// Close; shared.go is the suite of every [state.Shared].
package statetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

// Test runs the suite. open makes a new and empty driver for each test; the suite closes it.
func Test(t *testing.T, open func(t *testing.T) state.Driver) { runSuite(t, open, false) }

// TestApart runs the suite with all values as blobs, and pinned ones archived. What the driver counts of them is its own affair, so that sizes
// are not compared and tests of eviction are left out.
func TestApart(t *testing.T, open func(t *testing.T) state.Driver) { runSuite(t, open, true) }

func runSuite(t *testing.T, open func(t *testing.T) state.Driver, isApart bool) {
	for _, c := range []struct {
		name string
		test func(d *driver)
	}{
		{"PutGet", putGet},
		{"AnyBytes", anyBytes},
		{"Copies", copies},
		{"Overwrite", overwrite},
		{"SameKeyTwice", sameKeyTwice},
		{"AtomicBatch", atomicBatch},
		{"Drop", drop},
		{"List", list},
		{"ListAnyBytes", listAnyBytes},
		{"ListLeavesOutExpired", listLeavesOutExpired},
		{"Expiry", expiry},
		{"PutExtends", putExtends},
		{"PutRevivesNothing", putRevivesNothing},
		{"TouchExtends", touchExtends},
		{"TouchNeverShortens", touchNeverShortens},
		{"TouchExpired", touchExpired},
		{"TouchGranularity", touchGranularity},
		{"SweepExpired", sweepExpired},
		{"SweepOldestFirst", sweepOldestFirst},
		{"SweepExpiredBeforeOldest", sweepExpiredBeforeOldest},
		{"SweepTies", sweepTies},
		{"SweepSpares", sweepSpares},
		{"SweepNeed", sweepNeed},
		{"SweepMany", sweepMany},
		{"SweepForAPut", sweepForAPut},
		{"SweepLargeGroup", sweepLargeGroup},
		{"SweepSparesPinned", sweepSparesPinned},
		{"PinnedTotals", pinnedTotals},
		{"EpochStays", epochStays},
		{"EpochChanges", epochChanges},
		{"PutIf", putIf},
		{"PutIfOnce", putIfOnce},
		{"PutOver", putOver},
		{"OwnerTotals", ownerTotals},
		{"DropOwners", dropOwners},
		{"SweepOwner", sweepOwner},
		{"SweepLargestOwner", sweepLargestOwner},
		{"Concurrent", concurrent},
		{"ConcurrentOverwrite", concurrentOverwrite},
		{"EndedContext", endedContext},
		{"Close", closes},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t)
			t.Cleanup(func() {
				if err := d.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			sweeper, ok := d.(state.Sweeper)
			if !ok && strings.HasPrefix(c.name, "Sweep") {
				t.Skip("the driver cannot sweep")
			}
			if isApart && strings.HasPrefix(c.name, "Sweep") {
				t.Skip("what is evicted depends on sizes")
			}
			c.test(&driver{T: t, Driver: d, Sweeper: sweeper, ctx: context.Background(), groups: map[string]string{}, isApart: isApart})
		})
	}
}

// driver is the driver under test, with checks.
type driver struct {
	*testing.T
	state.Driver
	state.Sweeper // nil if the driver cannot sweep
	ctx           context.Context
	isApart       bool // all values are blobs

	mu     sync.Mutex
	groups map[string]string // of the keys that were put
}

// Put remembers the groups of the keys.
func (d *driver) Put(ctx context.Context, items []state.Item, l state.Lease) error {
	d.remember(items)
	return d.Driver.Put(ctx, d.apart(items), l)
}

// PutIf remembers the groups of the keys.
func (d *driver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, l state.Lease) (bool, error) {
	d.remember(items)
	return d.Driver.PutIf(ctx, cond, d.apart(items), l)
}

// apart makes all items blobs, and archives the pinned ones, in that form of the suite.
func (d *driver) apart(items []state.Item) []state.Item {
	if !d.isApart {
		return items
	}
	items = slices.Clone(items)
	for i := range items {
		items[i].Archived = items[i].Pinned
		items[i].Blob = !items[i].Pinned
	}
	return items
}

// sameBytes compares sizes, of blobs only whether there are any.
func (d *driver) sameBytes(got, want int64) bool {
	return got == want || d.isApart && (got == 0) == (want == 0)
}

func (d *driver) sameResult(got, want state.SweepResult) bool {
	return got.Groups == want.Groups && d.sameBytes(got.Bytes, want.Bytes)
}

func (d *driver) remember(items []state.Item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range items {
		d.groups[i.Key] = i.Group
	}
}

// get reads a key in the group where it was put; one that was not is looked for in a group of its own name.
func (d *driver) get(key string, now time.Time) ([]byte, error) {
	d.mu.Lock()
	group, ok := d.groups[key]
	d.mu.Unlock()
	if !ok {
		group = key
	}
	return d.Get(d.ctx, group, key, now)
}

// at is a time ms milliseconds after the tests' start, which is in the past.
func at(ms int) time.Time {
	return time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

func lease(seen, expires int) state.Lease {
	return state.Lease{LastUsed: at(seen), Expires: at(expires)}
}

func item(key, group, value string) state.Item {
	return state.Item{Key: key, Group: group, Value: []byte(value)}
}

func (d *driver) put(l state.Lease, items ...state.Item) {
	d.Helper()
	if err := d.Put(d.ctx, items, l); err != nil {
		d.Fatalf("Put: %v", err)
	}
}

// has checks that the key can be read at this time and has the value.
func (d *driver) has(ms int, key, value string) {
	d.Helper()
	got, err := d.get(key, at(ms))
	if err != nil {
		d.Fatalf("Get(%.40q) at %d: %v", key, ms, err)
	}
	if !bytes.Equal(got, []byte(value)) {
		d.Fatalf("Get(%.40q) at %d = %d bytes %.40q, want %d bytes %.40q", key, ms, len(got), got, len(value), value)
	}
}

// hasNot checks that none of the keys can be read at this time.
func (d *driver) hasNot(ms int, keys ...string) {
	d.Helper()
	for _, key := range keys {
		got, err := d.get(key, at(ms))
		if fault.KindOf(err) != fault.UnknownHandle {
			d.Fatalf("Get(%q) at %d = %.40q, %v; want %v", key, ms, got, err, fault.UnknownHandle)
		}
		if got != nil {
			d.Fatalf("Get(%q) at %d gave bytes with its error", key, ms)
		}
	}
}

func (d *driver) touch(group string, l state.Lease, want bool) {
	d.Helper()
	found, err := d.Touch(d.ctx, group, l)
	if err != nil || found != want {
		d.Fatalf("Touch(%q) = %v, %v; want %v", group, found, err, want)
	}
}

func (d *driver) sweep(s state.SweepRequest, want state.SweepResult) {
	d.Helper()
	if d.Sweeper == nil {
		return
	}
	got, err := d.Sweep(d.ctx, s)
	if err != nil || !d.sameResult(got, want) {
		d.Fatalf("Sweep = %+v, %v; want %+v", got, err, want)
	}
}

// holds checks the totals against the items that should be there.
func (d *driver) holds(items ...state.Item) {
	d.Helper()
	var want state.Stat
	for _, i := range items {
		want.Items++
		want.Bytes += i.Size()
	}
	for range 2 { // reading must not change what is read
		got, err := d.Stat(d.ctx)
		if err != nil || got.Items != want.Items || !d.sameBytes(got.Bytes, want.Bytes) || !d.sameBytes(got.Pinned, want.Pinned) {
			d.Fatalf("Stat = %+v, %v; want %+v", got, err, want)
		}
	}
}

func (d *driver) mustBe(err, want error) {
	d.Helper()
	if !errors.Is(err, want) {
		d.Errorf("got error %v, want %v", err, want)
	}
}

func sizes(items ...state.Item) (n int64) {
	for _, i := range items {
		n += i.Size()
	}
	return n
}
