package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// A session is what a client of the older era has instead of saying everything in each request.
// Its id is a sealed token that says it all again, so that any replica can serve it: a session
// that a process does not hold is made anew from its id. What only the process that holds it knows
// are the streams that are open, and the questions that wait for an answer.

const (
	maxBacklog   = 256     // messages for a client that has no stream open
	backlogBytes = 1 << 20 // and their size
	maxClient    = 4 << 10 // how much of what a client says of itself goes into its session's id
	sessionIdle  = 30 * time.Minute
)

// session is a client of the older era.
type session struct {
	hub    *Hub
	name   string
	who    auth.Caller
	client mcp.Client
	only   string
	mute   atomic.Bool   // a client of the newer era, on stdio: it hears only what it asked for
	ready  chan struct{} // closed when the client has gone on after initialize: it may be asked from then on
	once   sync.Once     // closes ready
	lists  shownLists    // as the client knows them
	memory *membudget.Scope
	place  place // in the table of sessions

	mu      sync.Mutex
	closed  bool // nothing begins any more, and nothing waits for its client
	level   string
	asks    map[string]chan rpc.Reply
	asked   int
	calls   map[string]context.CancelFunc // requests under way, by their raw id
	stream  outlet                        // for what belongs to no request; nil when none is open
	backlog []*message
	size    int
	subs    map[string]func() // resources that are watched, and how to stop
}

func (h *Hub) newSession(who auth.Caller, client mcp.Client, only, name string) *session {
	return &session{
		hub: h, name: name, who: who, client: client, only: only, asks: map[string]chan rpc.Reply{},
		calls: map[string]context.CancelFunc{}, subs: map[string]func(){}, ready: make(chan struct{}),
	}
}

// received notes that a message of the client came. The client may be asked once it has said that it is
// initialized, or makes any other request than a ping.
func (s *session) received(r *request) {
	if r.Method == mcp.Initialized || !r.IsNotification() && r.Method != mcp.Initialize && r.Method != mcp.Ping {
		s.setReady()
	}
}

func (s *session) setReady() { s.once.Do(func() { close(s.ready) }) }

