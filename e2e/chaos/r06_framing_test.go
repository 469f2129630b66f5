//go:build linux

package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestR6Framing: children whose lines are whole but odd. Every call goes well, and A12's
// Content-Length framing is spoken too.
func TestR6Framing(t *testing.T) {
	for _, flags := range []string{
		"-crlf", "-bom", "-pair", "-idlast", "-lsp", "-drip 10", "-mute", "-crlf -bom -junk 3",
		"-era " + string(modern) + " -crlf -bom -idlast", "-era " + string(modern) + " -pair",
	} {
		t.Run(flags, func(t *testing.T) {
			book := newLedger(t)
			s := newSite(t, book, child("a", book, strings.Fields(flags)...), child("b", book))
			g := s.start(t)
			peers := g.webs(t, 2)
			ready(t, peers[0], "a", "b")
			n := pick(40, 400)
			if strings.Contains(flags, "drip") {
				n = pick(2, 6) // two seconds each
			}
			cs := burst(n, 4, peers, []string{"a"}, nil)
			cs.sound(t, book)
			cs.allOK(t)
			book.obedient(t)
			if pids := book.pids("a"); len(pids) != 1 {
				t.Errorf("the child was restarted: %v", pids)
			}
			report(t, "R6", "framing `"+flags+"`", cs, "all answered by one process")
		})
	}
}

// TestR6Broken: answers that are no answers. The call gets a well-formed error or, where the
// answer can be read in one way only, the answer; the next call goes well.
func TestR6Broken(t *testing.T) {
	book := newLedger(t)
	s := newSite(t, book, child("x", book), child("y", book, "-era", string(modern)), child("a", book))
	s.head = `response_timeout = "1s"`
	g := s.start(t)
	peers := g.webs(t, 2)
	ready(t, peers[0], "x", "y", "a")
	var cs calls
	var found []string
	for _, how := range []string{"half", "exit", "utf8", "surrogate", "wrongid", "twice", "noresult"} {
		for _, id := range []string{"x", "y"} {
			c := one(peers[1], id, "broken", fmt.Sprintf(`"how":%q`, how), 10*time.Second)
			cs = append(cs, c, one(peers[0], "a", "echo", "", 5*time.Second))
			if !utf8.Valid(c.got.Result) {
				t.Errorf("%s: bytes that are no UTF-8 were passed on", how)
			}
			if how == "utf8" && c.verdict == corrupt { // repaired text is text, if not the same
				c.verdict = ok
			}
			found = append(found, fmt.Sprintf("%s %s %s", how, c.verdict, c.why))
			if !within(10*time.Second, func() bool { return one(peers[0], id, "echo", "", 5*time.Second).verdict == ok }) {
				t.Errorf("after %s the server did not come back", how)
			}
			if want := map[string]verdict{"twice": ok, "half": failed, "exit": failed, "wrongid": failed, "noresult": failed}[how]; want != pending && c.verdict != want {
				t.Errorf("%s on %s: %s, %s; want %s", how, id, c.verdict, c.why, want)
			}
		}
	}
	cs.sound(t, book)
	cs.where(func(c *call) bool { return c.server == "a" }).allOK(t)
	report(t, "R6", "broken answers: half, exit, utf8, surrogate, wrongid, twice, noresult", cs, "%s", strings.Join(found, "; "))
	g.noZombies(t)
}
