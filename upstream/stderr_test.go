package upstream_test

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// record keeps the texts of what programs say, and the log goes on as it was.
type record struct {
	slog.Handler
	mu   sync.Mutex
	said []string
}

func (r *record) Enabled(context.Context, slog.Level) bool { return true }

func (r *record) Handle(_ context.Context, entry slog.Record) error {
	entry.Attrs(func(a slog.Attr) bool {
		if a.Key == "stderr" {
			r.mu.Lock()
			r.said = append(r.said, a.Value.String())
			r.mu.Unlock()
		}
		return true
	})
	return nil
}

func (r *record) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said
}

// A10: what a program complains of is in the log, its first lines at once; a flood is not.
func TestStderrIsLimited(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	r := &record{Handler: before.Handler()}
	slog.SetDefault(slog.New(r))
	n := connect(t, program(), nil)
	began := time.Now()
	n.must(t, mcp.ToolsCall, `{"name":"complain","arguments":{"n":3000}}`)
	for until := time.Now().Add(20 * time.Second); len(r.lines()) < 200 && time.Now().Before(until); {
		time.Sleep(time.Millisecond) // stderr is read beside the reply
	}
	n.Close()
	got, most := r.lines(), 200+int(20*time.Since(began).Seconds())+1
	if len(got) < 200 || len(got) > most || got[0] != "line 0" || got[199] != "line 199" {
		t.Errorf("%d of 3000 lines are in the log, at most %d may be", len(got), most)
	}
}

// A program that has ended leaves no file open, without the help of the garbage collector.
func TestEndedProgramLeavesNoFiles(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	open := func() int {
		list, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(list)
	}
	n := connect(t, program(), nil)
	n.must(t, mcp.Ping, ``)
	before := open()
	for range 3 {
		_, _ = n.call(t, mcp.ToolsCall, `{"name":"exit"}`)
		n.must(t, mcp.Ping, ``)
	}
	if after := open(); after > before {
		t.Errorf("%d files were open, now %d are", before, after)
	}
}

// What a program prints of the secrets that it was given is not in the log, and its lines have their own
// levels.
func TestStderrIsRedactedAndHasItsLevel(t *testing.T) {
	text, err := secret.ParseTemplate("${KEY}")
	if err == nil {
		text, err = text.Resolve(func(string) (string, bool) { return "stderr-canary-1", true })
	}
	if err != nil {
		t.Fatal(err)
	}
	var out lockedBuffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	n := launch(t, upstream.Server{
		Command: []string{"/bin/sh", "-c", `{ echo "WARNING: key $KEY"; echo "debug: key $KEY"; echo "plain $KEY"; printf '%04087d%s\n' 0 "$KEY"; } >&2; exec cat`},
		Env:     map[string]secret.Text{"KEY": text},
	}, nil)
	defer n.Close()
	for until := time.Now().Add(20 * time.Second); (strings.Count(out.String(), "***") < 3 || !strings.Contains(out.String(), "0000")) && time.Now().Before(until); {
		time.Sleep(5 * time.Millisecond)
	}
	for _, want := range []string{`level=WARN msg="server says" server=a stderr="WARNING: key ***"`, `level=DEBUG msg="server says" server=a stderr="debug: key ***"`, `level=INFO msg="server says" server=a stderr="plain ***"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in %s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "canary") || strings.Contains(out.String(), "stderr-") { // nor a part, where a long line is cut
		t.Errorf("the key is in the log: %s", out.String())
	}
}

// lockedBuffer can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
