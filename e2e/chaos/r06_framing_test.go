//go:build linux

package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// TestR6Framing: children with unusual framing, among them A12's Content-Length framing. Every call succeeds.
func TestR6Framing(t *testing.T) {
	for _, flags := range []string{
		"-crlf", "-bom", "-pair-frames", "-id-last", "-lsp", "-byte-delay-ms 10", "-ignore-discover", "-crlf -bom -junk-every 3",
		"-revision " + string(mcpwire.Modern) + " -crlf -bom -id-last", "-revision " + string(mcpwire.Modern) + " -pair-frames",
	} {
		t.Run(flags, func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			s := newSite(t, events, stdioServer("a", events, strings.Fields(flags)...), stdioServer("b", events))
			g := s.start(t)
			clients := g.connectMany(t, 2)
			waitReady(t, clients[0], "a", "b")
			n := shortOrFull(40, 400)
			if strings.Contains(flags, "byte-delay") {
				n = shortOrFull(2, 6) // two seconds each
			}
			cs := burst(n, 4, clients, []string{"a"}, nil)
			cs.requireSound(t, events)
			cs.requireAllOK(t)
			events.RequireNoViolations(t)
			if pids := events.PIDs("a"); len(pids) != 1 {
				t.Errorf("the child was restarted: %v", pids)
			}
			report(t, "R6", "framing `"+flags+"`", cs, "all answered by one process")
		})
	}
}

// TestR6BrokenResponses: the call gets a well-formed error or, if the response is unambiguous, its result;
// the next call succeeds.
func TestR6BrokenResponses(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events, stdioServer("x", events), stdioServer("y", events, "-revision", string(mcpwire.Modern)), stdioServer("a", events))
	s.topLevel = `response_timeout = "1s"`
	g := s.start(t)
	clients := g.connectMany(t, 2)
	waitReady(t, clients[0], "x", "y", "a")
	var cs calls
	var found []string
	for _, how := range []string{"half", "exit", "utf8", "surrogate", "wrongid", "twice", "noresult"} {
		for _, id := range []string{"x", "y"} {
			c := callOnce(clients[1], id, "broken", fmt.Sprintf(`"how":%q`, how), 10*time.Second)
			cs = append(cs, c, callOnce(clients[0], "a", "echo", "", 5*time.Second))
			if !utf8.Valid(c.got.Result) {
				t.Errorf("%s: invalid UTF-8 was passed on", how)
			}
			if how == "utf8" && c.verdict == corrupt { // repaired text is allowed
				c.verdict = ok
			}
			found = append(found, fmt.Sprintf("%s %s %s", how, c.verdict, c.reason))
			if !wait.True(10*time.Second, func() bool { return callOnce(clients[0], id, "echo", "", 5*time.Second).verdict == ok }) {
				t.Errorf("after %s the server did not come back", how)
			}
			if want := map[string]verdict{"twice": ok, "half": failed, "exit": failed, "wrongid": failed, "noresult": failed}[how]; want != pending && c.verdict != want {
				t.Errorf("%s on %s: %s, %s; want %s", how, id, c.verdict, c.reason, want)
			}
		}
	}
	cs.requireSound(t, events)
	cs.filter(func(c *call) bool { return c.server == "a" }).requireAllOK(t)
	report(t, "R6", "broken responses: half, exit, utf8, surrogate, wrongid, twice, noresult", cs, "%s", strings.Join(found, "; "))
	g.requireNoZombies(t)
}
