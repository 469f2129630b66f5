//go:build unix

package agents_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/agents"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// After `ctxgate init --yes` every agent calls a tool through ctxgate and reads back what was cut, with nothing but the
// files that init wrote, and all of them use one gateway, which nobody started by hand.
func TestEveryAgentWorksAfterInit(t *testing.T) {
	s := agents.NewSandbox(t)
	provider := fakeprovider.New(t, fakeprovider.Options{})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	list := slices.DeleteFunc(chosen(), func(a agents.Agent) bool { return !a.HasLoop() })
	for _, a := range list {
		a.Configure(s, agents.Wiring{Server: &agents.Server{Command: []string{self, "log-server"}}, ServerName: "logs", ModelURL: provider.URL})
	}
	s.KeepFiles = true
	run := func(args ...string) string {
		t.Helper()
		tr := s.Run(append([]string{binary}, args...)...)
		if tr.ExitCode != 0 {
			t.Fatalf("ctxgate %s: exit code %d\n%s\n%s", strings.Join(args, " "), tr.ExitCode, tr.Stdout, tr.Stderr)
		}
		return tr.Stdout
	}
	run("init", "--yes")
	for _, a := range list {
		t.Run(a.ID, func(t *testing.T) {
			script := agents.NewScript(provider, a, agents.CallTool("read_log", `{"name":"alpha","size":40000}`), agents.ReadBack(`,"ranges":[{"start_line":100,"end_line":102}]`))
			tr := a.Ask(s, agents.Wiring{ModelURL: provider.URL}, "Read the log named alpha.")
			if err := script.Done(); err != nil || tr.ExitCode != 0 || !strings.Contains(plain(script.Result(1)), logLine("alpha", 101)) {
				t.Errorf("%v; exit code %d, read back %.200s\n%s\n%s", err, tr.ExitCode, script.Result(1), tail(tr.Stdout), tail(tr.Stderr))
			}
		})
	}
	if n := strings.Count(run("logs"), "msg=listening listener=main"); n != 1 {
		t.Errorf("%d gateways were started", n)
	}
	run("stop")
}

func tail(text string) string { return text[max(0, len(text)-3000):] }
