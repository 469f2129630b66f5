package frame

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// readAll reads everything and returns the results as text.
func readAll(r io.Reader, limit int64) (out []string, framing Framing) {
	rd := NewReader(r, limit, func(line []byte) { out = append(out, fmt.Sprintf("junk %q", line)) })
	for {
		text, err := rd.Next()
		big, ok := errors.AsType[*TooLargeError](err)
		switch {
		case ok:
			out = append(out, fmt.Sprintf("large %d %q %q", big.Size, big.Head, big.Tail))
		case err != nil:
			return append(out, err.Error()), rd.Framing()
		default:
			out = append(out, string(text))
		}
	}
}

func TestNext(t *testing.T) {
	long := strings.Repeat("x", 300)
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"empty":            {"", nil},
		"one":              {"{\"a\":1}\n", []string{`{"a":1}`}},
		"several":          {"{}\n[]\n{\"b\":2}\n", []string{`{}`, `[]`, `{"b":2}`}},
		"no end at EOF":    {"{}\n{\"a\":1}", []string{`{}`, `{"a":1}`}},
		"CRLF":             {"{}\r\n[1]\r\n", []string{`{}`, `[1]`}},
		"blanks":           {"\n  \n\t{} \r\n\r\n\r", []string{`{}`}},
		"BOM":              {"\xef\xbb\xbf{}\n\xef\xbb\xbf {}\n", []string{`{}`, `{}`}},
		"half a BOM":       {"\xef\xbb{}\n{}\n\xef", []string{`junk "\xef\xbb{}"`, `{}`, `junk "\xef"`}},
		"BOM not at start": {" \xef\xbb\xbf{}\n", []string{`junk "\ufeff{}"`}},
		"banner":           {"Server v1.2 ready\n{}\n", []string{`junk "Server v1.2 ready"`, `{}`}},
		"colours":          {"\x1b[32mok\x1b[0m\n{}\n", []string{`junk "\x1b[32mok\x1b[0m"`, `{}`}},
		"UTF-16":           {"\xff\xfe{\x00}\x00\n\x00{}\n{}\n", []string{`junk "\xff\xfe{\x00}\x00"`, `junk "\x00{}"`, `{}`}},
		"partial JSON":     {"{\"a\":\n{}\n", []string{`{"a":`, `{}`}},
		"long junk":        {long + "\n{}\n", []string{fmt.Sprintf("junk %q", long[:256]), `{}`}},
		"number":           {"42\n\"s\"\n{}\n", []string{`junk "42"`, `junk "\"s\""`, `{}`}},

		"counted":              {"Content-Length: 2\r\n\r\n{}Content-Length: 3\r\n\r\n[1]", []string{`{}`, `[1]`}},
		"counted, LF":          {"content-length:2\n\n{}\nCONTENT-LENGTH : 2\n\n[]", []string{`{}`, `[]`}},
		"more headers":         {"Content-Type: a/b\r\nContent-Length: 2\r\nX-Y: z\r\n\r\n{}", []string{`{}`}},
		"raw lines in a body":  {"Content-Length: 5\r\n\r\n{\n\n\n}Content-Length: 2\r\n\r\n{}", []string{"{\n\n\n}", `{}`}},
		"junk, then counted":   {"hello\n\nContent-Length: 2\r\n\r\n{}", []string{`junk "hello"`, `{}`}},
		"empty body":           {"Content-Length: 0\r\n\r\nContent-Length: 2\r\n\r\n{}", []string{`{}`}},
		"no header":            {"Content-Length: 2\r\n\r\n{}\n{\"x\":1}\nContent-Length: 2\n\n[]", []string{`{}`, `{"x":1}`, `[]`}},
		"no blank line":        {"Content-Length: 9\n{}\n{}\n", []string{`{}`, `{}`}},
		"decided on lines":     {"{}\nContent-Length: 2\n\n[]\n", []string{`{}`, `junk "Content-Length: 2"`, `[]`}},
		"garbage length first": {"Content-Length: -1\r\n\r\n{}\n", []string{`junk "Content-Length: -1"`, `{}`}},
		"garbage length": {"Content-Length: 2\n\n{}Content-Length: 0x9\n\n{}Content-Length: 2\n\n[]Content-Length: 2\n\n{}",
			[]string{`{}`, `junk "Content-Length: 0x9"`, `{}`, `[]`, `{}`}},
		"two lengths":     {"Content-Length: 2\nContent-Length: 3\n\n{}\n", []string{`junk "Content-Length: 3"`, `{}`}},
		"absurd length":   {"Content-Length: 99999999999999\n\n{}\n", []string{`junk "Content-Length: 99999999999999"`, `{}`}},
		"length too low":  {"Content-Length: 2\n\n{\"a\":1}Content-Length: 2\n\n{}", []string{`{"`, `junk "a\":1}Content-Length: 2"`, `{}`}},
		"length too high": {"Content-Length: 9\n\n{}Content-Length: 2\n\n{}Content-Length: 2\n\n[]", []string{`{}Content`, `junk "-Length: 2"`, `{}`, `[]`}},
		"no UTF-8 before": {"Content-Length: 2\n\n{}\xff\xfe" + strings.Repeat("\xff", 20) + "content-LENGTH: 2\n\n[]",
			[]string{`{}`, fmt.Sprintf("junk %q", "\xff\xfe"+strings.Repeat("\xff", 20)+"content-LENGTH: 2"), `[]`}},
		"body cut short": {"Content-Length: 9\n\n{}", []string{"unexpected EOF"}},
		"header at EOF":  {"Content-Length: 9\n", nil},
		"headers without end": {"Content-Length: 2\n" + strings.Repeat("X-A: b\n", maxHeaders) + "\n{}\n",
			[]string{`junk "X-A: b"`, `{}`}},
		"not headers": {"INFO: up\nContent: x\n{}\n", []string{`junk "INFO: up"`, `junk "Content: x"`, `{}`}},
	} {
		if len(c.want) == 0 || c.want[len(c.want)-1] != "unexpected EOF" {
			c.want = append(c.want, "EOF")
		}
		for way, r := range map[string]io.Reader{
			"one read": strings.NewReader(c.in), "single bytes": iotest.OneByteReader(strings.NewReader(c.in)),
			"data with the error": iotest.DataErrReader(strings.NewReader(c.in)),
		} {
			got, _ := readAll(r, 1<<10)
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("%s, %s:\n got %q\nwant %q", name, way, got, c.want)
			}
		}
	}
}

