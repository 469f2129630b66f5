package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/child"
	"github.com/ctxgate/ctxgate/internal/frame"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
)

const (
	queueFullWait = time.Second           // how long a message waits for a child that does not read its stdin
	exitWait      = time.Second / 2       // how long to wait for the exit status after stdout ended
	minQueuePoll  = 5 * time.Millisecond  // between two attempts to queue a message
	maxQueuePoll  = 40 * time.Millisecond // the same, after several attempts
	maxJunkInRow  = 10_000                // lines in a row that are not messages, before the child is stopped
)

// Stdio is the wire to a child process: its stdin and stdout.
type Stdio struct {
	Options
	child       *child.Child
	in          *frame.Reader
	out         *frame.Writer
	grace       time.Duration
	hasSpoken   atomic.Bool  // it has sent a message
	junkInRow   atomic.Int64 // lines in a row that were not messages
	stderrLimit *rate.Limiter
	stderrDrops atomic.Int64 // lines of stderr that were not logged
}

// ChildOptions say which child process to start.
type ChildOptions struct {
	Command []string
	Dir     string        // the working directory; "" for the gateway's own
	Env     []string      // the complete environment
	Grace   time.Duration // how long it may take to stop before it is killed
	Framing frame.Framing // to use until the child has sent its first message

	OnStderr func(line string) // gets every line of stderr as it was written; may be nil
}

// StartStdio starts a child process. The caller runs Read in a goroutine once the connection has its wire.
func StartStdio(o Options, c ChildOptions) (*Stdio, error) {
	s := &Stdio{Options: o, grace: c.Grace, stderrLimit: rate.NewLimiter(20, 200)}
	onLine := s.logStderr
	if c.OnStderr != nil {
		onLine = func(line string) {
			c.OnStderr(line)
			s.logStderr(line)
		}
	}
	started, err := child.Start(child.Spec{Command: c.Command, Dir: c.Dir, Env: c.Env, OnStderrLine: onLine})
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, "the server cannot be started", err)
	}
	s.child = started
	s.in = frame.NewReader(started.Stdout(), o.MaxReply, func(line []byte) {
		o.Receiver.Malformed("a server printed a line that is not a message", fmt.Errorf("%.80q", line))
		s.countJunk()
	})
	s.in.ChargeTo(o.Memory)
	s.out = frame.NewWriter(started.Stdin(), frame.Limits{}, func() frame.Framing {
		if framing, known := s.Framing(); known {
			return framing
		}
		return c.Framing
	})
	return s, nil
}

// Read reads the child's stdout until it ends, and then ends the connection.
func (s *Stdio) Read() {
	defer s.recoverPanic(nil)
	defer s.child.Stdout().Close()
	for {
		msg, err := s.in.Next()
		var big *frame.TooLargeError
		switch {
		case errors.As(err, &big):
			err := big.Err // there was no memory for it
			if err == nil {
				err = tooLarge(big)
			}
			s.Receiver.Oversized(big.Head, big.Tail, err)
		case err != nil:
			s.Receiver.End(fault.Wrap(fault.Unavailable, "the server went away during the call", s.exitReason(err)))
			return
		default:
			s.hasSpoken.Store(true)
			if s.Receiver.Receive(msg, s.in.ChargedBytes()) {
				s.junkInRow.Store(0)
			} else {
				s.countJunk()
			}
		}
	}
}

// Framing returns the framing that the child uses; false when it has not sent a message yet.
func (s *Stdio) Framing() (f frame.Framing, known bool) {
	if !s.hasSpoken.Load() {
		return 0, false
	}
	return s.in.Framing(), true
}

// exitReason is why stdout ended. The exit status says more than the end of file.
func (s *Stdio) exitReason(readErr error) error {
	why := fmt.Errorf("stdout: %w", readErr)
	if errors.Is(readErr, io.EOF) {
		why = errors.New("the child closed its stdout")
	}
	select {
	case <-s.child.Done():
		if e := s.child.Err(); e != nil {
			why = &EndedError{e}
		}
	case <-time.After(exitWait):
	}
	return why
}

// EndedError says how a child process ended: its exit status, or the signal that ended it.
type EndedError struct{ Err error }

func (e *EndedError) Error() string { return "the child ended: " + e.Err.Error() }

// Unwrap returns the status.
func (e *EndedError) Unwrap() error { return e.Err }

// countJunk stops a child that prints only output that is not JSON-RPC.
func (s *Stdio) countJunk() {
	if s.junkInRow.Add(1) == maxJunkInRow {
		s.Receiver.End(fault.New(fault.BadReply, "the server prints only lines that are not JSON-RPC messages"))
	}
}

