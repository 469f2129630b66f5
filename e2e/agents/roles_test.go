//go:build unix

package agents_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/agents"
)

// conversation is what the scripted model does: it reads a long log, reads back three lines of what was cut,
// and then reads short logs until the first result is old.
func conversation() []agents.Turn {
	return []agents.Turn{
		agents.CallTool("read_log", `{"name":"alpha","size":40000}`),
		agents.ReadBack(`,"ranges":[{"start_line":100,"end_line":102}]`),
		agents.CallTool("read_log", `{"name":"beta","size":300}`),
		agents.CallTool("read_log", `{"name":"gamma","size":300}`),
	}
}

// ownLoop turns off what answers recover_text inside the LLM proxy, so that the agent's own loop calls it.
const ownLoop = "observation_masking.recovery.offer = false"

// Each agent, in both roles at once: it calls tools through the gateway, over stdio and over HTTP, and its
// model is behind the gateway.
func TestRoles(t *testing.T) {
	for _, a := range chosen() {
		if !a.HasLoop() {
			continue
		}
		for _, transport := range []string{"stdio", "http"} {
			t.Run(a.ID+"/"+transport, func(t *testing.T) {
				t.Parallel()
				s := newSetup(t, a, ownLoop)
				server := s.stdio()
				if transport == "http" {
					server = s.http()
				}
				script := s.ask(server, conversation()...)
				if t.Failed() {
					return
				}
				checkConversation(t, a, script)
				if !t.Failed() {
					recordConversation(s, transport, script)
				}
			})
		}
	}
}

// recordConversation fills the agent's row of docs/agents.md.
func recordConversation(s *setup, transport string, script *agents.Script) {
	table.record(s.agent, func(r *row) {
		r.set(transport, "yes")
		r.ToolName, r.ReadBack, r.Masked, r.Model = "`"+script.Name(0)+"`", "by its own loop", "yes", "`"+s.agent.Shapes[0].Path()+"`"
		if script.Searches() > 0 {
			r.ToolName += ", deferred"
		}
		r.Outside = s.sandbox.Outside()
	})
}

// toolName is the strictest pattern of the model APIs; in responses a namespace comes before a dot.
var toolName = regexp.MustCompile(`^([a-zA-Z0-9_-]{1,64}\.)?[a-zA-Z0-9_-]{1,64}$`)

func checkConversation(t *testing.T, a agents.Agent, script *agents.Script) {
	t.Helper()
	if name := script.Name(0); !toolName.MatchString(name) {
		t.Errorf("the tool's name is %q", name)
	}
	if cut := script.Result(0); agents.PruneID(cut) == "" || len(cut) > 20_000 {
		t.Errorf("the long result has %d characters and no marker: %.200s", len(cut), cut)
	}
	if back := script.Result(1); !strings.Contains(plain(back), logLine("alpha", 100)+logLine("alpha", 101)+logLine("alpha", 102)) {
		t.Errorf("read back: %.500s", back)
	}
	first, last := script.Result(0), script.LastResult(0)
	if first == last || len(last) > 500 {
		t.Errorf("the first result is not masked in the last request: %.500s", last)
	}
}

// plain is a result's text: some agents hand the whole JSON of a result to the model.
func plain(text string) string { return strings.ReplaceAll(text, `\n`, "\n") }

// Agents that defer MCP tools do not offer recover_text to the model. With profile = "agents" the LLM proxy offers its
// own and answers it: the model reads back, and the agent sees none of it.
func TestReadBackInTheProxy(t *testing.T) {
	for _, id := range []string{"codex", "qwen"} {
		t.Run(id, func(t *testing.T) {
			a := requireAgent(t, id)
			t.Parallel()
			s := newSetup(t, a, "")
			script := s.ask(s.stdio(), conversation()...)
			if name := script.Name(1); name != "recover_text" {
				t.Errorf("the model read back with %s", name)
			}
			checkConversation(t, a, script)
		})
	}
}

// An agent whose tools do not come through the gateway, and which knows nothing of recover_text: its old results are
// masked, the model reads the first one back inside the LLM proxy, and the agent sees none of it.
func TestReadBackWithoutTheHub(t *testing.T) {
	for _, id := range []string{"gemini"} {
		t.Run(id, func(t *testing.T) {
			a := requireAgent(t, id)
			t.Parallel()
			s := newSetup(t, a, "")
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			script := s.ask(&agents.Server{Command: []string{self, "log-server"}},
				agents.CallTool("read_log", `{"name":"alpha","size":9000}`),
				agents.CallTool("read_log", `{"name":"beta","size":300}`),
				agents.CallTool("read_log", `{"name":"gamma","size":300}`),
				agents.ReadBackFirst(`,"ranges":[{"start_line":99,"end_line":103}]`),
				agents.CallTool("read_log", `{"name":"delta","size":300}`),
			)
			if name := script.Name(3); name != "recover_text" {
				t.Errorf("the model read back with %s", name)
			}
			if back := script.Result(3); !strings.Contains(plain(back), logLine("alpha", 100)+logLine("alpha", 101)) {
				t.Errorf("read back: %.500s", back)
			}
			if first, last := script.Result(0), script.LastResult(0); first == last || len(last) > 500 {
				t.Errorf("the first result is not masked in the last request: %.500s", last)
			}
		})
	}
}
