package statetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ctxgate/ctxgate/state"
)

func owned(owner, key, group, value string) state.Item {
	i := item(key, group, value)
	i.Owner = owner
	return i
}

func (d *driver) putIf(l state.Lease, cond state.Condition, want bool, items ...state.Item) {
	d.Helper()
	held, err := d.PutIf(d.ctx, cond, items, l)
	if err != nil || held != want {
		d.Fatalf("PutIf(%.40q) = %v, %v; want %v", cond.Key, held, err, want)
	}
}

// putIf stores all or nothing, as the condition says.
func putIf(d *driver) {
	absent, is := state.Condition{Group: "k", Key: "k"}, func(value string) state.Condition {
		return state.Condition{Group: "k", Key: "k", Value: []byte(value)}
	}
	d.putIf(lease(0, 100), is("1"), false, item("a", "a", "x"))
	d.putIf(lease(0, 100), is(""), false, item("a", "a", "x"))
	d.hasNot(0, "a", "k")
	d.putIf(lease(0, 100), absent, true, item("k", "k", "1"))
	d.putIf(lease(0, 100), absent, false, item("k", "k", "2"), item("a", "a", "x"))
	d.has(0, "k", "1")
	d.hasNot(0, "a")
	d.putIf(lease(0, 1000), is("1"), true, item("a", "a", "x"), item("b", "b", "y"))
	d.has(0, "a", "x")
	d.has(0, "b", "y")
	d.putIf(lease(0, 100), is("2"), false, item("a", "a", "z"))
	d.putIf(lease(0, 100), is("11"), false, item("a", "a", "z"))
	d.has(0, "a", "x")
	// What has expired is not there.
	d.putIf(lease(100, 200), is("1"), false, item("a", "a", "z"))
	d.putIf(lease(100, 200), absent, true, item("k", "k", ""))
	d.putIf(lease(100, 200), absent, false, item("k", "k", "3"))
	d.putIf(lease(100, 200), is(""), true, item("k", "k", "3"))
	if err := d.Drop(d.ctx, "k"); err != nil {
		d.Fatal(err)
	}
	d.putIf(lease(100, 200), is("3"), false, item("a", "a", "z"))
	d.has(0, "a", "x")
}

// putOver replaces what is expected and nothing else, and then nothing of the group.
func putOver(d *driver) {
	over := func(i state.Item, value []byte) state.Item {
		i.Over = &state.Expected{Value: value}
		return i
	}
	d.put(lease(0, 100), over(item("a", "g", "1"), nil))
	d.mustBe(d.Put(d.ctx, []state.Item{item("b", "g", "x"), over(item("a", "g", "2"), nil)}, lease(0, 100)), state.ErrConflict)
	d.mustBe(d.Put(d.ctx, []state.Item{over(item("a", "g", "2"), []byte("0")), item("b", "g", "x")}, lease(0, 100)), state.ErrConflict)
	d.mustBe(d.Put(d.ctx, []state.Item{over(item("b", "g", "x"), []byte(""))}, lease(0, 100)), state.ErrConflict)
	d.has(0, "a", "1")
	d.hasNot(0, "b")
	d.put(lease(0, 100), item("k", "k", "condition"))
	held, err := d.PutIf(d.ctx, state.Condition{Group: "k", Key: "k", Value: []byte("condition")}, []state.Item{over(item("a", "g", "2"), []byte("0"))}, lease(0, 100))
	if held {
		d.Error("a put over another value held")
	}
	d.mustBe(err, state.ErrConflict)
	d.putIf(lease(0, 100), state.Condition{Group: "k", Key: "k", Value: []byte("condition")}, true, over(item("a", "g", "2"), []byte("1")), item("b", "g", "y"))
	d.has(0, "a", "2")
	d.has(0, "b", "y")
	d.holds(item("a", "g", "2"), item("b", "g", "y"), item("k", "k", "condition"))
	// What has expired is not there.
	d.mustBe(d.Put(d.ctx, []state.Item{over(item("a", "g", "3"), []byte("2"))}, lease(100, 200)), state.ErrConflict)
	d.put(lease(100, 200), over(item("a", "g", "3"), nil))
	d.has(100, "a", "3")
	var done atomic.Int64
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			if err := d.Put(d.ctx, []state.Item{over(item("once", "once", strconv.Itoa(n)), nil)}, lease(0, 100)); err == nil {
				done.Add(1)
			}
		})
	}
	wg.Wait()
	if n := done.Load(); n != 1 {
		d.Errorf("%d of 16 put where nothing was", n)
	}
}

