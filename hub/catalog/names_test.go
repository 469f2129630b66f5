package catalog

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/mcp"
)

// FuzzNames (A3): splitting undoes prefixing, and no name leads to an unknown server.
func FuzzNames(f *testing.F) {
	for _, seed := range [][4]string{
		{"a", "x", "::", "a::x"}, {"a_b", "c_d", "_", "a_b_c_d"}, {"a", ":x", "::", "a:::x"}, {"a.b", "file:///ü?q=a b#c", ".", "proxy://resource/e30"},
		{"a", "mem://{x}", "__", "proxy://template/a/mem://1"}, {"é", "\"\\\u2028", "/", "proxy://resource/eyJzZXJ2ZXIiOiJhIiwidXJpIjoieCJ9=="},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, server, name, sep, any string) {
		if server == "" || name == "" || sep == "" {
			return
		}
		known := func(s string) bool { return s == server }
		for _, shown := range []string{server + sep + name, server + defaultSeparator + name, server + agentsSeparator + name, any} {
			got, rest, ok := SplitName(shown, sep, known)
			if ok && (got != server || shown != got+sep+rest && shown != got+defaultSeparator+rest && shown != got+agentsSeparator+rest) {
				t.Errorf("%q with %q leads to %q, %q", shown, sep, got, rest)
			}
			if !ok && shown != any {
				t.Errorf("%q with %q leads nowhere", shown, sep)
			}
		}
		SplitURI(any)
		if !utf8.ValidString(server) || !utf8.ValidString(name) {
			return
		}
		shown := PrefixedURI(server, name)
		if s, uri, ok := SplitURI(shown); !ok || s != server || uri != name {
			t.Errorf("%s is %q, %q, %v", shown, s, uri, ok)
		}
		if s, uri, ok := SplitURI(prefixedName(Templates, server, name, Naming{})); !strings.Contains(server, "/") && (!ok || s != server || uri != name) {
			t.Errorf("%s is %q, %q, %v", prefixedName(Templates, server, name, Naming{}), s, uri, ok)
		}
	})
}

// listed returns a catalog with prompts of these names.
func listed(names ...string) *Catalog {
	c := &Catalog{generation: "now"}
	c.byShown[Prompts] = map[string]int{}
	for i, n := range names {
		c.lists[Prompts] = append(c.lists[Prompts], Entry{Shown: n, Raw: []byte(`{"name":"` + n + `"}`)})
		c.byShown[Prompts][n] = i
	}
	return c
}

