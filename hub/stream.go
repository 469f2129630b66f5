package hub

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/retryafter"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/jsonscan"
)

const (
	maxStreamQueue = 256              // that wait for a client to read
	maxStreamBytes = 4 << 20          // and their size; one alone may be larger
	keepAlive      = 15 * time.Second // between comments on a quiet stream
)

var errQueueFull = fault.New(fault.Full, "the client does not read fast enough")

// ErrNoStream says that a client has no stream open.
var ErrNoStream = fault.New(fault.Unavailable, "there is no stream to the client")

// Stream is the answer to one HTTP request: a JSON reply or, once a message is sent before it, an
// event stream. Messages wait in a queue, so that a slow client delays no other client.
type Stream struct {
	w       http.ResponseWriter
	cfg     front.HTTP
	accepts bool             // the client accepts an event stream
	memory  *membudget.Scope // of the request: what waits for its client is charged to it

	mu     sync.Mutex
	queue  []*Message
	size   int
	begun  bool // writeQueued is running, or has run
	manual bool // keepOpen starts writeQueued, not the first message
	closed bool
	wake   chan struct{}
	done   chan struct{} // writeQueued has ended
}

// NewStream returns the answer to a request.
func NewStream(w http.ResponseWriter, r *http.Request, cfg front.HTTP) *Stream {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return &Stream{
		w: w, cfg: cfg, memory: membudget.FromContext(r.Context()), accepts: strings.Contains(accept, "text/event-stream") || strings.Contains(accept, "*/*"),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// AcceptsEvents reports whether the client accepts an event stream.
func (s *Stream) AcceptsEvents() bool { return s.accepts }

// Send queues a message that the request's memory scope holds.
func (s *Stream) Send(parts ...[]byte) error {
	m, err := NewMessage(s.memory, parts...)
	if err != nil {
		return err
	}
	defer m.Release()
	return s.SendMessage(m)
}

// SendMessage queues a message that others may hold too.
func (s *Stream) SendMessage(m *Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed || !s.accepts:
		return ErrNoStream
	case len(s.queue) >= maxStreamQueue, s.size+len(m.body) > maxStreamBytes && len(s.queue) > 0:
		return errQueueFull
	}
	m.Retain()
	s.queue = append(s.queue, m)
	s.size += len(m.body)
	if !s.begun && !s.manual {
		s.begun = true
		go s.writeQueued(nil, 0)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// writeQueued writes what is queued until the stream is closed and empty, or the client is gone. A quiet stream gets
// a comment at every keepAlive interval, if that is not 0.
func (s *Stream) writeQueued(gone <-chan struct{}, keepAlive time.Duration) {
	defer close(s.done)
	defer s.discard()
	front.SetReplyDeadline(s.w, s.cfg, 0)
	head := s.w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-cache")
	head.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	_ = s.flush()
	var tick <-chan time.Time
	if keepAlive > 0 {
		t := time.NewTicker(keepAlive)
		defer t.Stop()
		tick = t.C
	}
	for {
		m, over := s.dequeue()
		switch {
		case m != nil:
			written := s.writeEvent(m.body)
			m.Release()
			if !written {
				s.Close()
				return
			}
			continue
		case over:
			return
		}
		select {
		case <-s.wake:
		case <-gone:
			s.Close()
			return
		case <-tick:
			front.SetReplyDeadline(s.w, s.cfg, 0)
			if sse.Comment(s.w, "") != nil || s.flush() != nil {
				s.Close()
				return
			}
		}
	}
}

// dequeue returns the next message, or whether there will be none.
func (s *Stream) dequeue() (m *Message, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, s.closed
	}
	m = s.queue[0]
	s.queue[0] = nil // or the array would hold it
	s.queue = s.queue[1:]
	s.size -= len(m.body)
	return m, false
}

// discard drops what is queued and takes no more messages.
func (s *Stream) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, m := range s.queue {
		m.Release()
	}
	s.queue, s.size = nil, 0
}

func (s *Stream) writeEvent(parts ...[]byte) bool {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	front.SetReplyDeadline(s.w, s.cfg, int64(n))
	return sse.WriteData(s.w, "message", "", parts...) == nil && s.flush() == nil
}

func (s *Stream) flush() error { return http.NewResponseController(s.w).Flush() }

// Close ends the stream once what is queued is written.
func (s *Stream) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Finish writes the reply, after everything that is queued, and ends the stream.
func (s *Stream) Finish(status int, r Reply) {
	s.Close()
	s.mu.Lock()
	begun := s.begun
	s.mu.Unlock()
	if begun {
		<-s.done
		s.writeEvent(replyParts(r)...)
		return
	}
	size := jsonscan.SplicedLen(r.Body, r.Edits)
	front.SetReplyDeadline(s.w, s.cfg, int64(size))
	s.w.Header().Set("Content-Type", "application/json")
	s.w.Header().Set("Content-Length", strconv.Itoa(size))
	s.w.WriteHeader(status)
	_ = jsonscan.Splice(s.w, r.Body, r.Edits)
}

// finishError writes the error reply of a failure.
func (s *Stream) finishError(ctx context.Context, req *Request, err error) {
	noteFault(ctx, err)
	retryafter.Set(s.w.Header(), fault.RetryAfterOf(err))
	s.Finish(mcpStatus(req.Protocol, err), Reply{Body: AppendFailure(nil, req.ID, err)})
}

// replyParts returns a reply with its edits in pieces, so that it is never copied into one.
func replyParts(r Reply) [][]byte {
	var parts [][]byte
	at := 0
	for _, e := range r.Edits {
		parts = append(parts, r.Body[at:e.Start], e.Text)
		at = e.End
	}
	return append(parts, r.Body[at:])
}

// keepOpen keeps a stream open that carries no reply, until the client leaves or closing is closed; then it sends last,
// which may be nil.
func (s *Stream) keepOpen(ctx context.Context, closing <-chan struct{}, last func() []byte) {
	s.mu.Lock()
	s.begun = true
	s.mu.Unlock()
	go func() {
		select {
		case <-closing:
			if last != nil {
				_ = s.Send(last())
			}
			s.Close()
		case <-s.done:
		}
	}()
	s.writeQueued(ctx.Done(), keepAlive)
}

// openStreams is the open streams that end only when their client leaves, and who opened each.
type openStreams struct {
	mu      sync.Mutex
	callers map[*Stream]auth.Caller
}

// KeepOpen keeps a stream open until its client leaves, the hub stops, a reload revokes the caller's token or it expires. Attach
// connects the stream with what it is to carry: it returns how to disconnect it, and the last message of a stream
// that the hub ends, which may be nil.
func (h *Hub) KeepOpen(ctx context.Context, s *Stream, caller auth.Caller, attach func() (detach func(), last func() []byte, _ error)) error {
	s.manual = true
	t := &h.streams
	t.mu.Lock()
	if t.callers == nil {
		t.callers = map[*Stream]auth.Caller{}
	}
	t.callers[s] = caller
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		delete(t.callers, s)
		t.mu.Unlock()
	}()
	// The caller may have been authenticated under a plan that was replaced meanwhile. The stream is registered first:
	// a reload from now on finds it there, and one before is seen here.
	err := h.plan.Load().Gate.Revalidate(caller)
	var detach func()
	var last func() []byte
	if err == nil {
		detach, last, err = attach()
	}
	if err != nil {
		s.discard()
		return err
	}
	defer detach()
	if expires := caller.Expires(); !expires.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, expires)
		defer cancel()
	}
	s.keepOpen(ctx, h.closing, last)
	return nil
}

