package statetest

import (
	"time"

	"github.com/ctxgate/ctxgate/state"
)

func pinned(key, group, value string) state.Item {
	i := item(key, group, value)
	i.Pinned = true
	return i
}

func sweepSparesPinned(d *driver) {
	token, text := pinned("t", "t", "token"), item("a", "a", "text")
	d.put(lease(0, 100), token)
	d.put(lease(1, 100), text)
	d.sweep(state.SweepRequest{Now: at(50), SpareAfter: at(50), MaxBytes: 0, Need: 1 << 30}, state.SweepResult{Groups: 1, Bytes: text.Size()})
	d.has(50, "t", "token")
	d.sweep(state.SweepRequest{Now: at(50), SpareAfter: at(50), MaxBytes: 0}, state.SweepResult{})
	d.has(50, "t", "token")
	// It expires as everything does.
	d.sweep(state.SweepRequest{Now: at(100), SpareAfter: at(100), MaxBytes: roomy}, state.SweepResult{Groups: 1, Bytes: token.Size()})
	d.holds()
}

func pinnedTotals(d *driver) {
	is := func(bytes, pinned int64) {
		d.Helper()
		if got, err := d.Stat(d.ctx); err != nil || !d.sameBytes(got.Bytes, bytes) || !d.sameBytes(got.Pinned, pinned) {
			d.Fatalf("Stat = %+v, %v; want %d bytes and %d pinned", got, err, bytes, pinned)
		}
	}
	a, b := item("a", "g", "one"), item("b", "h", "three")
	d.put(lease(0, 100), a, b)
	is(sizes(a, b), 0)
	more := pinned("c", "g", "more") // pins what the group has already
	d.put(lease(0, 100), more)
	is(b.Size(), sizes(a, more))
	later := item("d", "g", "not mentioned again")
	d.put(lease(0, 100), later)
	is(b.Size(), sizes(a, more, later))
	d.put(lease(0, 100), item("a", "g", "longer than it was"))
	is(b.Size(), sizes(item("a", "g", "longer than it was"), more, later))
	if err := d.Drop(d.ctx, "g"); err != nil {
		d.Fatal(err)
	}
	is(b.Size(), 0)
}

func (d *driver) epoch() state.Epoch {
	d.Helper()
	epoch, err := d.Epoch(d.ctx)
	if err != nil {
		d.Fatalf("Epoch: %v", err)
	}
	return epoch
}

// epochStays: removing expired or long unused groups does not change the epoch.
func epochStays(d *driver) {
	const hour = int(time.Hour / time.Millisecond)
	before := d.epoch()
	d.put(lease(0, 100), item("a", "a", "1"))
	d.put(lease(1, 9*hour), item("b", "b", "1"), item("c", "c", "1"))
	d.touch("b", lease(2, 9*hour), true)
	if err := d.Drop(d.ctx, "no such group"); err != nil {
		d.Fatal(err)
	}
	d.sweep(state.SweepRequest{Now: at(100), SpareAfter: at(0), MaxBytes: roomy}, state.SweepResult{Groups: 1, Bytes: 3})
	d.sweep(state.SweepRequest{Now: at(hour), SpareAfter: at(hour), MaxBytes: 0}, state.SweepResult{Groups: 2, Bytes: 6})
	if after := d.epoch(); after != before {
		d.Fatalf("the epoch went from %d to %d", before, after)
	}
}

// epochChanges: removing a live group that was used a short while ago changes the epoch.
func epochChanges(d *driver) {
	last := d.epoch()
	changed := func(why string) {
		d.Helper()
		if now := d.epoch(); now == last {
			d.Errorf("%s: the epoch is still %d", why, last)
		} else {
			last = now
		}
	}
	d.put(lease(0, 1000), item("a", "a", "1"), item("b", "b", "1"))
	if err := d.Drop(d.ctx, "a"); err != nil {
		d.Fatal(err)
	}
	changed("a group was dropped")
	d.sweep(state.SweepRequest{Now: at(500), SpareAfter: at(500), MaxBytes: 0}, state.SweepResult{Groups: 1, Bytes: 3})
	changed("a group was evicted that was seen half a second ago")
}