func pageParams(t testing.TB, params string) mcp.Params {
	t.Helper()
	p, err := mcp.ParseParams([]byte(params))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// FuzzCursor (A6): any cursor is refused or names a place in the list.
func FuzzCursor(f *testing.F) {
	c := listed("a", "b", "c", "d", "e")
	good := c.cursor(2, "b")
	for _, seed := range []string{"", good, good[:7], good + "=", c.cursor(99, "x"), base64.StdEncoding.EncodeToString([]byte(`{"offset":-1}`)), "e30", "!"} {
		f.Add(seed, uint16(3), byte(1))
	}
	f.Fuzz(func(t *testing.T, text string, at uint16, mask byte) {
		tampered := []byte(good)
		tampered[int(at)%len(tampered)] ^= mask
		for _, s := range []string{text, string(tampered)} {
			if !utf8.ValidString(s) {
				continue
			}
			from, limit, err := c.pageBounds(Prompts, pageParams(t, `{"cursor":`+string(mcp.Quote(s))+`}`), 2)
			if err == nil && (from < 0 || from > len(c.lists[Prompts]) || limit != 2) {
				t.Errorf("%q: from %d, limit %d", s, from, limit)
			}
		}
	})
}

// A6: a cursor of an earlier list still works if its item is still listed, and is refused otherwise; in either
// alphabet, padded or not; with the offset alone, too.
func TestCursorA6(t *testing.T) {
	old := listed("a", "b", "ÿÿ>?", "d")
	old.generation = "before"
	now := listed("0", "a", "ÿÿ>?", "d")
	enc := base64.StdEncoding.EncodeToString
	made, err := base64.RawURLEncoding.DecodeString(old.cursor(3, "ÿÿ>?"))
	if err != nil || string(made) != `{"offset":3,"generation":"before","after":"ÿÿ>?"}` {
		t.Fatalf("%s, %v", made, err)
	}
	for name, tt := range map[string]struct {
		cursor string
		from   int // -1 for refused
	}{
		"none":              {``, 0},
		"null":              {`null`, 0},
		"of now":            {now.cursor(2, "a"), 2},
		"of before":         {old.cursor(3, "ÿÿ>?"), 3},
		"of before, moved":  {old.cursor(1, "a"), 2},
		"of before, gone":   {old.cursor(2, "b"), -1},
		"padded, standard":  {enc(made), 3},
		"padded, URL":       {base64.URLEncoding.EncodeToString(made), 3},
		"standard, bare":    {base64.RawStdEncoding.EncodeToString(made), 3},
		"offset alone":      {enc([]byte(`{"offset":2}`)), 2},
		"the end":           {enc([]byte(`{"offset":4}`)), 4},
		"beyond the end":    {enc([]byte(`{"offset":6}`)), -1},
		"negative":          {enc([]byte(`{"offset":-1}`)), -1},
		"no number":         {enc([]byte(`{"offset":"1"}`)), -1},
		"half":              {enc([]byte(`{"offset":1.5}`)), -1},
		"overflow":          {enc([]byte(`{"offset":99999999999999999999}`)), -1},
		"no offset":         {enc([]byte(`{}`)), -1},
		"no object":         {enc([]byte(`[1]`)), -1},
		"two objects":       {enc([]byte(`{"offset":1}{}`)), -1},
		"two offsets":       {enc([]byte(`{"offset":1,"offset":2}`)), -1},
		"not base64":        {"%%%", -1},
		"empty":             {"", 0},
		"of now, tampered":  {now.cursor(9, "a"), -1},
		"of now, no string": {`1`, -1},
	} {
		raw := tt.cursor
		if raw != "" && raw != "null" && raw != "1" {
			raw = string(mcp.Quote(raw))
		}
		params := `{"cursor":` + raw + `}`
		if raw == "" {
			params = `{}`
		}
		from, _, err := now.pageBounds(Prompts, pageParams(t, params), 2)
		if err != nil {
			from = -1
		}
		if from != tt.from {
			t.Errorf("%s: got %d (%v), want %d", name, from, err, tt.from)
		}
	}
}

// A6: limit is at least 1, and never more than page_size.
func TestLimitA6(t *testing.T) {
	c := listed("a", "b", "c")
	for params, want := range map[string]int{
		`{}`: 2, `{"limit":1}`: 1, `{"limit":2}`: 2, `{"limit":1000}`: 2, `{"limit":0}`: 0, `{"limit":-1}`: 0, `{"limit":1.5}`: 0, `{"limit":"1"}`: 0, `{"limit":null}`: 0,
	} {
		_, limit, err := c.pageBounds(Prompts, pageParams(t, params), 2)
		if limit != want || (err != nil) != (want == 0) {
			t.Errorf("%s: got %d, %v", params, limit, err)
		}
	}
}

// A3: the longest known id counts, and the default separator before the configured one.
func TestSplitName(t *testing.T) {
	ids := []string{"a", "a_b", "a.b", "a-"}
	known := func(s string) bool { return slices.Contains(ids, s) }
	for _, tt := range []struct{ shown, sep, server, name string }{
		{"a::x", "::", "a", "x"}, {"a::x", "_", "a", "x"}, {"a_x", "_", "a", "x"}, {"a_b_x", "_", "a_b", "x"}, {"a_b::x", "_", "a_b", "x"},
		{"a::b::x", "::", "a", "b::x"}, {"a_b_a_b_x", "_", "a_b", "a_b_x"}, {"a:::x", "::", "a", ":x"}, {"a___x", "__", "a", "_x"},
		{"a.b.c", ".", "a.b", "c"}, {"a--x", "-", "a-", "x"}, {"a--x", "--", "a", "x"}, {"a::", "::", "a", ""}, {"a_b::c_x", "_", "a_b", "c_x"},
		{"a__x", "::", "a", "x"}, {"a_b__x", "::", "a_b", "x"}, {"a__x::y", "::", "a", "x::y"}, {"a__x", "-", "a", "x"}, {"b__x", "::", "", ""},
		{"b::x", "::", "", ""}, {"::x", "::", "", ""}, {"a", "::", "", ""}, {"", "::", "", ""}, {"a:x", "::", "", ""}, {"A::x", "::", "", ""},
	} {
		server, name, ok := SplitName(tt.shown, tt.sep, known)
		if server != tt.server || name != tt.name || ok != (tt.server != "") {
			t.Errorf("%q with %q: got %q, %q, %v", tt.shown, tt.sep, server, name, ok)
		}
	}
}

// Templates change with resources.
func TestTemplatesChangeWithResources(t *testing.T) {
	o := serverOffer{server: "a", known: true, prefix: "never"}
	before := build([]serverOffer{o}, &Layout{})
	o.items[Templates] = []Item{{Name: "f://{x}", Raw: []byte(`{"uriTemplate":"f://{x}"}`)}}
	after := build([]serverOffer{o}, &Layout{})
	var s SeenLists
	s.SetAll(before)
	if s.Update(Tools, after) {
		t.Error("the tools changed")
	}
	if !s.Update(Resources, after) || s.Update(Resources, after) {
		t.Error("the resources did not change once")
	}
}
