package jsonscan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		in   string
		why  Reason
		at   int
		name string
	}{
		{``, Truncated, 0, "nothing"},
		{`  `, Truncated, 2, "only space"},
		{`{`, Truncated, 1, "open object"},
		{`{"a"`, Truncated, 4, "key without colon"},
		{`{"a":`, Truncated, 5, "member without value"},
		{`{"a":1`, Truncated, 6, "object not closed"},
		{`{"a":1,}`, Unexpected, 7, "trailing comma in object"},
		{`[1,]`, Unexpected, 3, "trailing comma in array"},
		{`[1 2]`, Unexpected, 3, "no comma"},
		{`{"a" 1}`, Unexpected, 5, "no colon"},
		{`{a:1}`, Unexpected, 1, "bare key"},
		{`[1}`, Unexpected, 2, "mismatched close"},
		{`{"a":1]`, Unexpected, 6, "mismatched close of object"},
		{`'a'`, Unexpected, 0, "single quotes"},
		{`tru`, Truncated, 3, "short literal"},
		{`trux`, Unexpected, 3, "wrong literal"},
		{`nul`, Truncated, 3, "short null"},
		{`fals0`, Unexpected, 4, "wrong false"},
		{`NaN`, Unexpected, 0, "NaN"},
		{`-`, Truncated, 1, "bare minus"},
		{`-x`, BadNumber, 1, "minus letter"},
		{`01`, BadNumber, 1, "leading zero"},
		{`1.`, Truncated, 2, "empty fraction"},
		{`1.e1`, BadNumber, 2, "no fraction digits"},
		{`1e+`, Truncated, 3, "empty exponent"},
		{`[1e+]`, BadNumber, 4, "no exponent digits"},
		{`.5`, Unexpected, 0, "no integer part"},
		{`+1`, Unexpected, 0, "plus sign"},
		{`"abc`, Truncated, 4, "open string"},
		{`"a\`, Truncated, 2, "backslash at the end"},
		{`"\u12`, Truncated, 1, "short unicode escape"},
		{`"\x41"`, BadEscape, 1, "unknown escape"},
		{`"\u12g4"`, BadEscape, 1, "not hex"},
		{`"\ud800"`, LoneSurrogate, 1, "high alone"},
		{`"\udc00"`, LoneSurrogate, 1, "low alone"},
		{`"\udc00\udc00"`, LoneSurrogate, 1, "two low ones"},
		{`"\ud800\ud800"`, LoneSurrogate, 1, "two high ones"},
		{`"\ud800\u0041"`, LoneSurrogate, 1, "high before a letter"},
		{`"\ud800\n"`, LoneSurrogate, 1, "high before another escape"},
		{"\"a\x01\"", Control, 2, "control character"},
		{"\"\xff\"", BadUTF8, 1, "not UTF-8"},
		{"\"\xc0\xaf\"", BadUTF8, 1, "overlong"},
		{"\"\xed\xa0\x80\"", BadUTF8, 1, "surrogate in UTF-8"},
		{"\"\xf4\x90\x80\x80\"", BadUTF8, 1, "over U+10FFFF"},
		{"\"é\xe2\x82\"", BadUTF8, 3, "cut sequence"},
		{"\xef\xbb\xbf1", Unexpected, 0, "byte order mark"},
		{`1 1`, Trailing, 2, "two values"},
		{`{}]`, Trailing, 2, "close too many"},
		{`[[[[[]]]]]`, TooDeep, 4, "too deep"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, strict := range []bool{false, true} {
				s := New([]byte(tt.in), 4)
				err := whole(s, strict)
				var e *Error
				if !errors.As(err, &e) {
					t.Fatalf("strict=%v: accepted", strict)
				}
				if e.Reason != tt.why || e.Offset != tt.at {
					t.Errorf("strict=%v: %v, want %v at byte %d", strict, e, tt.why, tt.at)
				}
			}
		})
	}
}

func whole(s *Scanner, strict bool) error {
	var err error
	if strict {
		_, err = s.SkipStrict()
	} else {
		_, err = s.Skip()
	}
	if err != nil {
		return err
	}
	return s.End()
}

// padded puts text into a string at every distance from the places where the scanner changes its
// method: the first word, the 64th byte, the edge of a block, the end of the document.
func padded(text string) [][]byte {
	var docs [][]byte
	for _, before := range []int{0, 1, 7, 8, 55, 62, 63, 64, 65, 120, 127, 128, 190, 700} {
		for _, after := range []int{0, 1, 9, 63, 64, 600} {
			docs = append(docs, []byte(`["`+strings.Repeat("x", before)+text+strings.Repeat("y", after)+`"]`))
		}
	}
	return docs
}

