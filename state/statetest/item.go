package statetest

import (
	"bytes"
	"strings"

	"github.com/ctxgate/ctxgate/state"
)

func putGet(d *driver) {
	d.holds()
	d.hasNot(0, "a")
	a, b, c := item("a", "g", "one"), item("b", "g", "two"), item("c", "h", "three")
	d.put(lease(0, 100), a, b)
	d.put(lease(0, 100), c)
	d.has(0, "a", "one")
	d.has(0, "b", "two")
	d.has(0, "c", "three")
	d.hasNot(0, "", "A", "a ", "g", "h")
	d.holds(a, b, c)
	d.put(lease(0, 100)) // nothing to put is nothing put
	d.holds(a, b, c)
}

func anyBytes(d *driver) {
	var every strings.Builder
	for b := range 256 {
		every.WriteByte(byte(b))
	}
	mebi := strings.Repeat(every.String(), 1<<12)
	items := []state.Item{
		item("", "", "the empty key of the empty group"),
		item("empty", "g", ""),
		{Key: "nil", Group: "g"},
		item("nul", "g", "\x00"),
		item("a\x00b", "g", "a NUL within"),
		item("a\x00", "g", "a NUL at the end"),
		item("a", "g", "none"),
		item("\xff\xfe", "\xff", "not UTF-8"),
		item("1", "g", "a number as text"),
		item("01", "g", "another"),
		item("key' OR 1=1 --", "g'; --", "quotes"),
		item("Key", "g", "upper"),
		item("key", "g", "lower"),
		item(every.String(), every.String(), every.String()),
		item("mebi", "big", mebi),
		item(strings.Repeat("k", 4096), "big", "long key"),
	}
	d.put(lease(0, 100), items...)
	for _, i := range items {
		d.has(0, i.Key, string(i.Value))
	}
	d.holds(items...)
	for _, group := range []string{"", "g", "\xff", "g'; --", every.String(), "big"} {
		d.touch(group, lease(1, 101), true)
	}
	d.touch("G", lease(1, 101), false)
}

func copies(d *driver) {
	value := []byte("as it was")
	i := state.Item{Key: "a", Group: "g", Value: value}
	d.put(lease(0, 100), i)
	got, err := d.get("a", at(0))
	if err != nil {
		d.Fatal(err)
	}
	copy(got, "changed..")
	d.has(0, "a", "as it was")
	if !bytes.Equal(value, []byte("as it was")) {
		d.Error("a reader's change reached the writer's bytes")
	}
}

func overwrite(d *driver) {
	old := item("a", "g", "a longer value")
	d.put(lease(0, 100), old, item("b", "g", "stays"))
	for _, value := range []string{"short", "", "the longest value of them all", "same size!", "same size?"} {
		d.put(lease(0, 100), item("a", "g", value))
		d.has(0, "a", value)
		d.holds(item("a", "g", value), item("b", "g", "stays"))
	}
	// The only item of its group, over itself.
	d.put(lease(0, 100), item("c", "alone", "1"))
	d.put(lease(0, 50), item("c", "alone", "22"))
	d.has(99, "c", "22")
	d.hasNot(100, "c")
}

func sameKeyTwice(d *driver) {
	d.put(lease(0, 100), item("a", "g", "first"), item("a", "g", "second"))
	d.has(0, "a", "second")
	d.holds(item("a", "g", "second"))
}

// atomicBatch reads while large batches are put: a reader that sees the last item of a batch must see
// the first, and the totals change by whole batches only.
func atomicBatch(d *driver) {
	const parts, size = 8, 32 << 10
	value := strings.Repeat("x", size)
	batch := func(group string) (items []state.Item) {
		for p := range parts {
			items = append(items, item(group+string(rune('0'+p)), group, value))
		}
		return items
	}
	whole := sizes(batch("a")...)
	done := make(chan error)
	go func() {
		var err error
		for g := 'a'; g <= 'j' && err == nil; g++ {
			err = d.Put(d.ctx, batch(string(g)), lease(0, 100))
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				d.Fatal(err)
			}
			return
		default:
		}
		stat, err := d.Stat(d.ctx)
		if err != nil || !d.isApart && stat.Bytes%whole != 0 || stat.Items%parts != 0 {
			d.Errorf("half a batch is visible: %+v, %v", stat, err)
		}
		for g := 'a'; g <= 'j'; g++ {
			if _, err := d.get(string(g)+"7", at(0)); err == nil {
				d.has(0, string(g)+"0", value)
			}
		}
	}
}

func drop(d *driver) {
	keep := item("c", "h", "kept")
	d.put(lease(0, 100), item("a", "g", "1"), item("b", "g", "2"), keep)
	for range 2 { // the second time there is nothing to drop
		if err := d.Drop(d.ctx, "g"); err != nil {
			d.Fatalf("Drop: %v", err)
		}
		d.hasNot(0, "a", "b")
		d.has(0, "c", "kept")
		d.holds(keep)
	}
	d.touch("g", lease(1, 101), false)
	d.put(lease(0, 100), item("a", "g", "again"))
	d.has(0, "a", "again")
	d.hasNot(0, "b")
}
