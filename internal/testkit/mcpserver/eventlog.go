//go:build linux

package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

// Event is one line of the event log: something a server process did or saw.
type Event struct {
	At     int64  `json:"at"` // Unix nanoseconds
	What   string `json:"what"`
	Server string `json:"server,omitempty"`
	PID    int    `json:"pid"`
	PPID   int    `json:"ppid,omitempty"`
	Born   uint64 `json:"born,omitempty"` // start time in clock ticks: identifies the process if its pid is reused
	Nonce  string `json:"nonce,omitempty"`
	ID     string `json:"id,omitempty"` // request id as received
	Note   string `json:"note,omitempty"`
}

// Time is when the event was recorded.
func (e Event) Time() time.Time { return time.Unix(0, e.At) }

// The kinds of events.
const (
	Started    = "start"     // a process started
	Listening  = "listen"    // it received its first message
	Executed   = "exec"      // a tool was called
	Finished   = "finish"    // a tool call completed
	Cancelled  = "cancel"    // the client cancelled a request; ID is the request's id
	HungUp     = "hangup"    // the client closed the call's stream
	Subscribed = "subscribe" // Note is the URI
	Violated   = "violation" // the client broke the protocol; Note says how
	Called     = "method"    // a request or notification was received; Note is its method
)

// EventLog is a file to which many processes append, one line per write.
type EventLog struct {
	Path string
	file *os.File
}

func openEventLog(path string) (*EventLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the event log: %w", err)
	}
	return &EventLog{path, f}, nil
}

// NewEventLog creates an event log for a test.
func NewEventLog(t *testing.T) *EventLog {
	t.Helper()
	l, err := openEventLog(filepath.Join(t.TempDir(), "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.file.Close() })
	return l
}

// record appends an event. A server that cannot record is useless and panics.
func (l *EventLog) record(e Event) {
	e.At = time.Now().UnixNano()
	if e.PID == 0 {
		e.PID = os.Getpid()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n')) // O_APPEND: lines of several processes do not mix
	}
	if err != nil {
		panic("the event log cannot be written: " + err.Error())
	}
}

// Events returns all events, or those of the given kinds.
func (l *EventLog) Events(kinds ...string) []Event {
	data, err := os.ReadFile(l.Path)
	if err != nil {
		return nil
	}
	var out []Event
	for line := range bytes.Lines(data) {
		var e Event
		if json.Unmarshal(line, &e) == nil && (len(kinds) == 0 || slices.Contains(kinds, e.What)) {
			out = append(out, e)
		}
	}
	return out
}

// Latest returns the last event of a kind from a server.
func (l *EventLog) Latest(what, server string) (Event, bool) {
	var last Event
	for _, e := range l.Events(what) {
		if e.Server == server {
			last = e
		}
	}
	return last, last.What != ""
}

// Executions returns the tool calls by nonce.
func (l *EventLog) Executions() map[string][]Event {
	runs := map[string][]Event{}
	for _, e := range l.Events(Executed) {
		runs[e.Nonce] = append(runs[e.Nonce], e)
	}
	return runs
}

// PIDs returns the processes of a server, oldest first.
func (l *EventLog) PIDs(server string) []int {
	var out []int
	for _, e := range l.Events(Started) {
		if e.Server == server {
			out = append(out, e.PID)
		}
	}
	return out
}

// RequireNoViolations fails the test if the gateway broke the protocol towards a server.
func (l *EventLog) RequireNoViolations(t *testing.T) {
	t.Helper()
	seen := map[string]int{}
	for _, e := range l.Events(Violated) {
		seen[e.Server+": "+e.Note]++
	}
	for what, n := range seen {
		t.Errorf("the gateway broke the protocol, %s times: %s", strconv.Itoa(n), what)
	}
}

// isRunning reports whether the process of a start event still runs.
func (e Event) isRunning() bool { return process.IsRunning(e.PID, e.Born) }

// Survivors returns the start events of processes that still run.
func (l *EventLog) Survivors() []Event {
	var out []Event
	for _, e := range l.Events(Started) {
		if e.Born != 0 && e.PID != os.Getpid() && e.isRunning() {
			out = append(out, e)
		}
	}
	return out
}

// KillSurvivors kills the processes that a failed scenario left behind, by their pids.
func (l *EventLog) KillSurvivors() {
	for _, e := range l.Survivors() {
		if p, err := os.FindProcess(e.PID); err == nil {
			_ = p.Kill()
		}
	}
}
