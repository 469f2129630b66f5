//go:build linux

package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// event is one line of the ledger: something a fake did or saw.
type event struct {
	At     int64  `json:"at"` // Unix nanoseconds
	What   string `json:"what"`
	Server string `json:"server,omitempty"`
	PID    int    `json:"pid"`
	PPID   int    `json:"ppid,omitempty"`
	Born   uint64 `json:"born,omitempty"` // the kernel's start time, so that a reused pid is no survivor
	Nonce  string `json:"nonce,omitempty"`
	ID     string `json:"id,omitempty"` // the request id as the fake saw it
	Note   string `json:"note,omitempty"`
}

func (e event) time() time.Time { return time.Unix(0, e.At) }

// What a ledger can say.
const (
	didStart     = "start"     // a process began
	didListen    = "listen"    // it reads its first message
	didExec      = "exec"      // a tool ran
	didFinish    = "finish"    // and came to its end undisturbed
	didCancel    = "cancel"    // the far side took a call back; ID is the id it named
	didHangUp    = "hangup"    // the far side closed the call's stream
	didSubscribe = "subscribe" // Note is the URI
	didViolate   = "violation" // the far side broke the protocol; Note says how
	didMethod    = "method"    // a request or notification came; Note is its method
)

// ledger is a file that many processes append to, one line a write.
type ledger struct {
	path string
	file *os.File
}

func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	return &ledger{path, f}, nil
}

// newLedger makes a ledger for a test.
func newLedger(t *testing.T) *ledger {
	t.Helper()
	l, err := openLedger(filepath.Join(t.TempDir(), "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.file.Close() })
	return l
}

// note writes an event down. A fake that cannot is no use to anybody, and ends.
func (l *ledger) note(e event) {
	e.At = time.Now().UnixNano()
	if e.PID == 0 {
		e.PID = os.Getpid()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n')) // O_APPEND: whole lines, whoever else writes
	}
	if err != nil {
		panic("the ledger cannot be written: " + err.Error())
	}
}

// events reads the ledger, or those of some kinds.
func (l *ledger) events(kinds ...string) []event {
	data, err := os.ReadFile(l.path)
	if err != nil {
		return nil
	}
	var out []event
	for line := range bytes.Lines(data) {
		var e event
		if json.Unmarshal(line, &e) == nil && wants(kinds, e.What) {
			out = append(out, e)
		}
	}
	return out
}

func wants(kinds []string, what string) bool {
	for _, k := range kinds {
		if k == what {
			return true
		}
	}
	return len(kinds) == 0
}

// latest is the last event of a kind from a server.
func (l *ledger) latest(what, server string) (event, bool) {
	var last event
	for _, e := range l.events(what) {
		if e.Server == server {
			last = e
		}
	}
	return last, last.What != ""
}

// executions counts how often each nonce ran, and where.
func (l *ledger) executions() map[string][]event {
	runs := map[string][]event{}
	for _, e := range l.events(didExec) {
		runs[e.Nonce] = append(runs[e.Nonce], e)
	}
	return runs
}

// pids are the processes of a server, oldest first.
func (l *ledger) pids(server string) []int {
	var out []int
	for _, e := range l.events(didStart) {
		if e.Server == server {
			out = append(out, e.PID)
		}
	}
	return out
}

// obedient fails the test when the gateway broke the protocol towards a fake.
func (l *ledger) obedient(t *testing.T) {
	t.Helper()
	seen := map[string]int{}
	for _, e := range l.events(didViolate) {
		seen[e.Server+": "+e.Note]++
	}
	for what, n := range seen {
		t.Errorf("the gateway broke the protocol, %s times: %s", strconv.Itoa(n), what)
	}
}