// Send queues a message for the child. In a burst it waits a moment for the child to read; if the child
// does not, only this message fails. The pauses get longer, since hundreds of waiting calls would take
// the processor from other servers.
func (s *Stdio) Send(_ Request, msg []byte) error {
	deadline := time.Now().Add(queueFullWait)
	for pause := minQueuePoll; ; pause = min(2*pause, maxQueuePoll) {
		err := s.out.Send(msg)
		switch {
		case err == nil:
			return nil
		case !time.Now().After(deadline): // try again; a dead child is noticed meanwhile
		case errors.Is(err, frame.ErrFull):
			return fault.Wrap(fault.Full, "the server does not take any more", err)
		default:
			return fault.Wrap(fault.Unavailable, "the server is not available", err)
		}
		select {
		case <-time.After(pause):
		case <-s.Receiver.Done():
			return NotStarted(ConnLost(s.Receiver.Err()))
		}
	}
}

// Cancel sends a cancellation. initialize is the one request that must not be canceled.
func (s *Stdio) Cancel(req Request, reason string) {
	if req.Method() != mcp.Initialize {
		_ = s.out.Send(cancelNotification(req.ID(), reason))
	}
}

// Close stops the child, end of input first, and waits until it is gone.
func (s *Stdio) Close() {
	_ = s.out.Close(100 * time.Millisecond)
	s.child.Stop(s.grace)
}

// logStderr logs a line of the child's stderr at the level that the line names. Of a flood it logs the
// first lines, and how many were dropped.
func (s *Stdio) logStderr(line string) {
	if !s.stderrLimit.Allow() {
		s.stderrDrops.Add(1)
		return
	}
	redact := secret.Redact
	if len(line) >= child.MaxStderrLine {
		redact = secret.RedactPrefix
	}
	attrs := []any{"server", s.Server, "stderr", redact(line)}
	if n := s.stderrDrops.Swap(0); n > 0 {
		attrs = append(attrs, "lines_dropped", n)
	}
	slog.Log(context.Background(), stderrLevel(line), "server says", attrs...)
}

// levelWord matches the level at the start of a log line, in the common forms:
// "ERROR something", "[warn] something", "2026-01-02 03:04:05,678 - name - WARNING - something",
// "level=error …". A level name later in the line is an ordinary word.
var levelWord = regexp.MustCompile(`^` +
	`(?:\S{0,64}\d\S{0,64}[ T]+){0,3}` + // dates and times
	`(?:[-|] +)?(?:[\w.]{1,64} +[-|] +|[\w.]{1,64}: +|\w{1,64}\.[\w.]{0,64} +)?` + // a logger's name
	`(?:[\[(<]?` + `(?i:(?:level|lvl|severity)=)?"?)` +
	`(TRACE|DEBUG|INFO|INFORMATION|NOTICE|WARN|WARNING|ERR|ERROR|CRIT|CRITICAL|FATAL|PANIC|ALERT|EMERG|EMERGENCY|` +
	`(?:[Tt]race|[Dd]ebug|[Ii]nfo|[Nn]otice|[Ww]arn(?:ing)?|[Ee]rr(?:or)?|[Cc]rit(?:ical)?|[Ff]atal|[Pp]anic))` +
	`(?:[\])>:|",]|\s+-|\s|$)`)

// levelMember matches the level in a line that is a JSON object: {"level":"error",…}.
var levelMember = regexp.MustCompile(`^\{.{0,512}?"(?:level|lvl|severity|levelname)" *: *"?([A-Za-z0-9]+)`)

// stderrLevel is the level to log a line of stderr at: the level that it names, else INFO.
func stderrLevel(line string) slog.Level {
	line = strings.TrimSpace(line)
	found := levelMember.FindStringSubmatch(line)
	if found == nil && !strings.HasPrefix(line, "{") {
		found = levelWord.FindStringSubmatch(line)
	}
	if found == nil {
		return slog.LevelInfo
	}
	switch word := strings.ToUpper(found[1]); {
	case word == "TRACE", word == "DEBUG", word == "10", word == "20": // the numbers are pino's
		return slog.LevelDebug
	case strings.HasPrefix(word, "WARN"), word == "40":
		return slog.LevelWarn
	case strings.HasPrefix(word, "ERR"), strings.HasPrefix(word, "CRIT"), word == "FATAL", word == "PANIC", word == "ALERT", strings.HasPrefix(word, "EMERG"), word == "50", word == "60":
		return slog.LevelError
	}
	return slog.LevelInfo
}
