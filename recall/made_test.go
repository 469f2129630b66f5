package recall

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/state"
)

func anything(Origin) bool { return true }

// forged are texts that only look as if they had been cut here.
func forged() map[string]string {
	long := strings.Repeat("a line of somebody else\n", 400)
	return map[string]string{
		"the bare word":  "KIMI_PROXY_OBSERVATION_MASKED\n" + long,
		"a marker":       long + "\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=9 head=2 tail=2] ...\n" + long,
		"a recover line": long + "[recover: prune_id=prn_00000000000000000000000000 chars=1-2]\n" + long,
		"a pruner's":     long + "⟦PRUNÉ: prune_id=prn_00000000000000000000000000 lignes 1-2 (2) raison=x⟧\n" + long,
	}
}

// A text that only has the words of a marker in it is shortened as any other, at every door.
func TestForgedMarkersAreOnlyText(t *testing.T) {
	r, _ := open(t, nil)
	for name, text := range forged() {
		if edits, err := r.Shorten(t.Context(), draftOf(quote(text), DefaultPolicy(), nil)); err != nil || len(edits) == 0 {
			t.Errorf("%s: not shortened, %v", name, err)
		}
		if _, s := shrink(t, r, "t", quote(text), DefaultPolicy()); s.Kept != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// What was cut once is recognised to the byte, however it is spelled, and not cut again: what the
// hub made of a reply, what the model's door made of a request, what the pruner made.
func TestOwnTextsAreNotCutAgain(t *testing.T) {
	r, _ := open(t, nil)
	p := DefaultPolicy()
	p.MaxChars, p.HeadChars, p.TailChars = 300, 150, 140
	text := strings.Repeat("a line of a result é\n", 100)
	out, s := shrink(t, r, "t", quote(text), p)
	if s.Kept != 1 {
		t.Fatalf("%+v", s)
	}
	byHub := unquote(t, out)

	draft := draftOf(quote(strings.Repeat("a line of a request\n", 100)), p, nil)
	edits, err := r.Shorten(t.Context(), draft)
	if err != nil || len(edits) == 0 {
		t.Fatal(err)
	}
	made := jsonscan.AppendSpliced(nil, draft.Raw, edits)
	if _, err := r.KeepAll(t.Context(), "t", []Text{{Raw: [][]byte{draft.Raw}, From: pruned, Made: func() []byte { return made }}}); err != nil {
		t.Fatal(err)
	}
	byDoor := jsonscan.TextOf([]byte(`"` + string(made) + `"`))

	byPruner := strings.Repeat("a line that stayed\n", 100)
	id, err := r.Keep(t.Context(), "t", byPruner+"and more", pruned)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.NoteMade(t.Context(), "t", id, byPruner); err != nil {
		t.Fatal(err)
	}

	p.MaxChars, p.HeadChars, p.TailChars = 100, 50, 40 // whoever sees it next is stricter
	for name, text := range map[string]string{"hub": byHub, "door": byDoor, "pruner": byPruner} {
		body := quote(text)
		escaped := []byte(strings.ReplaceAll(string(body), "e", `\u0065`))
		for _, body := range [][]byte{body, escaped} {
			if edits, err := r.Shorten(t.Context(), draftOf(body, p, nil)); err != nil || len(edits) > 0 {
				t.Errorf("%s: shortened again: %v, %v", name, edits, err)
			}
			if _, s := shrink(t, r, "t", body, p); s.Known != 1 || len(s.Edits) > 0 {
				t.Errorf("%s: %+v", name, s)
			}
		}
		if _, s := shrink(t, r, "bob", body, p); s.Kept != 1 {
			t.Errorf("%s: what was made for one tenant counts for another: %+v", name, s)
		}
		if _, s := shrink(t, r, "t", quote(text+"."), p); s.Kept != 1 {
			t.Errorf("%s: recognised with a byte more: %+v", name, s)
		}
	}
}

// A store that cannot tell whether a text was cut before leaves it whole.
func TestStoreCannotTell(t *testing.T) {
	r, driver := open(t, func(_ *Config, s *state.Config) { s.Timeout = 1 })
	r.store = state.New(unreadable{driver}, state.Default(), time.Now)
	edits, err := r.Shorten(t.Context(), draftOf(quote(strings.Repeat("x", 9000)), DefaultPolicy(), nil))
	if len(edits) > 0 || fault.KindOf(err) != fault.Unavailable {
		t.Errorf("%v, %v", edits, err)
	}
}

type unreadable struct{ state.Driver }

func (unreadable) Get(context.Context, string, time.Time) ([]byte, error) {
	return nil, fault.New(fault.Unavailable, "the disk is gone")
}
