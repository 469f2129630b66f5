package recall

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/linesearch"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

// readText reads a text in blocks of about block bytes.
func readText(t testing.TB, text string, block int, w ReadRequest, limit ReadLimit) ReadResult {
	t.Helper()
	r := newBlockReader(buffer{limit: limit}, w)
	var err error
	for rest := []byte(text); len(rest) > 0 && err == nil; {
		n := min(block, len(rest))
		if n < len(rest) {
			if n = wholeCharsLen(rest[:n]); n == 0 {
				_, n = utf8.DecodeRune(rest)
			}
		}
		err = r.readBlock(context.Background(), slices.Clone(rest[:n]))
		rest = rest[n:]
	}
	if err == nil {
		err = r.finishText()
	}
	if err != nil && !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	return r.result(int64(utf8.RuneCountInString(text)))
}

func pattern(t testing.TB, expr string) *linesearch.Pattern {
	t.Helper()
	p, err := linesearch.Compile(expr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// readSimply is the reference implementation of a read without limits.
func readSimply(text string, w ReadRequest, expr string) string {
	lines := strings.Split(text, "\n")
	number := func(n int, line string) string {
		if w.LineNumbers {
			line = fmt.Sprintf("%d│ %s", n, line)
		}
		return line + "\n"
	}
	var b strings.Builder
	switch {
	case w.Chars != nil:
		runes := []rune(text)
		last := min(w.Chars.Last, len(runes))
		return string(runes[min(w.Chars.First-1, last):last])
	case w.Pattern != nil:
		re := regexp.MustCompile(expr)
		for i, line := range lines {
			in := len(w.Ranges) == 0 || slices.ContainsFunc(w.Ranges, func(r Range) bool { return r.First <= i+1 && i+1 <= r.Last })
			if phantom := i == len(lines)-1 && line == ""; in && !phantom && re.MatchString(line) {
				b.WriteString(number(i+1, line))
			}
		}
		return b.String()
	case len(w.Ranges) == 0 && !w.LineNumbers:
		return text
	}
	ranges := w.Ranges
	if len(ranges) == 0 {
		ranges = []Range{{1, maxLine}}
	}
	given := map[int]bool{}
	for _, r := range ranges {
		for n := r.First; n <= min(r.Last, len(lines)); n++ {
			if given[n] {
				continue
			}
			given[n] = true
			phantom := n == len(lines) && lines[n-1] == ""
			if phantom && !w.JoinLines && (text == "" || r.First != n && r.Last != n) {
				continue
			}
			b.WriteString(number(n, lines[n-1]))
		}
	}
	if w.JoinLines {
		return strings.TrimSuffix(b.String(), "\n")
	}
	return b.String()
}

var anyLines = rapid.Custom(func(t *rapid.T) string {
	lines := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "one two", "é漢字", strings.Repeat("x", 40), strings.Repeat("é", 700), "an error"}), 0, 40).Draw(t, "lines")
	text := strings.Join(lines, "\n")
	if rapid.Bool().Draw(t, "ends") {
		text += "\n"
	}
	return text
})

var anyRequest = rapid.Custom(func(t *rapid.T) (w askedFor) {
	line := rapid.IntRange(1, 45)
	for range rapid.IntRange(0, 6).Draw(t, "ranges") {
		a, b := line.Draw(t, "first"), line.Draw(t, "last")
		if rapid.IntRange(0, 9).Draw(t, "open") == 0 {
			b = maxLine
		}
		w.Ranges = append(w.Ranges, Range{min(a, b), max(a, b)})
	}
	w.LineNumbers = rapid.Bool().Draw(t, "number")
	switch rapid.IntRange(0, 4).Draw(t, "how") {
	case 0:
		w.expr = rapid.SampledFrom([]string{"", "o", "^a", "é$", "x{30}", "r{2}|字"}).Draw(t, "pattern")
		w.Pattern, _ = linesearch.Compile(w.expr)
	case 1:
		a := rapid.IntRange(1, 2000).Draw(t, "char")
		w.Chars = &Range{a, a + rapid.IntRange(0, 2000).Draw(t, "chars")}
	case 2:
		if w.JoinLines = true; len(w.Ranges) == 0 {
			w.Ranges = []Range{{1, 3}}
		}
	}
	return w
})

