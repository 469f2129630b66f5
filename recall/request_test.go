package recall

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/fault"
)

// G+1, P6: arguments that are not JSON, or ask for something impossible, are refused, not guessed.
func TestParseReadRequest(t *testing.T) {
	for args, want := range map[string]error{
		`{"prune_id":"p"}`: nil,
		`{"prune_id":"p","ranges":null,"pattern":null,"chars":null,"include_line_numbers":null}`: nil,
		`{"prune_id":"p","ranges":[{"start_line":1,"end_line":2}],"pattern":"x"}`:                nil,
		`{"prune_id":"p","ranges":[{"start_line":2,"end_line":1}]}`:                              ErrRange,
		`{"prune_id":"p","ranges":[1]}`:                                                          ErrRange,
		`{"prune_id":"p","chars":"1-2,3"}`:                                                       errBadWish,
		`{"prune_id":"p","pattern":"("}`:                                                         errBadWish,
		`{"prune_id":"p","other":1}`:                                                             errBadWish,
		`{"prune_id":null}`:                                                                      errBadWish,
		`{"prune_id":"p"`:                                                                        errBadWish,
		`{"prune_id":"p"} x`:                                                                     errBadWish,
		`[]`:                                                                                     errBadWish,
		``:                                                                                       errBadWish,
	} {
		_, err := ParseReadRequest([]byte(args))
		switch {
		case want == nil && err != nil, want != nil && fault.KindOf(err) != fault.BadParams,
			errors.Is(err, ErrRange) != errors.Is(want, ErrRange):
			t.Errorf("%s: got %v", args, err)
		}
	}
}

var errBadWish = errors.New("bad")

// G+1: an answer that is too long is cut at its limit and ends with a hint; following the hints to the
// end returns the whole text.
func TestRecoverTextIsCutAtTheLimit(t *testing.T) {
	text := strings.Repeat("é漢 line\n", 700)
	r, _ := open(t, nil)
	id, err := r.StoreText(t.Context(), "t", text, Origin{})
	if err != nil {
		t.Fatal(err)
	}
	args, read := `{"prune_id":"`+id+`"}`, ""
	for n := 0; args != ""; n++ {
		w, err := ParseReadRequest([]byte(args))
		if err != nil || n > 10 {
			t.Fatal(n, err)
		}
		got, err := r.RecoverText(t.Context(), "t", w, anyOrigin, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if n := utf8.RuneCount(got); n > 1000 {
			t.Errorf("%d characters", n)
		}
		part, rest, cut := strings.Cut(string(got), "\n[cut after ")
		read, args = read+part, ""
		if cut {
			_, chars, _ := strings.Cut(rest, " chars=")
			args = `{"prune_id":"` + id + `","chars":"` + strings.TrimSuffix(chars, "]") + `"}`
		}
	}
	if read != text {
		t.Errorf("read %d bytes of %d", len(read), len(text))
	}
	w, _ := ParseReadRequest([]byte(`{"prune_id":"` + id + `","pattern":"line"}`))
	want := `[cut before line 3: search on with the same pattern, prune_id=` + id + ` ranges=[{"start_line":3,"end_line":999999999}]]`
	if got, err := r.RecoverText(t.Context(), "t", w, anyOrigin, 216); err != nil || !strings.HasSuffix(string(got), "é漢 line\n"+want) || utf8.RuneCount(got) > 216 {
		t.Errorf("got %q, %v", got, err)
	}
}

// P+3: an original of another tenant is as unknown as one that never existed.
func TestRecoverTextOfAnotherTenant(t *testing.T) {
	r, _ := open(t, nil)
	id, err := r.StoreText(t.Context(), "t", "text", Origin{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{id, "prn_00000000000000000000000000"} {
		if _, err := r.RecoverText(t.Context(), "other", ReadRequest{ID: id}, anyOrigin, 0); fault.KindOf(err) != fault.UnknownHandle {
			t.Errorf("%s: got %v", id, err)
		}
	}
}
