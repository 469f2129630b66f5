package upstream_test

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
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