// The count of code points is right wherever in a string the special bytes are.
func TestCharsAreCodePoints(t *testing.T) {
	for _, tt := range []struct {
		raw   string
		chars int
	}{
		{``, 0}, {`a`, 1}, {`é`, 1}, {`\u00e9`, 1}, {`\u00E9\n`, 2}, {`😀`, 1}, {`\ud83d\ude00`, 1},
		{`\\`, 1}, {`\\\\\\\\`, 4}, {`\"\\\/\b\f\n\r\t`, 8}, {`汉字漢字`, 4}, {`\\\"`, 2}, {`\\u0041`, 6},
		{strings.Repeat(`\n\t`, 100), 200}, {strings.Repeat(`\\`, 65), 65}, {`e\u0301`, 2}, {"\x7f", 1},
		{strings.Repeat(`é`, 70) + `\ud83d\ude00` + strings.Repeat(`\"`, 70), 141},
	} {
		for _, doc := range padded(tt.raw) {
			got, _, err := New(doc, 0).LongStrings(nil, -1)
			if err != nil {
				t.Fatalf("%s: %v", doc, err)
			}
			plain := len(doc) - len(`[""]`) - len(tt.raw)
			if len(got) != 1 || got[0].Chars != tt.chars+plain {
				t.Fatalf("%q in %d bytes: got %+v, want %d chars", tt.raw, len(doc), got, tt.chars+plain)
			}
			text := AppendDecoded(nil, got[0].Of(doc))
			if n := utf8.RuneCount(text); n != got[0].Chars {
				t.Fatalf("%q: %d chars counted, text has %d", tt.raw, got[0].Chars, n)
			}
		}
	}
}

// An error far into a string is found as well as one in its first word.
func TestRefusalsFarIntoAString(t *testing.T) {
	for bad, why := range map[string]Reason{
		"\x00": Control, "\x1f": Control, "\n": Control, "\xff": BadUTF8, "\xc3": BadUTF8, "\xe2\x82x": BadUTF8,
		`\x`: BadEscape, `\ `: BadEscape, `\u00g0`: BadEscape, `\udfff`: LoneSurrogate, `\ud800x`: LoneSurrogate,
		`\\\q`: BadEscape,
	} {
		for _, doc := range padded(bad) {
			_, err := New(doc, 0).Skip()
			var e *Error
			if !errors.As(err, &e) || e.Reason != why {
				t.Fatalf("%q (%d bytes): %v, want %v", bad, len(doc), err, why)
			}
		}
	}
}

func TestLongStringsFindsOnlyLongValues(t *testing.T) {
	doc := []byte(`{"abcdef":"abcdef","k":["abcde",{"x":"\u0061bcdef"}],"n":123456789,"é":"éééééé"}`)
	got, span, err := New(doc, 0).LongStrings(nil, 5)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, s := range got {
		texts = append(texts, string(AppendDecoded(nil, s.Of(doc))))
	}
	if want := "[abcdef abcdef éééééé]"; fmt.Sprint(texts) != want {
		t.Errorf("got %v, want %v", texts, want)
	}
	if span.Start != 0 || span.End != len(doc) {
		t.Errorf("span %v", span)
	}
}

func TestObjectKeys(t *testing.T) {
	protocol := []string{"method", "params", "skip"}
	for _, tt := range []struct {
		in  string
		why Reason
	}{
		{`{"method":1,"params":2}`, 0},
		{`{ }`, 0},
		{` { "method" : 1 , "x" : [ ] } `, 0},
		{`{"method":1,"method":2}`, DuplicateKey},
		{`{"method":1,"\u006dethod":2}`, DuplicateKey},
		{`{"a":1,"b":2,"a":3}`, DuplicateKey},
		{`{"Method":1}`, FoldedKey},
		{`{"param\u017f":1}`, FoldedKey},
		{`{"paramſ":1}`, FoldedKey},
		{`{"sKip":1}`, FoldedKey},
		{`{"s` + "\u212a" + `ip":1}`, FoldedKey},
		{`{"methods":1,"method ":2}`, 0},
		{`{"a":{"b":1,"b":2}}`, 0}, // not a depth that is read
		{`{"a":1 "b":2}`, Unexpected},
		{`{"a":1,`, Truncated},
		{`{"a":1,}`, Unexpected},
		{`{1:2}`, Unexpected},
		{`{"a"}`, Unexpected},
		{`[]`, Unexpected},
		{manyKeys(100, -1), 0},
		{manyKeys(100, 3), DuplicateKey},
		{manyKeys(100, 99), DuplicateKey},
	} {
		err := New([]byte(tt.in), 0).Object(protocol, nil)
		var e *Error
		if errors.As(err, &e); (err == nil) != (tt.why == 0) || err != nil && e.Reason != tt.why {
			t.Errorf("%.60s: %v, want %v", tt.in, err, tt.why)
		}
	}
}

func manyKeys(n, again int) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		fmt.Fprintf(&b, `"k%d":%d,`, i, i)
	}
	if again < 0 {
		again = n
	}
	fmt.Fprintf(&b, `"k%d":0}`, again)
	return b.String()
}

