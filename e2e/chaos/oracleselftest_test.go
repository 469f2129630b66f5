//go:build linux

package chaos

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// faultyProxy is a gateway with a fault: it strips the prefix of a tool's name, forwards the call, and
// falsifies every tenth reply.
type faultyProxy struct {
	up, other *mcpserver.HTTPServer
	spoil     replyFault

	mu    sync.Mutex
	calls int
	kept  []byte // the reply to an earlier call
}

// replyFault falsifies a reply. forward calls the server and returns its reply.
type replyFault func(p *faultyProxy, w http.ResponseWriter, r *http.Request, f mcpwire.Message, forward func(*mcpserver.HTTPServer) []byte)

func (p *faultyProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f, _ := mcpwire.ParseMessage(body)
	forward := func(to *mcpserver.HTTPServer) []byte { return p.forward(r, to, body) }
	p.mu.Lock()
	p.calls++
	bad := p.calls%10 == 0
	p.mu.Unlock()
	if bad && p.spoil != nil {
		p.spoil(p, w, r, f, forward)
		return
	}
	answer := forward(p.up)
	p.mu.Lock()
	p.kept = answer
	p.mu.Unlock()
	sendJSON(w, answer)
}

func (p *faultyProxy) forward(r *http.Request, to *mcpserver.HTTPServer, body []byte) []byte {
	body = bytes.Replace(body, []byte(`"name":"up::`), []byte(`"name":"`), 1)
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, to.URL("/mcp"), bytes.NewReader(body))
	if err != nil {
		return nil
	}
	req.Header = r.Header.Clone()
	req.Header.Set("Mcp-Name", strings.TrimPrefix(r.Header.Get("Mcp-Name"), "up::"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	return answer
}

func sendJSON(w http.ResponseWriter, answer []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

func sendEvents(w http.ResponseWriter, messages ...[]byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, m := range messages {
		fmt.Fprintf(w, "data: %s\n\n", m)
	}
}

// errorFault replies with an error object.
func errorFault(object string) replyFault {
	return func(_ *faultyProxy, w http.ResponseWriter, _ *http.Request, f mcpwire.Message, _ func(*mcpserver.HTTPServer) []byte) {
		sendJSON(w, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":%s}`, f.ID, object))
	}
}

// replaceFault replaces a part of the reply.
func replaceFault(from, to string) replyFault {
	return func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, _ mcpwire.Message, forward func(*mcpserver.HTTPServer) []byte) {
		sendJSON(w, bytes.Replace(forward(p.up), []byte(from), []byte(to), 1))
	}
}

func progressOf(token, nonce string) []byte {
	return mcpwire.NewNotification("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":1,"message":%s}`, token, mcpwire.Quote(nonce)))
}

// replyFaults are faults with the verdict that the oracle must give.
var replyFaults = []struct {
	name  string
	want  verdict
	spoil replyFault
}{
	{"nothing", ok, nil},
	{"hangs", lost, func(_ *faultyProxy, _ http.ResponseWriter, r *http.Request, _ mcpwire.Message, _ func(*mcpserver.HTTPServer) []byte) {
		<-r.Context().Done()
	}},
	{"cuts", lost, func(*faultyProxy, http.ResponseWriter, *http.Request, mcpwire.Message, func(*mcpserver.HTTPServer) []byte) {
		panic(http.ErrAbortHandler)
	}},
	{"a stream without an answer", lost, func(_ *faultyProxy, w http.ResponseWriter, _ *http.Request, _ mcpwire.Message, _ func(*mcpserver.HTTPServer) []byte) {
		sendEvents(w)
	}},
	{"an HTML page", lost, func(_ *faultyProxy, w http.ResponseWriter, _ *http.Request, _ mcpwire.Message, _ func(*mcpserver.HTTPServer) []byte) {
		http.Error(w, "<h1>502</h1>", http.StatusBadGateway)
	}},
	{"another call's answer", corrupt, func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, f mcpwire.Message, _ func(*mcpserver.HTTPServer) []byte) {
		p.mu.Lock()
		kept, _ := mcpwire.ParseMessage(p.kept)
		p.mu.Unlock()
		sendJSON(w, mcpwire.NewResponse(f.ID, string(kept.Result)))
	}},
	{"another tenant's answer", corrupt, replaceFault(`\"tenant\":\"`, `\"tenant\":\"x`)},
	{"an id of the other type", corrupt, func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, f mcpwire.Message, forward func(*mcpserver.HTTPServer) []byte) {
		got, _ := mcpwire.ParseMessage(forward(p.up))
		id := mcpwire.Quote(string(f.ID))
		if f.ID[0] == '"' {
			id = strings.Trim(string(f.ID), `"`)
		}
		sendJSON(w, mcpwire.NewResponse([]byte(id), string(got.Result)))
	}},
	{"two answers", corrupt, func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, _ mcpwire.Message, forward func(*mcpserver.HTTPServer) []byte) {
		answer := forward(p.up)
		sendEvents(w, answer, answer)
	}},
	{"progress after the answer", corrupt, func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, _ mcpwire.Message, forward func(*mcpserver.HTTPServer) []byte) {
		sendEvents(w, forward(p.up), progressOf("1", "x"))
	}},
	{"progress of another call", corrupt, func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, f mcpwire.Message, forward func(*mcpserver.HTTPServer) []byte) {
		sendEvents(w, progressOf(string(f.ParseParams().Meta.ProgressToken), "other"), forward(p.up))
	}},
	{"the answer of another server", corrupt, func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, _ mcpwire.Message, forward func(*mcpserver.HTTPServer) []byte) {
		sendJSON(w, forward(p.other))
	}},
	{"a good error", failed, errorFault(`{"code":-32603,"message":"the server is away","data":{"reason":"unavailable"}}`)},
	{"an error without a reason", malformed, errorFault(`{"code":-32603,"message":"sorry"}`)},
	{"an error with a path", malformed, errorFault(`{"code":-32603,"message":"open /tmp/x/y: no","data":{"reason":"internal"}}`)},
	{"an error with an address", malformed, errorFault(`{"code":-32603,"message":"no 127.0.0.1:8000","data":{"reason":"internal"}}`)},
	{"an error with a stack", malformed, errorFault(`{"code":-32603,"message":"goroutine 12 [running]","data":{"reason":"internal"}}`)},
	{"an error with half a code", malformed, errorFault(`{"code":-32603.5,"message":"no","data":{"reason":"internal"}}`)},
	{"an endless error", malformed, errorFault(`{"code":1,"message":"` + strings.Repeat("no ", 2000) + `","data":{"reason":"internal"}}`)},
	{"an error for no request", malformed, func(_ *faultyProxy, w http.ResponseWriter, _ *http.Request, _ mcpwire.Message, _ func(*mcpserver.HTTPServer) []byte) {
		sendJSON(w, []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no","data":{"reason":"internal"}}}`))
	}},
}

