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
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// stderrLog records the logged stderr lines of children, and passes all records on.
type stderrLog struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (r *stderrLog) Enabled(context.Context, slog.Level) bool { return true }

func (r *stderrLog) Handle(_ context.Context, entry slog.Record) error {
	entry.Attrs(func(a slog.Attr) bool {
		if a.Key == "stderr" {
			r.mu.Lock()
			r.lines = append(r.lines, a.Value.String())
			r.mu.Unlock()
		}
		return true
	})
	return nil
}

func (r *stderrLog) texts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines
}

// A10: a child's stderr is logged; of a flood only the first lines.
func TestStderrIsLimited(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	r := &stderrLog{Handler: before.Handler()}
	slog.SetDefault(slog.New(r))
	n := connect(t, childEntry(), nil)
	began := time.Now()
	n.mustCall(t, mcp.ToolsCall, `{"name":"complain","arguments":{"n":3000}}`)
	for until := time.Now().Add(20 * time.Second); len(r.texts()) < 200 && time.Now().Before(until); {
		time.Sleep(time.Millisecond) // stderr is read beside the reply
	}
	n.Close()
	got, most := r.texts(), 200+int(20*time.Since(began).Seconds())+1
	if len(got) < 200 || len(got) > most || got[0] != "line 0" || got[199] != "line 199" {
		t.Errorf("%d of 3000 lines are in the log, at most %d may be", len(got), most)
	}
}

// An ended child leaves no file open, even before garbage collection.
func TestEndedChildLeaksNoFiles(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	open := func() int {
		list, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(list)
	}
	n := connect(t, childEntry(), nil)
	n.mustCall(t, mcp.Ping, ``)
	before := open()
	for range 3 {
		_, _ = n.call(t, mcp.ToolsCall, `{"name":"exit"}`)
		n.mustCall(t, mcp.Ping, ``)
	}
	if after := open(); after > before {
		t.Errorf("%d files were open, now %d are", before, after)
	}
}

// Secrets of the environment are redacted in a child's stderr, and lines are logged at their own levels.
func TestStderrIsRedactedAndLeveled(t *testing.T) {
	text, err := secret.ParseTemplate("${KEY}")
	if err == nil {
		text, err = text.Resolve(func(string) (string, bool) { return "stderr-canary-1", true })
	}
	if err != nil {
		t.Fatal(err)
	}
	var out process.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	n := launchChild(t, upstream.ServerConfig{
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