// awaitReady waits until the client may be asked.
func (s *session) awaitReady(ctx context.Context) error {
	timeout := time.NewTimer(s.hub.plan.Load().Hub.AskTimeout.D())
	defer timeout.Stop()
	select {
	case <-s.ready:
		return nil
	case <-timeout.C:
		return fault.New(fault.Timeout, "the client did not say that it is initialized")
	case <-s.hub.closing:
		return fault.New(fault.Canceled, "the gateway is stopping")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// openSession begins a session, which is in use until it is released, and gives its id.
func (h *Hub) openSession(who auth.Caller, client mcp.Client, only, caller string) (*session, string, error) {
	if len(client.Capabilities)+len(client.Info) > maxClient {
		client.Info = nil
	}
	if len(client.Capabilities) > maxClient {
		return nil, "", errLongCapabilities
	}
	s := h.newSession(who, client, only, rand.Text())
	until := time.Now().Add(h.plan.Load().Hub.SessionTTL.D()).Unix()
	id := h.sessionSeal.Seal([]byte(strings.Join([]string{
		s.name, who.Tenant(), who.Subject(), only, client.Version, string(client.Capabilities), string(client.Info),
		strconv.FormatInt(until, 10),
	}, "\x01")))
	s, err := h.holdSession(s, caller)
	return s, id, err
}

var errNoSession = fault.New(fault.NotFound, "the session is unknown or has expired: initialize again")

// session finds the session of an id, for the client that began it. It is in use until it is
// released.
func (h *Hub) session(id string, who auth.Caller, only, caller string) (*session, error) {
	plain, err := h.sessionSeal.Open(id)
	if err != nil {
		return nil, errNoSession
	}
	part := strings.Split(string(plain), "\x01")
	if len(part) != 8 || part[1] != who.Tenant() || part[2] != who.Subject() || part[3] != only {
		return nil, errNoSession
	}
	if until, err := strconv.ParseInt(part[7], 10, 64); err != nil || time.Now().Unix() > until {
		return nil, errNoSession
	}
	held, ended := h.sessions.find(part[0])
	switch {
	case ended:
		return nil, errNoSession
	case held != nil:
		return held, nil
	}
	client := mcp.Client{Version: part[4], Capabilities: []byte(part[5])}
	if part[6] != "" {
		client.Info = []byte(part[6])
	}
	again := h.newSession(who, client, only, part[0])
	again.setReady() // who has the id has had the reply to initialize
	return h.holdSession(again, caller)
}

// sessionOverhead is what a session costs beside what its client says of itself.
const sessionOverhead = 2 << 10

// holdSession puts a session into the table. What it holds is counted apart from what the caller's
// requests hold: a caller with many idle sessions can still call, and has the oldest of them
// evicted when it begins another.
func (h *Hub) holdSession(s *session, caller string) (*session, error) {
	s.place.caller = caller
	s.memory = h.deps.Budget.Scope("sessions of " + caller)
	size := sessionOverhead + int64(len(s.client.Capabilities)+len(s.client.Info))
	err := s.memory.Take(size)
	for err != nil && h.sessions.evictIdleOf(caller) {
		err = s.memory.Take(size)
	}
	held := s
	if err == nil {
		held, err = h.sessions.hold(h, s)
	}
	if held != s || err != nil {
		s.memory.Release()
	}
	return held, err
}

// close ends what the session has under way. Its connections to servers stay: when the client comes
// back with its id, it finds what it did there.
func (s *session) close() {
	s.mu.Lock()
	s.closed = true
	calls, subs, out := s.calls, s.subs, s.stream
	s.calls, s.subs = map[string]context.CancelFunc{}, map[string]func(){}
	for len(s.backlog) > 0 {
		s.dropFirst()
	}
	s.mu.Unlock()
	for _, cancel := range calls {
		cancel()
	}
	for _, stop := range subs {
		stop()
	}
	if open, ok := out.(*stream); ok {
		open.shut()
	}
	s.memory.Release()
}

func (s *session) setLevel(level string) {
	s.mu.Lock()
	s.level = level
	s.mu.Unlock()
}

func (s *session) logLevel() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

// begin notes a request under way, so that the client can cancel it.
func (s *session) begin(ctx context.Context, id rpc.ID) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	key := string(id.Raw())
	s.mu.Lock()
	s.calls[key] = cancel
	if s.closed {
		cancel()
	}
	s.mu.Unlock()
	return ctx, func() {
		cancel()
		s.mu.Lock()
		delete(s.calls, key)
		s.mu.Unlock()
	}
}

// cancel ends a request that the client does not wait for any more.
func (s *session) cancel(rawID []byte) {
	s.mu.Lock()
	cancel := s.calls[string(rawID)]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// send takes a message that belongs to no request to the client, or keeps it until the client
// opens a stream.
func (s *session) send(parts ...[]byte) error {
	m, err := charged(s.memory, parts)
	if err != nil {
		return err
	}
	defer m.release()
	return s.pass(m)
}

// pass is send for a message that others may wait for too. What is too much is dropped, oldest
// first.
func (s *session) pass(m *message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // it was evicted or ended while the message was on its way
		return errNoStream
	}
	if s.stream != nil {
		// A stream that is full for the moment is still the client's.
		if err := s.stream.pass(m); !errors.Is(err, errNoStream) {
			return err
		}
		s.stream = nil
	}
	if len(m.body) > backlogBytes {
		return fault.New(fault.Full, "the client reads no messages")
	}
	m.hold()
	s.backlog = append(s.backlog, m)
	s.size += len(m.body)
	for len(s.backlog) > maxBacklog || s.size > backlogBytes {
		s.dropFirst()
	}
	return nil
}

// dropFirst drops the message that has been waiting longest; the lock is held.
func (s *session) dropFirst() {
	m := s.backlog[0]
	s.backlog[0] = nil // or the array would keep it
	s.backlog = s.backlog[1:]
	s.size -= len(m.body)
	m.release()
}

// listen gives the session a stream for what belongs to no request, and what has been waiting.
func (s *session) listen(out outlet) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errNoSession
	}
	for len(s.backlog) > 0 {
		if err := out.pass(s.backlog[0]); err != nil {
			return err
		}
		s.dropFirst()
	}
	s.backlog, s.stream = nil, out
	return nil
}

