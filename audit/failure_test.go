package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

// slowOut is a stdout that nobody reads until it is opened.
type slowOut struct {
	open chan struct{}
	data bytes.Buffer
}

func (s *slowOut) Write(p []byte) (int, error) {
	<-s.open
	return s.data.Write(p)
}

// With a sink that blocks, requests pass, memory is bounded, and later the log says what is missing. Nothing waits.
func TestBlockedSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slowOut{open: make(chan struct{})}
		l := &testLog{t: t, cfg: Default(), opts: Options{Dir: t.TempDir(), Roots: [][]byte{testRoot}, Stdout: out}}
		l.cfg.Path = "-"
		l.open()
		time.Sleep(time.Second) // the start line blocks
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		const total = 200_000
		began := time.Now()
		l.recordCalls(total)
		if took := time.Since(began); took != 0 { // by the clock of the bubble, which stands still while something runs
			t.Errorf("recording waited for %s", took)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4*maxQueueBytes {
			t.Errorf("%d bytes are held", grown)
		}
		stats := l.Stats()
		if stats.Queued > maxQueueBytes || stats.Dropped == 0 {
			t.Errorf("%+v", stats)
		}
		close(out.open)
		time.Sleep(time.Second)
		l.recordCalls(1)
		l.Close()
		captured := filepath.Join(t.TempDir(), "captured")
		if err := os.WriteFile(captured, out.data.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		r := l.verify(func(o *VerifyOptions) { o.Files, o.Complete = []string{captured}, true })
		if !r.OK() || r.Dropped != stats.Dropped || r.Lines+r.Dropped != total+1+1+2 { // one marker, the last call, start and stop
			t.Errorf("%d lines, %d dropped, %d counted: %s", r.Lines, r.Dropped, stats.Dropped, text(r))
		}
	})
}

// A stdout that blocks for good does not keep the process from ending.
func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slowOut{open: make(chan struct{})}
		cfg := Default()
		cfg.Path = "-"
		l, err := Open(cfg, Options{Dir: t.TempDir(), Roots: [][]byte{testRoot}, Stdout: out})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		began := time.Now()
		l.Close()
		if took := time.Since(began); took != closeTimeout {
			t.Errorf("closing took %s", took)
		}
		if l.Stats().Dropped != 1 {
			t.Errorf("%+v", l.Stats())
		}
		close(out.open)
		synctest.Wait()
	})
}

func TestDeny(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slowOut{open: make(chan struct{})}
		cfg := Default()
		cfg.Path, cfg.OnFailure = "-", Deny
		l, err := Open(cfg, Options{Dir: t.TempDir(), Roots: [][]byte{testRoot}, Stdout: out})
		if err != nil {
			t.Fatal(err)
		}
		if !l.Required() {
			t.Fatal("lines are not required")
		}
		time.Sleep(time.Second)
		require := func(ctx context.Context) (time.Duration, error) {
			began := time.Now()
			err := l.Require(ctx, &Event{Kind: KindCall})
			return time.Since(began), err
		}
		cancelled, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if took, err := require(cancelled); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("%s, %v", took, err)
		}
		if took, err := require(t.Context()); fault.KindOf(err) != fault.Unavailable || took != maxWait {
			t.Errorf("%s, %v", took, err)
		}
		if took, err := require(t.Context()); err == nil || took != 0 { // nobody waits for a write that takes too long
			t.Errorf("%s, %v", took, err)
		}
		close(out.open)
		time.Sleep(time.Second)
		if took, err := require(t.Context()); err != nil || took != 0 {
			t.Errorf("%s, %v", took, err)
		}
		l.Close()
		if n := strings.Count(out.data.String(), `"event":"call"`); n != 4 {
			t.Errorf("%d lines", n)
		}
		if err := l.Require(t.Context(), &Event{}); err != nil {
			t.Errorf("a closed log is off: %v", err)
		}
	})
}

// failingSink fails after some bytes, as a full disk does.
type failingSink struct {
	sink
	left atomic.Int64
}

var errFull = errors.New("no space left on device")

func (s *failingSink) writeLines(lines []byte) (int, error) {
	left := s.left.Load()
	if int64(len(lines)) <= left {
		s.left.Store(left - int64(len(lines)))
		return s.sink.writeLines(lines)
	}
	n, err := s.sink.writeLines(lines[:bytes.LastIndexByte(lines[:left], '\n')+1])
	s.left.Store(0)
	return n, errors.Join(err, errFull)
}

