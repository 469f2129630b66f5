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
)

// faultyProxy is a gateway as bad as we like: it takes the prefix off a tool's name, forwards the
// call, and spoils every tenth answer in one way.
type faultyProxy struct {
	up, other *httpFake
	spoil     spoiler

	mu    sync.Mutex
	calls int
	kept  []byte // the answer of an earlier call
}

// spoiler answers a call in a wrong way. forward asks the server, and gives its answer.
type spoiler func(p *faultyProxy, w http.ResponseWriter, r *http.Request, f frame, forward func(*httpFake) []byte)

func (p *faultyProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f, _ := parse(body)
	forward := func(to *httpFake) []byte { return p.forward(r, to, body) }
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

func (p *faultyProxy) forward(r *http.Request, to *httpFake, body []byte) []byte {
	body = bytes.Replace(body, []byte(`"name":"up::`), []byte(`"name":"`), 1)
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, to.url("/mcp"), bytes.NewReader(body))
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

func events(w http.ResponseWriter, messages ...[]byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, m := range messages {
		fmt.Fprintf(w, "data: %s\n\n", m)
	}
}

// failing makes a spoiler that answers with an error object.
func failing(object string) spoiler {
	return func(_ *faultyProxy, w http.ResponseWriter, _ *http.Request, f frame, _ func(*httpFake) []byte) {
		sendJSON(w, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":%s}`, f.ID, object))
	}
}

// changing makes a spoiler that replaces a text of the answer.
func changing(from, to string) spoiler {
	return func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, _ frame, forward func(*httpFake) []byte) {
		sendJSON(w, bytes.Replace(forward(p.up), []byte(from), []byte(to), 1))
	}
}

func progressOf(token, nonce string) []byte {
	return notification("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":1,"message":%s}`, token, quote(nonce)))
}

// spoilers are the ways to be wrong, and what the oracle must call each.
var spoilers = []struct {
	name  string
	want  verdict
	spoil spoiler
}{
	{"nothing", ok, nil},
	{"hangs", lost, func(_ *faultyProxy, _ http.ResponseWriter, r *http.Request, _ frame, _ func(*httpFake) []byte) {
		<-r.Context().Done()
	}},
	{"cuts", lost, func(*faultyProxy, http.ResponseWriter, *http.Request, frame, func(*httpFake) []byte) {
		panic(http.ErrAbortHandler)
	}},
	{"a stream without an answer", lost, func(_ *faultyProxy, w http.ResponseWriter, _ *http.Request, _ frame, _ func(*httpFake) []byte) {
		events(w)
	}},
	{"an HTML page", lost, func(_ *faultyProxy, w http.ResponseWriter, _ *http.Request, _ frame, _ func(*httpFake) []byte) {
		http.Error(w, "<h1>502</h1>", http.StatusBadGateway)
	}},
	{"another call's answer", corrupt, func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, f frame, _ func(*httpFake) []byte) {
		p.mu.Lock()
		kept, _ := parse(p.kept)
		p.mu.Unlock()
		sendJSON(w, response(f.ID, string(kept.Result)))
	}},
	{"another tenant's answer", corrupt, changing(`\"tenant\":\"`, `\"tenant\":\"x`)},
	{"an id of the other type", corrupt, func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, f frame, forward func(*httpFake) []byte) {
		got, _ := parse(forward(p.up))
		id := quote(string(f.ID))
		if f.ID[0] == '"' {
			id = strings.Trim(string(f.ID), `"`)
		}
		sendJSON(w, response([]byte(id), string(got.Result)))
	}},
	{"two answers", corrupt, func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, _ frame, forward func(*httpFake) []byte) {
		answer := forward(p.up)
		events(w, answer, answer)
	}},
	{"progress after the answer", corrupt, func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, _ frame, forward func(*httpFake) []byte) {
		events(w, forward(p.up), progressOf("1", "x"))
	}},
	{"progress of another call", corrupt, func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, f frame, forward func(*httpFake) []byte) {
		events(w, progressOf(string(f.read().Meta.ProgressToken), "other"), forward(p.up))
	}},
	{"the answer of another server", corrupt, func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, _ frame, forward func(*httpFake) []byte) {
		sendJSON(w, forward(p.other))
	}},
	{"a good error", failed, failing(`{"code":-32603,"message":"the server is away","data":{"reason":"unavailable"}}`)},
	{"an error without a reason", malformed, failing(`{"code":-32603,"message":"sorry"}`)},
	{"an error with a path", malformed, failing(`{"code":-32603,"message":"open /tmp/x/y: no","data":{"reason":"internal"}}`)},
	{"an error with an address", malformed, failing(`{"code":-32603,"message":"no 127.0.0.1:8000","data":{"reason":"internal"}}`)},
	{"an error with a stack", malformed, failing(`{"code":-32603,"message":"goroutine 12 [running]","data":{"reason":"internal"}}`)},
	{"an error with half a code", malformed, failing(`{"code":-32603.5,"message":"no","data":{"reason":"internal"}}`)},
	{"an endless error", malformed, failing(`{"code":1,"message":"` + strings.Repeat("no ", 2000) + `","data":{"reason":"internal"}}`)},
	{"an error for nobody", malformed, func(_ *faultyProxy, w http.ResponseWriter, _ *http.Request, _ frame, _ func(*httpFake) []byte) {
		sendJSON(w, []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no","data":{"reason":"internal"}}}`))
	}},
}

