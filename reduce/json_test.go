package reduce

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/jsonscan"
)

const testID = "prn_0123456789abcdefghjkmnpqrs"

// cutText returns the shortened text; false if json cannot shorten it.
func cutText(text []byte, m Mask, id string) ([]byte, bool) {
	p, ok := m.CutJSON(text, len(id))
	if !ok {
		return text, false
	}
	return jsonscan.AppendSpliced(nil, text, p.Edits(id)), true
}

// checkJSONLaws checks one text and policy against the laws of json; false if it is not shortened.
func checkJSONLaws(tb testing.TB, text []byte, m Mask) bool {
	tb.Helper()
	out, ok := cutText(text, m, testID)
	if !ok {
		return false
	}
	if again, _ := cutText(text, m, testID); !bytes.Equal(out, again) {
		tb.Fatalf("not deterministic: %s", text)
	}
	if !validRun(out) {
		tb.Fatalf("not JSON any more:\n%s\n%s", text, out)
	}
	if n := utf8.RuneCount(out); n > m.MaxChars || len(out) >= len(text) {
		tb.Fatalf("%d characters in %d bytes, the limit is %d and it had %d bytes:\n%s", n, len(out), m.MaxChars, len(text), out)
	}
	if back := restore(tb, text, out); !bytes.Equal(back, text) {
		tb.Fatalf("with the markers undone:\n%s\nwant\n%s\nfrom\n%s", back, text, out)
	}
	if bare, ok := cutText(text, m, ""); !ok || !validRun(bare) || bytes.Contains(bare, []byte("recover")) {
		tb.Fatalf("without an id: %v, %s", ok, bare)
	}
	inStringIsTheSame(tb, text, m)
	copiesAgree(tb, text, m)
	return true
}

func validRun(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	for d.More() {
		var v json.RawMessage
		if d.Decode(&v) != nil {
			return false
		}
	}
	return json.Valid(text) || bytes.IndexByte(text, '\n') >= 0 // several, on separate lines
}

var anyMarker = regexp.MustCompile(`"\.\.\. \[KIMI_PROXY_OBSERVATION_MASKED original_chars=\d+ elements=\d+ dropped=\d+\] \.\.\. \[recover: prune_id=` + testID + ` chars=(\d+)-(\d+)\]"` +
	`|\\n\.\.\. \[KIMI_PROXY_OBSERVATION_MASKED original_chars=\d+ head=\d+ tail=\d+\] \.\.\.\\n\[recover: prune_id=` + testID + ` chars=(\d+)-(\d+)\]\\n` +
	`|"\[… [\d,]+ of [\d,]+ elements left out; call recover_text with prune_id=` + testID + ` chars=(\d+)-(\d+)\]"` +
	`|\\n\[… [\d,]+ characters left out; call recover_text with prune_id=` + testID + ` chars=(\d+)-(\d+)\]\\n`)

// restore puts back, in place of each marker, the characters of the original that it names.
func restore(tb testing.TB, text, out []byte) []byte {
	runes := []rune(string(text))
	return anyMarker.ReplaceAllFunc(out, func(marker []byte) []byte {
		m := anyMarker.FindSubmatch(marker)
		from, to := number(tb, m[1], m[3], m[5], m[7]), number(tb, m[2], m[4], m[6], m[8])
		return []byte(string(runes[from-1 : to]))
	})
}

