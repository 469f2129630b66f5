package audit

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// writeAsProcess is the test binary as another process: it writes lines until it has written as many as it should, or
// is killed.
func writeAsProcess() {
	cfg := Default()
	cfg.Path, cfg.MaxSize, cfg.Keep = os.Getenv("AUDIT_TEST_WRITER"), minFileSize, 0
	l, err := Open(cfg, Options{Dir: os.Getenv("AUDIT_TEST_DIR"), Roots: [][]byte{testRoot}})
	if err != nil {
		panic(err)
	}
	n, _ := strconv.Atoi(os.Getenv("AUDIT_TEST_LINES"))
	for i := 0; n == 0 || i < n; i++ {
		l.Record(&Event{Kind: KindCall, Tenant: "acme", Reason: strings.Repeat("y", i%200)})
		if n == 0 {
			time.Sleep(10 * time.Microsecond)
		}
	}
	l.Close()
}

func (l *testLog) startProcess(lines int) *exec.Cmd {
	l.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "AUDIT_TEST_WRITER="+l.cfg.Path, "AUDIT_TEST_DIR="+l.opts.Dir, "AUDIT_TEST_LINES="+strconv.Itoa(lines))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	return cmd
}

// Several processes write one log: it has every line, and no gap.
func TestSeveralProcesses(t *testing.T) {
	l := newTestLog(t, func(c *Config) { c.MaxSize, c.Keep = minFileSize, 0 })
	var running []*exec.Cmd
	for range 3 {
		running = append(running, l.startProcess(1000))
	}
	l.recordCalls(1000)
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	l.Close()
	if r := l.wantOK(4008); len(r.Notes) > 0 {
		t.Error(text(r))
	}
}

// A process that is killed while it writes leaves a log that the next one continues and that is in order.
func TestKilledProcesses(t *testing.T) {
	l := newTestLog(t, func(c *Config) { c.MaxSize, c.Keep = minFileSize, 0 })
	l.Close()
	size := func() (n int64) {
		for _, r := range append(rotatedFiles(l.cfg.Path), rotatedFile{path: l.cfg.Path}) {
			if info, err := os.Stat(r.path); err == nil {
				n += info.Size()
			}
		}
		return n
	}
	for i := range 10 {
		before := size()
		cmd := l.startProcess(0)
		for deadline := time.Now().Add(time.Minute); size() < before+20_000+int64(i)*777; {
			if time.Now().After(deadline) {
				t.Fatal("the process writes nothing")
			}
			time.Sleep(time.Millisecond)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if r := l.verify(); !r.OK() {
		t.Error(text(r))
	}
	l.open()
	l.Close()
	if r := l.verify(); !r.OK() || r.Partial > 0 || r.Lines < 500 {
		t.Error(text(r))
	}
}

func TestPartialLineIsRemoved(t *testing.T) {
	for _, partial := range []string{"{", `{"seq":5,"time":"2026`, strings.Repeat("x", 3*maxLine)} {
		l := closedLog(t, 4)
		l.write(strings.Join(l.lines(), "") + "\n" + partial)
		l.open()
		l.Close()
		r := l.wantOK(7)
		if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "line 5, ") || !strings.Contains(r.Notes[0], "partial line was removed") {
			t.Errorf("%q", r.Notes)
		}
	}
}

// A process that was killed after a line and before the record of it left a line that belongs to the log.
func TestLineWithoutRecord(t *testing.T) {
	l := closedLog(t, 4)
	key := newKeys(l.opts.Roots)[0]
	lines := l.lines()
	last, _ := parseLine([]byte(lines[3]))
	more, _ := key.appendLine(nil, last.position, []byte(`"event":"call"`))
	l.write(strings.Join(lines, "") + "\n" + string(more))
	l.wantOK(5)
	l.open()
	l.Close()
	if r := l.wantOK(7); len(r.Notes) > 0 {
		t.Error(text(r))
	}
}

func TestForeignEnd(t *testing.T) {
	for name, foreign := range map[string]string{
		"lines": "hello\nworld\n", "half a line after a line": "hello\nwor", "much": strings.Repeat("0123456789abcde\n", maxTail/16+1), "much without end": strings.Repeat("0123456789abcdef", maxTail/16+1),
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLog(t)
			l.recordCalls(2)
			for l.Stats().Written < 3 {
				time.Sleep(time.Millisecond)
			}
			f, err := os.OpenFile(l.cfg.Path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = f.WriteString(foreign)
			f.Close()
			l.recordCalls(1)
			l.Close()
			r := l.verify()
			if r.OK() || r.Last != 6 || !strings.Contains(text(r), "lines of others") || strings.Contains(text(r), "missing") {
				t.Error(text(r))
			}
		})
	}
}

