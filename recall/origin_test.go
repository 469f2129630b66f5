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

// A reader who may call one of an original's origins can read it; to any other it is unknown.
func TestOriginsDecideWhoMayRead(t *testing.T) {
	r, _ := open(t, nil)
	id, err := r.StoreText(t.Context(), "t", "text", Origin{Server: "git", Tool: "show"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.OpenFor(t.Context(), "t", id, from("files"))
	_, never := r.OpenFor(t.Context(), "t", r.ID("t", "never stored"), from("files"))
	if fault.KindOf(err) != fault.UnknownHandle || fault.PublicOf(err) != fault.PublicOf(never) {
		t.Errorf("%v; of one that never was %v", err, never)
	}
	// The same text from another server, through any of the ways in.
	if _, err := r.StoreAll(t.Context(), "t", []StoreRequest{{Raw: [][]byte{[]byte("text")}, Origin: Origin{Server: "files", Tool: "read"}}}); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"git", "files"} {
		if _, err := r.OpenFor(t.Context(), "t", id, from(who)); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// A request with the same text from two tools stores both origins.
func TestOriginsOfOneRequest(t *testing.T) {
	r, _ := open(t, nil)
	raw := [][]byte{[]byte("the same text")}
	receipts, err := r.StoreAll(t.Context(), "t", []StoreRequest{{Raw: raw, Origin: Origin{Server: "a", Tool: "x"}}, {Raw: raw, Origin: Origin{Server: "b", Tool: "y"}}, {Raw: raw, Origin: Origin{Server: "a", Tool: "x"}}})
	if err != nil || receipts[0].ID != receipts[1].ID || receipts[2].ID != receipts[1].ID {
		t.Fatalf("%v, %v", receipts, err)
	}
	for _, who := range []string{"a", "b"} {
		if _, err := r.OpenFor(t.Context(), "t", receipts[0].ID, from(who)); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// An original has at most sixteen origins. From a 17th the text goes whole: no reader gets an id that it
// cannot use, none loses one, and other texts of the same reply are cut.
func TestOriginsOverflow(t *testing.T) {
	r, _ := open(t, nil)
	text := strings.Repeat("the same page\n", 500)
	body := quote(text)
	cutFor := func(server string, body []byte) ShrinkResult {
		strs, _, err := jsonscan.New(body, 0).LongStrings(nil, 4000)
		if err != nil {
			t.Fatal(err)
		}
		return r.Shrink(t.Context(), ShrinkRequest{Tenant: "t", Origin: Origin{Server: server, Tool: "get"}, Body: body, Strings: strs}, DefaultPolicy())
	}
	for i := range maxOrigins {
		if s := cutFor(fmt.Sprintf("server-%02d", i), body); s.Recoverable != 1 {
			t.Fatalf("origin %d: %+v", i, s)
		}
	}
	both := []byte(`[` + string(body) + `,` + string(quote(strings.Repeat("another\n", 900))) + `]`)
	if s := cutFor("one more", both); s.PassedWhole != 1 || s.Recoverable != 1 || fault.KindOf(s.Err) != fault.Full {
		t.Errorf("from a seventeenth place: %+v", s)
	}
	raw := [][]byte{body[1 : len(body)-1]}
	receipts, err := r.StoreAll(t.Context(), "t", []StoreRequest{{Raw: raw, Origin: Origin{Server: "one more", Tool: "get"}}, {Raw: [][]byte{[]byte("other")}, Origin: pruned}})
	if err == nil || receipts[0].ID != "" || receipts[1].ID == "" {
		t.Errorf("%v, %v", receipts, err)
	}
	if _, err := r.OpenFor(t.Context(), "t", r.ID("t", text), from("one more")); fault.KindOf(err) != fault.UnknownHandle {
		t.Errorf("read by one whose text it never was: %v", err)
	}
	for i := range maxOrigins {
		if _, err := r.OpenFor(t.Context(), "t", r.ID("t", text), from(fmt.Sprintf("server-%02d", i))); err != nil {
			t.Errorf("origin %d: %v", i, err)
		}
	}
}