func number(tb testing.TB, either ...[]byte) int {
	n, err := strconv.Atoi(string(bytes.Join(either, nil)))
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// inStringIsTheSame: a text inside a JSON string, however escaped, becomes the same text, and
// what stays of its raw form keeps its bytes.
func inStringIsTheSame(tb testing.TB, text []byte, m Mask) {
	plan, _ := m.CutJSON(text, len(testID))
	want := jsonscan.AppendSpliced(nil, text, plan.Edits(testID))
	plain := jsonscan.AppendEscaped(nil, string(text))
	for _, raw := range [][]byte{plain, asciiOnly(plain), bytes.ReplaceAll(plain, []byte("/"), []byte(`\/`))} {
		body := append(append([]byte(`{"t":"`), raw...), `"}`...)
		span := jsonscan.Span{Start: 6, End: 6 + len(raw)}
		edits := plan.ForString(body, span).Edits(testID)
		got := jsonscan.AppendSpliced(nil, body, edits)
		var doc struct{ T string }
		if err := json.Unmarshal(got, &doc); err != nil || doc.T != string(want) {
			tb.Fatalf("in a string %v:\n%s\nwant\n%s", err, doc.T, want)
		}
		for i, e := range edits {
			gap := plan.Gaps[i].Of(text)
			if !bytes.Equal(jsonscan.AppendDecoded(nil, e.Of(body)), gap) {
				tb.Fatalf("gap %d is %s in the string and %s in the text", i, e.Of(body), gap)
			}
		}
	}
}

// copiesAgree: another encoding of the same value loses the same elements and characters.
func copiesAgree(tb testing.TB, text []byte, m Mask) {
	plan, _ := m.CutJSON(text, len(testID))
	want := decodeRun(tb, jsonscan.AppendSpliced(nil, text, plan.Edits(testID)))
	for _, other := range [][]byte{respell(tb, text, ""), respell(tb, text, "  "), asciiOnly(respell(tb, text, "\t"))} {
		twin, ok := plan.ForCopy(text, other)
		if !ok {
			tb.Fatalf("not the same:\n%s\n%s", text, other)
		}
		got := jsonscan.AppendSpliced(nil, other, twin.Edits(testID))
		if decodeRun(tb, got) != want {
			tb.Fatalf("the twin became\n%s\nwant\n%s", got, want)
		}
		if typed := jsonscan.AppendSpliced(nil, other, twin.TypedEdits(other, testID)); json.Valid(other) && !json.Valid(typed) {
			tb.Fatalf("typed: %s", typed)
		}
		if notes := "[" + string(twin.AppendNotes(nil, testID)) + "]"; !json.Valid([]byte(notes)) {
			tb.Fatalf("notes: %s", notes)
		}
	}
}

// respell is a run of documents with other white space.
func respell(tb testing.TB, text []byte, indent string) []byte {
	var out bytes.Buffer
	d := json.NewDecoder(bytes.NewReader(text))
	for d.More() {
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			tb.Fatal(err)
		}
		var one bytes.Buffer
		err := json.Indent(&one, v, "", indent)
		if indent == "" {
			one.Reset()
			err = json.Compact(&one, v)
		}
		if err != nil {
			tb.Fatal(err)
		}
		out.Write(append(one.Bytes(), '\n'))
	}
	return out.Bytes()
}

// decodeRun is a run of documents in one spelling.
func decodeRun(tb testing.TB, text []byte) string {
	var out strings.Builder
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for d.More() {
		var v any
		if err := d.Decode(&v); err != nil {
			tb.Fatalf("%v: %s", err, text)
		}
		fmt.Fprintf(&out, "%#v\n", v)
	}
	return out.String()
}

// anyLongValue draws values with long strings and arrays.
func anyLongValue(t *rapid.T, depth int) any {
	switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
	case kind < 4 && depth < 3:
		list := make([]any, rapid.SampledFrom([]int{0, 1, 2, 3, 12}).Draw(t, "len"))
		for i := range list {
			if i > 0 && i < len(list)-1 && i > 3 {
				list[i] = list[1+i%3] // enough of them, without drawing each
				continue
			}
			list[i] = anyLongValue(t, depth+1)
		}
		return list
	case kind < 7 && depth < 3:
		obj := map[string]any{}
		for range rapid.IntRange(0, 5).Draw(t, "len") {
			obj[anyText().Draw(t, "key")] = anyLongValue(t, depth+1)
		}
		return obj
	case kind == 7:
		return strings.Repeat(anyText().Draw(t, "unit"), rapid.IntRange(1, 30).Draw(t, "times"))
	}
	return anyDoc(t, 4)
}

func anyJSONMask() *rapid.Generator[Mask] {
	return rapid.Custom(func(t *rapid.T) Mask {
		most := rapid.SampledFrom([]int{1, 160, 200, 320, 500, 1000, 2000}).Draw(t, "max")
		head := rapid.SampledFrom([]int{0, most / 4, most / 2, most}).Draw(t, "head")
		return Mask{MaxChars: most, HeadChars: head, TailChars: rapid.SampledFrom([]int{0, (most - head) / 2, most - head}).Draw(t, "tail"), Markers: anyMarkers.Draw(t, "markers")}
	})
}

// anyLarge draws a document that has something to leave out.
func anyLarge(t *rapid.T) any {
	list := make([]any, rapid.SampledFrom([]int{1, 2, 3, 60}).Draw(t, "len"))
	few := []any{anyLongValue(t, 1), anyLongValue(t, 1), anyLongValue(t, 1)}
	for i := range list {
		list[i] = few[i%3]
	}
	if rapid.Bool().Draw(t, "in an object") {
		return map[string]any{"a": anyLongValue(t, 1), "b~/": list, "c": anyLongValue(t, 1)}
	}
	return list
}

