package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// closedLog is a log with n lines that nobody writes.
func closedLog(t *testing.T, n int) *testLog {
	t.Helper()
	l := newTestLog(t)
	l.recordCalls(n - 2)
	l.Close()
	l.wantOK(uint64(n))
	return l
}

// Every byte of a line is protected: whatever is changed, verification fails.
func TestEachByteIsProtected(t *testing.T) {
	l := closedLog(t, 4)
	lines := l.lines()
	for i := range lines[1] {
		changed := []byte(lines[1])
		changed[i] ^= 1
		l.write(lines[0] + string(changed) + strings.Join(lines[2:], "") + "\n")
		if r := l.verify(); r.OK() {
			t.Fatalf("byte %d of %q: not noticed", i, lines[1])
		}
	}
}

func TestEachFieldIsProtected(t *testing.T) {
	l := closedLog(t, 5)
	lines := l.lines()
	for _, field := range []string{"seq", "time", "event", "tenant", "subject", "method", "server", "tool", "decision", "rule", "bytes_in", "prev", "mac"} {
		at := strings.Index(lines[2], `"`+field+`":`)
		if at < 0 {
			t.Fatalf("the line has no %s: %s", field, lines[2])
		}
		end := at + strings.IndexAny(lines[2][at:], ",}")
		l.write(strings.Join(lines[:2], "") + lines[2][:end] + "0" + lines[2][end:] + strings.Join(lines[3:], "") + "\n")
		if r := l.verify(); r.OK() {
			t.Errorf("%s was changed: not noticed", field)
		}
		l.write(strings.Join(lines[:2], "") + lines[2][:max(at-1, 1)] + lines[2][end:] + strings.Join(lines[3:], "") + "\n")
		if r := l.verify(); r.OK() {
			t.Errorf("%s was removed: not noticed", field)
		}
	}
}

func TestMissingDoubleAndMovedLines(t *testing.T) {
	l := closedLog(t, 8)
	lines := l.lines()
	lines[7] += "\n"
	join := func(parts ...[]string) string {
		var all []string
		for _, p := range parts {
			all = append(all, p...)
		}
		return strings.Join(all, "")
	}
	for name, c := range map[string]struct{ log, want string }{
		"first":      {join(lines[1:]), "line 1 is missing at the beginning"},
		"middle":     {join(lines[:3], lines[5:]), "lines 4 to 5 are missing before this one"},
		"last":       {join(lines[:7]), "line 8 is missing at the end"},
		"last three": {join(lines[:5]), "lines 6 to 8 are missing at the end"},
		"all":        {"", "lines 1 to 8 are missing"},
		"twice":      {join(lines[:4], lines[3:]), "line 4 is in the wrong place, or there twice"},
		"swapped":    {join(lines[:3], lines[4:5], lines[3:4], lines[5:]), "line 4 is in the wrong place"},
		"reversed":   {join(lines[7:], lines[6:7], lines[5:6]), "wrong place"},
		"blank line": {join(lines[:3], []string{"\n"}, lines[3:]), "this is not a line of an audit log"},
		"other text": {join(lines[:3], []string{"hello\n"}, lines[3:]), "audit.log:4: this is not a line"},
		"half":       {join(lines[:7]) + lines[7][:20], "has no end"},
		"no end":     {join(lines[:7]) + strings.TrimSuffix(lines[7], "\n"), "has no end"},
		"carriage":   {join(lines[:7]) + strings.TrimSuffix(lines[7], "\n") + "\r\n", "not a line"},
		"long line":  {join(lines[:7]) + strings.Repeat("x", 3*2*maxLine) + "\n" + lines[7], "longer than any line"},
		"long end":   {join(lines) + strings.Repeat("x", 3*2*maxLine), "longer than any line"},
	} {
		t.Run(name, func(t *testing.T) {
			l.write(c.log)
			r := l.verify()
			if r.OK() || !strings.Contains(text(r), c.want) || !strings.Contains(text(r), "FAILED") {
				t.Errorf("want %q in\n%s", c.want, text(r))
			}
		})
	}
	l.write(join(lines))
	l.wantOK(8)
}

// A line that is being written after the recorded end is not a problem.
func TestLineBeingWritten(t *testing.T) {
	l := closedLog(t, 4)
	l.write(strings.Join(l.lines(), "") + "\n" + `{"seq":5,"time`)
	r := l.wantOK(4)
	if r.Partial != 14 || !strings.Contains(text(r), "14 bytes of a line that is not complete") {
		t.Error(text(r))
	}
	l.write(strings.Join(l.lines()[:4], "") + `something else`)
	if r := l.verify(); r.OK() {
		t.Error(text(r))
	}
}

