package catalog

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/jsonscan"
)

func toolsNamed(server string, names ...string) serverOffer {
	o := serverOffer{server: server, known: true, prefix: "always"}
	for _, n := range names {
		o.items[Tools] = append(o.items[Tools], Item{Name: n, Raw: []byte(`{"description":"d","name":` + string(jsonscan.AppendQuoted(nil, n)) + `}`)})
	}
	return o
}

// The laws of shortened names: within the limit, of characters that model APIs accept, each of them different, always
// the same, and each leads back to its tool, as the long name does.
func TestShortenedNamesLaws(t *testing.T) {
	word := rapid.StringMatching(`[a-zA-Z0-9_./ é-]{1,70}`)
	rapid.Check(t, func(t *rapid.T) {
		offers := []serverOffer{
			toolsNamed("fs", rapid.SliceOfNDistinct(word, 1, 12, rapid.ID).Draw(t, "a")...),
			toolsNamed("a.server", rapid.SliceOfNDistinct(word, 1, 12, rapid.ID).Draw(t, "b")...),
		}
		c := build(offers, &Layout{Naming: Naming{Separator: "__", Prefix: "always"}})
		for _, limit := range []int{24, 50, 114} {
			f := Fit{MaxName: limit, PlainNames: true}
			view := c.For(f)
			if c.For(f) != view {
				t.Fatal("another view for the same limits")
			}
			if len(view.lists[Tools]) != len(c.lists[Tools]) || len(view.byShown[Tools]) != len(c.lists[Tools]) {
				t.Fatalf("%d tools, %d names", len(view.lists[Tools]), len(view.byShown[Tools]))
			}
			for i, e := range view.lists[Tools] {
				base := c.lists[Tools][i]
				if len(e.Shown) > limit || !IsPlain(e.Shown) || e.Name != base.Name || e.Server != base.Server {
					t.Fatalf("%q is listed as %q", base.Shown, e.Shown)
				}
				if fields, err := jsonscan.FieldsOf(e.Raw); err != nil || fields.Text("name") != e.Shown || fields.Text("description") != "d" {
					t.Fatalf("%s: %s", e.Shown, e.Raw)
				}
				if e.Shown == base.Shown {
					continue
				}
				if found, ok := c.FindShortened(e.Shown); !ok || found.Shown != base.Shown {
					t.Fatalf("%q leads to %q", e.Shown, found.Shown)
				}
			}
		}
	})
}

// A name that fits is not changed, and where all fit the clients share one list.
func TestNamesThatFitStay(t *testing.T) {
	c := build([]serverOffer{toolsNamed("fs", "read_file", "list-all")}, &Layout{Naming: Naming{Separator: "__"}})
	if c.For(Fit{MaxName: 50, PlainNames: true}) != c || c.For(Fit{}) != c {
		t.Error("another list without a reason")
	}
	f := Fit{MaxName: 40, PlainNames: true}
	for name, want := range map[string]string{
		"fs__read_file":                  "fs__read_file",
		"fs__read.file":                  "fs__read_file_" + hashOfName("fs__read.file"),
		"fs__read/file":                  "fs__read_file_" + hashOfName("fs__read/file"),
		"é":                              "_" + hashOfName("é"),
		"fs__" + strings.Repeat("x", 60): "fs__" + strings.Repeat("x", 27) + "_" + hashOfName("fs__"+strings.Repeat("x", 60)),
	} {
		if got := f.fitName(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
	if got := (Fit{MaxName: 40}).fitName("fs::read.file"); got != "fs::read.file" {
		t.Errorf("got %q", got)
	}
	for name, want := range map[string]bool{"a_0123abcd": true, "_0123abcd": true, "a_0123abcx": false, "a-0123abcd": false, "0123abcd": false, "": false} {
		if LooksShortened(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// A catalog remembers a bounded number of views.
func TestViewsAreBounded(t *testing.T) {
	c := build([]serverOffer{toolsNamed("fs", strings.Repeat("x", 200))}, &Layout{Naming: Naming{Separator: "__"}})
	for i := range 3 * maxViews {
		f := Fit{MaxName: 24 + i, EditKey: fmt.Sprint(i), Edit: func(e Entry) ([]byte, bool) { return e.Raw, false }}
		if view := c.For(f); len(view.lists[Tools][0].Shown) > 24+i {
			t.Errorf("limit %d: %s", 24+i, view.lists[Tools][0].Shown)
		}
		c.LongDescriptions(i)
	}
	if len(c.views.byFit) != maxViews || len(c.views.longText) != maxViews {
		t.Errorf("%d views, %d lists", len(c.views.byFit), len(c.views.longText))
	}
}
