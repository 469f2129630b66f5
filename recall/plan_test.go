package recall

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/stubreducer"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/prune"
	"github.com/ctxgate/ctxgate/reduce"
)

// planRequest is a request for a text given as a JSON string.
func planRequest(body []byte, p Policy, f reduce.Choice) PlanRequest {
	p.Choice = f
	return PlanRequest{Tenant: "t", Raw: body[1 : len(body)-1], Policy: p}
}

// forFailedCall is the choice for a text that reports a failure.
func forFailedCall(c reduce.Choice) reduce.Choice {
	c.IsError = true
	return c
}

func applyPlan(t testing.TB, r *Recall, d PlanRequest) []byte {
	t.Helper()
	edits, err := r.PlanShrink(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	return append(append([]byte{'"'}, jsonscan.AppendSpliced(nil, d.Raw, edits)...), '"')
}

// G3, G+1, P4, P+3: PlanShrink returns the very bytes that Shrink makes of the text, without a store,
// under the id that StoreAll returns.
func TestPlanShrinkAgreesWithShrink(t *testing.T) {
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
		focus  reduce.Choice
	}{
		"mask":                            {logText(60), p, reduce.Choice{}},
		"mask without a line":             {logText(60), bare, reduce.Choice{}},
		"prune":                           {logText(60), p, pruneFor("which order was declined")},
		"prune without a line":            {logText(60), bare, pruneFor("which order was declined")},
		"prune what has one line":         {strings.Repeat("x", 700), p, pruneFor("x")},
		"thin":                            {rows, thin, reduce.Choice{}},
		"thin, and prune what is no JSON": {logText(60), thin, pruneFor("order")},
		"short enough":                    {strings.Repeat("é", 600), p, reduce.Choice{}},
	} {
		body := jsonWithEscapes(c.text, random)
		shrinks := c.policy
		shrinks.JSON = false
		want, s := shrinkWithGoal(t, r, body, shrinks, c.focus)
		if c.policy.JSON && c.focus == (reduce.Choice{}) {
			thinned, _ := c.policy.cutFunc(t.Context(), body)(jsonscan.Str{Span: jsonscan.Span{Start: 1, End: len(body) - 1}, Chars: len(c.text)})
			want = jsonscan.AppendSpliced(nil, body, thinned.edits(r.ID("t", c.text)))
		} else if s.Err != nil {
			t.Fatal(s.Err)
		}
		other, _ := open(t, nil) // of another process, whose store holds nothing
		for _, r := range []*Recall{r, other} {
			if got := applyPlan(t, r, planRequest(body, c.policy, c.focus)); !bytes.Equal(got, want) {
				t.Errorf("%s: got %s\nwant %s", name, got, want)
			}
		}
		receipts, err := r.StoreAll(t.Context(), "t", []StoreRequest{{Raw: [][]byte{body[1 : len(body)-1]}}})
		if err != nil || bytes.Contains(want, []byte("prune_id=")) && !bytes.Contains(want, []byte("prune_id="+idsOf(receipts)[0])) {
			t.Errorf("%s: stored as %v, %v; shown %s", name, receipts, err, want)
		}
	}
}

// Texts stay whole when no lines can be left out and only that is wanted, and when the marker would be
// longer than what it replaces (I5).
func TestPlanShrinkLeavesWhole(t *testing.T) {
	r, _ := open(t, nil)
	p := DefaultPolicy()
	p.MaxChars, p.HeadChars, p.TailChars = 300, 150, 150
	for name, d := range map[string]PlanRequest{
		"one line, an error": planRequest(quote(strings.Repeat("x", 900)), p, forFailedCall(pruneFor("x"))),
		"no goal, an error":  planRequest(quote(strings.Repeat("x\n", 900)), p, forFailedCall(reduce.Choice{})),
		"a little too long":  planRequest(quote(strings.Repeat("x", 301)), p, reduce.Choice{}),
	} {
		if edits, err := r.PlanShrink(t.Context(), d); len(edits) > 0 || err != nil {
			t.Errorf("%s: %v, %v", name, edits, err)
		}
	}
}

// When time is short, PlanShrink returns the usual edits or an error, never other edits.
func TestPlanShrinkIsAllOrNothing(t *testing.T) {
	r, _ := open(t, nil)
	p := DefaultPolicy()
	ctx, cancel := context.WithCancel(t.Context())
	then := cancel
	stubreducer.Register(t, reduce.Reducer{Name: "interrupted", Cutter: func(context.Context, reduce.Policy) reduce.Cutter {
		return func([]byte, jsonscan.Str) (reduce.Cut, bool) { then(); return reduce.Cut{}, false }
	}})
	f := reduce.Choice{Reducer: "interrupted"}
	if edits, err := r.PlanShrink(ctx, planRequest(quote(logText(600)), p, f)); edits != nil || err == nil {
		t.Errorf("%d edits, %v", len(edits), err)
	}
	then = func() { panic("boom") }
	if edits, err := r.PlanShrink(t.Context(), planRequest(quote(logText(600)), p, f)); edits != nil || err == nil {
		t.Errorf("%d edits, %v", len(edits), err)
	}
}

// FuzzPlanShrink: for any text and goal the result is a JSON string, shorter, and recovers the
// original.
func FuzzPlanShrink(f *testing.F) {
	f.Add(logText(40), "which order was declined", uint8(0))
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
		var focus reduce.Choice
		if how&3 < 3 {
			focus = pruneFor(goal)
			focus.Prune.Type = prune.Kind(how & 3).String()
		}
		body := jsonWithEscapes(text, rand.New(rand.NewPCG(uint64(how), 1)))
		got := applyPlan(t, r, planRequest(body, p, focus))
		if again := applyPlan(t, r, planRequest(bytes.Clone(body), p, focus)); !bytes.Equal(got, again) {
			t.Fatal("not deterministic")
		}
		if bytes.Equal(got, body) {
			return
		}
		if len(got) >= len(body) {
			t.Fatalf("%d bytes of %d", len(got), len(body))
		}
		left := unquote(t, got)
		receipts, err := r.StoreAll(t.Context(), "t", []StoreRequest{{Raw: [][]byte{body[1 : len(body)-1]}}})
		if err != nil || !strings.Contains(left, "prune_id="+idsOf(receipts)[0]) {
			t.Fatal(fmt.Sprint(receipts, err, left))
		}
		if back, err := fetch(t, r, "t", idsOf(receipts)[0]); err != nil || back != text {
			t.Fatalf("%v: got %q, want %q", err, back, text)
		}
	})
}
