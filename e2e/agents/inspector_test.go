//go:build unix

package agents_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/agents"
)

// The Inspector has no model: it lists the tools, calls one, and reads back what was cut, each in a run of its
// own.
func TestInspector(t *testing.T) {
	a := requireAgent(t, "inspector")
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, a, "")
			server := s.stdio()
			if transport == "http" {
				server = s.http()
			}
			call := func(method string, more ...string) string {
				tr := a.Run(s.sandbox, agents.InspectorArgs(server, method, more...)...)
				var reply struct{ Result json.RawMessage }
				if err := json.Unmarshal([]byte(tr.Stdout), &reply); err != nil || tr.ExitCode != 0 {
					s.logTranscript(tr)
					t.Fatalf("%s: exit code %d, %v", method, tr.ExitCode, err)
				}
				return string(reply.Result)
			}
			if list := call("tools/list"); !strings.Contains(list, `"logs__read_log"`) || !strings.Contains(list, `"recover_text"`) {
				t.Errorf("tools: %s", list)
			}
			cut := call("tools/call", "--tool-name", "logs__read_log", "--tool-arg", "name=alpha", "--tool-arg", "size=700000")
			id := agents.PruneID(cut)
			if id == "" || len(cut) > 600_000 {
				t.Fatalf("the long result has %d characters and no marker: %.300s", len(cut), cut)
			}
			back := call("tools/call", "--tool-name", "recover_text", "--tool-arg", "prune_id="+id, "--tool-arg", `ranges=[{"start_line":4000,"end_line":4000}]`)
			if want := strings.TrimSpace(logLine("alpha", 4000)); !strings.Contains(back, want) {
				t.Errorf("read back: %.500s", back)
			}
			if !t.Failed() {
				table.record(a, func(r *row) {
					r.set(transport, "yes")
					r.ToolName, r.ReadBack, r.Model, r.Masked = "`logs__read_log`", "by hand", "–", "–"
				})
			}
		})
	}
}

// The commands with which agents list their MCP servers show ctxgate, and those that connect can.
func TestServerLists(t *testing.T) {
	for _, a := range chosen() {
		if !a.HasList() {
			continue
		}
		t.Run(a.ID, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, a, "")
			tr := a.ListServers(s.sandbox, agents.Wiring{Server: s.stdio(), ModelURL: s.gateway.URL})
			text := strings.ToLower(tr.Stdout + tr.Stderr)
			connects := a.ID != "codex" // it only prints its configuration
			if tr.ExitCode != 0 || !strings.Contains(text, "ctxgate") || connects && !strings.Contains(text, "connected") || strings.Contains(text, "disconnected") {
				s.logTranscript(tr)
				t.Errorf("%s: exit code %d", a.Name, tr.ExitCode)
			}
		})
	}
}
