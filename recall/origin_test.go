package recall

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
)

func from(servers ...string) Access {
	return func(o Origin) bool { return strings.Contains(strings.Join(servers, " "), o.Server) }
}

// An original is read by who may call one of the places it came from, and unknown to anybody else.
func TestOriginsDecideWhoMayRead(t *testing.T) {
	r, _ := open(t, nil)
	id, err := r.Keep(t.Context(), "t", "text", Origin{"git", "show"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.OpenFor(t.Context(), "t", id, from("files"))
	_, never := r.OpenFor(t.Context(), "t", r.ID("t", "never kept"), from("files"))
	if fault.KindOf(err) != fault.Unknown || fault.PublicOf(err) != fault.PublicOf(never) {
		t.Errorf("%v; of one that never was %v", err, never)
	}
	// The same text from another server, through any of the ways in.
	if _, err := r.KeepAll(t.Context(), "t", []Text{{Raw: [][]byte{[]byte("text")}, From: Origin{"files", "read"}}}); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"git", "files"} {
		if _, err := r.OpenFor(t.Context(), "t", id, from(who)); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// One request that has the same text of two tools names both.
func TestOriginsOfOneRequest(t *testing.T) {
	r, _ := open(t, nil)
	raw := [][]byte{[]byte("the same text")}
	kept, err := r.KeepAll(t.Context(), "t", []Text{{Raw: raw, From: Origin{"a", "x"}}, {Raw: raw, From: Origin{"b", "y"}}, {Raw: raw, From: Origin{"a", "x"}}})
	if err != nil || kept[0].ID != kept[1].ID || kept[2].ID != kept[1].ID {
		t.Fatalf("%v, %v", kept, err)
	}
	for _, who := range []string{"a", "b"} {
		if _, err := r.OpenFor(t.Context(), "t", kept[0].ID, from(who)); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// Sixteen origins are remembered. From the next one the text goes whole: nobody is shown an id that
// they cannot use, nobody loses one, and other texts of the same reply are cut.
func TestOriginsOverflow(t *testing.T) {
	r, _ := open(t, nil)
	text := strings.Repeat("the same page\n", 500)
	body := quote(text)
	cutFor := func(server string, body []byte) Shrunk {
		strs, _, err := jsonscan.New(body, 0).Long(nil, 4000)
		if err != nil {
			t.Fatal(err)
		}
		return r.Shrink(t.Context(), Doc{Tenant: "t", From: Origin{server, "get"}, Body: body, Strings: strs}, DefaultPolicy())
	}
	for i := range maxOrigins {
		if s := cutFor(fmt.Sprintf("server-%02d", i), body); s.Kept != 1 {
			t.Fatalf("origin %d: %+v", i, s)
		}
	}
	both := []byte(`[` + string(body) + `,` + string(quote(strings.Repeat("another\n", 900))) + `]`)
	if s := cutFor("one more", both); s.Whole != 1 || s.Kept != 1 || fault.KindOf(s.Err) != fault.Full {
		t.Errorf("from a seventeenth place: %+v", s)
	}
	raw := [][]byte{body[1 : len(body)-1]}
	kept, err := r.KeepAll(t.Context(), "t", []Text{{Raw: raw, From: Origin{"one more", "get"}}, {Raw: [][]byte{[]byte("other")}, From: pruned}})
	if err == nil || kept[0].ID != "" || kept[1].ID == "" {
		t.Errorf("%v, %v", kept, err)
	}
	if _, err := r.OpenFor(t.Context(), "t", r.ID("t", text), from("one more")); fault.KindOf(err) != fault.Unknown {
		t.Errorf("read by one whose text it never was: %v", err)
	}
	for i := range maxOrigins {
		if _, err := r.OpenFor(t.Context(), "t", r.ID("t", text), from(fmt.Sprintf("server-%02d", i))); err != nil {
			t.Errorf("origin %d: %v", i, err)
		}
	}
}
