package statetest

import (
	"fmt"
	"strings"

	"github.com/ctxgate/ctxgate/state"
)

const roomy = 1 << 40

func sweepExpired(d *driver) {
	a, b, c := item("a", "g", "1"), item("b", "g", "22"), item("c", "h", "333")
	d.sweep(state.SweepRequest{Now: at(0), SpareAfter: at(0), MaxBytes: roomy}, state.SweepResult{})
	d.put(lease(0, 10), a, b)
	d.put(lease(0, 11), c)
	d.sweep(state.SweepRequest{Now: at(9), SpareAfter: at(9), MaxBytes: roomy}, state.SweepResult{})
	d.holds(a, b, c)
	// Recent use does not spare an expired group.
	d.sweep(state.SweepRequest{Now: at(10), SpareAfter: at(-10), MaxBytes: roomy}, state.SweepResult{Groups: 1, Bytes: sizes(a, b)})
	d.holds(c)
	d.hasNot(9, "a", "b")
	d.has(10, "c", "333")
	d.sweep(state.SweepRequest{Now: at(10), SpareAfter: at(10), MaxBytes: roomy}, state.SweepResult{})
}

// row puts five groups of one item each, last used in the order c a e b d, which is neither that of the
// names nor that of the Puts.
func (d *driver) row() map[string]state.Item {
	items := map[string]state.Item{}
	for name, seen := range map[string]int{"c": 1, "a": 2, "e": 3, "b": 4, "d": 5} {
		items[name] = item(name, name, strings.Repeat(name, 100))
		d.put(lease(seen, 1000), items[name])
	}
	return items
}

func sweepOldestFirst(d *driver) {
	items := d.row()
	one := items["a"].Size()
	order := []string{"c", "a", "e", "b", "d"}
	for i, name := range order {
		left := int64(len(order) - i)
		ask := state.SweepRequest{Now: at(10), SpareAfter: at(10), MaxBytes: left * one}
		d.sweep(ask, state.SweepResult{}) // it fits exactly
		d.has(10, name, string(items[name].Value))
		ask.MaxBytes--
		d.sweep(ask, state.SweepResult{Groups: 1, Bytes: one})
		d.hasNot(10, name)
		for _, later := range order[i+1:] {
			d.has(10, later, string(items[later].Value))
		}
	}
	d.holds()
}

func sweepExpiredBeforeOldest(d *driver) {
	old, expired, fresh := item("a", "a", "1"), item("b", "b", "2"), item("c", "c", "3")
	d.put(lease(1, 100), old)
	d.put(lease(5, 10), expired)
	d.put(lease(6, 100), fresh)
	d.sweep(state.SweepRequest{Now: at(10), SpareAfter: at(10), MaxBytes: 2 * old.Size()}, state.SweepResult{Groups: 1, Bytes: expired.Size()})
	d.holds(old, fresh)
	d.put(lease(5, 10), expired)
	d.sweep(state.SweepRequest{Now: at(10), SpareAfter: at(10), MaxBytes: old.Size()}, state.SweepResult{Groups: 2, Bytes: 2 * old.Size()})
	d.has(10, "c", "3")
	d.holds(fresh)
}

func sweepTies(d *driver) {
	for _, name := range []string{"b", "\xff", "", "a"} {
		d.put(lease(1, 100), item("k"+name, name, "same"))
	}
	one := item("ka", "a", "").Size()
	for i, gone := range []string{"k", "ka", "kb", "k\xff"} {
		d.has(2, gone, "same")
		stat, err := d.Stat(d.ctx)
		if err != nil {
			d.Fatal(err)
		}
		if _, err := d.Sweep(d.ctx, state.SweepRequest{Now: at(2), SpareAfter: at(2), MaxBytes: stat.Bytes - 1}); err != nil {
			d.Fatal(err)
		}
		d.hasNot(2, gone)
		if left, err := d.Stat(d.ctx); err != nil || left.Items != int64(3-i) {
			d.Fatalf("%+v left, %v; want %d items of about %d bytes", left, err, 3-i, one)
		}
	}
}

