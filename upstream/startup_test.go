package upstream_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// fakeLauncher is a directory with a program of the given name that waits until a file is gone, as npx does while it
// fetches, and then runs this binary as an MCP server with the flags after its first argument.
func fakeLauncher(t *testing.T, name string) (path, blocker string) {
	t.Helper()
	dir := t.TempDir()
	path, blocker = filepath.Join(dir, name), filepath.Join(dir, "fetching")
	script := fmt.Sprintf("#!/bin/sh\nwhile [ -e %s ]; do sleep 0.02; done\nshift\nexec %s run:server \"$@\"\n", blocker, os.Args[0])
	for file, text := range map[string]string{path: script, blocker: ""} {
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	return path, blocker
}

// A server that npx fetches gets install_timeout for its first start: longer than startup_timeout, and longer than
// response_timeout. After that startup_timeout holds.
func TestLauncherGetsTheInstallTimeout(t *testing.T) {
	t.Parallel()
	npx, blocker := fakeLauncher(t, "npx")
	entry := childEntry()
	entry.Command = []string{npx, "server-memory"}
	n := launchChild(t, entry, func(c *upstream.Config, s *upstream.ServerConfig) {
		c.ResponseTimeout, s.StartupTimeout = unit.Duration(200*time.Millisecond), unit.Duration(200*time.Millisecond)
	})
	wait.For(t, "the start to be reported", func() bool {
		p, ok := n.StartProgress()
		return ok && p.Elapsed > 500*time.Millisecond && strings.HasPrefix(p.String(), "a: npx is installing, ")
	})
	if n.count.Load() > 0 {
		t.Fatalf("it was given up: %v", n.lost)
	}
	if err := os.Remove(blocker); err != nil {
		t.Fatal(err)
	}
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	if _, ok := n.StartProgress(); ok || n.count.Load() > 0 {
		t.Errorf("starting %v, lost %v", ok, n.lost)
	}
	// Its second start is one of a program that is there.
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _ = n.SharedConn().Call(context.Background(), newCall(t, mcp.ToolsCall, `{"name":"exit","arguments":{"n":1}}`))
	wait.For(t, "startup_timeout to end the second start", func() bool {
		return strings.Contains(n.Status().LastError, "no answer within startup_timeout = 200ms")
	})
}

// The setting that ended the wait is named; a program that is not a launcher gets startup_timeout.
func TestStartNamesTheSettingThatEndedIt(t *testing.T) {
	t.Parallel()
	npx, _ := fakeLauncher(t, "npx")
	tool, _ := fakeLauncher(t, "tool")
	for path, want := range map[string]string{
		npx:  "the server did not start in time: no answer within install_timeout = 150ms",
		tool: "the server did not start in time: no answer within startup_timeout = 100ms",
	} {
		entry := childEntry()
		entry.Command = []string{path, "x"}
		n := launchChild(t, entry, func(_ *upstream.Config, s *upstream.ServerConfig) {
			s.StartupTimeout, s.InstallTimeout = unit.Duration(100*time.Millisecond), unit.Duration(150*time.Millisecond)
		})
		wait.For(t, "the start to be given up", func() bool { return n.count.Load() > 0 })
		if got := n.Status().LastError; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A call to a server that is still being installed waits, and then says so in plain words.
func TestCallDuringInstallSaysSo(t *testing.T) {
	t.Parallel()
	npx, _ := fakeLauncher(t, "npx")
	entry := childEntry()
	entry.Command = []string{npx, "server-memory"}
	n := launchChild(t, entry, nil)
	upstream.SetCallWait(n.SharedConn(), 100*time.Millisecond)
	_, err := n.SharedConn().AwaitConn(context.Background())
	if got := fault.PublicOf(err); fault.KindOf(err) != fault.Unavailable ||
		!strings.HasPrefix(got, "the server is not ready: npx is still installing it, for 0 s now; try again") {
		t.Errorf("got %v", err)
	}
}

// A modern server that was silent at first, because it was being installed, is used as one.
func TestModernServerBehindASlowLauncher(t *testing.T) {
	t.Parallel()
	npx, blocker := fakeLauncher(t, "npx")
	entry := childEntry()
	entry.Command = []string{npx, "server-modern", "modern", "refuse", "log=" + filepath.Join(filepath.Dir(npx), "log")}
	n := launchChild(t, entry, nil)
	time.AfterFunc(upstream.DiscoverTimeout+100*time.Millisecond, func() { _ = os.Remove(blocker) })
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	if handshake, up := n.SharedConn().Handshake(); !up || handshake.Protocol != mcp.Modern || n.count.Load() > 0 {
		t.Errorf("%s, up %v, lost %v", handshake.Protocol, up, n.lost)
	}
}

// Two servers that fetch the same package are fetched one after the other, and no more at once than there are slots.
func TestInstallsAreQueued(t *testing.T) {
	t.Parallel()
	q := upstream.NewInstallQueue()
	first, err := upstream.AcquireInstall(t.Context(), q, "npx a")
	if err != nil {
		t.Fatal(err)
	}
	var second atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		release, err := upstream.AcquireInstall(context.Background(), q, "npx a")
		if err != nil {
			t.Error(err)
			return
		}
		second.Store(true)
		release()
	}()
	var others []func()
	for i := range upstream.InstallSlots(q) - 1 {
		release, err := upstream.AcquireInstall(t.Context(), q, fmt.Sprint("npx ", i))
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, release)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := upstream.AcquireInstall(ctx, q, "npx b"); err == nil {
		t.Error("there was no slot left")
	}
	if second.Load() {
		t.Error("the same package was fetched twice at once")
	}
	first()
	<-done
	for _, release := range others {
		release()
	}
	if n := upstream.InstallsKnown(q); n != 0 {
		t.Errorf("%d packages are still known", n)
	}
}