// TestOracleTellsRightFromWrong runs the load against a proxy that is wrong on purpose: each kind
// of wrong is found, and nine calls of ten, which are right, are not suspected.
func TestOracleTellsRightFromWrong(t *testing.T) {
	for _, s := range spoilers {
		t.Run(s.name, func(t *testing.T) {
			book := newLedger(t)
			p := &faultyProxy{up: startHTTPFake(t, options{server: "up", era: modern}, book), other: startHTTPFake(t, options{server: "other", era: modern}, book), spoil: s.spoil}
			limit := 20 * time.Second // long: the machine may be busy, and only one of these hangs
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
				t.Errorf("%d of %d good calls were believed: %s", cs.count(ok), len(cs)-bad, cs.summary())
			}
		})
	}
}

// throughProxy makes at least n calls.
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
	web, err := dial(t.Context(), client, "http://"+ln.Addr().String(), modern, answersNothing)
	if err != nil {
		t.Fatal(err)
	}
	l := load{rate: 400, servers: []string{"up"}, peers: []peer{web}, limit: limit, token: `"tok"`}
	l.start()
	within(5*time.Second, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.calls) >= n
	})
	return l.end()
}

// TestOracleCountsExecutions finds a call that ran twice, one that ran elsewhere, and one that was
// answered without having run.
func TestOracleCountsExecutions(t *testing.T) {
	for name, s := range map[string]spoiler{
		"was executed 2 times": func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, _ frame, forward func(*httpFake) []byte) {
			forward(p.up)
			sendJSON(w, forward(p.up))
		},
		"and ran on other": func(p *faultyProxy, w http.ResponseWriter, _ *http.Request, _ frame, forward func(*httpFake) []byte) {
			sendJSON(w, bytes.Replace(forward(p.other), []byte(`\"other\"`), []byte(`\"up\"`), 1))
		},
		"never executed": func(_ *faultyProxy, w http.ResponseWriter, _ *http.Request, f frame, _ func(*httpFake) []byte) {
			a := f.read().Arguments
			sendJSON(w, response(f.ID, "{"+content(toJSON(echoed{Nonce: a.Nonce, Tenant: a.Tenant, Server: "up"}))+"}"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			book := newLedger(t)
			p := &faultyProxy{up: startHTTPFake(t, options{server: "up", era: modern}, book), other: startHTTPFake(t, options{server: "other", era: modern}, book), spoil: s}
			cs := throughProxy(t, p, 20, 20*time.Second)
			if wrongs := cs.executed(book); len(wrongs) != min(5, len(cs)/10) || !strings.Contains(wrongs[0], name) {
				t.Errorf("found %q", wrongs)
			}
		})
	}
}
