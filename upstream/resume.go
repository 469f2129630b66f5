package upstream

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

	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/mcp"
)

const (
	firstReturn = time.Second            // to a stream that broke off, where its server says nothing
	longReturn  = 30 * time.Second       // the same, after many attempts
	soonest     = 100 * time.Millisecond // whatever the server says
	maxPlace    = 4 << 10                // of an event's id
)

// place is how far a stream was read, and when to come back to it.
type place struct {
	last  string        // the id of the last event; "" when the stream has no places
	retry time.Duration // as the server said
	tries int           // attempts that brought nothing
}

func (p *place) note(e sse.Event) {
	p.tries = 0
	if e.Retry > 0 {
		p.retry = e.Retry
	}
	if e.HasID {
		p.last = e.ID
		if len(e.ID) > maxPlace || strings.ContainsFunc(e.ID, unicode.IsControl) {
			p.last = "" // no header can hold it
		}
	}
}

// pause waits before the next attempt: as long as the server said, else longer each time, and
// never the same for all clients of a server that went away.
func (p *place) pause(ctx context.Context) bool {
	d := max(p.retry, soonest)
	if p.retry == 0 {
		d = min(firstReturn<<min(p.tries, 10), longReturn)
		d += rand.N(d / 4)
	}
	p.tries++
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// events reads a stream to its end or to the reply of the call it belongs to, and closes it.
func (s *stream) events(body io.ReadCloser, f *flight, at *place) error {
	defer body.Close()
	memory := s.conn.memory
	if f != nil {
		memory = f.memory
	}
	r := sse.NewReader(body, s.limit)
	r.Charge(memory)
	for {
		e, err := r.Next()
		if err != nil {
			return err
		}
		at.note(e)
		if e.Name != "" && e.Name != "message" {
			memory.Give(r.Charged())
			continue
		}
		s.deliver(e.Data, f)
		if f == nil || !f.over.Load() { // it was not the reply, which its call holds
			memory.Give(r.Charged())
		}
		if f != nil && f.over.Load() {
			drain(body)
			return nil
		}
	}
}

// open opens the stream of what the server says by itself, or the one that broke off at a place.
func (s *stream) open(ctx context.Context, at *place) (io.ReadCloser, error) {
	extra := http.Header{}
	s.spoken().put(extra)
	if at.last != "" {
		extra.Set(mcp.HeaderLastEvent, at.last)
	}
	return s.get(ctx, s.remote.entry.URL.Reveal(), extra)
}

// resume takes a call's stream up again (2025-11-25, Resumability and Redelivery). A server that
// cannot be reached is tried for as long as somebody waits for the call.
func (x *exchange) resume(ctx context.Context, at *place) (io.ReadCloser, error) {
	for at.pause(ctx) {
		if x.f.over.Load() { // the reply came on another stream
			return http.NoBody, nil
		}
		body, err := x.open(ctx, at)
		var a *answer
		switch {
		case err == nil:
			return body, nil
		case errors.As(err, &a):
			x.forgot(x.spoken(), a, false)
			return nil, a.lost()
		}
		slog.Debug("a stream cannot be taken up again", "server", x.conn.server, "error", err)
	}
	return nil, failure(ctx, ctx.Err())
}

// listen hears what a server of the older era says outside any call, for as long as the
// connection lasts and the server offers it.
func (s *stream) listen(answered func()) {
	defer s.conn.guard(nil)
	defer answered()
	var at place
	for heard := false; ; {
		body, err := s.open(s.life, &at)
		answered()
		var a *answer
		switch {
		case err == nil:
			heard = true
			if err = s.events(body, nil, &at); errors.Is(err, sse.ErrTooLarge) {
				s.conn.odd(nil, "a server's message is too large", err)
				at.last = "" // else it would come again
			}
		case errors.As(err, &a) && !heard:
			return // it is not offered
		case errors.As(err, &a) && a.status == http.StatusNotFound:
			s.ping() // the session may be gone: a call will show it
		}
		if !at.pause(s.life) {
			return
		}
	}
}

func (s *stream) ping() {
	params, _ := mcp.ReadParams(nil)
	_, err := s.conn.Call(s.life, &Call{Method: mcp.Ping, Params: params})
	slog.Debug("a server took its stream away", "server", s.conn.server, "error", err)
}