func TestFraming(t *testing.T) {
	for in, want := range map[string]Framing{
		"": Newline, "{}\n": Newline, "Content-Length: 2\n{}\n": Newline, "Content-Length: x\n\n{}\n": Newline,
		"Content-Length: 2\n\n{}": ContentLength, "Content-Length: 2\n\n{}\n{}\n": ContentLength,
		"{}\nContent-Length: 2\n\n{}": Newline,
	} {
		if _, got := readAll(strings.NewReader(in), 100); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

func TestTooLarge(t *testing.T) {
	const limit = 2000
	line := func(n int) string {
		return `{"id":7,` + strings.Repeat("x", n-16) + `,"id":9}`
	}
	large := func(size int, text string) string {
		return fmt.Sprintf("large %d %q %q", size, text[:endBytes], text[len(text)-endBytes:])
	}
	const reportAt = skipFactor * limit
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"at the limit":            {line(limit) + "\n", []string{line(limit)}},
		"one over":                {line(limit+1) + "\n{}\n", []string{large(limit+1, line(limit+1)), `{}`}},
		"at the end":              {line(limit + 1), []string{large(limit+1, line(limit+1))}},
		"just before the report":  {line(reportAt-1) + "\n{}\n", []string{large(reportAt-1, line(reportAt-1)), `{}`}},
		"exactly at the report":   {line(reportAt) + "\n{}\n", []string{large(reportAt, line(reportAt)), `{}`}},
		"reported before its end": {line(9*limit) + "\n{}\n", []string{large(reportAt, line(9 * limit)[:reportAt]), `{}`}},
		"reported, no end":        {line(9 * limit), []string{large(reportAt, line(9 * limit)[:reportAt])}},

		"counted": {fmt.Sprintf("Content-Length: %d\n\n%sContent-Length: 2\n\n{}", limit+1, line(limit+1)),
			[]string{large(limit+1, line(limit+1)), `{}`}},
		"counted, reported before its end": {fmt.Sprintf("Content-Length: %d\n\n%sContent-Length: 2\n\n{}", 9*limit, line(9*limit)),
			[]string{large(9*limit, line(9 * limit)[:reportAt]), `{}`}},
		"counted, exactly at the report": {fmt.Sprintf("Content-Length: %d\n\n%sContent-Length: 2\n\n{}", reportAt, line(reportAt)),
			[]string{large(reportAt, line(reportAt)), `{}`}},
		"counted, cut short": {fmt.Sprintf("Content-Length: %d\n\n%s", 3*limit, line(2*limit)),
			[]string{large(3*limit, line(2*limit))}},
		"counted, then a line with a header behind it": {"Content-Length: 2\n\n{}" + line(limit+1) + "Content-Length: 2\n\n[]",
			[]string{`{}`, large(limit+1+17, line(limit+1)+"Content-Length: 2"), `[]`}},
	} {
		for way, r := range map[string]io.Reader{
			"one read": strings.NewReader(c.in), "single bytes": iotest.OneByteReader(strings.NewReader(c.in)),
		} {
			got, _ := readAll(r, limit)
			if strings.Join(got, "\n") != strings.Join(append(c.want, "EOF"), "\n") {
				t.Errorf("%s, %s:\n got %.3000q\nwant %.3000q", name, way, got, c.want)
			}
		}
	}
}

func TestLongJunkIsReportedBeforeItEnds(t *testing.T) {
	in, out := io.Pipe()
	reported := make(chan int, 1)
	go NewReader(in, 100, func(line []byte) { reported <- len(line) }).Next() //nolint:errcheck // ended by the close below
	_, _ = out.Write(bytes.Repeat([]byte("x"), skipFactor*maxHeaderBytes))
	if n := <-reported; n != maxJunk {
		t.Errorf("%d bytes", n)
	}
	out.Close()
}

func TestErrorsArePermanent(t *testing.T) {
	broken := errors.New("broken")
	for _, in := range []string{"{}\n", "{}\n{\"a", "{}\nContent", "{}\n" + strings.Repeat("[", readAhead+1)} {
		r := NewReader(io.MultiReader(strings.NewReader(in), iotest.ErrReader(broken)), 1<<20, nil)
		if text, err := r.Next(); err != nil || string(text) != "{}" {
			t.Errorf("got %q, %v", text, err)
		}
		for range 2 {
			if text, err := r.Next(); !errors.Is(err, broken) {
				t.Errorf("after %.20q: %q, %v", in, text, err)
			}
		}
	}
	if _, err := NewReader(emptyReader{}, 10, nil).Next(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v", err)
	}
}

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, nil }

func TestMessageSizes(t *testing.T) {
	for _, n := range []int{2, readAhead - 1, readAhead, readAhead + 1, minPiece + readAhead, 5 << 20} {
		want := `[` + strings.Repeat("1", n-2) + `]`
		for _, in := range []string{want + "\n{}\n", fmt.Sprintf("Content-Length: %d\r\n\r\n%sContent-Length: 2\r\n\r\n{}", n, want)} {
			r := NewReader(strings.NewReader(in), int64(n), nil)
			got, err := r.Next()
			if err != nil || string(got) != want {
				t.Fatalf("%d: got %d bytes, %v", n, len(got), err)
			}
			if n > readAhead && cap(got) > n+n/8 {
				t.Errorf("a message of %d bytes has a capacity of %d", n, cap(got))
			}
			if got, err := r.Next(); err != nil || string(got) != "{}" {
				t.Errorf("after %d: %q, %v", n, got, err)
			}
		}
	}
}
