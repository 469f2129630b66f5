package wire

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/mcp"
)

const (
	firstReconnect  = time.Second            // to a stream that broke off, if the server sent no retry time
	maxReconnect    = 30 * time.Second       // the same, after many attempts
	minReconnect    = 100 * time.Millisecond // whatever the server sent
	maxEventIDBytes = 4 << 10
)

// streamPosition is how far an event stream was read, and when to reconnect to it.
type streamPosition struct {
	lastEventID string        // "" when the stream cannot be resumed
	retry       time.Duration // as the server sent it
	failedTries int           // attempts in a row that brought no event
}

func (p *streamPosition) advance(e sse.Event) {
	p.failedTries = 0
	if e.Retry > 0 {
		p.retry = e.Retry
	}
	if e.HasID {
		p.lastEventID = e.ID
		if len(e.ID) > maxEventIDBytes || strings.ContainsFunc(e.ID, unicode.IsControl) {
			p.lastEventID = "" // it cannot be sent as a header
		}
	}
}

// waitRetry waits before the next attempt: as long as the server asked for, else longer each time, with jitter.
// It returns false when ctx ends first.
func (p *streamPosition) waitRetry(ctx context.Context) bool {
	d := max(p.retry, minReconnect)
	if p.retry == 0 {
		d = min(firstReconnect<<min(p.failedTries, 10), maxReconnect)
		d += rand.N(d / 4)
	}
	p.failedTries++
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// readEvents reads a stream to its end, or to the reply of the request that it belongs to, and closes it.
func (s *StreamableHTTP) readEvents(body io.ReadCloser, req Request, pos *streamPosition) error {
	defer body.Close()
	memory := s.Memory
	if req != nil {
		memory = req.Memory()
	}
	r := sse.NewReader(body, s.MaxReply)
	r.Charge(memory)
	for {
		e, err := r.Next()
		if err != nil {
			return err
		}
		pos.advance(e)
		if e.Name != "" && e.Name != "message" {
			memory.Free(r.Charged())
			continue
		}
		s.deliver(e.Data, req)
		if req == nil || !req.IsFinished() { // the reply stays charged to its request
			memory.Free(r.Charged())
		}
		if req != nil && req.IsFinished() {
			drain(body)
			return nil
		}
	}
}

// openEvents opens the server's own event stream, or resumes the one of pos.
func (s *StreamableHTTP) openEvents(ctx context.Context, pos *streamPosition) (io.ReadCloser, error) {
	extra := http.Header{}
	s.protocol().setHeaders(extra)
	if pos.lastEventID != "" {
		extra.Set(mcp.HeaderLastEvent, pos.lastEventID)
	}
	return s.getEvents(ctx, extra)
}

// resumeEvents reopens a request's stream (2025-11-25, Resumability and Redelivery). It keeps trying while
// the server cannot be reached and the request waits.
func (x *exchange) resumeEvents(ctx context.Context, pos *streamPosition) (io.ReadCloser, error) {
	for pos.waitRetry(ctx) {
		if x.req.IsFinished() { // the reply came on another stream
			return http.NoBody, nil
		}
		body, err := x.openEvents(ctx, pos)
		var refused *statusError
		switch {
		case err == nil:
			return body, nil
		case errors.As(err, &refused):
			x.noteForgotten(x.protocol(), refused, false)
			return nil, fault.Wrap(fault.Unavailable, "the server went away during the call", refused)
		}
		slog.Debug("event stream cannot be resumed yet", "server", x.Server, "error", err)
	}
	return nil, CallError(ctx, ctx.Err())
}

// readServerEvents reads what a legacy server sends outside any request, as long as the connection lasts
// and the server offers it. It calls answered when the server has answered the first attempt.
func (s *StreamableHTTP) readServerEvents(answered func()) {
	defer s.recoverPanic(nil)
	defer answered()
	var pos streamPosition
	for wasOpen := false; ; {
		body, err := s.openEvents(s.ctx, &pos)
		answered()
		var refused *statusError
		switch {
		case err == nil:
			wasOpen = true
			if err = s.readEvents(body, nil, &pos); errors.Is(err, sse.ErrTooLarge) {
				s.Receiver.Malformed("a server's message is too large", err)
				pos.lastEventID = "" // else it would come again
			}
		case errors.As(err, &refused) && !wasOpen:
			return // the server does not offer a stream
		case errors.As(err, &refused) && refused.status == http.StatusNotFound:
			err := s.Receiver.Ping(s.ctx) // the session may be gone: the ping finds out
			slog.Debug("server closed its event stream", "server", s.Server, "error", err)
		}
		if !pos.waitRetry(s.ctx) {
			return
		}
	}
}
