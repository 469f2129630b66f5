package statetest

import (
	"fmt"
	"slices"

	"github.com/ctxgate/ctxgate/state"
)

// keys lists the keys under a prefix at this time, page by page.
func (d *driver) keys(ms int, prefix string, page int) []string {
	d.Helper()
	var keys []string
	for after := ""; ; after = keys[len(keys)-1] {
		got, err := d.List(d.ctx, state.ListRequest{Prefix: prefix, After: after, Limit: page, Now: at(ms)})
		if err != nil || len(got) > page {
			d.Fatalf("List(%q) after %q: %d entries, %v; at most %d were asked for", prefix, after, len(got), err, page)
		}
		for _, e := range got {
			keys = append(keys, e.Key)
		}
		if len(got) < page {
			return keys
		}
	}
}

func (d *driver) lists(ms int, prefix string, want ...string) {
	d.Helper()
	for _, page := range []int{1, 2, 1000} {
		if got := d.keys(ms, prefix, page); !slices.Equal(got, want) {
			d.Errorf("List(%q) in pages of %d = %q; want %q", prefix, page, got, want)
		}
	}
}

// list reads keys in order, in pages of any size, and says when each was used.
func list(d *driver) {
	d.lists(0, "")
	d.put(lease(0, 1000), item("b/2", "g", "x"), item("a/1", "g", "x"), item("b/10", "g", "x"), item("c", "h", "x"), item("b", "h", "x"))
	d.lists(0, "", "a/1", "b", "b/10", "b/2", "c")
	d.lists(0, "b/", "b/10", "b/2")
	d.lists(0, "b/3")
	d.touch("h", lease(500, 1500), true)
	got, err := d.List(d.ctx, state.ListRequest{Prefix: "b", Limit: 2, Now: at(600)})
	if err != nil || len(got) != 2 || !got[0].LastUsed.Equal(at(500)) || !got[1].LastUsed.Equal(at(0)) {
		d.Errorf("List = %v, %v; the first was used at %v, the second at %v", got, err, at(500), at(0))
	}
	var many []state.Item
	for i := range 300 {
		many = append(many, item(fmt.Sprintf("many/%03d", i), fmt.Sprint("group ", i), "x"))
	}
	d.put(lease(0, 1000), many...)
	if got := d.keys(1, "many/", 7); len(got) != 300 || got[0] != "many/000" || got[299] != "many/299" {
		d.Errorf("%d of 300 keys", len(got))
	}
}

// listAnyBytes finds keys that are not text, at both ends of the order.
func listAnyBytes(d *driver) {
	d.put(lease(0, 1000), item("\x00", "g", "x"), item("a\xff", "g", "x"), item("a\xff\xff1", "g", "x"), item("a\xc3\xa9", "g", "x"), item("b", "g", "x"), item("\xff\xff", "g", "x"), item("\xff\xff\x00", "g", "x"))
	d.lists(0, "a\xff", "a\xff", "a\xff\xff1")
	d.lists(0, "a\xc3", "a\xc3\xa9")
	d.lists(0, "a\xfe")
	d.lists(0, "\xff", "\xff\xff", "\xff\xff\x00")
	d.lists(0, "\x00", "\x00")
	d.lists(0, "%")
}

func listLeavesOutExpired(d *driver) {
	d.put(lease(0, 100), item("k/old", "old", "x"))
	d.put(lease(0, 1000), item("k/new", "new", "x"))
	d.lists(99, "k/", "k/new", "k/old")
	d.lists(100, "k/", "k/new")
	if err := d.Drop(d.ctx, "new"); err != nil {
		d.Fatal(err)
	}
	d.lists(100, "k/")
}
