package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

var testRoot = bytes.Repeat([]byte("r"), 32)

func TestMain(m *testing.M) {
	if os.Getenv("AUDIT_TEST_WRITER") != "" {
		writeAsProcess()
		return
	}
	goleak.VerifyTestMain(m)
}

// testLog is a log in a directory of its own.
type testLog struct {
	*Log
	t    *testing.T
	cfg  Config
	opts Options
}

func newTestLog(t *testing.T, change ...func(*Config)) *testLog {
	t.Helper()
	dir := t.TempDir()
	cfg := Default()
	cfg.Path = filepath.Join(dir, "logs", "audit.log")
	for _, f := range change {
		f(&cfg)
	}
	l := &testLog{t: t, cfg: cfg, opts: Options{Dir: filepath.Join(dir, "data"), Roots: [][]byte{testRoot}}}
	l.open()
	return l
}

func (l *testLog) open() {
	l.t.Helper()
	log, err := Open(l.cfg, l.opts)
	if err != nil {
		l.t.Fatal(err)
	}
	l.Log = log
	l.t.Cleanup(func() { log.Close() })
}

func (l *testLog) recordCalls(n int) {
	for i := range n {
		l.Record(&Event{Kind: KindCall, Tenant: "acme", Subject: "ann", Method: "tools/call", Server: "files", Tool: "read", Decision: "allow", Rule: "default", BytesIn: int64(i + 1)})
	}
}

func (l *testLog) verify(change ...func(*VerifyOptions)) *Report {
	l.t.Helper()
	opts := VerifyOptions{Roots: l.opts.Roots, Dir: l.opts.Dir}
	for _, f := range change {
		f(&opts)
	}
	report, err := Verify(l.cfg, opts)
	if err != nil {
		l.t.Fatal(err)
	}
	return report
}

// wantOK checks that the log has lines 1 to last and no problem.
func (l *testLog) wantOK(last uint64) *Report {
	l.t.Helper()
	r := l.verify()
	if !r.OK() || !r.Complete || r.Last != last {
		l.t.Fatalf("the log is not in order up to line %d: %s", last, text(r))
	}
	return r
}

func text(r *Report) string {
	var b strings.Builder
	_ = r.Write(&b)
	return b.String()
}

func (l *testLog) lines() []string {
	l.t.Helper()
	data, err := os.ReadFile(l.cfg.Path)
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.SplitAfter(strings.TrimSuffix(string(data), "\n"), "\n")
}