// putIfOnce: of many that put under an absent key at once, one does.
func putIfOnce(d *driver) {
	var held atomic.Int64
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			ok, err := d.PutIf(d.ctx, state.Condition{Group: "k", Key: "k"}, []state.Item{item("k", "k", strconv.Itoa(n))}, lease(0, 100))
			if err != nil {
				d.Errorf("PutIf: %v", err)
			}
			if ok {
				held.Add(1)
				d.has(0, "k", strconv.Itoa(n))
			}
		})
	}
	wg.Wait()
	if n := held.Load(); n != 1 {
		d.Errorf("%d of 16 put under the absent key", n)
	}
}

func (d *driver) owns(prefix string, want ...state.OwnerStat) {
	d.Helper()
	isSame := func(a, b state.OwnerStat) bool { return a.Owner == b.Owner && d.sameBytes(a.Bytes, b.Bytes) }
	if got, err := d.Owners(d.ctx, prefix); err != nil || !slices.EqualFunc(got, want, isSame) {
		d.Fatalf("Owners(%q) = %v, %v; want %v", prefix, got, err, want)
	}
}

// ownerTotals: the total of an owner follows whatever happens to its groups.
func ownerTotals(d *driver) {
	is := func(owner string, items ...state.Item) state.OwnerStat {
		return state.OwnerStat{Owner: owner, Bytes: sizes(items...)}
	}
	d.owns("")
	a, b, c := owned("x/1", "a", "g", "one"), owned("x/2", "b", "h", "three"), item("c", "c", "nobody's")
	d.put(lease(0, 100), a)
	d.put(lease(0, 100), b)
	d.put(lease(0, 100), c)
	d.owns("", is("", c), is("x/1", a), is("x/2", b))
	d.owns("x/", is("x/1", a), is("x/2", b))
	d.owns("x/2", is("x/2", b))
	d.owns("x/3")
	d.owns("y")
	// An overwrite, another item in another's group, and a group that changes hands.
	a.Value = []byte("a longer one")
	d.put(lease(0, 100), a)
	d.owns("x/1", is("x/1", a))
	second := owned("x/2", "e", "h", "beside b")
	d.put(lease(0, 100), second)
	d.owns("x/", is("x/1", a), is("x/2", b, second))
	more := owned("x/1", "d", "h", "of another")
	d.put(lease(0, 100), more)
	d.owns("x/", is("x/1", a, b, second, more))
	// Pinned groups do not count.
	pin := owned("x/1", "p", "p", "pinned")
	pin.Pinned = true
	d.put(lease(0, 100), pin)
	d.owns("x/", is("x/1", a, b, second, more))
	more.Pinned = true
	d.put(lease(0, 100), more)
	d.owns("x/", is("x/1", a))
	if err := d.Drop(d.ctx, "h"); err != nil {
		d.Fatal(err)
	}
	d.owns("x/1", is("x/1", a))
	d.sweep(state.SweepRequest{Now: at(100), SpareAfter: at(100), MaxBytes: roomy}, state.SweepResult{Groups: 3, Bytes: sizes(a, c, pin)})
	d.owns("")
}

func dropOwners(d *driver) {
	before := d.epoch()
	var xs []state.Item
	for i := range 300 {
		name := fmt.Sprint("x", i)
		xs = append(xs, owned("x/1", name, name, "text"))
	}
	d.put(lease(0, 1000), xs...)
	token, kept, other := owned("x/1", "t", "t", "token"), owned("x/2", "k", "k", "new"), owned("x0", "o", "o", "of x0")
	token.Pinned = true
	for _, i := range []state.Item{token, kept, other, item("own", "own", "the gateway's")} {
		d.put(lease(0, 1000), i)
	}
	drop := func(prefix, keep string, want state.SweepResult) {
		d.Helper()
		if got, err := d.DropOwners(d.ctx, prefix, keep); err != nil || !d.sameResult(got, want) {
			d.Fatalf("DropOwners(%q) = %+v, %v; want %+v", prefix, got, err, want)
		}
	}
	drop("none", "", state.SweepResult{})
	if d.epoch() != before {
		d.Error("nothing was dropped, but the epoch changed")
	}
	drop("x/", "x/2", state.SweepResult{Groups: 301, Bytes: sizes(append(xs, token)...)})
	if d.epoch() == before {
		d.Error("groups were dropped, but the epoch is the same")
	}
	d.hasNot(0, "x0", "x299", "t")
	d.has(0, "k", "new")
	d.has(0, "o", "of x0")
	d.has(0, "own", "the gateway's")
	d.owns("x/", state.OwnerStat{Owner: "x/2", Bytes: kept.Size()})
	drop("x/", "x/2", state.SweepResult{})
	drop("x/", "", state.SweepResult{Groups: 1, Bytes: kept.Size()})
	d.holds(other, item("own", "own", "the gateway's"))
}

