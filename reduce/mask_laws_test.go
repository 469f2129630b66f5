package reduce

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/jsonscan"
)

var update = flag.Bool("update", false, "rewrite the want sections of testdata/*.txtar")

// checkLaws checks one document and policy against all laws of mask.
func checkLaws(tb testing.TB, body []byte, m Mask) {
	tb.Helper()
	const id = "prn_0123456789abcdefghjkmnpqrs"
	for _, id := range []string{"", id} {
		out, cuts := maskBody(tb, body, m, id)
		if again, _ := maskBody(tb, body, m, id); !bytes.Equal(out, again) {
			tb.Fatalf("not deterministic: %q", body)
		}
		if json.Valid(body) && !json.Valid(out) {
			tb.Fatalf("valid JSON became invalid:\n%q\n%q", body, out)
		}
		outsideIsUntouched(tb, body, out, cuts, id)
		for _, c := range cuts {
			cutIsSound(tb, body, m, c, id)
		}
	}
}

// outsideIsUntouched: out is body, with each gap replaced by its marker, byte for byte.
func outsideIsUntouched(tb testing.TB, body, out []byte, cuts []StringCut, id string) {
	at, rest := 0, out
	for _, c := range cuts {
		before := body[at:c.Gap.Start]
		marker := jsonscan.AppendEscaped(nil, c.Marker(id))
		if !bytes.HasPrefix(rest, before) || !bytes.HasPrefix(rest[len(before):], marker) {
			tb.Fatalf("bytes outside a cut changed in %q", body)
		}
		at, rest = c.Gap.End, rest[len(before)+len(marker):]
	}
	if !bytes.Equal(rest, body[at:]) {
		tb.Fatalf("bytes after the last cut changed in %q", body)
	}
}

// cutIsSound: head, gap and tail are whole texts that join to the original, as long as they say,
// and what stays is within the limit.
func cutIsSound(tb testing.TB, body []byte, m Mask, c StringCut, id string) {
	text := func(from, to int) string { return string(jsonscan.AppendDecoded(nil, body[from:to])) }
	whole := text(c.Str.Start, c.Str.End)
	head, gap, tail := text(c.Str.Start, c.Gap.Start), text(c.Gap.Start, c.Gap.End), text(c.Gap.End, c.Str.End)
	if head+gap+tail != whole || !utf8.ValidString(head) || !utf8.ValidString(gap) || !utf8.ValidString(tail) {
		tb.Fatalf("%q does not join from %q, %q, %q", whole, head, gap, tail)
	}
	if n := utf8.RuneCountInString; n(head) != c.Head || n(tail) != c.Tail || n(whole) != c.Str.Chars {
		tb.Fatalf("%q: head %d, tail %d, whole %d, cut says %+v", whole, n(head), n(tail), n(whole), c)
	}
	if c.Head > m.HeadChars || c.Tail > m.TailChars {
		tb.Fatalf("%+v keeps more than %+v", c, m)
	}
	if kept := c.Head + c.Tail + utf8.RuneCountInString(c.Marker(id)); kept > m.MaxChars+len(c.Marker(id)) {
		tb.Fatalf("%d characters stay, the limit is %d and the marker", kept, m.MaxChars)
	}
}

// Goldens: testdata/*.txtar, each a policy, a body and the body masked, to the byte.
func TestGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var g struct {
				Mask
				ID string
			}
			if err := json.Unmarshal(ar.Files[0].Data, &g); err != nil {
				t.Fatal(err)
			}
			in := ar.Files[1].Data
			checkLaws(t, in, g.Mask)
			got, _ := maskBody(t, in, g.Mask, g.ID)
			if *update {
				ar.Files[2].Data = got
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(got, ar.Files[2].Data) {
				t.Errorf("got\n%s\nwant\n%s", got, ar.Files[2].Data)
			}
		})
	}
}

// anyText draws texts with everything that makes counting hard.
func anyText() *rapid.Generator[string] {
	piece := rapid.SampledFrom([]string{
		"a", "line\n", "\t", "\"q\"", "\\", "é", "e\u0301", "汉字", "😀", "👍🏽", "👩\u200d👧", "\u200d", "\u0000", "\u001b[0m", "</b>&",
		"... [KIMI_PROXY_OBSERVATION_MASKED original_chars=1 head=1 tail=1] ...", strings.Repeat("word ", 10), strings.Repeat("\\n", 9), "\u2028", "\ufeff",
	})
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, "pieces"), "")
	})
}

var anyMarkers = rapid.SampledFrom([]Markers{DocumentMarkers, PlainMarkers})