func (l *testLog) write(data string) {
	l.t.Helper()
	if err := os.WriteFile(l.cfg.Path, []byte(data), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func decode(t *testing.T, line string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	return m
}

func TestLinesContinueOverRestarts(t *testing.T) {
	l := newTestLog(t)
	l.recordCalls(10)
	l.Close()
	l.wantOK(12) // with start and stop
	l.open()
	l.recordCalls(5)
	l.Close()
	l.wantOK(19)
	for i, line := range l.lines() {
		if m := decode(t, line); m["seq"] != float64(i+1) {
			t.Fatalf("line %d has the number %v", i+1, m["seq"])
		}
	}
	if got := l.Stats(); got.Written != 7 || got.Dropped != 0 || got.Failing {
		t.Errorf("stats: %+v", got)
	}
	info, err := os.Stat(l.cfg.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestOffCostsNothing(t *testing.T) {
	var none *Log
	none.Record(&Event{})
	if none.Enabled() || none.Required() || none.Require(context.Background(), &Event{}) != nil || none.Stats() != (Stats{}) || none.Close() != nil {
		t.Error("a nil log is one that is off")
	}
	l, err := Open(Config{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := &Event{Kind: KindCall}
	if n := testing.AllocsPerRun(100, func() { l.Record(e) }); n != 0 || l.Enabled() {
		t.Errorf("%v allocations", n)
	}
	if l.push([]byte("x\n"), true) != nil || len(l.queue) != 0 {
		t.Error("an event was queued while the log is off")
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	l := newTestLog(t)
	e := &Event{Kind: KindCall, Tenant: "acme", Subject: "ann", Server: "files", Tool: "read", IDs: []string{"prn_0123"}}
	for range 100 {
		l.Record(e)
	}
	if n := testing.AllocsPerRun(1000, func() { l.Record(e) }); n > 1 { // the goroutine that writes is counted, too
		t.Errorf("%v allocations", n)
	}
}

// With a start line for each process, many processes and goroutines write one gap-free log, which is rotated all the time.
func TestRotatesUnderLoad(t *testing.T) {
	l := newTestLog(t, func(c *Config) { c.MaxSize, c.Keep = minFileSize, 0 })
	second, err := Open(l.cfg, l.opts)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		log := []*Log{l.Log, second}[i%2]
		wg.Go(func() {
			for range 500 {
				log.Record(&Event{Kind: KindCall, Tenant: "acme", Reason: strings.Repeat("x", 100)})
			}
		})
	}
	wg.Wait()
	second.Close()
	l.Close()
	r := l.wantOK(4004)
	if len(r.Parts) < 10 || r.Dropped != 0 || len(r.Notes) != 0 {
		t.Errorf("%d parts, %d dropped, notes %v", len(r.Parts), r.Dropped, r.Notes)
	}
	for _, p := range r.Parts {
		if info, err := os.Stat(p.Name); err != nil || info.Size() > minFileSize {
			t.Errorf("%s: %v, %v", p.Name, info.Size(), err)
		}
	}
}

func TestKeepsSomeRotatedFiles(t *testing.T) {
	l := newTestLog(t, func(c *Config) { c.MaxSize, c.Keep = minFileSize, 3 })
	l.recordCalls(3000)
	l.Close()
	rotated := rotatedFiles(l.cfg.Path)
	if len(rotated) != 3 {
		t.Fatalf("%d rotated files, want 3", len(rotated))
	}
	r := l.verify()
	if !r.OK() || r.First != rotated[0].first || r.First == 1 || r.Last != 3002 {
		t.Fatal(text(r))
	}
	// One that rotation did not remove is missed, at the beginning and in the middle.
	moved := rotated[1].path + ".moved"
	if err := os.Rename(rotated[1].path, moved); err != nil {
		t.Fatal(err)
	}
	if r := l.verify(); r.OK() || r.ProblemCount != 1 {
		t.Error(text(r))
	}
	if r := l.verify(func(o *VerifyOptions) { // in any order
		o.Files, o.Complete = []string{l.cfg.Path, rotated[2].path, moved, rotated[0].path}, true
	}); !r.OK() || !r.Complete {
		t.Error(text(r))
	}
	if err := os.Rename(moved, rotated[1].path); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(rotated[0].path); err != nil {
		t.Fatal(err)
	}
	if r := l.verify(); r.OK() || !strings.Contains(text(r), "at the beginning") {
		t.Error(text(r))
	}
	if r := l.verify(func(o *VerifyOptions) { o.Files = []string{rotated[1].path} }); !r.OK() || r.Complete {
		t.Error(text(r))
	}
}

func TestRotatedNameIsTaken(t *testing.T) {
	l := newTestLog(t, func(c *Config) { c.MaxSize, c.Keep = minFileSize, 0 })
	name := fmt.Sprintf("%s.%012d", l.cfg.Path, 1)
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.recordCalls(500)
	l.Close()
	l.wantOK(502)
	if data, err := os.ReadFile(name); err != nil || len(data) > 0 {
		t.Errorf("a file was overwritten: %d bytes, %v", len(data), err)
	}
}

func TestSecretIsRotated(t *testing.T) {
	l := newTestLog(t)
	l.recordCalls(3)
	l.Close()
	newRoot := bytes.Repeat([]byte("n"), 32)
	l.opts.Roots = [][]byte{newRoot, testRoot}
	l.open()
	l.recordCalls(3)
	l.Close()
	l.wantOK(10)
	if r := l.verify(func(o *VerifyOptions) { o.Roots = [][]byte{newRoot} }); r.OK() || r.ProblemCount != 5 {
		t.Errorf("without the old secret: %s", text(r))
	}
	// Who has only the old secret cannot add lines.
	old := newKeys([][]byte{testRoot})[0]
	lines := l.lines()
	last, _ := parseLine([]byte(lines[len(lines)-1]))
	forged, _ := old.appendLine(nil, last.position, []byte(`"event":"call"`))
	l.write(strings.Join(lines, "") + "\n" + string(forged))
	if r := l.verify(); r.OK() || !strings.Contains(text(r), "older secret") {
		t.Error(text(r))
	}
}

func TestReload(t *testing.T) {
	l := newTestLog(t)
	l.recordCalls(2)
	other := l.cfg
	other.Path += "2"
	if err := l.Apply(other); err != nil {
		t.Fatal(err)
	}
	l.recordCalls(3)
	bad := other
	bad.Path = l.opts.Dir // a directory
	if err := l.Apply(bad); err == nil {
		t.Error("a directory was accepted as audit log")
	}
	if err := l.Apply(other); err != nil { // the same: nothing happens
		t.Fatal(err)
	}
	l.recordCalls(1)
	if err := l.Apply(Config{}); err != nil || l.Enabled() {
		t.Errorf("the log is still on: %v", err)
	}
	l.recordCalls(1)
	l.wantOK(4)
	l.cfg = other
	l.wantOK(6)
	if err := l.Apply(other); err != nil {
		t.Fatal(err)
	}
	l.recordCalls(1)
	l.Close()
	l.wantOK(9)
}

func TestCommandRecordsNoStart(t *testing.T) {
	l := newTestLog(t)
	l.opts.Command = true
	command, err := Open(l.cfg, l.opts)
	if err != nil {
		t.Fatal(err)
	}
	command.Record(&Event{Kind: KindAdmin, Method: "tenant/forget", Tenant: "acme"})
	command.Close()
	l.Close()
	l.wantOK(3)
}

func TestRepeatedFailuresAreCounted(t *testing.T) {
	l := newTestLog(t)
	for range 1000 {
		l.RecordRepeated(&Event{Kind: KindAuth, Remote: "192.0.2.1", Reason: "unknown token"})
	}
	l.RecordRepeated(&Event{Kind: KindAuth, Remote: "192.0.2.2", Reason: "unknown token"})
	for i := range 10_000 { // an attacker with many addresses
		l.RecordRepeated(&Event{Kind: KindAuth, Remote: fmt.Sprintf("198.51.100.%d", i), Reason: "unknown token"})
	}
	if n := len(l.repeated); n > maxRepeated+1 {
		t.Errorf("%d are counted", n)
	}
	l.flushRepeated()
	l.RecordRepeated(&Event{Kind: KindAuth, Remote: "192.0.2.1", Reason: "unknown token"})
	l.Close()
	r := l.wantOK(2 + maxRepeated + 2 + 1)
	if r.Lines > 300 {
		t.Error("a flood of wrong tokens floods the log")
	}
	total, first := 0.0, 0
	for _, line := range l.lines() {
		m := decode(t, line)
		if n, ok := m["count"].(float64); ok {
			total += n
		} else if m["event"] == KindAuth {
			first++
		}
	}
	if total != 999+10_000-(maxRepeated-2) || first != maxRepeated+1 {
		t.Errorf("%v counted and %d at once", total, first)
	}
	l.open()
	long := strings.Repeat("m", 1<<20)
	l.RecordRepeated(&Event{Kind: KindAuth, Method: long})
	l.RecordRepeated(&Event{Kind: KindAuth, Method: long})
	for key, e := range l.repeated {
		if len(key) > 10*maxText || len(e.event.Method) > maxText || e.count != 1 {
			t.Error("a long method is kept")
		}
	}
}

func TestIsFile(t *testing.T) {
	for path, want := range map[string]bool{"": false, "-": false, "syslog:": false, "syslog:/dev/log": false, "audit.log": true} {
		if got := (Config{Path: path}).IsFile(); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
}

func TestStdoutIsNeeded(t *testing.T) {
	if _, err := Open(Config{Path: "-"}, Options{Dir: t.TempDir(), Roots: [][]byte{testRoot}}); err == nil {
		t.Error("a process without stdout writes to stdout")
	}
}