// unlisten takes a stream back that is closed.
func (s *session) unlisten(out outlet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == out {
		s.stream = nil
	}
}

// ask sends a server's question to the client, under an id of our own, and waits for the answer.
func (s *session) ask(ctx context.Context, out outlet, server string, q rpc.Message) (rpc.Reply, error) {
	if !s.client.Can(q.Method) {
		return rpc.Reply{}, errCannotAsk
	}
	answer := make(chan rpc.Reply, 1)
	s.mu.Lock()
	s.asked++
	id := strconv.Itoa(s.asked)
	s.asks[id] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.asks, id)
		s.mu.Unlock()
	}()
	m, err := s.hub.notes.message(s.hub.deps.Budget, server, withID(tagged(server, q.Body, q.Params), id))
	if err != nil {
		return rpc.Reply{}, err
	}
	defer m.release()
	if out.pass(m) != nil { // then by the stream for what belongs to no request
		if err := s.pass(m); err != nil {
			return rpc.Reply{}, err
		}
	}
	timeout := time.NewTimer(s.hub.plan.Load().Hub.AskTimeout.D())
	defer timeout.Stop()
	select {
	case r := <-answer:
		return r, nil
	case <-timeout.C:
		return rpc.Reply{}, fault.New(fault.Timeout, "the client did not answer in time")
	case <-s.hub.closing:
		return rpc.Reply{}, fault.New(fault.Canceled, "the gateway is stopping")
	case <-ctx.Done():
		_ = out.send([]byte(`{"jsonrpc":"2.0","method":"` + mcp.Cancelled + `","params":{"requestId":` + id + `}}`))
		return rpc.Reply{}, ctx.Err()
	}
}

// withID is a request under another id.
func withID(body []byte, id string) []byte {
	fields, err := jsonscan.FieldsOf(body)
	if err != nil {
		return body
	}
	return fields.With(jsonscan.Change{Key: "id", Value: []byte(id)})
}

// answered takes a client's answer to the question that waits for it.
func (s *session) answered(r rpc.Reply) {
	s.mu.Lock()
	answer := s.asks[string(r.ID.Of(r.Body))]
	s.mu.Unlock()
	if answer != nil {
		select {
		case answer <- r:
		default:
		}
	}
}

// Notify and Ask make a session a peer for what its servers say outside any call.
func (s *session) Notify(server string, note rpc.Message) { s.hub.passOn(server, []*session{s}, note) }

// Ask puts a question that belongs to no call to the client, once initialize is behind it.
func (s *session) Ask(ctx context.Context, server string, q rpc.Message) (rpc.Reply, error) {
	if s.mute.Load() {
		return rpc.Reply{}, errCannotAsk
	}
	if err := s.awaitReady(ctx); err != nil {
		return rpc.Reply{}, err
	}
	return s.ask(ctx, s, server, q)
}

// peer is the session for who may outlive it: one that was let go is made again from its id, and is
// the same client.
func (s *session) peer() upstream.Peer {
	if s.hub.deps.Sole {
		return s
	}
	return sessionPeer{s.hub, s.name}
}

// sessionPeer is a session by its name.
type sessionPeer struct {
	hub  *Hub
	name string
}

// Notify takes a notification to the session, if there is one.
func (p sessionPeer) Notify(server string, note rpc.Message) {
	if held, _ := p.hub.sessions.find(p.name); held != nil {
		defer p.hub.sessions.release(held)
		held.Notify(server, note)
	}
}

// Ask puts a question to the session, if there is one.
func (p sessionPeer) Ask(ctx context.Context, server string, q rpc.Message) (rpc.Reply, error) {
	held, _ := p.hub.sessions.find(p.name)
	if held == nil {
		return rpc.Reply{}, errCannotAsk
	}
	defer p.hub.sessions.release(held)
	return held.Ask(ctx, server, q)
}