type askedFor struct {
	ReadRequest
	expr string
}

// Without limits, a read returns what is asked for, whatever the blocks.
func TestReadReturnsWhatIsAskedFor(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text, w := anyLines.Draw(rt, "text"), anyRequest.Draw(rt, "request")
		want := readSimply(text, w.ReadRequest, w.expr)
		got := readText(t, text, rapid.SampledFrom([]int{1, 2, 7, 64, 1 << 20}).Draw(rt, "block"), w.ReadRequest, ReadLimit{})
		if string(got.Text) != want || got.Next != nil {
			rt.Fatalf("got %q, want %q; %+v", got.Text, want, got.Next)
		}
	})
}

// With limits, no read exceeds them, and following the hints returns, joined, what was asked for.
func TestContinuationsReturnEverything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text, w := anyLines.Draw(rt, "text"), anyRequest.Draw(rt, "request")
		limit := ReadLimit{Bytes: rapid.IntRange(hintChars+60, 3000).Draw(rt, "bytes")}
		if rapid.Bool().Draw(rt, "byChars") {
			limit.Chars = rapid.IntRange(hintChars+60, 2000).Draw(rt, "limit")
		}
		block := rapid.SampledFrom([]int{3, 64, 1 << 20}).Draw(rt, "block")
		var asked []Range
		if asked = w.Ranges; w.Pattern != nil {
			_, asked = splitOverlaps(w.Ranges)
		}
		want, all := readSimply(text, w.ReadRequest, w.expr), ""
		for n := 0; ; n++ {
			got := readText(t, text, block, w.ReadRequest, limit)
			noted := got.TextWithHint("prn_0123456789abcdefghjkmnpqrs")
			if n > 2000 || len(noted) > limit.Bytes || limit.Chars > 0 && utf8.RuneCount(noted) > limit.Chars {
				rt.Fatalf("reading %d: %d bytes, %d characters of %+v: %q", n, len(noted), utf8.RuneCount(noted), limit, noted)
			}
			all += string(got.Text)
			if got.Next == nil {
				break
			}
			if got.Next.InsideLine && w.Chars == nil && (len(w.Ranges) > 0 || w.LineNumbers || w.Pattern != nil) {
				// What follows are characters, not what was asked for. It begins where the cut is.
				rest := readSimply(text, ReadRequest{Chars: &got.Next.NextChars}, "")
				line, _, _ := strings.Cut(rest, "\n")
				if !strings.HasPrefix(want, all+line) {
					rt.Fatalf("%q and %q are no beginning of %q", all, line, want)
				}
				return
			}
			if got.Next.InsideLine {
				w.ReadRequest = ReadRequest{Chars: &got.Next.NextChars}
				continue
			}
			if w.JoinLines && len(got.Text) >= 0 {
				all += "\n"
			}
			if got.Next.MoreRanges == 0 && w.Pattern == nil {
				asked = nil
			} else if pieces, covered := splitOverlaps(asked); w.Pattern != nil {
				asked = covered[max(len(covered)-got.Next.MoreRanges, 0):]
			} else {
				asked = nil
				for _, p := range pieces[len(pieces)-got.Next.MoreRanges:] {
					asked = append(asked, p.Range)
				}
			}
			w.Ranges = append([]Range{got.Next.NextLines}, asked...)
			asked = w.Ranges
		}
		if all != want {
			rt.Fatalf("got  %q\nwant %q", all, want)
		}
	})
}

