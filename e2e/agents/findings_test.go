//go:build unix

package agents_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/agents"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// onlyFit turns the gateway's own limit off, so that results are cut only below what the client would cut.
const onlyFit = "masking = { max_chars = 4000000, head_chars = 1000000, tail_chars = 1000000 }"

var logSizes = []int{350_000, 40_000, 12_000}

// longLogs reads a log of each size.
func longLogs() []agents.Turn {
	var turns []agents.Turn
	for _, size := range logSizes {
		turns = append(turns, agents.CallTool("read_log", fmt.Sprintf(`{"name":"alpha","size":%d}`, size)))
	}
	return turns
}

// Without the gateway's fit, Codex and Claude Code lose most of a long result. If this fails, they have changed, and
// the table in package clients should.
func TestAgentsCutWhatDoesNotFit(t *testing.T) {
	for _, id := range []string{"codex", "claude-code"} {
		t.Run(id, func(t *testing.T) {
			a := requireAgent(t, id)
			t.Parallel()
			s := newSetup(t, a, onlyFit+"\nfit_clients = false")
			script := s.ask(s.http(), longLogs()...)
			if result := plain(script.Result(0)); strings.Contains(result, logText("alpha", logSizes[0])) || agents.PruneID(result) != "" {
				t.Errorf("the model got %d characters of %d", len(result), logSizes[0])
			}
		})
	}
}

// Agents cut long results themselves, for good: Codex in the middle, Claude Code into a file. Behind the gateway
// the model gets the whole text, or a part with a marker by which it reads the rest: nothing is lost.
func TestNothingIsLostToTheClientsOwnCut(t *testing.T) {
	for _, id := range []string{"codex", "claude-code", "continue"} {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(id+"/"+transport, func(t *testing.T) {
				a := requireAgent(t, id)
				t.Parallel()
				s := newSetup(t, a, onlyFit)
				server := s.stdio()
				if transport == "http" {
					server = s.http()
				}
				script := s.ask(server, longLogs()...)
				for i, size := range logSizes {
					checkNothingLost(t, script.Result(i), logText("alpha", size))
				}
			})
		}
	}
}

// checkNothingLost checks what the model got of a text: all of it, or its beginning, a marker that names how to
// read the rest, and its end.
func checkNothingLost(t *testing.T, result, text string) {
	t.Helper()
	result = plain(result)
	if strings.Contains(result, text) {
		return
	}
	id := agents.PruneID(result)
	at := strings.Index(result, text[:80])
	if id == "" || at < 0 {
		t.Errorf("of %d characters the model got %d without a marker: %.300s … %s", len(text), len(result), result, result[max(0, len(result)-300):])
		return
	}
	head := commonPrefix(result[at:], text)
	mark := at + head
	if next := strings.Index(result[mark:], id); next < 0 || next > 300 {
		t.Errorf("after %d of %d characters no marker follows: %q", head, len(text), result[mark:min(len(result), mark+300)])
	}
	if end := text[len(text)-80:]; !strings.Contains(result, end) {
		t.Errorf("the end of %d characters is missing: %q", len(text), result[max(0, len(result)-400):])
	}
	t.Logf("of %d characters the model got %d", len(text), len(result))
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// Continue sends tool names as they are. With :: in them the model API refuses every request; with the __ of
// profile = "agents" all work (TestRoles).
func TestColonsInToolNamesFailInContinue(t *testing.T) {
	a := requireAgent(t, "continue")
	t.Parallel()
	s := newSetup(t, a, "naming.separator = \"::\"")
	agents.NewScript(s.provider, a, agents.CallTool("read_log", `{"name":"alpha","size":100}`))
	tr := a.Ask(s.sandbox, agents.Wiring{Server: s.stdio(), ModelURL: s.gateway.URL}, "Read the log named alpha.")
	refused := false
	for _, r := range s.provider.Requests() {
		refused = refused || r.Shape == fakeprovider.Chat && r.Status == http.StatusBadRequest
	}
	if !refused || strings.Contains(tr.Stdout, agents.Answer) {
		t.Errorf("Continue works with :: now: exit code %d, %.500s", tr.ExitCode, tr.Stdout)
	}
}

// Codex tries a websocket before it sends a request. It must not cost more than one try.
func TestCodexFallsBackFromWebsocketsAtOnce(t *testing.T) {
	a := requireAgent(t, "codex")
	t.Parallel()
	s := newSetup(t, a, "")
	s.ask(s.http(), agents.CallTool("read_log", `{"name":"alpha","size":100}`))
	if n := strings.Count(s.gateway.Output(), "status=426"); n != 1 {
		t.Errorf("Codex tried %d websockets", n)
	}
}
