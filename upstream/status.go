package upstream

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/child"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/oauth"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

// State is what a server is doing.
type State string

// The states of a server.
const (
	StateStopped      State = "stopped"      // not started, or closed
	StateStarting     State = "starting"     // the first attempt to connect is under way
	StateUp           State = "up"           // it can be called
	StateDown         State = "down"         // it failed; it is tried again
	StateUnauthorized State = "unauthorized" // it needs the authorization of a user; see ctxgate auth
	StatePerCaller    State = "per-caller"   // its connections carry the credentials of callers: there is none without one
)

// Status is the state of a server, for people. Its texts are one line each, without secrets.
type Status struct {
	ID        string
	Transport string // stdio, http, sse or rpc
	State     State
	Since     time.Time // when it came into that state; a server that fails again and again is down since it failed first
	Revision  string    // of the last handshake; "" before the first
	Protocol  mcp.Protocol
	Restarts  int // how often its connection was lost or not made, and it was started again

	// Of a server that is down, or was:
	Failures    int       // in a row
	LastError   string    // why the last connection was lost or not made; "" if that never happened
	LastErrorAt time.Time // when
	Problem     string    // the same in plain words, without addresses, paths and what a remote server wrote: agents may read it
	LastStderr  string    // the line of the child's stderr that says most about it; "" for none
	NextAttempt time.Time // zero while one is under way

	Stderr         []string // the last lines of the child that runs, or else of the last one
	OwnConnections int      // connections or child processes that serve a single client each

	CredentialConnections int // connections or child processes that carry the credentials of a tenant or a caller
}

// Status returns the server's state.
func (s *Server) Status() Status {
	s.mu.Lock()
	shared, own, closed := s.shared, len(s.conns), s.closed
	s.mu.Unlock()
	st := Status{ID: s.entry.ID, Transport: s.entry.transportName(), State: StateStopped, OwnConnections: own}
	st.CredentialConnections = int(s.credentialConns.Load())
	if shared == nil {
		if s.IsPerCaller() && !closed {
			st.State = StatePerCaller
		}
		return st
	}
	shared.fillStatus(&st)
	if closed {
		st.State = StateStopped
	}
	return st
}

func (e ServerConfig) transportName() string {
	switch {
	case len(e.Command) > 0:
		return "stdio"
	case e.RPC != "":
		return "rpc"
	}
	return e.Transport
}

// fillStatus adds the state of the connection.
func (m *ManagedConn) fillStatus(st *Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st.Since, st.Restarts, st.Failures = m.stateSince, m.restartCount, m.failureCount
	st.Revision, st.Protocol = m.lastHandshake.Version, m.lastHandshake.Protocol
	if m.lastFailure != nil {
		st.LastError, st.LastErrorAt, st.LastStderr = oneLine(m.lastFailure.Error()), m.failedAt, telltaleLine(m.lastStderr)
		st.Problem = problemOf(m.lastFailure)
	}
	for _, line := range m.stderr.lines() {
		st.Stderr = append(st.Stderr, redactLine(line))
	}
	if len(st.Stderr) == 0 {
		for _, line := range m.lastStderr {
			st.Stderr = append(st.Stderr, redactLine(line))
		}
	}
	if m.conn != nil && m.conn.Err() != nil { // the supervisor is about to notice
		st.State, st.Since, st.LastErrorAt = StateDown, time.Now(), time.Now()
		st.LastError, st.LastStderr, st.Problem = oneLine(m.conn.Err().Error()), telltaleLine(m.stderr.lines()), problemOf(m.conn.Err())
		return
	}
	switch _, missing := errors.AsType[*oauth.NotAuthorizedError](m.lastFailure); {
	case m.conn != nil:
		st.State, st.Failures = StateUp, 0
	case m.failureCount == 0 && !m.wasUp, m.isReplacing:
		st.State = StateStarting
	case missing:
		st.State, st.NextAttempt = StateUnauthorized, m.nextAttempt
	default:
		st.State, st.NextAttempt = StateDown, m.nextAttempt
	}
}

// problemOf says in plain words what is wrong with a server.
func problemOf(err error) string {
	if ended, ok := errors.AsType[*wire.EndedError](err); ok {
		if name, isSignal := strings.CutPrefix(ended.Err.Error(), "signal: "); isSignal {
			return "its process was ended by a signal (" + name + ")"
		}
		return "its process ended with " + ended.Err.Error()
	}
	if reply, ok := errors.AsType[interface {
		error
		HTTPStatus() int
	}](err); ok {
		return fmt.Sprintf("it answers with HTTP status %d", reply.HTTPStatus())
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "its host name was not found"
	}
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "its command or working directory was not found"
	case errors.Is(err, fs.ErrPermission):
		return "its command may not be run"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	}
	text := ""
	for e := err; e != nil; e = errors.Unwrap(e) { // the innermost says most
		if classified, ok := e.(*fault.Error); ok && classified.Public != "" { //nolint:errorlint // each of the chain is looked at
			text = classified.Public
		}
	}
	return text
}

const (
	maxStderrLines = 20  // that are kept of a child
	maxStatusText  = 300 // bytes of one line in a Status
)

// stderrTail is the last lines of a child's stderr, as it wrote them. The connection's lock guards it.
type stderrTail struct{ kept []string }

func (t *stderrTail) addLine(line string) {
	if strings.TrimSpace(line) == "" {
		return
	}
	if len(t.kept) == maxStderrLines {
		t.kept = append(t.kept[:0:0], t.kept[1:]...)
	}
	t.kept = append(t.kept, line)
}

func (t *stderrTail) lines() []string { return t.kept }

// noteStderr takes a line of the child's stderr.
func (m *ManagedConn) noteStderr(line string) {
	m.mu.Lock()
	m.stderr.addLine(line)
	m.mu.Unlock()
}

// Lines that end what a program prints when it crashes, and do not say why.
var (
	crashTrailer = regexp.MustCompile(`^(Node\.js v|\s+at |\s+File "|\s*\^+\s*$|[\s{}\[\]();,]*$|npm (error|ERR!) A complete log of this run)`)
	crashReason  = regexp.MustCompile(`(?i)\b(\w*error|\w*exception|fatal|panic|cannot|can't|could not|not found|no such|denied|failed|missing|required|invalid|refused|unable)\b`)
)

// telltaleLine is the line of a child's last ones that says most about its end: the last that looks like a reason, or else
// the last.
func telltaleLine(lines []string) string {
	last := ""
	for i := len(lines) - 1; i >= 0; i-- {
		if crashTrailer.MatchString(lines[i]) {
			continue
		}
		if crashReason.MatchString(lines[i]) {
			return redactLine(lines[i])
		}
		if last == "" {
			last = redactLine(lines[i])
		}
	}
	return last
}

// redactLine is a line of stderr without secrets, shortened.
func redactLine(line string) string {
	if len(line) >= child.MaxStderrLine {
		return shortLine(secret.RedactPrefix(line))
	}
	return oneLine(line)
}

// oneLine is a text as one line without secrets, shortened.
func oneLine(text string) string { return shortLine(secret.Redact(text)) }

func shortLine(text string) string {
	return fault.ClipTo(strings.Join(strings.Fields(text), " "), maxStatusText)
}
