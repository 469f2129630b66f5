package statetest

import (
	"time"

	"github.com/ctxgate/ctxgate/state"
)

func expiry(d *driver) {
	a, b := item("a", "g", "1"), item("b", "h", "2")
	d.put(lease(0, 10), a)
	d.put(lease(0, 20), b)
	d.has(9, "a", "1")
	d.hasNot(10, "a") // the moment itself is too late
	d.has(10, "b", "2")
	d.hasNot(1<<40, "a", "b")
	d.holds(a, b) // until they are swept
	d.has(9, "a", "1")
}

func putExtends(d *driver) {
	d.put(lease(0, 10), item("a", "g", "1"))
	d.put(lease(5, 20), item("b", "g", "2"))
	d.has(19, "a", "1") // the group has one lease
	d.put(lease(3, 12), item("c", "g", "3"))
	d.has(19, "a", "1")
	d.has(19, "c", "3")
	d.hasNot(20, "a", "b", "c")
	// Seen was not set back by the last Put either: at 4 it is still spared.
	d.sweep(state.SweepRequest{Now: at(6), SpareAfter: at(4)}, state.SweepResult{})
	d.has(6, "a", "1")
}

func putRevivesNothing(d *driver) {
	d.put(lease(0, 10), item("a", "g", "old"), item("b", "g", "old"))
	d.put(lease(10, 20), item("a", "g", "new"))
	d.has(10, "a", "new")
	d.hasNot(10, "b")
	d.holds(item("a", "g", "new"))
}

func touchExtends(d *driver) {
	d.touch("g", lease(0, 10), false)
	d.holds() // and made nothing
	a, b := item("a", "g", "1"), item("b", "g", "2")
	d.put(lease(0, 10), a, b)
	d.put(lease(0, 10), item("c", "h", "3"))
	d.touch("g", lease(9, 30), true)
	d.has(29, "a", "1")
	d.has(29, "b", "2")
	d.hasNot(30, "a", "b")
	d.hasNot(10, "c")
	d.holds(a, b, item("c", "h", "3"))
}

func touchNeverShortens(d *driver) {
	a := item("a", "g", "1")
	d.put(lease(10, 100), a)
	d.touch("g", lease(5, 50), true)
	d.has(99, "a", "1")
	d.sweep(state.SweepRequest{Now: at(20), SpareAfter: at(9)}, state.SweepResult{}) // Seen is still 10
	// Each time moves by itself.
	d.touch("g", lease(20, 50), true)
	d.has(99, "a", "1")
	d.sweep(state.SweepRequest{Now: at(20), SpareAfter: at(19)}, state.SweepResult{})
	d.touch("g", lease(5, 200), true)
	d.has(199, "a", "1")
	d.sweep(state.SweepRequest{Now: at(20), SpareAfter: at(19)}, state.SweepResult{})
	d.sweep(state.SweepRequest{Now: at(20), SpareAfter: at(20)}, state.SweepResult{Groups: 1, Bytes: a.Size()})
}

func touchExpired(d *driver) {
	d.put(lease(0, 10), item("a", "g", "1"))
	d.touch("g", lease(10, 20), false)
	d.hasNot(10, "a")
	d.hasNot(15, "a")
}

// touchGranularity: a driver must move the times by the granularity; below it may leave them.
func touchGranularity(d *driver) {
	coarse := func(seen, expires int) state.Lease {
		l := lease(seen, expires)
		l.Granularity = 10 * time.Millisecond
		return l
	}
	a := item("a", "g", "1")
	d.put(lease(0, 1000), a)
	d.touch("g", coarse(9, 1009), true)
	d.has(999, "a", "1")
	d.touch("g", coarse(10, 1010), true) // as far as the grain: this one counts
	d.has(1009, "a", "1")
	d.sweep(state.SweepRequest{Now: at(20), SpareAfter: at(9)}, state.SweepResult{})
	d.touch("g", coarse(11, 2000), true) // one of the two is enough
	d.has(1999, "a", "1")
	d.touch("g", coarse(500, 2000), true)
	d.sweep(state.SweepRequest{Now: at(500), SpareAfter: at(499)}, state.SweepResult{})
	d.touch("g", coarse(2000, 2001), false) // within the grain, but gone
}