// G+4: the laws over generated documents, in every spelling.
func TestGPlus4JSONLawsHold(t *testing.T) {
	applied, tried := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var text []byte
		for range rapid.SampledFrom([]int{1, 1, 1, 2, 9}).Draw(t, "documents") {
			var buf bytes.Buffer
			enc := json.NewEncoder(&buf)
			enc.SetEscapeHTML(rapid.Bool().Draw(t, "escape"))
			enc.SetIndent("", rapid.SampledFrom([]string{"", "  "}).Draw(t, "indent"))
			if err := enc.Encode(anyLarge(t)); err != nil {
				t.Fatal(err)
			}
			text = append(text, buf.Bytes()...)
		}
		if rapid.Bool().Draw(t, "ascii") {
			text = asciiOnly(text)
		}
		m := anyJSONMask().Draw(t, "mask")
		if len(text) > 1<<16 {
			return // nothing new, and slow
		}
		if utf8.RuneCount(text) > m.MaxChars {
			tried++
		}
		if checkJSONLaws(rapidTB{t: t}, text, m) {
			applied++
		}
	})
	if applied < tried/8 { // about a third are; fewer than an eighth would mean that nothing is tested here
		t.Errorf("only %d of %d were shortened", applied, tried)
	}
}

// G+4: under the limit whenever that is possible at all. What is possible is worked out here from
// the tree, for documents without white space.
func TestGPlus4FitsWheneverItCan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := anyLarge(t)
		text := encode(doc)
		m := anyJSONMask().Draw(t, "mask")
		if m.HeadChars == 0 || m.TailChars == 0 || utf8.RuneCount(text) <= m.MaxChars {
			return
		}
		gap, cut := longestMarkers(m.Markers, utf8.RuneCount(text), len(testID))
		r := bounds{gap, cut}
		if _, ok := m.CutJSON(text, len(testID)); ok != r.possible(doc, m.MaxChars) {
			t.Fatalf("%+v, shortened %v: %s", m, ok, text)
		}
	})
}

func encode(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
	return bytes.TrimSpace(buf.Bytes())
}

// bounds are the markers' lengths.
type bounds struct{ gap, cut int }

// least is how short v can get.
func (b bounds) least(v any) int {
	whole := utf8.RuneCount(encode(v))
	switch v := v.(type) {
	case string:
		return min(whole, 2+b.cut)
	case []any:
		if len(v) > 0 {
			return min(whole, 2+b.gap)
		}
	case map[string]any:
		least := whole
		for _, member := range v {
			least -= utf8.RuneCount(encode(member)) - b.least(member)
		}
		return least
	}
	return whole
}

// possible reports whether v can be shortened to most characters with something of it left: of a list at
// least one end.
func (b bounds) possible(v any, most int) bool {
	list, ok := v.([]any)
	if !ok {
		return b.least(v) <= most
	}
	if len(list) <= 2 {
		least := utf8.RuneCount(encode(list))
		for _, e := range list {
			least -= utf8.RuneCount(encode(e)) - b.least(e)
		}
		if least <= most || len(list) < 2 {
			return least <= most
		}
	}
	return 2+b.gap+1+min(b.least(list[0]), b.least(list[len(list)-1])) <= most
}

// FuzzCutJSON checks the laws for any valid text and policy.
func FuzzCutJSON(f *testing.F) {
	f.Add([]byte(`{"a":[`+strings.Repeat(`{"id":1,"name":"é \"x\""},`, 60)+`null]}`), 400, 200, 200)
	f.Add([]byte(strings.Repeat("{\"a\":[1,2,3]}\n", 60)), 300, 100, 200)
	f.Add([]byte(`[`+strings.Repeat(`1,`, 400)+`"`+strings.Repeat(`\\`, 300)+`"]`), 500, 0, 500)
	f.Add([]byte(`[[["`+strings.Repeat(`😀\n`, 300)+`"],[ ]],{}, 1 ,{"":{"~/":[`+strings.Repeat(`-0.5e3 , `, 300)+`0]}}]`), 700, 300, 300)
	f.Fuzz(func(t *testing.T, text []byte, most, head, tail int) {
		m := Mask{MaxChars: most, HeadChars: head, TailChars: tail}
		if len(m.Validate()) > 0 || !utf8.Valid(text) {
			return
		}
		checkJSONLaws(t, text, m)
		m.Markers = PlainMarkers
		checkJSONLaws(t, text, m)
	})
}
