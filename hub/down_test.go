package hub_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// sinceText is how a failure says since when a server is down.
const sinceText = `since \d\d:\d\d \S+`

// downServer is the entry of a server that prints a reason and ends, as long as a file exists.
func downServer(t *testing.T, up *fakeServer) (entry upstream.ServerConfig, marker string) {
	t.Helper()
	marker = filepath.Join(t.TempDir(), "down")
	entry = up.config()
	script := `if [ -e "$0" ]; then printf 'Error: GITHUB_TOKEN is not set in /home/u/.env\n    at main.js:1\n' >&2; exit 3; fi; exec "$@"`
	entry.Command = append([]string{"/bin/sh", "-c", script, marker}, entry.Command...)
	return entry, marker
}

// The tools of a server that went down stay listed, with the same bytes, and its calls say what is wrong, since when and what
// happens next. When it is up again, they work.
func TestDownServerIsVisibleToTheAgent(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsList, pagedList(3, 10))
	entry, marker := downServer(t, a)
	gw := startGateway(t, func(s *setup) { s.upstream.Servers[0] = entry }, a)
	for _, protocol := range protocols {
		c := gw.connect(t, "/mcp", protocol, "{}")
		before := c.callResult(t, mcp.ToolsList, `{}`)
		c.callResult(t, mcp.ToolsCall, `{"name":"a::t001"}`)
		if err := os.WriteFile(marker, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		a.killChildren(t)
		want := regexp.MustCompile(`server \\"a\\" is down ` + sinceText + `: its process ended with exit status 3, it printed \\"Error: GITHUB_TOKEN is not set in …/.env\\"; .*see ctxgate status`)
		got := ""
		wait.For(t, "an explanation", func() bool {
			got = c.callResult(t, mcp.ToolsCall, `{"name":"a::t001"}`)
			return want.MatchString(got)
		})
		if !strings.Contains(got, `"reason":"unavailable","retryable":true`) {
			t.Errorf("got %s", got)
		}
		if during := c.callResult(t, mcp.ToolsList, `{}`); during != before {
			t.Errorf("the list was %s and is %s", before, during)
		}
		if err := os.Remove(marker); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "its end", func() bool { return !strings.HasPrefix(c.callResult(t, mcp.ToolsCall, `{"name":"a::t001"}`), "!") })
		if after := c.callResult(t, mcp.ToolsList, `{}`); after != before {
			t.Errorf("the list was %s and is %s", before, after)
		}
	}
}

// A server that has never been up is named when one of its tools is called, by its prefix or, where names have none, with the
// name that nobody has.
func TestServerThatWasNeverUpIsNamed(t *testing.T) {
	t.Parallel()
	for name, prefix := range map[string]string{"a::read": "always", "a__read": "always", "read": "never"} {
		a := newFakeServer(t, "a", mcp.Legacy, true)
		gw := startGateway(t, func(s *setup) {
			s.hub.Naming.Prefix = prefix
			s.upstream.Servers[0].Command = []string{"/no/such/program"}
			s.upstream.Servers[0].StartupTimeout = unit.Duration(5 * time.Second)
		}, a)
		want := regexp.MustCompile(`server \\"a\\" is down ` + sinceText + `: its command or working directory was not found; .*see ctxgate status`)
		got := gw.connect(t, "/mcp", mcp.Legacy, "{}").callResult(t, mcp.ToolsCall, `{"name":"`+name+`"}`)
		if !want.MatchString(got) || !strings.HasPrefix(got, "!") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A remote server that cannot be reached is named, without what it wrote.
func TestDownRemoteServerIsNamed(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, false)
	gw := startGateway(t, func(s *setup) { s.upstream.Servers[0].URL = "http://127.0.0.1:1/mcp" }, a)
	got := gw.connect(t, "/mcp", mcp.Legacy, "{}").callResult(t, mcp.ToolsCall, `{"name":"a::x"}`)
	if !regexp.MustCompile(`server \\"a\\" is down ` + sinceText + `: connection refused; `).MatchString(got) {
		t.Errorf("got %s", got)
	}
}

// A call that a crash ended says so, and which server that was.
func TestCrashDuringACallIsExplained(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true)
	a.handle(mcp.ToolsCall, func(*serverCall) string {
		a.killChildren(t)
		return ""
	})
	gw := startGateway(t, nil, a)
	got := gw.connect(t, "/mcp", mcp.Legacy, "{}").callResult(t, mcp.ToolsCall, `{"name":"a::x"}`)
	if !strings.HasPrefix(got, "!") || !regexp.MustCompile(`server \\"a\\" (is down since|went away during the call|is not up yet)`).MatchString(got) {
		t.Errorf("got %s", got)
	}
}

// killChildren kills the child processes of a server.
func (f *fakeServer) killChildren(t testing.TB) {
	t.Helper()
	for _, pid := range f.childPIDs() {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}
