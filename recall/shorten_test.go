package recall

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/prune"
)

// draftOf is a draft of a text as a JSON string.
func draftOf(body []byte, p Policy, f *Focus) Draft {
	return Draft{Tenant: "t", Raw: body[1 : len(body)-1], Policy: p, Focus: f}
}

func shorten(t testing.TB, r *Recall, d Draft) []byte {
	t.Helper()
	edits, err := r.Shorten(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	return append(append([]byte{'"'}, jsonscan.AppendSpliced(nil, d.Raw, edits)...), '"')
}

// G3, G+1, P4, P+3: a draft is shortened to the very bytes that Shrink makes of the text, without a
// store, and under the id that KeepAll gives.
func TestShortenAgreesWithShrink(t *testing.T) {
	r, _ := open(t, nil)
	random := rand.New(rand.NewPCG(4, 2))
	p := DefaultPolicy()
	p.MaxChars, p.HeadChars, p.TailChars = 600, 200, 100
	bare, thin := p, p
	bare.RecoverLine = false
	thin.JSON = true
	rows := "[" + strings.Repeat(`{"id":4711,"state":"declined"},`, 99) + `{"id":1}]`
	for name, c := range map[string]struct {
		text   string
		policy Policy
		focus  *Focus
	}{
		"mask":                            {journal(60), p, nil},
		"mask without a line":             {journal(60), bare, nil},
		"prune":                           {journal(60), p, lookingFor("which order was declined")},
		"prune without a line":            {journal(60), bare, lookingFor("which order was declined")},
		"prune what has one line":         {strings.Repeat("x", 700), p, lookingFor("x")},
		"thin":                            {rows, thin, nil},
		"thin, and prune what is no JSON": {journal(60), thin, lookingFor("order")},
		"short enough":                    {strings.Repeat("é", 600), p, nil},
	} {
		body := spelled(c.text, random)
		shrinks := c.policy
		shrinks.JSON = false
		want, s := focused(t, r, body, shrinks, c.focus)
		if c.policy.JSON && c.focus == nil {
			thinned, _, _ := c.policy.thin(body, jsonscan.Str{Span: jsonscan.Span{Start: 1, End: len(body) - 1}, Chars: len(c.text)}, nil)
			want = jsonscan.AppendSpliced(nil, body, thinned.edits(r.ID("t", c.text)))
		} else if s.Err != nil {
			t.Fatal(s.Err)
		}
		other, _ := open(t, nil) // of another process, whose store holds nothing
		for _, r := range []*Recall{r, other} {
			if got := shorten(t, r, draftOf(body, c.policy, c.focus)); !bytes.Equal(got, want) {
				t.Errorf("%s: got %s\nwant %s", name, got, want)
			}
		}
		kept, err := r.KeepAll(t.Context(), "t", []Text{{Raw: [][]byte{body[1 : len(body)-1]}}})
		if err != nil || bytes.Contains(want, []byte("prune_id=")) && !bytes.Contains(want, []byte("prune_id="+idsOf(kept)[0])) {
			t.Errorf("%s: kept as %v, %v; shown %s", name, kept, err, want)
		}
	}
}

// Texts that stay whole: those from which no lines can be left out, where only that is wanted; and
// those whose marker would be longer than what it stands for (I5).
func TestShortenLeavesWhole(t *testing.T) {
	r, _ := open(t, nil)
	p := DefaultPolicy()
	p.MaxChars, p.HeadChars, p.TailChars = 300, 150, 150
	for name, d := range map[string]Draft{
		"one line, an error": {Raw: bytes.Repeat([]byte("x"), 900), Policy: p, Focus: lookingFor("x"), ByLines: true},
		"no focus":           {Raw: bytes.Repeat([]byte(`x\n`), 900), Policy: p, ByLines: true},
		"a little too long":  draftOf(quote(strings.Repeat("x", 301)), p, nil),
	} {
		if edits, err := r.Shorten(t.Context(), d); len(edits) > 0 || err != nil {
			t.Errorf("%s: %v, %v", name, edits, err)
		}
	}
}

// A draft is never shortened otherwise because time is short: either as always, or not at all.
func TestShortenIsAllOrNothing(t *testing.T) {
	r, _ := open(t, nil)
	p := DefaultPolicy()
	ctx, cancel := context.WithCancel(t.Context())
	f := lookingFor("order")
	f.Kind = func(string) prune.Kind { cancel(); return prune.Logs }
	if edits, err := r.Shorten(ctx, draftOf(quote(journal(600)), p, f)); edits != nil || err == nil {
		t.Errorf("%d edits, %v", len(edits), err)
	}
	f.Kind = func(string) prune.Kind { panic("boom") }
	if edits, err := r.Shorten(t.Context(), draftOf(quote(journal(600)), p, f)); edits != nil || err == nil {
		t.Errorf("%d edits, %v", len(edits), err)
	}
}

// FuzzShorten: whatever the text and the goal, what is left is a string, shorter, and gives the
// original back.
func FuzzShorten(f *testing.F) {
	f.Add(journal(40), "which order was declined", uint8(0))
	f.Add("[1,2,"+strings.Repeat(`"\n",`, 200)+"3]", "n", uint8(7))
	f.Add(strings.Repeat("Error: e\u0301\r\n", 90), "", uint8(2))
	r, _ := open(f, nil)
	f.Fuzz(func(t *testing.T, text, goal string, how uint8) {
		if len(text) > 1<<14 || len(goal) > 1<<10 {
			return
		}
		text = strings.ToValidUTF8(text, "?")
		p := Policy{RecoverLine: true, JSON: how&4 != 0}
		p.MaxChars, p.HeadChars, p.TailChars = 100, int(how>>4), 20
		var focus *Focus
		if how&3 < 3 {
			focus = lookingFor(goal)
			focus.Kind = func(string) prune.Kind { return prune.Kind(how & 3) }
		}
		body := spelled(text, rand.New(rand.NewPCG(uint64(how), 1)))
		got := shorten(t, r, draftOf(body, p, focus))
		if again := shorten(t, r, draftOf(bytes.Clone(body), p, focus)); !bytes.Equal(got, again) {
			t.Fatal("not deterministic")
		}
		if bytes.Equal(got, body) {
			return
		}
		if len(got) >= len(body) {
			t.Fatalf("%d bytes of %d", len(got), len(body))
		}
		left := unquote(t, got)
		kept, err := r.KeepAll(t.Context(), "t", []Text{{Raw: [][]byte{body[1 : len(body)-1]}}})
		if err != nil || !strings.Contains(left, "prune_id="+idsOf(kept)[0]) {
			t.Fatal(fmt.Sprint(kept, err, left))
		}
		if back, err := fetch(t, r, "t", idsOf(kept)[0]); err != nil || back != text {
			t.Fatalf("%v: got %q, want %q", err, back, text)
		}
	})
}
