//go:build unix

package agents_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/agents"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
)

// setup is an agent with everything around it: agent → gateway → provider, and agent → gateway → server.
type setup struct {
	t        *testing.T
	agent    agents.Agent
	sandbox  *agents.Sandbox
	provider *fakeprovider.Provider
	gateway  *gateway.Gateway
	config   string // path
	model    string // the agent's model API
}

// configText is the gateway's configuration, without the provider. The window is short, so that a short
// conversation shows masking.
const configText = `
profile = "agents"
listen = "127.0.0.1:0"
log_level = "DEBUG"
%s
[admin]
listen = ""
[mcp_pruner]
listen = ""
[observation_masking.schema1]
window_turns = 2
advance = "turn"
[[servers]]
id = "logs"
command = [%q, "log-server"]
`

// newSetup starts a provider and a gateway for an agent. The text is put before the first table of the
// configuration.
func newSetup(t *testing.T, a agents.Agent, text string) *setup {
	t.Helper()
	s := &setup{t: t, agent: a, sandbox: agents.NewSandbox(t), provider: fakeprovider.New(t, fakeprovider.Options{})}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(configText, text, self) + fmt.Sprintf("env = { LOG_SERVER_STARTS = %q }\n", filepath.Join(s.sandbox.Home, "starts"))
	for kind, path := range map[string]string{"openai": "/v1", "anthropic": "", "gemini": ""} {
		config += fmt.Sprintf("[[providers]]\nname = %q\nkind = %q\nbase_url = %q\nmodels = [\"*\"]\n", kind, kind, s.provider.URL+path)
	}
	s.config = s.sandbox.WriteFile("ctxgate.toml", config)
	cmd := exec.Command(binary, "serve", "--config", s.config)
	cmd.Dir, cmd.Env = s.sandbox.Work, s.sandbox.Env
	s.gateway, err = gateway.Start(cmd, filepath.Join(t.ArtifactDir(), "gateway.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.gateway.Kill()
		if t.Failed() {
			t.Logf("the gateway's log:\n%s", s.gateway.Tail(4000))
		}
	})
	if err := s.gateway.WaitStatus(s.gateway.URL+"/readyz", http.StatusOK); err != nil {
		t.Fatal(err)
	}
	s.model = s.gateway.URL
	return s
}

// stdio is the agent's MCP entry with a command, http with a URL.
func (s *setup) stdio() *agents.Server {
	return &agents.Server{Command: []string{binary, "stdio", "--client", s.agent.ID, "--config", s.config}}
}

func (s *setup) http() *agents.Server { return &agents.Server{URL: s.gateway.URL + "/mcp"} }

// ask lets the agent answer a prompt, with the model's side scripted, and checks that it followed the script.
func (s *setup) ask(server *agents.Server, turns ...agents.Turn) *agents.Script {
	s.t.Helper()
	script := agents.NewScript(s.provider, s.agent, turns...)
	tr := s.agent.Ask(s.sandbox, agents.Wiring{Server: server, ModelURL: s.model}, "Read the log named alpha and say what is in it.")
	if err := script.Done(); err != nil || tr.ExitCode != 0 || !strings.Contains(tr.Stdout, agents.Answer) {
		s.t.Errorf("%s: %v; exit code %d after %s, answered: %v", s.agent.Name, err, tr.ExitCode, tr.Took, strings.Contains(tr.Stdout, agents.Answer))
		s.logTranscript(tr)
	}
	s.saveRequests()
	for _, r := range s.provider.Requests() {
		if r.Shape != fakeprovider.None && r.Status != http.StatusOK && !r.ClientGone {
			s.t.Errorf("the provider answered %d to request %d (%s)", r.Status, r.Seq, r.Path)
		}
	}
	return script
}

// saveRequests keeps the bodies for `go test -artifacts`.
func (s *setup) saveRequests() {
	for _, r := range s.provider.Requests() {
		file := filepath.Join(s.t.ArtifactDir(), fmt.Sprintf("request%02d.json", r.Seq))
		if err := os.WriteFile(file, r.Body, 0o600); err != nil {
			s.t.Error(err)
		}
	}
}

func (s *setup) logTranscript(tr agents.Transcript) {
	s.t.Helper()
	end := func(text string) string { return text[max(0, len(text)-4000):] }
	s.t.Logf("%s ended after %s\nstdout: %s\nstderr: %s", strings.Join(tr.Args, " "), tr.Took, end(tr.Stdout), end(tr.Stderr))
	for _, r := range s.provider.Requests() {
		s.t.Logf("request %d: %s %s: %d, tools %v, body %.300s", r.Seq, r.Method, r.Path, r.Status, r.Tools, r.Body)
	}
}
