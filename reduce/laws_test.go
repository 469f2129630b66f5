package reduce_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/internal/testkit/stubreducer"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
)

const testID = "prn_0123456789abcdefghjkmnpqrs"

func chainOf(p reduce.Policy) string {
	var names []string
	for _, r := range p.Chain() {
		names = append(names, r.Name)
	}
	return strings.Join(names, " ")
}

// The names of the configuration come from the list of reducers.
func TestNamesAreThoseOfTheReducers(t *testing.T) {
	if err := reduce.Name("shrink").Validate(); len(err) != 1 || err[0].Error() != `reduce: "shrink" is none of none, mask, prune` {
		t.Error(err)
	}
	stubreducer.Register(t, stubreducer.Opening)
	if got := stubreducer.Name.OneOf(); !slices.Equal(got, []string{"none", "mask", "prune", "opening"}) || len(stubreducer.Name.Validate()) > 0 {
		t.Error(got)
	}
}

// Which reducers are tried, and in which order.
func TestChain(t *testing.T) {
	stubreducer.Register(t, stubreducer.Opening)
	for name, c := range map[string]struct {
		policy reduce.Policy
		want   string
	}{
		"default":                {reduce.Policy{}, "mask"},
		"json":                   {reduce.Policy{JSON: true}, "json mask"},
		"prune":                  {reduce.Policy{Choice: reduce.Choice{Reducer: "prune", Goal: "x"}}, "prune mask"},
		"prune and json":         {reduce.Policy{JSON: true, Choice: reduce.Choice{Reducer: "prune", Goal: "x"}}, "json prune mask"},
		"prune without a goal":   {reduce.Policy{Choice: reduce.Choice{Reducer: "prune"}}, "mask"},
		"a goal without prune":   {reduce.Policy{Choice: reduce.Choice{Goal: "x"}}, "mask"},
		"none":                   {reduce.Policy{JSON: true, Choice: reduce.Choice{Reducer: "none", Goal: "x"}}, ""},
		"an error":               {reduce.Policy{JSON: true, Choice: reduce.Choice{Reducer: "prune", Goal: "x", IsError: true}}, "prune"},
		"an error, mask":         {reduce.Policy{Choice: reduce.Choice{IsError: true}}, ""},
		"registered":             {reduce.Policy{Choice: reduce.Choice{Reducer: stubreducer.Name}}, "opening mask"},
		"prune without recovery": {reduce.Policy{Choice: reduce.Choice{Reducer: "prune", Goal: "x"}.WithoutRecovery()}, "mask"},
		"own key is no value":    {reduce.Policy{Choice: reduce.Choice{Reducer: "json"}}, "mask"},
	} {
		if got := chainOf(c.policy); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What mask leaves of a string that prune cannot shorten is within the limit, too; otherwise it is as the policy says.
func TestMaskHoldsTheLimitOfPrune(t *testing.T) {
	body := []byte(`"` + strings.Repeat("word ", 3000) + `"`)
	str := jsonscan.Str{Span: jsonscan.Span{Start: 1, End: len(body) - 1}, Chars: len(body) - 2}
	for _, style := range []reduce.Markers{reduce.DocumentMarkers, reduce.PlainMarkers} {
		for limit, want := range map[int]int{4000: 4000, 20_000: 0, 200: 200} {
			p := reduce.Policy{Mask: reduce.Mask{MaxChars: limit, HeadChars: min(limit/2, 2000), TailChars: min(limit/2, 2000), Markers: style}, IDLen: len(testID)}
			for _, p.Choice = range []reduce.Choice{{Reducer: "prune", Goal: "word"}, {Reducer: "prune"}, {}} {
				for _, r := range p.Chain() {
					c, ok := r.Cutter(t.Context(), p)(body, str)
					if !ok {
						continue
					}
					chars := jsonscan.CountChars(jsonscan.AppendSpliced(nil, body, c.Edits(testID))) - 2
					if holds := chars <= want && chars > want-10; holds != (p.Goal != "") || want == 0 {
						t.Errorf("%s, %+v: %d characters", r.Name, p, chars)
					}
				}
			}
		}
	}
}

// The laws of every registered reducer, over generated texts as strings of a JSON body.
func TestLawsHoldForEveryReducer(t *testing.T) {
	stubreducer.Register(t, stubreducer.Opening)
	piece := rapid.SampledFrom([]string{
		"a line of words about the order 4711\n", "error: declined\n", "\n", "é汉字😀 ", "\"q\"\\ ", "\t", "func f() {\n", "}\n", "# heading\n",
		`{"id":1,"name":"something to read"},`, "[", "]", "👩\u200d👧", strings.Repeat("word ", 40),
	})
	for _, r := range reduce.Reducers {
		t.Run(r.Name, func(t *testing.T) { checkReducerLaws(t, r, piece) })
	}
}

func checkReducerLaws(t *testing.T, r reduce.Reducer, piece *rapid.Generator[string]) {
	applied := 0
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 30, 120).Draw(t, "pieces"), "")
		if r.Name == "json" {
			raw, _ := json.Marshal(rapid.SliceOfN(piece, 20, 80).Draw(t, "elements"))
			text = string(raw)
		}
		inner, _ := json.Marshal(text)
		body := slices.Concat([]byte(`{"before":"x","t":`), inner, []byte(`,"after":1}`))
		strs, _, err := jsonscan.New(body, 0).LongStrings(nil, 200)
		if err != nil || len(strs) == 0 {
			return
		}
		p := reduce.Policy{Mask: reduce.Mask{MaxChars: 200, HeadChars: 60, TailChars: 40}, JSON: true, IDLen: len(testID)}
		p.Goal, p.Prune = "which order was declined", reduce.DefaultPruneOptions()
		p.Prune.MinKeep = 0
		p.Markers = rapid.SampledFrom([]reduce.Markers{reduce.DocumentMarkers, reduce.PlainMarkers}).Draw(t, "markers")
		str := strs[0]
		c, ok := r.Cutter(t.Context(), p)(body, str)
		if !ok {
			return
		}
		applied++
		for _, id := range []string{"", testID} {
			edits := c.Edits(id)
			at := str.Start
			for _, e := range edits {
				if e.Start < at || e.End < e.Start || e.End > str.End {
					t.Fatalf("%s: edit %v is out of order or of the string %v", r.Name, e.Span, str.Span)
				}
				at = e.End
			}
			out := jsonscan.AppendSpliced(nil, body, edits)
			if !json.Valid(out) || len(edits) == 0 || c.OmittedChars <= 0 || !bytes.Contains(out, []byte(id)) {
				t.Fatalf("%s: %d characters left out of %s: %s", r.Name, c.OmittedChars, body, out)
			}
			if chars := jsonscan.CountChars(out) - jsonscan.CountChars(body) + str.Chars; r.HoldsLimit && chars > p.MaxChars {
				t.Fatalf("%s: %d characters, at most %d: %s", r.Name, chars, p.MaxChars, out)
			}
			if p.Markers == reduce.PlainMarkers && len(out) >= len(body) && r.Name != string(stubreducer.Name) {
				t.Fatalf("%s: %d bytes became %d", r.Name, len(body), len(out))
			}
			again, _ := r.Cutter(t.Context(), p)(bytes.Clone(body), str)
			if !bytes.Equal(out, jsonscan.AppendSpliced(nil, body, again.Edits(id))) {
				t.Fatalf("%s: not deterministic", r.Name)
			}
		}
	})
	least := 20
	if testing.Short() {
		least = 5
	}
	if applied < least {
		t.Errorf("%s: only %d strings were shortened", r.Name, applied)
	}
}