// A log of another gateway with the same secret does not pass for this one.
func TestOtherLogWithTheSameSecret(t *testing.T) {
	l, other := closedLog(t, 6), closedLog(t, 6)
	lines, theirs := l.lines(), other.lines()
	l.write(strings.Join(theirs, "") + "\n")
	if r := l.verify(); r.OK() || !strings.Contains(text(r), "line 6 is not the one that was recorded as the last") {
		t.Error(text(r))
	}
	l.write(strings.Join(lines[:3], "") + theirs[3] + strings.Join(lines[4:], "") + "\n")
	if r := l.verify(); r.OK() || !strings.Contains(text(r), "does not follow the line before it") {
		t.Error(text(r))
	}
	key := newKeys([][]byte{testRoot})[0]
	first, _ := key.appendLine(nil, position{mac: mac{1}}, []byte(`"event":"x"`))
	l.write(string(first))
	if r := l.verify(); !strings.Contains(text(r), "line 1 does not begin a log") {
		t.Error(text(r))
	}
}

func TestRecordOfTheEnd(t *testing.T) {
	l := closedLog(t, 4)
	l.open()
	l.Close() // now both places of the record are in use
	path, err := headPath(l.opts.Dir, l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	record, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A torn write leaves the record before it: lines after that one are no problem.
	newest := 0
	if rec, ok := decodeHead(record[headSlot:headSlot+headBytes], newKeys([][]byte{testRoot})); ok && rec.seq == 6 {
		newest = headSlot
	}
	torn := bytes.Clone(record)
	torn[newest+headSigned-1] ^= 1
	if err := os.WriteFile(path, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	l.wantOK(6)
	torn[headSlot-newest+12] ^= 1
	if err := os.WriteFile(path, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := l.verify(); r.OK() || !r.BadRecord || !strings.Contains(text(r), "record of the log's end was changed") {
		t.Error(text(r))
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if r := l.verify(); r.OK() || !strings.Contains(text(r), "there is no record") {
		t.Error(text(r))
	}
	if r := l.verify(func(o *VerifyOptions) { o.Files = []string{l.cfg.Path} }); !r.OK() || r.Complete || !strings.Contains(text(r), "was not checked") {
		t.Error(text(r))
	}
	if err := os.WriteFile(path, record, 0o400); err != nil {
		t.Fatal(err)
	}
	l.wantOK(6)
	if _, err := Verify(Config{Path: filepath.Join(t.TempDir(), "none")}, VerifyOptions{Dir: l.opts.Dir}); err == nil {
		t.Error("a file that does not exist was verified")
	}
}

func TestManyProblemsAreCounted(t *testing.T) {
	l := closedLog(t, 4)
	l.write(strings.Repeat("x\n", 1000))
	r := l.verify()
	if len(r.Problems) != maxProblems || r.ProblemCount != 1001 || !strings.Contains(text(r), "and 981 more") {
		t.Error(text(r))
	}
}

func TestReportIsInert(t *testing.T) {
	r := &Report{Parts: []*PartReport{{Name: "a\x1b[2J\u202eb"}}}
	r.addFinding("a\x1b[2J", 1, "text")
	if out := text(r); strings.ContainsAny(out, "\x1b\u202e") || !strings.Contains(out, "a·[2J·b") {
		t.Errorf("%q", out)
	}
}

// FuzzVerify changes a log at will: nothing but the log itself is in order.
func FuzzVerify(f *testing.F) {
	keys := newKeys([][]byte{testRoot})
	var log []byte
	var ends []int
	at := position{}
	for i := range 6 {
		log, at = keys[0].appendLine(log, at, fmt.Appendf(nil, `"time":"t","event":"call","bytes_in":%d`, i))
		ends = append(ends, len(log))
	}
	f.Add([]byte{}, uint16(0), uint16(0), uint8(0))
	f.Add([]byte("x"), uint16(10), uint16(1), uint8(0))
	f.Add(log[:ends[0]], uint16(ends[2]), uint16(0), uint8(1))
	f.Add(log[ends[3]:], uint16(ends[2]), uint16(ends[1]), uint8(2))
	f.Fuzz(func(t *testing.T, insert []byte, at16, remove16 uint16, move uint8) {
		begin := int(at16) % (len(log) + 1)
		end := min(len(log), begin+int(remove16)%(len(log)+1))
		changed := append(append(bytes.Clone(log[:begin]), insert...), log[end:]...)
		if move > 0 { // a line elsewhere
			line := bytes.SplitAfter(changed, []byte("\n"))
			i := int(move) % len(line)
			changed = append(bytes.Join(append(line[:i:i], line[i+1:]...), nil), line[i]...)
		}
		v := &verifier{keys: keys, complete: true, known: true, head: head{position: at, first: 1}}
		if err := v.checkPart("log", bytes.NewReader(changed)); err != nil {
			t.Fatal(err)
		}
		v.checkEnds()
		extended := bytes.HasPrefix(changed, log) && v.report.Partial > 0 // a line after the end that is not complete
		if ok := v.report.OK(); ok != (bytes.Equal(changed, log) || extended) {
			t.Fatalf("ok %v for %q: %v", ok, changed, v.report.Problems)
		}
		_ = text(&v.report)
	})
}