func anyMask() *rapid.Generator[Mask] {
	return rapid.Custom(func(t *rapid.T) Mask {
		most := rapid.IntRange(1, 60).Draw(t, "max")
		head := rapid.IntRange(0, most).Draw(t, "head")
		return Mask{MaxChars: most, HeadChars: head, TailChars: rapid.IntRange(0, most-head).Draw(t, "tail"), Markers: anyMarkers.Draw(t, "markers")}
	})
}

// anyDoc draws a JSON value; the encoder's choice of escapes is drawn too.
func anyDoc(t *rapid.T, depth int) any {
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0:
		return json.Number(rapid.SampledFrom([]string{"0", "-1.50", "1e400", "12345678901234567890"}).Draw(t, "n"))
	case 1:
		return rapid.Bool().Draw(t, "b")
	case 2, 3:
		if depth < 4 {
			list := make([]any, rapid.IntRange(0, 4).Draw(t, "len"))
			for i := range list {
				list[i] = anyDoc(t, depth+1)
			}
			return list
		}
	case 4:
		if depth < 4 {
			obj := map[string]any{}
			for range rapid.IntRange(0, 4).Draw(t, "len") {
				obj[anyText().Draw(t, "key")] = anyDoc(t, depth+1)
			}
			return obj
		}
	}
	return anyText().Draw(t, "text")
}

func TestLawsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body, err := json.Marshal(anyDoc(t, 0))
		if err != nil {
			t.Fatal(err)
		}
		checkLaws(rapidTB{t: t}, body, anyMask().Draw(t, "mask"))
	})
}

// rapidTB lets the laws fail a rapid check.
type rapidTB struct {
	testing.TB
	t *rapid.T
}

func (r rapidTB) Helper()                   {}
func (r rapidTB) Fatalf(f string, a ...any) { r.t.Fatalf(f, a...) }
func (r rapidTB) Fatal(a ...any)            { r.t.Fatal(a...) }

// G3, G4: a python3 transcription of the contract agrees on 10,000 generated documents.
func TestG3AgreesWithTheReference(t *testing.T) {
	const n = 10_000
	type reference struct {
		Doc  json.RawMessage `json:"doc"`
		Max  int             `json:"max"`
		Head int             `json:"head"`
		Tail int             `json:"tail"`
	}
	gen := rapid.Custom(func(t *rapid.T) reference {
		doc := []any{anyDoc(t, 0), anyText().Draw(t, "text"), anyDoc(t, 0)}
		m := anyMask().Draw(t, "mask")
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(rapid.Bool().Draw(t, "escape"))
		if err := enc.Encode(doc); err != nil {
			t.Fatal(err)
		}
		raw := bytes.TrimSpace(buf.Bytes())
		if rapid.Bool().Draw(t, "ascii") {
			raw = asciiOnly(raw)
		}
		return reference{raw, m.MaxChars, m.HeadChars, m.TailChars}
	})
	var in bytes.Buffer
	cases := make([]reference, n)
	for i := range cases {
		cases[i] = gen.Example(i)
		line, err := json.Marshal(cases[i])
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	masked := 0
	for i, line := range runReference(t, &in) {
		c := cases[i]
		got, cuts := maskBody(t, c.Doc, Mask{MaxChars: c.Max, HeadChars: c.Head, TailChars: c.Tail}, "")
		if !reflect.DeepEqual(decode(t, got), decode(t, line)) {
			t.Fatalf("document %d with %d/%d/%d:\n%s\nwe say     %s\npython says %s", i, c.Max, c.Head, c.Tail, c.Doc, got, line)
		}
		masked += len(cuts)
	}
	if masked < n/2 {
		t.Errorf("only %d strings were cut in %d documents", masked, n)
	}
}

// FuzzMask checks the laws for any valid document and policy.
func FuzzMask(f *testing.F) {
	f.Add([]byte(`{"result":{"content":[{"type":"text","text":"`+strings.Repeat(`é\n\"`, 30)+`"}]}}`), 20, 5, 5)
	f.Add([]byte(`["👩\u200d👩\u200d👧👩‍👩‍👧","\ud83d\ude00\ud83d\ude00\ud83d\ude00"]`), 2, 1, 1)
	f.Add([]byte(`"`+strings.Repeat(`\\`, 90)+`"`), 40, 20, 20)
	f.Add([]byte(`"`+strings.Repeat(`🇫🇷`, 30)+`"`), 10, 5, 4)
	f.Fuzz(func(t *testing.T, body []byte, most, head, tail int) {
		m := Mask{MaxChars: most, HeadChars: head, TailChars: tail, Markers: DocumentMarkers}
		if len(m.Validate()) > 0 {
			return
		}
		s := jsonscan.New(body, 0)
		if _, err := s.Skip(); err != nil || s.End() != nil {
			return
		}
		checkLaws(t, body, m)
		m.Markers = PlainMarkers
		checkLaws(t, body, m)
	})
}