// What was cut off is visible, also after the next start.
func TestTruncatedLog(t *testing.T) {
	l := closedLog(t, 6)
	lines := l.lines()
	for name, c := range map[string]struct{ log, want string }{
		"at a line":     {strings.Join(lines[:4], ""), "lines 5 to 6 are missing before this one"},
		"within a line": {strings.Join(lines[:4], "") + lines[4][:30], "not a line"},
		"everything":    {"", "lines 1 to 6 are missing at the beginning"},
	} {
		t.Run(name, func(t *testing.T) {
			l := closedLog(t, 6)
			_ = l
			path, _ := headPath(l.opts.Dir, l.cfg)
			record, _ := os.ReadFile(path)
			own := l.lines()
			l.write(strings.NewReplacer(pairs(lines, own)...).Replace(c.log))
			_ = os.WriteFile(path, record, 0o600)
			l.open()
			l.Close()
			r := l.verify()
			if r.OK() || r.Last != 9 || !strings.Contains(text(r), c.want) || len(r.Notes) != 1 {
				t.Errorf("want %q: %s", c.want, text(r))
			}
		})
	}
}

func pairs(from, to []string) (out []string) {
	for i := range from {
		out = append(out, from[i], to[i], from[i][:30], to[i][:30])
	}
	return out
}

func TestMovedAwayWhileRunning(t *testing.T) {
	l := newTestLog(t)
	l.recordCalls(2)
	for l.Stats().Written < 3 {
		time.Sleep(time.Millisecond)
	}
	moved := l.cfg.Path + ".moved"
	if err := os.Rename(l.cfg.Path, moved); err != nil {
		t.Fatal(err)
	}
	l.recordCalls(2)
	l.Close()
	r := l.verify(func(o *VerifyOptions) { o.Files, o.Complete = []string{l.cfg.Path, moved}, true })
	if !r.OK() || r.Last != 7 || len(r.Notes) != 1 {
		t.Error(text(r))
	}
}

func TestLostRecord(t *testing.T) {
	remove := func(l *testLog) {
		path, _ := headPath(l.opts.Dir, l.cfg)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	l := closedLog(t, 4)
	remove(l)
	l.open()
	l.Close()
	if r := l.wantOK(7); len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "the last line was taken for it") {
		t.Error(text(r))
	}
	// With a partial line.
	remove(l)
	l.write(strings.Join(l.lines(), "") + "\nxyz")
	l.open()
	l.Close()
	if r := l.wantOK(11); len(r.Notes) != 3 {
		t.Error(text(r))
	}
	// With the secret: the numbers go on, and the old lines are not trusted.
	remove(l)
	l.opts.Roots = [][]byte{bytes.Repeat([]byte("o"), 32)}
	l.open()
	l.Close()
	if r := l.verify(); r.OK() || r.Last != 14 || r.ProblemCount < 11 || !strings.Contains(text(r), "another secret") {
		t.Error(text(r))
	}
	// With rotated files.
	l = newTestLog(t, func(c *Config) { c.MaxSize = minFileSize })
	l.recordCalls(1000)
	l.Close()
	remove(l)
	l.open()
	l.Close()
	if r := l.wantOK(1005); r.First != 1 {
		t.Error(text(r))
	}
	if err := os.Remove(rotatedFiles(l.cfg.Path)[0].path); err != nil {
		t.Fatal(err)
	}
	if r := l.verify(); r.OK() {
		t.Error(text(r))
	}
}

func TestNotAnAuditLog(t *testing.T) {
	cfg := Default()
	cfg.Path = filepath.Join(t.TempDir(), "notes.txt")
	opts := Options{Dir: t.TempDir(), Roots: [][]byte{testRoot}}
	for _, content := range []string{"my notes\n", "my notes"} {
		if err := os.WriteFile(cfg.Path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(cfg, opts); err == nil || !strings.Contains(err.Error(), "other content") {
			t.Errorf("%q: %v", content, err)
		}
		if data, _ := os.ReadFile(cfg.Path); string(data) != content {
			t.Errorf("changed to %q", data)
		}
	}
}
