//go:build linux

package chaos

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// oddAnswers are what stands between a gateway and its server on a bad day.
var oddAnswers = map[string]http.HandlerFunc{
	"500": func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "oops at /srv/app.py:17", http.StatusInternalServerError)
	},
	"html":     func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>Sign in</html>", http.StatusOK) },
	"empty":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) },
	"accepted": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) },
	"redirect": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
	},
	"not json": func(w http.ResponseWriter, _ *http.Request) {
		answerAs(w, "application/json", `{"jsonrpc":"2.0","id":`)
	},
	"other id": func(w http.ResponseWriter, _ *http.Request) {
		answerAs(w, "application/json", `{"jsonrpc":"2.0","id":"x","result":{}}`)
	},
	"no answer": func(w http.ResponseWriter, _ *http.Request) { answerAs(w, "text/event-stream", ": nothing\n\n") },
	"not gzip": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		answerAs(w, "application/json", "not at all")
	},
	"hangs": func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the peer's leaving is noticed
		<-r.Context().Done()
	},
	"cuts": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
}

func answerAs(w http.ResponseWriter, kind, body string) {
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write([]byte(body))
}

// TestR20OddAnswers: an HTTP server of either era answers with everything but an answer. Each call
// gets a well-formed error in time, none is run twice, and soon after the bad day is over the
// server is in use again.
func TestR20OddAnswers(t *testing.T) {
	for _, e := range []era{legacy, modern} {
		t.Run(string(e), func(t *testing.T) {
			book := newLedger(t)
			h := startHTTPFake(t, options{server: "x", era: e}, book)
			s := newSite(t, book, far("x", h), child("a", book))
			s.head = `response_timeout = "1s"`
			g := s.start(t)
			peers := g.webs(t, 2)
			ready(t, peers[0], "x", "a")
			var cs calls
			var found []string
			for name, odd := range oddAnswers {
				h.odd.Store(&odd)
				bad := burst(2, 1, peers, []string{"x"}, nil)
				h.odd.Store(nil)
				begin := time.Now()
				ready(t, peers[1], "x")
				found = append(found, fmt.Sprintf("%s: %s, back after %s", name, bad[0].why, short(time.Since(begin))))
				if bad.count(failed) != 2 || slowestOf(bad) > 4*time.Second {
					t.Errorf("%s: %s, slowest %s", name, bad.summary(), slowestOf(bad))
				}
				cs = append(cs, bad...)
			}
			cs.sound(t, book)
			neighbour := burst(20, 2, peers, []string{"a"}, nil)
			neighbour.allOK(t)
			report(t, "R20", fmt.Sprintf("a %s HTTP server that answers with anything but an answer", e), cs, "%s", strings.Join(found, "; "))
		})
	}
}

// TestR20CutAnswers: the stream of a call is cut before its answer. The call may have run: it gets
// an error and is not made again.
func TestR20CutAnswers(t *testing.T) {
	book := newLedger(t)
	old := startHTTPFake(t, options{server: "x", era: legacy}, book)
	mod := startHTTPFake(t, options{server: "y", era: modern}, book)
	g := newSite(t, book, far("x", old), far("y", mod)).start(t)
	peers := g.webs(t, 4)
	ready(t, peers[0], "x", "y")
	cs := burst(pick(20, 200), 4, peers, []string{"x", "y"}, func(_ int, c *call) { c.tool, c.more = "broken", `"how":"cut"` })
	cs.sound(t, book)
	if cs.count(failed) != len(cs) {
		t.Errorf("calls whose stream was cut: %s", cs.summary())
	}
	if runs := len(book.executions()); runs < len(cs) {
		t.Errorf("only %d of %d calls ran", runs, len(cs))
	}
	ready(t, peers[0], "x", "y")
	report(t, "R20", "streams that are cut before the answer", cs, "an error each, none made again")
}

// TestR20ChangedEra: a server comes back as one of the other era. That is found out.
func TestR20ChangedEra(t *testing.T) {
	for _, e := range []era{legacy, modern} {
		t.Run("stdio from "+string(e), func(t *testing.T) {
			book := newLedger(t)
			file := filepath.Join(t.TempDir(), "become")
			g := newSite(t, book, child("a", book, "-era", string(e), "-become", file)).start(t)
			changeEra(t, g, "a", "a program of "+string(e), func() error {
				killChildren(t, book, []string{"a"}, 1, 0)
				return nil
			}, file)
		})
		t.Run("http from "+string(e), func(t *testing.T) {
			book := newLedger(t)
			h := startHTTPFake(t, options{server: "x", era: e}, book)
			g := newSite(t, book, far("x", h)).start(t)
			changeEra(t, g, "x", "an HTTP server of "+string(e), func() error {
				h.end()
				h.era = e.other()
				return h.begin()
			}, "")
		})
	}
}

func changeEra(t *testing.T, g *gateway, id, what string, change func() error, file string) {
	t.Helper()
	peers := g.webs(t, 2)
	ready(t, peers[0], id)
	if file != "" {
		touchFile(t, file)
	}
	if err := change(); err != nil {
		t.Fatal(err)
	}
	back := ready(t, peers[1], id)
	cs := burst(40, 4, peers, []string{id}, nil)
	cs.sound(t, g.book)
	cs.allOK(t)
	report(t, "R20", what+" comes back in the other era", cs, "found out after %s", short(back))
}
