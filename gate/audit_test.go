package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/audit"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/limit"
)

// auditBuffer is the stdout of an audit log. Writes fail while it is broken.
type auditBuffer struct {
	mu     sync.Mutex
	data   bytes.Buffer
	broken bool
}

func (b *auditBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken {
		return 0, errors.New("broken")
	}
	return b.data.Write(p)
}

// openAudit opens a log; the function closes it and returns its lines, without those of its start and stop.
func openAudit(t *testing.T, out *auditBuffer, onFailure string) (*audit.Log, func() []map[string]any) {
	t.Helper()
	cfg := audit.Default()
	cfg.Path, cfg.OnFailure = "-", onFailure
	l, err := audit.Open(cfg, audit.Options{Dir: t.TempDir(), Roots: [][]byte{bytes.Repeat([]byte("x"), 32)}, Stdout: out, Command: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, func() (lines []map[string]any) {
		t.Helper()
		l.Close()
		for line := range bytes.Lines(out.data.Bytes()) {
			var m map[string]any
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			for _, key := range []string{"time", "prev", "mac", "seq", "microseconds"} {
				delete(m, key)
			}
			lines = append(lines, m)
		}
		return lines
	}
}

// want compares the lines with JSON objects.
func wantLines(t *testing.T, got []map[string]any, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		line, _ := json.Marshal(got[i])
		var w map[string]any
		if err := json.Unmarshal([]byte(want[i]), &w); err != nil {
			t.Fatal(err)
		}
		if expected, _ := json.Marshal(w); !bytes.Equal(line, expected) {
			t.Errorf("line %d:\n got %s\nwant %s", i+1, line, expected)
		}
	}
}

const anonymousLine = `"tenant":"default","subject":"local","credential":"local"`

var readFile = access.Target{Method: "tools/call", Server: "files", Tool: "read", Arguments: []byte(`{"secret":"in arguments"}`)}

func newRules(t *testing.T, effect string) *access.Rules {
	t.Helper()
	rules, err := access.New(access.Config{Default: effect})
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestAllowedCallIsRecordedAtItsEnd(t *testing.T) {
	out := &auditBuffer{}
	log, lines := openAudit(t, out, audit.Continue)
	g := New(Deps{Audit: log})
	ctx := audit.WithRequestID(context.Background(), "req7")
	enter := func() *Pass {
		t.Helper()
		p, err := g.Enter(ctx, auth.LocalCaller(), readFile)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := enter()
	p.Reply(100, 40, false)
	p.Cut(60, []string{"prn_1"})
	p.Done()
	p.Done() // once
	p.Cut(61, nil)
	p = enter()
	p.Reply(100, 100, true)
	p.Done()
	p = enter()
	p.Fail(fault.New(fault.Timeout, "too slow"))
	p.Done()
	call := `{"event":"call",` + anonymousLine + `,"method":"tools/call","server":"files","tool":"read","decision":"allow","rule":"default","request":"req7",`
	got := lines()
	for _, line := range got {
		if line["reason"] == "" {
			t.Error("a line without a reason")
		}
		delete(line, "reason")
	}
	wantLines(t, got,
		call+`"outcome":"ok","bytes_in":100,"bytes_out":40,"chars_cut":60,"ids":["prn_1"]}`,
		call+`"outcome":"error","bytes_in":100,"bytes_out":100}`,
		call+`"outcome":"timeout"}`)
	if strings.Contains(out.data.String(), "in arguments") {
		t.Error("arguments are in the log")
	}
}

func TestDeniedCallIsRecorded(t *testing.T) {
	log, lines := openAudit(t, &auditBuffer{}, audit.Continue)
	g := New(Deps{Audit: log, Rules: newRules(t, "deny")})
	if _, err := g.Enter(context.Background(), auth.LocalCaller(), readFile); !errors.Is(err, ErrDenied) {
		t.Error(err)
	}
	got := lines()
	if len(got) != 1 || got[0]["decision"] != "deny" || got[0]["rule"] != "default" || got[0]["tool"] != "read" || got[0]["event"] != "call" {
		t.Errorf("%v", got)
	}
	e := audit.Event{}
	decide(&e, access.Decision{Effect: access.Redact, Rule: 3, Reason: "why"})
	if e.Rule != "3" || e.Decision != "redact" || e.Reason != "why" {
		t.Errorf("%+v", e)
	}
}

// Without a log a pass records nothing, and works.
func TestPassWithoutLog(t *testing.T) {
	for _, g := range []*Gate{New(Deps{}), New(Deps{Rules: newRules(t, "deny")})} {
		p, err := g.Enter(context.Background(), auth.LocalCaller(), readFile)
		if err != nil {
			p = &Pass{}
		}
		p.Reply(1, 1, false)
		p.Cut(1, nil)
		p.Fail(errors.New("x"))
		p.Done()
		g.RefuseCredential(context.Background(), "192.0.2.1", errors.New("x"))
		g.RecordRead(context.Background(), auth.LocalCaller(), "prn_1", 1, nil)
		if p.entry != nil {
			t.Error("there is an entry without a log")
		}
	}
}

// Where the log is required, a call has a line before it is made, and is not made without one.
func TestRequiredLog(t *testing.T) {
	out := &auditBuffer{}
	log, lines := openAudit(t, out, audit.Deny)
	limiter := limit.New(limit.Config{}, nil)
	g := New(Deps{Audit: log, Limiter: limiter})
	p, err := g.Enter(context.Background(), auth.LocalCaller(), readFile)
	if err != nil {
		t.Fatal(err)
	}
	out.mu.Lock()
	if n := strings.Count(out.data.String(), `"stage":"start"`); n != 1 {
		t.Errorf("%d lines before the call", n)
	}
	out.mu.Unlock()
	p.Reply(1, 1, false)
	p.Done()
	for log.Stats().Written < 2 {
		time.Sleep(time.Millisecond)
	}
	out.mu.Lock()
	out.broken = true
	out.mu.Unlock()
	if p, err := g.Enter(context.Background(), auth.LocalCaller(), readFile); fault.KindOf(err) != fault.Unavailable || p != nil {
		t.Errorf("a call was allowed without its line: %v", err)
	}
	out.mu.Lock()
	out.broken = false
	out.mu.Unlock()
	stages := ""
	for _, line := range lines() {
		stages += line["stage"].(string) + " " + line["decision"].(string) + ", "
	}
	if stages != "start allow, end allow, start allow, end deny, " {
		t.Error(stages)
	}
}

func TestRefusedCredentialsAreCounted(t *testing.T) {
	log, lines := openAudit(t, &auditBuffer{}, audit.Continue)
	g := New(Deps{Audit: log})
	w := httptest.NewRecorder()
	for _, remote := range []string{"192.0.2.1:1234", "192.0.2.1:1235", "192.0.2.1:1236", "@"} {
		r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
		r.RemoteAddr = remote
		r.Header.Set("Authorization", "Bearer very-secret")
		g.Refuse(w, r, fault.Wrap(fault.Unauthorized, "a valid token is required", errors.New("very-secret")))
	}
	if w.Header().Get("WWW-Authenticate") == "" {
		t.Error("the reply does not say which credential is needed")
	}
	got := lines()
	line := `{"event":"auth","decision":"deny","reason":"a valid token is required",`
	wantLines(t, got, line+`"remote":"192.0.2.1"}`, line+`"remote":"@"}`, line+`"remote":"192.0.2.1","count":2}`)
}

func TestRequestsBeyondALimitAreCounted(t *testing.T) {
	log, lines := openAudit(t, &auditBuffer{}, audit.Continue)
	g := New(Deps{Audit: log})
	limited := fault.New(fault.RateLimited, "too many requests")
	for range 3 {
		g.recordLimit(context.Background(), auth.LocalCaller(), readFile, limited)
	}
	line := `{"event":"limit",` + anonymousLine + `,"method":"tools/call","decision":"deny","reason":"too many requests",`
	wantLines(t, lines(), line+`"server":"files","tool":"read"}`, line+`"count":2}`)
}

func TestReadingBackIsRecorded(t *testing.T) {
	log, lines := openAudit(t, &auditBuffer{}, audit.Continue)
	g := New(Deps{Audit: log})
	ctx := context.Background()
	unknown := fault.New(fault.UnknownHandle, "unknown")
	g.RecordRead(ctx, auth.LocalCaller(), "prn_1", 12, nil)
	g.RecordRead(ctx, auth.LocalCaller(), "prn_1", 0, fault.New(fault.Timeout, "slow"))
	for range 4 { // guesses
		g.RecordRead(ctx, auth.LocalCaller(), "", 0, unknown)
	}
	line := `{"event":"read",` + anonymousLine + `,"method":"recover_text",`
	wantLines(t, lines(),
		line+`"decision":"allow","outcome":"ok","chars_out":12,"ids":["prn_1"]}`,
		line+`"decision":"allow","outcome":"timeout","ids":["prn_1"]}`,
		line+`"decision":"deny","outcome":"unknown_handle"}`,
		line+`"decision":"deny","count":3}`)
}