// recheckAll ends the streams of callers whose token is no longer valid.
func (t *openStreams) recheckAll(g *gate.Gate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s, caller := range t.callers {
		if g.Revalidate(caller) != nil {
			s.discard()
			s.Close()
		}
	}
}

// messageOverhead is what a message costs beside its bytes.
const messageOverhead = 128

// Message is one encoded message that is queued for one client or for many. Its bytes never change, so all queues
// share them. It is reference-counted: the memory budget holds its bytes once, until the last holder releases it.
type Message struct {
	body  []byte
	scope *membudget.Scope // nil where the message is not counted
	holds atomic.Int32
}

// NewMessage returns a message whose bytes a memory scope holds. Its maker must release it. Nothing is
// counted for a nil scope.
func NewMessage(scope *membudget.Scope, parts ...[]byte) (*Message, error) {
	m := &Message{}
	m.holds.Store(1)
	if len(parts) == 1 {
		m.body = parts[0]
	} else {
		m.body = slices.Concat(parts...)
	}
	if err := scope.Reserve(int64(len(m.body)) + messageOverhead); err != nil {
		return nil, err
	}
	m.scope = scope
	return m, nil
}

// Body returns the encoded message, which must not be changed.
func (m *Message) Body() []byte { return m.body }

// Retain adds a holder.
func (m *Message) Retain() { m.holds.Add(1) }

// Release removes a holder.
func (m *Message) Release() {
	if m.holds.Add(-1) == 0 {
		m.scope.Free(int64(len(m.body)) + messageOverhead)
	}
}

// serverScopes hold the memory of the messages of servers while they are queued for clients.
type serverScopes struct {
	mu     sync.Mutex
	scopes map[string]*membudget.Scope // by server
}

// NewServerMessage returns a message of a server, which its maker must release. It is refused where the
// server's share of the memory budget is used up.
func (h *Hub) NewServerMessage(server string, body []byte) (*Message, error) {
	s := &h.serverScopes
	s.mu.Lock()
	scope := s.scopes[server]
	if scope == nil {
		if s.scopes == nil {
			s.scopes = map[string]*membudget.Scope{}
		}
		scope = h.deps.Budget.Scope("notes of server " + server)
		s.scopes[server] = scope
	}
	s.mu.Unlock()
	return NewMessage(scope, body)
}
