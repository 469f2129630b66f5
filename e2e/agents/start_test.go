//go:build unix

package agents_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/agents"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// The first call after a cold start works: no gateway runs, and the server takes three seconds to start. Claude Code
// used to send its first request before its servers were up; the log says how long the model had to wait.
func TestFirstCallAfterAColdStart(t *testing.T) {
	for _, id := range []string{"claude-code", "codex", "continue"} {
		t.Run(id, func(t *testing.T) {
			a := requireAgent(t, id)
			t.Parallel()
			s := agents.NewSandbox(t)
			provider := fakeprovider.New(t, fakeprovider.Options{})
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			config := s.WriteFile("ctxgate.toml", fmt.Sprintf("profile = \"agents\"\nlisten = \"127.0.0.1:0\"\n[[servers]]\nid = \"logs\"\ncommand = [%q, \"log-server\", \"3s\"]\n", self))
			t.Cleanup(func() { s.Run(binary, "stop", "--config", config) })
			script := agents.NewScript(provider, a, agents.CallTool("read_log", `{"name":"alpha","size":300}`))
			tr := a.Ask(s, agents.Wiring{Server: &agents.Server{Command: []string{binary, "stdio", "--client", id, "--config", config}}, ModelURL: provider.URL}, "Read the log named alpha.")
			if err := script.Done(); err != nil || tr.ExitCode != 0 || !strings.Contains(plain(script.Result(0)), logText("alpha", 300)) {
				t.Errorf("%v; exit code %d, result %.200s\n%s\n%s", err, tr.ExitCode, script.Result(0), tail(tr.Stdout), tail(tr.Stderr))
			}
			t.Logf("%s answered after %s; the model waited %d s for the tool", a.Name, tr.Took.Round(100_000_000), script.Waits())
		})
	}
}

// A gateway is warm for every kind of client that it has had. Claude Code and Codex declare elicitation, Continue does
// not. When each has been there once, over stdio, no further client starts another child.
func TestFurtherClientsStartNoChildren(t *testing.T) {
	kinds := []agents.Agent{requireAgent(t, "claude-code"), requireAgent(t, "codex"), requireAgent(t, "continue")}
	s := newSetup(t, kinds[0], "")
	starts := func() int {
		data, err := os.ReadFile(filepath.Join(s.sandbox.Home, "starts"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(data), "\n")
	}
	for _, s.agent = range kinds {
		s.ask(s.stdio(), agents.CallTool("read_log", `{"name":"alpha","size":300}`))
	}
	first := starts()
	for _, s.agent = range kinds {
		s.ask(s.http(), agents.CallTool("read_log", `{"name":"alpha","size":300}`))
	}
	t.Logf("the server was started %d times for three kinds of clients", first)
	if n := starts(); n != first {
		t.Errorf("the server was started %d times, then %d", first, n)
	}
}

// Gemini CLI prints a line for every list_changed. A gateway whose servers are up sends none.
func TestGeminiSeesNoListChanges(t *testing.T) {
	a := requireAgent(t, "gemini")
	t.Parallel()
	for _, transport := range []string{"stdio", "http"} {
		s := newSetup(t, a, "")
		server := s.stdio()
		if transport == "http" {
			server = s.http()
		}
		agents.NewScript(s.provider, a, agents.CallTool("read_log", `{"name":"alpha","size":300}`))
		tr := a.Ask(s.sandbox, agents.Wiring{Server: server, ModelURL: s.model}, "Read the log named alpha.")
		if text := tr.Stdout + tr.Stderr; strings.Contains(text, "update notification") || strings.Contains(text, "list_changed") || !strings.Contains(text, agents.Answer) {
			t.Errorf("%s: %s", transport, tail(text))
		}
	}
}
