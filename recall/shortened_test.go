package recall

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
	"github.com/ctxgate/ctxgate/state"
)

func anyOrigin(Origin) bool { return true }

// forgedTexts only look as if this gateway had shortened them.
func forgedTexts() map[string]string {
	long := strings.Repeat("a line of another user\n", 400)
	return map[string]string{
		"the bare word":  "KIMI_PROXY_OBSERVATION_MASKED\n" + long,
		"a marker":       long + "\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=9 head=2 tail=2] ...\n" + long,
		"a recover line": long + "[recover: prune_id=prn_00000000000000000000000000 chars=1-2]\n" + long,
		"a pruner's":     long + "⟦PRUNÉ: prune_id=prn_00000000000000000000000000 lignes 1-2 (2) raison=x⟧\n" + long,
	}
}

// A text that merely contains the words of a marker is shortened as any other, by every operation.
func TestForgedMarkersAreOnlyText(t *testing.T) {
	r, _ := open(t, nil)
	for name, text := range forgedTexts() {
		if edits, err := r.PlanShrink(t.Context(), planRequest(quote(text), DefaultPolicy(), reduce.Choice{})); err != nil || len(edits) == 0 {
			t.Errorf("%s: not shortened, %v", name, err)
		}
		if _, s := shrink(t, r, "t", quote(text), DefaultPolicy()); s.Recoverable != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A text that was shortened is recognised byte for byte, however it is escaped, and not cut again,
// whether the hub, the LLM proxy or the pruner shortened it.
func TestShortenedTextsAreNotCutAgain(t *testing.T) {
	r, _ := open(t, nil)
	p := DefaultPolicy()
	p.MaxChars, p.HeadChars, p.TailChars = 300, 150, 140
	text := strings.Repeat("a line of a result é\n", 100)
	out, s := shrink(t, r, "t", quote(text), p)
	if s.Recoverable != 1 {
		t.Fatalf("%+v", s)
	}
	byHub := unquote(t, out)

	req := planRequest(quote(strings.Repeat("a line of a request\n", 100)), p, reduce.Choice{})
	edits, err := r.PlanShrink(t.Context(), req)
	if err != nil || len(edits) == 0 {
		t.Fatal(err)
	}
	made := jsonscan.AppendSpliced(nil, req.Raw, edits)
	if _, err := r.StoreAll(t.Context(), "t", []StoreRequest{{Raw: [][]byte{req.Raw}, Origin: pruned, Replacement: func() []byte { return made }}}); err != nil {
		t.Fatal(err)
	}
	byProxy := jsonscan.DecodeString([]byte(`"` + string(made) + `"`))

	byPruner := strings.Repeat("a line that stayed\n", 100)
	id, err := r.StoreText(t.Context(), "t", byPruner+"and more", pruned)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.MarkShortened(t.Context(), "t", id, byPruner); err != nil {
		t.Fatal(err)
	}

	p.MaxChars, p.HeadChars, p.TailChars = 100, 50, 40 // the next gateway has lower limits
	for name, text := range map[string]string{"hub": byHub, "LLM proxy": byProxy, "pruner": byPruner} {
		body := quote(text)
		escaped := []byte(strings.ReplaceAll(string(body), "e", `\u0065`))
		for _, body := range [][]byte{body, escaped} {
			if edits, err := r.PlanShrink(t.Context(), planRequest(body, p, reduce.Choice{})); err != nil || len(edits) > 0 {
				t.Errorf("%s: shortened again: %v, %v", name, edits, err)
			}
			if _, s := shrink(t, r, "t", body, p); s.AlreadyCut != 1 || len(s.Edits) > 0 {
				t.Errorf("%s: %+v", name, s)
			}
		}
		if _, s := shrink(t, r, "bob", body, p); s.Recoverable != 1 {
			t.Errorf("%s: what was made for one tenant counts for another: %+v", name, s)
		}
		if _, s := shrink(t, r, "t", quote(text+"."), p); s.Recoverable != 1 {
			t.Errorf("%s: recognised with a byte more: %+v", name, s)
		}
	}
}

// When the store cannot say whether a text was shortened before, the text stays whole.
func TestShortenedStaysWholeWhileStoreFails(t *testing.T) {
	r, driver := open(t, func(_ *Config, s *state.Config) { s.Timeout = 1 })
	r.store = state.New(failingGet{driver}, state.Default(), time.Now)
	edits, err := r.PlanShrink(t.Context(), planRequest(quote(strings.Repeat("x", 9000)), DefaultPolicy(), reduce.Choice{}))
	if len(edits) > 0 || fault.KindOf(err) != fault.Unavailable {
		t.Errorf("%v, %v", edits, err)
	}
}

type failingGet struct{ state.Driver }

func (failingGet) Get(context.Context, string, string, time.Time) ([]byte, error) {
	return nil, fault.New(fault.Unavailable, "the disk is gone")
}
