package jsonscan

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// elements lists the elements that Array finds, those left to be skipped too.
func elements(s *Scanner, doc string, leave bool) (out []string, err error) {
	err = s.Array(func() error {
		start := s.Pos()
		if leave {
			out = append(out, "")
			return nil
		}
		_, err := s.Skip()
		out = append(out, doc[start:s.Pos()])
		return err
	})
	if err == nil {
		err = s.End()
	}
	return out, err
}

// I7: Array accepts what encoding/json accepts, and finds the same elements.
func TestI7Array(t *testing.T) {
	for _, doc := range []string{
		`[]`, ` [ ] `, `[1]`, `[ 1 , "a" ,{"b":[2,3]}, null]`, "[\n1,\t2\r]", `[[],[[]]]`,
		``, `[`, `[1`, `[1,`, `[1,]`, `[,]`, `[1 2]`, `[1]]`, `[1}`, `{}`, `1`, `[01]`, `[tru]`,
	} {
		var want []json.RawMessage
		bad := json.Unmarshal([]byte(doc), &want) != nil || !strings.HasPrefix(strings.TrimSpace(doc), "[")
		for _, leave := range []bool{false, true} {
			got, err := elements(New([]byte(doc), 0), doc, leave)
			if (err != nil) != bad || err == nil && len(got) != len(want) {
				t.Errorf("%q: got %q, %v; want %q", doc, got, err, want)
			}
			for i := range got {
				if err == nil && !leave && got[i] != string(want[i]) {
					t.Errorf("%q: element %d is %q", doc, i, got[i])
				}
			}
		}
	}
	if _, err := elements(New([]byte(`[[1]]`), 1), `[[1]]`, false); err == nil {
		t.Error("nested deeper than allowed")
	}
}

// I7: continuing in the middle finds and refuses what reading the whole document does.
func TestI7ContinuesInTheMiddle(t *testing.T) {
	const front = `{"a":1,"list":[10,20`
	for rest, ok := range map[string]bool{
		`]}`: true, ` , 30 ] , "b" : 2 } `: true, `,30],"c":[]}`: true,
		`,]}`: false, `]`: false, `],"a":2}`: false, `],"list":2}`: false, `],"LIST":2}`: false, `]} 1`: false, ` 30]}`: false, `}}`: false,
		`],"d":[[[1]]]}`: false,
	} {
		doc := []byte(front + rest)
		var keys []string
		s := NewAt(doc, len(front), 2, 3)
		count := 0
		err := s.MoreElements(func() error { count++; return nil })
		if err == nil {
			err = s.MoreMembers([]string{"a", "list"}, []string{"list"}, func(key []byte) error {
				keys = append(keys, string(key))
				return nil
			})
		}
		if err == nil {
			err = s.End()
		}
		if (err == nil) != ok {
			t.Errorf("%s: %v", rest, err)
		}
		var all []string
		whole := New(doc, 3)
		wholeErr := whole.Object([]string{"list"}, func(key []byte) error { all = append(all, string(key)); return nil })
		if wholeErr == nil {
			wholeErr = whole.End()
		}
		if (wholeErr == nil) != ok || ok && !slices.Equal(all[2:], keys) {
			t.Errorf("%s: read as a whole %q, %v, on from the middle %q", rest, all, wholeErr, keys)
		}
	}
}

// SpliceReader returns what Splice writes, whatever the sizes of its reads.
func TestSpliceReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "data")
		var edits []Edit
		for at := 0; at <= len(data); {
			start := rapid.IntRange(at, len(data)).Draw(t, "start")
			end := rapid.IntRange(start, min(len(data), start+20)).Draw(t, "end")
			edits = append(edits, Edit{Span{start, end}, rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "text")})
			if at = end + rapid.IntRange(0, 60).Draw(t, "gap"); rapid.IntRange(0, 4).Draw(t, "more") == 0 {
				break
			}
		}
		want := AppendSpliced(nil, data, edits)
		for _, r := range []io.Reader{NewSpliceReader(data, edits), iotest.OneByteReader(NewSpliceReader(data, edits)), iotest.HalfReader(NewSpliceReader(data, edits))} {
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
		}
		if len(want) != SplicedLen(data, edits) {
			t.Fatal("its length is wrong")
		}
	})
}
