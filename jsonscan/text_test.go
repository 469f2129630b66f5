package jsonscan

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// rawString draws the inside of a JSON string as any encoder might write it: each character plain, or
// with a short or a long escape.
func rawString() *rapid.Generator[string] {
	char := rapid.OneOf(
		rapid.SampledFrom([]string{`a`, `b`, ` `, `\n`, `\t`, `\"`, `\\`, `\/`, `\\\\`, `u`, `n`, `é`, `\u00e9`, `汉`, `\u6c49`}),
		rapid.SampledFrom([]string{`😀`, `\ud83d\ude00`, `\uD83D\uDE00`, "e\u0301", `e\u0301`, `\u200d`, `\\u0041`, `\\\u0041`, `d83d`}),
		rapid.StringMatching(`[ !#-\[\]-~]{1,20}`),
	)
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(char, 0, 60).Draw(t, "chars"), "")
	})
}

// Reading a string forward and backward returns the same characters.
func TestCharsForwardAndBackward(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := []byte(rawString().Draw(t, "raw"))
		var want string
		if err := json.Unmarshal([]byte(`"`+string(raw)+`"`), &want); err != nil {
			t.Fatal(err)
		}
		var forward, backward []rune
		for rest := raw; len(rest) > 0; {
			r, n := DecodeChar(rest)
			forward, rest = append(forward, r), rest[n:]
		}
		for rest := raw; len(rest) > 0; {
			r, n := DecodeLastChar(rest)
			backward, rest = append([]rune{r}, backward...), rest[:len(rest)-n]
		}
		if string(forward) != want || string(backward) != want || string(AppendDecoded(nil, raw)) != want {
			t.Fatalf("%s: forward %q, backward %q, text %q, want %q", raw, string(forward), string(backward), AppendDecoded(nil, raw), want)
		}
	})
}

// However small the chunks, they join to the text and split no character.
func TestDecodedChunksJoinToTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := []byte(rawString().Draw(t, "raw"))
		size := rapid.IntRange(1, 40).Draw(t, "size")
		var joined []byte
		pieces := DecodedChunks(raw, size)
		for range pieces {
			break // a sequence can be read again, and from the start
		}
		for piece := range pieces {
			if !utf8.Valid(piece) || len(piece) == 0 || len(piece) > max(size, 4) {
				t.Fatalf("piece %q of size %d", piece, size)
			}
			joined = append(joined, piece...)
		}
		if want := AppendDecoded(nil, raw); !bytes.Equal(joined, want) {
			t.Fatalf("%s in pieces of %d: %q, want %q", raw, size, joined, want)
		}
	})
	for range DecodedChunks([]byte("abc"), 1) {
		break // a caller may stop early
	}
}

func TestDecodedChunksDoesNotCopyPlainText(t *testing.T) {
	raw := []byte(strings.Repeat("plain ", 1000))
	at := 0
	for piece := range DecodedChunks(raw, 512) {
		if &piece[0] != &raw[at] {
			t.Fatal("a plain piece was copied")
		}
		at += len(piece)
	}
}

func TestAppendQuotedRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text")
		enc := AppendQuoted(nil, want)
		var got string
		if err := json.Unmarshal(enc, &got); err != nil || got != want {
			t.Fatalf("%q as %s reads %q, %v", want, enc, got, err)
		}
	})
}

func TestSplice(t *testing.T) {
	data := []byte("0123456789")
	for _, tt := range []struct {
		edits []Edit
		want  string
	}{
		{nil, "0123456789"},
		{[]Edit{{Span{2, 5}, []byte("x")}}, "01x56789"},
		{[]Edit{{Span{0, 0}, []byte("<")}, {Span{3, 3}, []byte("-")}, {Span{9, 10}, nil}}, "<012-345678"},
	} {
		var w bytes.Buffer
		if err := Splice(&w, data, tt.edits); err != nil {
			t.Fatal(err)
		}
		if w.String() != tt.want || string(AppendSpliced(nil, data, tt.edits)) != tt.want || SplicedLen(data, tt.edits) != len(tt.want) {
			t.Errorf("%v: wrote %q, want %q", tt.edits, w.String(), tt.want)
		}
	}
	for allow := range 3 {
		w := &failing{allow: allow}
		if Splice(w, data, []Edit{{Span{2, 5}, []byte("x")}}) == nil {
			t.Errorf("an error of write %d was lost", allow)
		}
	}
}

type failing struct{ allow int }

func (f *failing) Write(p []byte) (int, error) {
	if f.allow == 0 {
		return 0, bytes.ErrTooLarge
	}
	f.allow--
	return len(p), nil
}

// The fast classify returns what the reference returns.
func TestClassify(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, batch*64)
	for range 2000 {
		for i := range data {
			if rng.IntN(3) == 0 {
				data[i] = byte(rng.IntN(256))
			} else {
				data[i] = `"\/bfnrtu ax`[rng.IntN(12)]
			}
		}
		n := 1 + rng.IntN(batch)
		var got, want [batch]block
		classify(data, n, &got)
		classifyBytes(data, n, &want)
		if got != want {
			t.Fatalf("%q:\n%x\n%x", data, got, want)
		}
	}
}

// escapedBy agrees with reading the backslashes one by one, across blocks.
func TestEscapedBy(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		slash := rng.Uint64() & (rng.Uint64() | rng.Uint64())
		first := rng.Uint64() & 1
		var want uint64
		escaped := first == 1
		for k := range 64 {
			if escaped {
				want |= 1 << k
			}
			escaped = slash>>k&1 == 1 && !escaped
		}
		got, next := escapedBy(slash, first)
		if got != want || (next == 1) != escaped {
			t.Fatalf("slash %064b first %d:\n%064b %d\n%064b %v", slash, first, got, next, want, escaped)
		}
	}
}

// Finding an offset by counting from either end agrees with reading every character.
func TestCharOffsets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := []byte(strings.Repeat(rawString().Draw(t, "raw"), rapid.IntRange(1, 8).Draw(t, "times")))
		starts := []int{}
		for i := 0; i < len(raw); {
			starts = append(starts, i)
			_, n := DecodeChar(raw[i:])
			i += n
		}
		starts = append(starts, len(raw))
		chars := len(starts) - 1
		if got := CountChars(raw); got != chars {
			t.Fatalf("%s: %d chars, want %d", raw, got, chars)
		}
		n := rapid.IntRange(0, chars).Draw(t, "n")
		if got := CharOffset(raw, n); got != starts[n] {
			t.Fatalf("%s: char %d at %d, want %d", raw, n, got, starts[n])
		}
		if got := LastCharsOffset(raw, n); got != starts[chars-n] {
			t.Fatalf("%s: last %d chars at %d, want %d", raw, n, got, starts[chars-n])
		}
	})
	if CharOffset([]byte("ab"), 5) != 2 || LastCharsOffset([]byte("ab"), 5) != 0 {
		t.Error("asking for more than there is must give the ends")
	}
}
