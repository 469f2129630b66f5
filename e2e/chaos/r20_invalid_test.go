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

	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
)

// invalidReplies are replies of broken servers and of proxies in front of them.
var invalidReplies = map[string]http.HandlerFunc{
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
		replyWith(w, "application/json", `{"jsonrpc":"2.0","id":`)
	},
	"other id": func(w http.ResponseWriter, _ *http.Request) {
		replyWith(w, "application/json", `{"jsonrpc":"2.0","id":"x","result":{}}`)
	},
	"no answer": func(w http.ResponseWriter, _ *http.Request) { replyWith(w, "text/event-stream", ": nothing\n\n") },
	"not gzip": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		replyWith(w, "application/json", "not at all")
	},
	"hangs": func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then a disconnect is noticed
		<-r.Context().Done()
	},
	"cuts": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
}

func replyWith(w http.ResponseWriter, kind, body string) {
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write([]byte(body))
}

// TestR20InvalidReplies: an HTTP server replies with anything but a response. Each call gets a well-formed
// error in time, none is executed twice, and soon after its recovery the server is used again.
func TestR20InvalidReplies(t *testing.T) {
	for _, e := range []mcpwire.Revision{mcpwire.Legacy, mcpwire.Modern} {
		t.Run(string(e), func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			h := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "x", Revision: e}, events)
			s := newSite(t, events, httpServer("x", h), stdioServer("a", events))
			s.topLevel = `response_timeout = "1s"`
			g := s.start(t)
			clients := g.connectMany(t, 2)
			waitReady(t, clients[0], "x", "a")
			var cs calls
			var found []string
			for name, reply := range invalidReplies {
				h.Override.Store(&reply)
				bad := burst(2, 1, clients, []string{"x"}, nil)
				h.Override.Store(nil)
				begin := time.Now()
				waitReady(t, clients[1], "x")
				found = append(found, fmt.Sprintf("%s: %s, back after %s", name, bad[0].reason, short(time.Since(begin))))
				if bad.count(failed) != 2 || slowestOf(bad) > 4*time.Second {
					t.Errorf("%s: %s, slowest %s", name, bad.summary(), slowestOf(bad))
				}
				cs = append(cs, bad...)
			}
			cs.requireSound(t, events)
			neighbour := burst(20, 2, clients, []string{"a"}, nil)
			neighbour.requireAllOK(t)
			report(t, "R20", fmt.Sprintf("a %s HTTP server with invalid replies", e), cs, "%s", strings.Join(found, "; "))
		})
	}
}

// TestR20CutReplies: the stream of a call is cut before its response. The call may have been executed: it
// gets an error and is not repeated.
func TestR20CutReplies(t *testing.T) {
	events := mcpserver.NewEventLog(t)
	old := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "x", Revision: mcpwire.Legacy}, events)
	mod := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "y", Revision: mcpwire.Modern}, events)
	g := newSite(t, events, httpServer("x", old), httpServer("y", mod)).start(t)
	clients := g.connectMany(t, 4)
	waitReady(t, clients[0], "x", "y")
	cs := burst(shortOrFull(20, 200), 4, clients, []string{"x", "y"}, func(_ int, c *call) { c.tool, c.extraArgs = "broken", `"how":"cut"` })
	cs.requireSound(t, events)
	if cs.count(failed) != len(cs) {
		t.Errorf("calls whose stream was cut: %s", cs.summary())
	}
	if runs := len(events.Executions()); runs < len(cs) {
		t.Errorf("only %d of %d calls were executed", runs, len(cs))
	}
	waitReady(t, clients[0], "x", "y")
	report(t, "R20", "streams that are cut before the response", cs, "an error each, none repeated")
}

// TestR20ChangedRevision: a server restarts with the other revision, and the gateway adapts.
func TestR20ChangedRevision(t *testing.T) {
	for _, e := range []mcpwire.Revision{mcpwire.Legacy, mcpwire.Modern} {
		t.Run("stdio from "+string(e), func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			file := filepath.Join(t.TempDir(), "become")
			g := newSite(t, events, stdioServer("a", events, "-revision", string(e), "-switch-revision-file", file)).start(t)
			changeRevision(t, g, "a", "a program of "+string(e), func() error {
				killChildren(t, events, []string{"a"}, 1, 0)
				return nil
			}, file)
		})
		t.Run("http from "+string(e), func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			h := mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "x", Revision: e}, events)
			g := newSite(t, events, httpServer("x", h)).start(t)
			changeRevision(t, g, "x", "an HTTP server of "+string(e), func() error {
				h.Stop()
				h.Revision = e.Other()
				return h.Listen()
			}, "")
		})
	}
}

func changeRevision(t *testing.T, g *testGateway, id, what string, change func() error, file string) {
	t.Helper()
	clients := g.connectMany(t, 2)
	waitReady(t, clients[0], id)
	if file != "" {
		touchFile(t, file)
	}
	if err := change(); err != nil {
		t.Fatal(err)
	}
	back := waitReady(t, clients[1], id)
	cs := burst(40, 4, clients, []string{id}, nil)
	cs.requireSound(t, g.events)
	cs.requireAllOK(t)
	report(t, "R20", what+" restarts with the other revision", cs, "noticed after %s", short(back))
}