// What does not fit on the disk is written later; nothing is lost before the queue is full.
func TestDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLog(t, func(c *Config) { c.OnFailure = Deny })
		l.Close() // two lines
		w, err := openWriter(l.cfg, l.opts)
		if err != nil {
			t.Fatal(err)
		}
		full := &failingSink{sink: w.sink}
		full.left.Store(1000)
		w.sink = full
		l.applying.Lock()
		l.replace(&runner{writer: w, stop: make(chan struct{}), done: make(chan struct{})}, l.cfg)
		l.applying.Unlock()
		calls := 0
		for err == nil {
			calls++
			err = l.Require(t.Context(), &Event{Kind: KindCall})
		}
		if !errors.Is(err, errFull) || calls < 3 {
			t.Errorf("after %d calls: %v", calls, err)
		}
		if err := l.Require(t.Context(), &Event{Kind: KindCall}); err == nil || !l.Stats().Failing {
			t.Error("a call was allowed while the disk is full")
		}
		time.Sleep(10 * time.Second)
		full.left.Store(1 << 20)
		time.Sleep(time.Second)
		if err := l.Require(t.Context(), &Event{Kind: KindCall}); err != nil || l.Stats().Failing {
			t.Errorf("after the disk has space again: %v", err)
		}
		l.Close()
		l.wantOK(uint64(calls + 2 + 2 + 2))
	})
}

func TestFileWriteFails(t *testing.T) {
	l := newTestLog(t)
	l.Close()
	cfg := l.cfg
	f, err := openFile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.file.Close()
	if n, err := f.writeLines([]byte("x\n")); n != 0 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := f.sync(); err == nil {
		t.Error("a closed file was forced to disk")
	}
}

// brokenPipe takes some bytes of each write, and then none.
type brokenPipe struct {
	data bytes.Buffer
	left int
}

func (b *brokenPipe) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.data.Write(p[:n])
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

func TestStreamBreaksWithinALine(t *testing.T) {
	pipe := &brokenPipe{left: 5}
	s := &stream{out: pipe}
	if n, err := s.writeLines([]byte("abc\ndef\n")); n != 4 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := s.writeLines([]byte("def\n")); n != 0 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
	pipe.left = 100
	if n, err := s.writeLines([]byte("def\n")); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got := pipe.data.String(); got != "abc\nd\ndef\n" {
		t.Errorf("%q", got)
	}
}

var rfc5424 = regexp.MustCompile(`^<110>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z \S+ ctxgate \d+ audit - (\{"seq":\d+,.*\})$`)

func TestSyslog(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no datagram sockets with a path")
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "log")
	listen := func() *net.UnixConn {
		t.Helper()
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	captured, err := os.Create(filepath.Join(dir, "captured"))
	if err != nil {
		t.Fatal(err)
	}
	defer captured.Close()
	receive := func(conn *net.UnixConn, n int) {
		t.Helper()
		buf := make([]byte, 64<<10)
		for range n {
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			if !rfc5424.Match(buf[:n]) {
				t.Errorf("not a message of RFC 5424: %q", buf[:n])
			}
			_, _ = captured.Write(append(buf[:n:n], '\n'))
		}
	}
	daemon := listen()
	l := &testLog{t: t, cfg: Default(), opts: Options{Dir: dir, Roots: [][]byte{testRoot}}}
	l.cfg.Path = "syslog:" + socket
	l.open()
	l.recordCalls(10)
	receive(daemon, 11)
	// A daemon that is restarted is found again.
	daemon.Close()
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	daemon = listen()
	defer daemon.Close()
	l.recordCalls(5)
	receive(daemon, 5)
	l.Close()
	receive(daemon, 1)
	r := l.verify(func(o *VerifyOptions) { o.Files, o.Complete, o.Prefixed = []string{captured.Name()}, true, true })
	if !r.OK() || r.Last != 17 {
		t.Error(text(r))
	}
	if r := l.verify(func(o *VerifyOptions) { o.Files = []string{captured.Name()} }); r.OK() {
		t.Error("a text before a line is accepted where none belongs")
	}
	if _, err := openSyslog(filepath.Join(dir, "none")); err == nil {
		t.Error("a daemon that is not there was connected to")
	}
}

// A daemon that does not read does not block for good, and nothing is lost before the queue is full.
func TestSyslogBlocks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no datagram sockets with a path")
	}
	socket := filepath.Join(t.TempDir(), "log")
	daemon, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	s, err := openSyslog(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	line := []byte(strings.Repeat("x", 1000) + "\n")
	sent := 0
	for err == nil && sent < 100_000 {
		_, err = s.writeLines(line)
		sent++
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after %d lines: %v", sent, err)
	}
}

func TestNoDataDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	opts := Options{Dir: filepath.Join(file, "data"), Roots: [][]byte{testRoot}}
	cfg := Default()
	cfg.Path = filepath.Join(t.TempDir(), "audit.log")
	if _, err := Open(cfg, opts); err == nil {
		t.Error("a file without the record of its end")
	}
	// On stdout the log starts anew each time.
	var out bytes.Buffer
	cfg.Path, opts.Stdout = "-", &out
	for range 2 {
		l, err := Open(cfg, opts)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	lines := bufio.NewScanner(&out)
	for _, want := range []string{`{"seq":1,`, `{"seq":2,`, `{"seq":1,`, `{"seq":2,`} {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
			t.Errorf("%s, want %s", lines.Text(), want)
		}
	}
}
