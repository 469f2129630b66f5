package hub

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/jsonscan"
)

const (
	streamMessages = 256              // that wait for a client to read
	streamBytes    = 4 << 20          // and their size; one alone may be larger
	keepAlive      = 15 * time.Second // between signs of life on a quiet stream
)

var errSlow = fault.New(fault.Full, "the client does not read fast enough")
var errNoStream = fault.New(fault.Unavailable, "there is no stream to the client")

// stream is the answer to one HTTP request: a JSON reply or, once a message is sent before it, an
// event stream. Messages wait in a queue of their own, so that a slow client holds up nobody.
type stream struct {
	w       http.ResponseWriter
	cfg     front.HTTP
	accepts bool             // the client takes an event stream
	memory  *membudget.Scope // of the request: what waits for its client is charged to it

	mu     sync.Mutex
	queue  []*message
	size   int
	begun  bool // the pump is running, or has run
	manual bool // the pump is started by run, not by the first message
	closed bool
	wake   chan struct{}
	done   chan struct{} // the pump has ended
}

func newStream(w http.ResponseWriter, r *http.Request, cfg front.HTTP) *stream {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return &stream{
		w: w, cfg: cfg, memory: membudget.From(r.Context()), accepts: strings.Contains(accept, "text/event-stream") || strings.Contains(accept, "*/*"),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

func (s *stream) send(parts ...[]byte) error {
	m, err := charged(s.memory, parts)
	if err != nil {
		return err
	}
	defer m.release()
	return s.pass(m)
}

func (s *stream) pass(m *message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed || !s.accepts:
		return errNoStream
	case len(s.queue) >= streamMessages, s.size+len(m.body) > streamBytes && len(s.queue) > 0:
		return errSlow
	}
	m.hold()
	s.queue = append(s.queue, m)
	s.size += len(m.body)
	if !s.begun && !s.manual {
		s.begun = true
		go s.pump(nil, 0)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// pump writes what is queued until the stream is closed and empty, or the client is gone, with a
// sign of life now and then where the stream is quiet.
func (s *stream) pump(gone <-chan struct{}, idle time.Duration) {
	defer close(s.done)
	defer s.discard()
	s.head()
	var tick <-chan time.Time
	if idle > 0 {
		t := time.NewTicker(idle)
		defer t.Stop()
		tick = t.C
	}
	for {
		m, over := s.next()
		switch {
		case m != nil:
			written := s.event(m.body)
			m.release()
			if !written {
				s.shut()
				return
			}
			continue
		case over:
			return
		}
		select {
		case <-s.wake:
		case <-gone:
			s.shut()
			return
		case <-tick:
			front.BeginReply(s.w, s.cfg, 0)
			if sse.Comment(s.w, "") != nil || s.flush() != nil {
				s.shut()
				return
			}
		}
	}
}

func (s *stream) next() (m *message, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, s.closed
	}
	m = s.queue[0]
	s.queue[0] = nil // or the array would keep it
	s.queue = s.queue[1:]
	s.size -= len(m.body)
	return m, false
}

// discard drops what is queued and takes no more.
func (s *stream) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, m := range s.queue {
		m.release()
	}
	s.queue, s.size = nil, 0
}

// revoke ends the stream at once: who opened it may not listen any more.
func (s *stream) revoke() {
	s.discard()
	s.shut()
}

func (s *stream) head() {
	front.BeginReply(s.w, s.cfg, 0)
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	_ = s.flush()
}

func (s *stream) event(parts ...[]byte) bool {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	front.BeginReply(s.w, s.cfg, int64(n))
	return sse.WriteData(s.w, "message", "", parts...) == nil && s.flush() == nil
}

func (s *stream) flush() error { return http.NewResponseController(s.w).Flush() }

// shut takes no more messages.
func (s *stream) shut() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// finish sends the reply, after everything that was queued before it and before nothing else.
func (s *stream) finish(status int, r reply) {
	s.shut()
	s.mu.Lock()
	begun := s.begun
	s.mu.Unlock()
	if begun {
		<-s.done
		s.event(partsOf(r)...)
		return
	}
	size := jsonscan.SplicedLen(r.body, r.edits)
	front.BeginReply(s.w, s.cfg, int64(size))
	s.w.Header().Set("Content-Type", "application/json")
	s.w.Header().Set("Content-Length", strconv.Itoa(size))
	s.w.WriteHeader(status)
	_ = jsonscan.Splice(s.w, r.body, r.edits)
}

// partsOf is a reply in pieces, so that it is never put together.
func partsOf(r reply) [][]byte {
	var parts [][]byte
	at := 0
	for _, e := range r.edits {
		parts = append(parts, r.body[at:e.Start], e.Text)
		at = e.End
	}
	return append(parts, r.body[at:])
}

// run keeps a stream open that carries no reply, until the client leaves or the hub ends it with
// last, which may be nil.
func (s *stream) run(ctx context.Context, closing <-chan struct{}, last func() []byte) {
	s.mu.Lock()
	s.begun = true
	s.mu.Unlock()
	go func() {
		select {
		case <-closing:
			if last != nil {
				_ = s.send(last())
			}
			s.shut()
		case <-s.done:
		}
	}()
	s.pump(ctx.Done(), keepAlive)
}