// TestOracleFindsWrongReplies: each kind of fault is found, and the nine of ten calls without a fault are ok.
func TestOracleFindsWrongReplies(t *testing.T) {
	for _, s := range replyFaults {
		t.Run(s.name, func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			p := &faultyProxy{up: mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "up", Revision: mcpwire.Modern}, events), other: mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "other", Revision: mcpwire.Modern}, events), spoil: s.spoil}
			limit := 20 * time.Second // long, because only one of these hangs
			if s.name == "hangs" {
				limit = 3 * time.Second
			}
			cs := throughProxy(t, p, 40, limit)
			bad := len(cs) / 10
			if s.want == ok {
				bad = len(cs)
			}
			if got := cs.count(s.want); got != bad {
				t.Errorf("%d calls are %s, want %d: %s", got, s.want, bad, cs.summary())
			}
			if s.want != ok && cs.count(ok) != len(cs)-bad {
				t.Errorf("%d of %d correct calls were ok: %s", cs.count(ok), len(cs)-bad, cs.summary())
			}
		})
	}
}

// throughProxy makes at least n calls through the proxy.
func throughProxy(t *testing.T, p http.Handler, n int, limit time.Duration) calls {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(ln) }()
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	client, done := newHTTP()
	defer done()
	web, err := mcpclient.ConnectHTTP(t.Context(), client, "http://"+ln.Addr().String(), mcpwire.Modern, mcpclient.NoCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	l := loadGenerator{rate: 400, servers: []string{"up"}, clients: []mcpclient.Client{web}, limit: limit, progressToken: `"tok"`}
	l.startLoad()
	wait.True(5*time.Second, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.calls) >= n
	})
	return l.stopLoad()
}

// TestOracleFindsMisexecutedCalls: a call executed twice, by another server, or answered without execution is
// found.
func TestOracleFindsMisexecutedCalls(t *testing.T) {
	for name, s := range map[string]replyFault{
		"was executed 2 times": func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, _ mcpwire.Message, forward func(*mcpserver.HTTPServer) []byte) {
			forward(p.up)
			sendJSON(w, forward(p.up))
		},
		"and executed by other": func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, _ mcpwire.Message, forward func(*mcpserver.HTTPServer) []byte) {
			sendJSON(w, bytes.Replace(forward(p.other), []byte(`\"other\"`), []byte(`\"up\"`), 1))
		},
		"but not executed": func(_ *faultyProxy, w http.ResponseWriter, _ *http.Request, f mcpwire.Message, _ func(*mcpserver.HTTPServer) []byte) {
			a := f.ParseParams().Arguments
			sendJSON(w, mcpwire.NewResponse(f.ID, "{"+mcpserver.ContentJSON(mcpwire.EncodeJSON(mcpserver.EchoResult{Nonce: a.Nonce, Tenant: a.Tenant, Server: "up"}))+"}"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			events := mcpserver.NewEventLog(t)
			p := &faultyProxy{up: mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "up", Revision: mcpwire.Modern}, events), other: mcpserver.StartHTTP(t, mcpserver.Options{ServerID: "other", Revision: mcpwire.Modern}, events), spoil: s}
			cs := throughProxy(t, p, 20, 20*time.Second)
			if wrongs := cs.findMisexecuted(events); len(wrongs) != min(5, len(cs)/10) || !strings.Contains(wrongs[0], name) {
				t.Errorf("found %q", wrongs)
			}
		})
	}
}