func TestSkipStrictSeesEveryDepth(t *testing.T) {
	for in, dup := range map[string]bool{
		`{"a":{"b":1,"b":2}}`: true, `[[{"x":[{"y":1,"y":1}]}]]`: true, `{"a":{"b":1},"c":{"b":1}}`: false,
		`[{"a":1},{"a":2}]`: false, `[]`: false, `{}`: false, `[[],{}]`: false, `"s"`: false,
	} {
		err := whole(New([]byte(in), 0), true)
		var e *Error
		if errors.As(err, &e); dup != (err != nil) || dup && e.Reason != DuplicateKey {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestMemberMayReadItsValue(t *testing.T) {
	doc := []byte(`{"a":{"deep":"x"},"b":"text","c":[1]}`)
	s := New(doc, 0)
	var got []string
	err := s.Object(nil, func(key []byte) error {
		switch string(key) {
		case "a":
			return s.Object(nil, func(k []byte) error { got = append(got, "a."+string(k)); return nil })
		case "b":
			str, err := s.Str()
			got = append(got, string(str.Of(doc)))
			return err
		}
		return nil
	})
	if err != nil || s.End() != nil || fmt.Sprint(got) != "[a.deep text]" {
		t.Errorf("%v, %v", got, err)
	}
	stop := errors.New("stop")
	if err := New(doc, 0).Object(nil, func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a member's error must come back, got %v", err)
	}
	if _, err := New([]byte(`1`), 0).Str(); err == nil {
		t.Error("a number is not a string")
	}
	if _, err := New([]byte(`"a`), 0).Str(); err == nil {
		t.Error("an open string is not a string")
	}
}

func TestErrorsReadWell(t *testing.T) {
	_, err := New([]byte(`{"a":tru}`), 0).Skip()
	if got := err.Error(); got != "unexpected byte at byte 8" {
		t.Errorf("got %q", got)
	}
	if Reason(99).String() != "reason(99)" {
		t.Error("an unknown reason must still print")
	}
}

// FuzzScan compares the scanner with jsontext: the same documents are accepted, the same strings
// found.
func FuzzScan(f *testing.F) {
	for _, seed := range seeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		s := New(doc, 512)
		strs, _, err := s.LongStrings(nil, -1)
		if err == nil {
			err = s.End()
		}
		want, wantErr := jsontextStrings(doc)
		if tooDeep(err) {
			return
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: we say %v, jsontext says %v", doc, err, wantErr)
		}
		if err != nil {
			return
		}
		if len(strs) != len(want) {
			t.Fatalf("%q: %d strings, jsontext finds %d", doc, len(strs), len(want))
		}
		for i, str := range strs {
			text := AppendDecoded(nil, str.Of(doc))
			if string(text) != want[i] || utf8.RuneCount(text) != str.Chars {
				t.Fatalf("%q: string %d is %q (%d chars), jsontext has %q", doc, i, text, str.Chars, want[i])
			}
		}
		strictErr := whole(New(doc, 512), true)
		if dupErr := jsontextValid(doc); (strictErr == nil) != (dupErr == nil) {
			t.Fatalf("%q: strict says %v, jsontext says %v", doc, strictErr, dupErr)
		}
	})
}

func seeds() [][]byte {
	long := strings.Repeat(`line \"one\"\n\tindented \\ path `, 12)
	return [][]byte{
		[]byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hello"}]}}`),
		[]byte(`["` + long + `"]`), []byte(`["` + long + `é汉😀\ud83d\ude00` + long + `"]`),
		[]byte(`["` + long + "\x01" + long + `"]`), []byte(`["` + long + `\ud800` + long + `"]`),
		[]byte(`[1,-0,1.5e+10,true,false,null,"",{}]`), []byte(` { "a" : [ 1 , 2 ] } `), []byte(`{"a":1,"a":2}`),
		[]byte(strings.Repeat("[", 100) + strings.Repeat("]", 100)), []byte("\"\xed\xa0\x80\""), []byte(`[1e400,-1.0E-7]`),
		[]byte(`"` + strings.Repeat(`\`, 129) + `"`), []byte(`"` + strings.Repeat(`\`, 130) + `"`),
	}
}

func tooDeep(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == TooDeep
}

// jsontextStrings is every string value of doc, without object keys.
func jsontextStrings(doc []byte) ([]string, error) {
	d := jsontext.NewDecoder(bytes.NewReader(doc), jsontext.AllowDuplicateNames(true))
	var out []string
	values := 0
	for {
		tok, err := d.ReadToken()
		if errors.Is(err, io.EOF) && d.StackDepth() == 0 {
			if values == 1 {
				return out, nil
			}
			return nil, fmt.Errorf("%d values", values)
		}
		if err != nil {
			return nil, err
		}
		if d.StackDepth() == 0 {
			values++
		}
		if kind, n := d.StackIndex(d.StackDepth()); tok.Kind() == '"' && (kind != '{' || n%2 == 0) {
			out = append(out, tok.String())
		}
	}
}

func jsontextValid(doc []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(doc))
	if _, err := d.ReadValue(); err != nil {
		return err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("trailing data: %w", err)
	}
	return nil
}