// sweepOwner limits one owner: only its own groups go, the oldest first, and no spared one.
func sweepOwner(d *driver) {
	value := strings.Repeat("x", 98)
	for i := range 5 {
		d.put(lease(i, 1000), owned("a", fmt.Sprint("a", i), fmt.Sprint("a", i), value[2:]))
		d.put(lease(i, 1000), owned("b", fmt.Sprint("b", i), fmt.Sprint("b", i), value[2:]))
	}
	ask := state.SweepRequest{Now: at(10), SpareAfter: at(3), Owner: "a", OwnerMax: 500}
	d.sweep(ask, state.SweepResult{}) // it fits exactly
	ask.Need = 101
	d.sweep(ask, state.SweepResult{Groups: 2, Bytes: 200})
	d.hasNot(10, "a0", "a1")
	d.has(10, "a2", value[2:])
	ask.Need = 500
	d.sweep(ask, state.SweepResult{Groups: 2, Bytes: 200}) // the rest is spared
	d.has(10, "a4", value[2:])
	d.owns("", state.OwnerStat{Owner: "a", Bytes: 100}, state.OwnerStat{Owner: "b", Bytes: 500})
	// What has expired goes even if it was used a moment ago, and is no other owner's.
	d.put(lease(9, 10), owned("a", "a5", "a5", value[2:]), owned("a", "a6", "a6", value[2:]))
	ask.Need, ask.OwnerMax = 0, 200
	d.sweep(ask, state.SweepResult{Groups: 1, Bytes: 100})
	d.has(10, "a4", value[2:])
	d.owns("", state.OwnerStat{Owner: "a", Bytes: 200}, state.OwnerStat{Owner: "b", Bytes: 500})
}

// sweepLargestOwner: at the cap the owner that has most loses its oldest, and one with less than an equal part
// nothing, unless it needs the room itself.
func sweepLargestOwner(d *driver) {
	value := strings.Repeat("x", 96)
	put := func(owner string, n, seen int) {
		for i := range n {
			name := fmt.Sprintf("%s%d", owner, i)
			d.put(lease(seen+i, 1000), owned(owner, name, name, value))
		}
	}
	put("b", 2, 0) // the oldest of all
	put("c", 4, 10)
	put("a", 9, 20)
	has := func(a, b, c int64) {
		d.Helper()
		var want []state.OwnerStat
		for i, n := range []int64{a, b, c} {
			if n > 0 {
				want = append(want, state.OwnerStat{Owner: string(rune('a' + i)), Bytes: n * 100})
			}
		}
		d.owns("", want...)
	}
	has(9, 2, 4)
	d.sweep(state.SweepRequest{Now: at(90), SpareAfter: at(90), MaxBytes: 1500, Need: 100, Owner: "b"}, state.SweepResult{Groups: 1, Bytes: 100})
	has(8, 2, 4)
	d.hasNot(90, "a0")
	d.sweep(state.SweepRequest{Now: at(90), SpareAfter: at(23), MaxBytes: 1000}, state.SweepResult{Groups: 4, Bytes: 400})
	has(5, 2, 3) // from a4 on a is spared, and c had more than a third
	d.sweep(state.SweepRequest{Now: at(90), SpareAfter: at(15), MaxBytes: 0, Need: 1}, state.SweepResult{})
	d.sweep(state.SweepRequest{Now: at(90), SpareAfter: at(5), MaxBytes: 0, Need: 1, Owner: "b"}, state.SweepResult{Groups: 2, Bytes: 200})
	has(5, 0, 3)
}