// A search that hits its work limit, when what it found leaves no room for the hint, does not send its
// reader back to where it began.
func TestStoppedSearchMakesProgress(t *testing.T) {
	limit := ReadLimit{Bytes: 2000, SearchWork: 20_000}
	found := "found " + strings.Repeat("x", limit.Bytes-hintChars)
	text := "first\n" + found + "\n" + strings.Repeat(strings.Repeat("y", 99)+"\n", 1000)
	w := ReadRequest{Pattern: pattern(t, "f[aeiou]und")}
	got := readText(t, text, 1<<20, w, limit)
	if got.Next == nil {
		t.Fatalf("the search was not stopped: %d bytes", len(got.Text))
	}
	if len(got.TextWithHint("prn_0123456789abcdefghjkmnpqrs")) > limit.Bytes {
		t.Errorf("%d bytes and a note", len(got.Text))
	}
	if !got.Next.InsideLine || !strings.HasPrefix(found, string(got.Text)) || len(got.Text) < 1000 {
		t.Fatalf("got %q, and %+v", got.Text, got.Next)
	}
	rest := readSimply(text, ReadRequest{Chars: &got.Next.NextChars}, "")
	if !strings.HasPrefix(rest, found[len(got.Text):]+"\n") {
		t.Errorf("it goes on with %.50q", rest)
	}
}

// Each line is in one subrange, of the first range that asks for it; no subrange is empty.
func TestSplitOverlapsReturnsEachLineOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.OneOf(rapid.IntRange(1, 30), rapid.Just(maxLine), rapid.Just(maxLine-1))
		var ranges []Range
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			a, b := line.Draw(t, "a"), line.Draw(t, "b")
			ranges = append(ranges, Range{min(a, b), max(a, b)})
		}
		asked, covered := splitOverlaps(ranges)
		for _, n := range []int{1, 2, 3, 5, 8, 13, 15, 21, 29, 30, 31, maxLine - 1, maxLine} {
			first := slices.IndexFunc(ranges, func(r Range) bool { return r.First <= n && n <= r.Last })
			var in []subrange
			for _, p := range asked {
				if p.First > p.Last {
					t.Fatalf("%v of %v", p, ranges)
				}
				if p.First <= n && n <= p.Last {
					in = append(in, p)
				}
			}
			if first < 0 != (len(in) == 0) || len(in) > 1 || len(in) == 1 && in[0].of != ranges[first] {
				t.Fatalf("line %d of %v is in %v", n, ranges, in)
			}
			if is := slices.ContainsFunc(covered, func(r Range) bool { return r.First <= n && n <= r.Last }); is != (first >= 0) {
				t.Fatalf("line %d of %v in %v", n, ranges, covered)
			}
		}
		for i := 1; i < len(covered); i++ {
			if covered[i].First <= covered[i-1].Last {
				t.Fatalf("%v overlap", covered)
			}
		}
	})
}

// A read reserves its memory in the budget and is refused when none is left; releasing the scope frees
// it.
func TestReadUsesTheMemoryBudget(t *testing.T) {
	r, _ := open(t, nil)
	text := strings.Repeat("a line of text to keep\n", 1<<18) // 6 MB
	id, err := r.StoreText(t.Context(), "t", text, Origin{})
	if err != nil {
		t.Fatal(err)
	}
	for total, want := range map[int64]bool{8 << 20: false, 64 << 20: true} {
		budget := membudget.New(total)
		scope := budget.Scope("client")
		ctx := membudget.NewContext(t.Context(), scope)
		got, err := r.RecoverText(ctx, "t", ReadRequest{ID: id, LineNumbers: true}, anyOrigin, 0)
		if (err == nil) != want || err != nil && fault.KindOf(err) != fault.Full {
			t.Errorf("with %d bytes: %d, %v", total, len(got), err)
		}
		if held := budget.Stats().Held; want && held < int64(len(got)) {
			t.Errorf("%d bytes are held for %d", held, len(got))
		}
		if scope.Release(); budget.Stats().Held != 0 {
			t.Errorf("%+v", budget.Stats())
		}
	}
}

// A read ends when its context does, at any point.
func TestReadEndsWithItsContext(t *testing.T) {
	r, _ := open(t, nil)
	id, err := r.StoreText(t.Context(), "t", strings.Repeat("\n", 3<<20), Origin{})
	if err != nil {
		t.Fatal(err)
	}
	o, err := r.Open(t.Context(), "t", id)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, w := range []ReadRequest{{}, {LineNumbers: true}, {Chars: &Range{1 << 20, 2 << 20}}, {Pattern: pattern(t, "x")}, {Ranges: []Range{{9, 1 << 20}}}} {
		if got, err := o.Read(ctx, w, r.ReadLimit(0)); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v: %d bytes, %v", w, len(got.Text), err)
		}
	}
}