func sweepSpares(d *driver) {
	items := d.row()
	one := items["a"].Size()
	// b and d were seen after 3; no shortage takes them.
	d.sweep(state.SweepRequest{Now: at(10), SpareAfter: at(3), MaxBytes: 0, Need: 1 << 30}, state.SweepResult{Groups: 3, Bytes: 3 * one})
	d.holds(items["b"], items["d"])
	d.sweep(state.SweepRequest{Now: at(10), SpareAfter: at(3), MaxBytes: 0, Need: 1 << 30}, state.SweepResult{})
	// A touch spares, too.
	d.touch("b", lease(6, 1000), true)
	d.sweep(state.SweepRequest{Now: at(10), SpareAfter: at(5), MaxBytes: 0}, state.SweepResult{Groups: 1, Bytes: one})
	d.holds(items["b"])
	d.has(10, "b", string(items["b"].Value))
}

func sweepNeed(d *driver) {
	items := d.row()
	one := items["a"].Size()
	ask := state.SweepRequest{Now: at(10), SpareAfter: at(10), MaxBytes: 6 * one, Need: one}
	d.sweep(ask, state.SweepResult{})
	ask.Need++
	d.sweep(ask, state.SweepResult{Groups: 1, Bytes: one})
	ask.Need = 4*one + 1
	d.sweep(ask, state.SweepResult{Groups: 3, Bytes: 3 * one})
	d.holds(items["d"])
	ask.Need = 7 * one // more than there could ever be
	d.sweep(ask, state.SweepResult{Groups: 1, Bytes: one})
	d.holds()
}

// sweepMany has more groups than a driver removes in one step.
func sweepMany(d *driver) {
	const n = 1500
	var old, live []state.Item
	for i := range n {
		name := fmt.Sprintf("%04d", i)
		old = append(old, item("old"+name, "old"+name, "x"))
		live = append(live, item("new"+name, "new"+name, "x"))
	}
	d.put(lease(0, 10), old...)
	d.put(lease(5, 1000), live...)
	ask := state.SweepRequest{Now: at(10), SpareAfter: at(10), MaxBytes: sizes(live[n-7:]...)}
	d.sweep(ask, state.SweepResult{Groups: 2*n - 7, Bytes: sizes(old...) + sizes(live[:n-7]...)})
	d.holds(live[n-7:]...)
}

// sweepForAPut: no more is removed than the Put needs, not even expired groups.
func sweepForAPut(d *driver) {
	var all []state.Item
	for i := range 20 {
		all = append(all, item(fmt.Sprintf("%02d", i), fmt.Sprintf("%02d", i), strings.Repeat("x", 100)))
		d.put(lease(i, 50), all[i])
	}
	one := all[0].Size()
	ask := state.SweepRequest{Now: at(60), SpareAfter: at(60), MaxBytes: 20 * one, Need: 2*one + 1}
	d.sweep(ask, state.SweepResult{Groups: 3, Bytes: 3 * one})
	d.sweep(ask, state.SweepResult{})
	ask.Need = 0
	d.sweep(ask, state.SweepResult{Groups: 17, Bytes: 17 * one})
	d.holds()
}

// sweepLargeGroup: a group that is too large for one short step is unreadable at once all the same.
func sweepLargeGroup(d *driver) {
	var large []state.Item
	for i := range 18 {
		large = append(large, item(fmt.Sprintf("part %02d", i), "large", strings.Repeat("x", 1<<20)))
	}
	d.put(lease(0, 100), large...)
	small := item("small", "small", "x")
	d.put(lease(1, 100), small)
	ask := state.SweepRequest{Now: at(10), SpareAfter: at(10), MaxBytes: sizes(large...), Need: 1}
	if _, err := d.Sweep(d.ctx, ask); err != nil {
		d.Fatal(err)
	}
	for _, i := range large {
		d.hasNot(10, i.Key)
	}
	d.has(10, "small", "x")
	d.touch("large", lease(11, 100), false)
	ask = state.SweepRequest{Now: at(10), SpareAfter: at(10), MaxBytes: roomy}
	if _, err := d.Sweep(d.ctx, ask); err != nil {
		d.Fatal(err)
	}
	d.holds(small)
	d.put(lease(11, 100), large[:2]...) // and can be put again
	d.holds(large[0], large[1], small)
}
