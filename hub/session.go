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
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
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
	id     string
	name   string
	who    auth.Caller
	client mcp.Client
	only   string
	mute   atomic.Bool   // a client of the newer era, on stdio: it hears only what it asked for
	ready  chan struct{} // closed when the client has gone on after initialize: it may be asked from then on
	once   sync.Once     // closes ready
	lists  shownLists    // as the client knows them

	mu      sync.Mutex
	level   string
	asks    map[string]chan rpc.Reply
	asked   int
	calls   map[string]context.CancelFunc // requests under way, by their raw id
	stream  outlet                        // for what belongs to no request; nil when none is open
	backlog [][]byte
	size    int
	subs    map[string]func() // resources that are watched, and how to stop
	used    time.Time
}

// sessions are those that this process holds.
type sessions struct {
	mu   sync.Mutex
	held map[string]*session // by name
	gone map[string]time.Time
	one  *session // on stdin and stdout
}

func (s *sessions) init() {
	s.held = map[string]*session{}
	s.gone = map[string]time.Time{}
}

func (h *Hub) newSession(who auth.Caller, client mcp.Client, only, name string) *session {
	return &session{
		hub: h, name: name, who: who, client: client, only: only, asks: map[string]chan rpc.Reply{},
		calls: map[string]context.CancelFunc{}, subs: map[string]func(){}, used: time.Now(), ready: make(chan struct{}),
	}
}

// received notes that a message of the client came. The client may be asked once it has said that it is
// initialized, or makes any other request than a ping.
func (s *session) received(r *request) {
	if r.Method == mcp.Initialized || !r.IsNotification() && r.Method != mcp.Initialize && r.Method != mcp.Ping {
		s.once.Do(func() { close(s.ready) })
	}
}

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

// openSession begins a session.
func (h *Hub) openSession(who auth.Caller, client mcp.Client, only string) (*session, error) {
	if len(client.Capabilities)+len(client.Info) > maxClient {
		client.Info = nil
	}
	if len(client.Capabilities) > maxClient {
		return nil, invalidParams("the capabilities are too long")
	}
	s := h.newSession(who, client, only, rand.Text())
	until := time.Now().Add(h.plan.Load().Hub.SessionTTL.D()).Unix()
	s.id = h.sessionSeal.Seal([]byte(strings.Join([]string{
		s.name, who.Tenant(), who.Subject(), only, client.Version, string(client.Capabilities), string(client.Info),
		strconv.FormatInt(until, 10),
	}, "\x01")))
	return h.sessions.hold(h, s)
}

var errNoSession = fault.New(fault.NotFound, "the session is unknown or has expired: initialize again")

// session finds the session of an id, for the client that began it.
func (h *Hub) session(id string, who auth.Caller, only string) (*session, error) {
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
	h.sessions.mu.Lock()
	held, gone := h.sessions.held[part[0]], h.sessions.gone[part[0]]
	h.sessions.mu.Unlock()
	switch {
	case !gone.IsZero():
		return nil, errNoSession
	case held != nil:
		held.touch()
		return held, nil
	}
	client := mcp.Client{Version: part[4], Capabilities: []byte(part[5])}
	if part[6] != "" {
		client.Info = []byte(part[6])
	}
	s := h.newSession(who, client, only, part[0])
	s.id = id
	return h.sessions.hold(h, s)
}

// hold keeps a session, and gives the one that counts: another request may have been faster.
func (s *sessions) hold(h *Hub, one *session) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.held[one.name]; held != nil {
		return held, nil
	}
	if len(s.held) >= h.plan.Load().Hub.MaxSessions {
		return nil, fault.New(fault.Full, "too many sessions")
	}
	s.held[one.name] = one
	return one, nil
}

// end ends a session that its client is done with.
func (s *sessions) end(h *Hub, one *session) {
	s.mu.Lock()
	delete(s.held, one.name)
	s.gone[one.name] = time.Now().Add(h.plan.Load().Hub.SessionTTL.D())
	s.mu.Unlock()
	one.close()
}

// sweep lets go of sessions that nobody uses; their ids stay good.
func (s *sessions) sweep(now time.Time) {
	s.mu.Lock()
	var idle []*session
	for name, one := range s.held {
		if one.idle(now) {
			delete(s.held, name)
			idle = append(idle, one)
		}
	}
	for name, until := range s.gone {
		if now.After(until) {
			delete(s.gone, name)
		}
	}
	s.mu.Unlock()
	for _, one := range idle {
		one.close()
	}
}

// sole is the one client of a hub on stdin and stdout.
func (s *sessions) sole() (mcp.Client, *session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.one == nil {
		return mcp.Client{}, nil, false
	}
	return s.one.client, s.one, true
}

// each calls f with every session that is held.
func (s *sessions) each(f func(*session)) {
	s.mu.Lock()
	all := make([]*session, 0, len(s.held)+1)
	for _, one := range s.held {
		all = append(all, one)
	}
	if s.one != nil {
		all = append(all, s.one)
	}
	s.mu.Unlock()
	for _, one := range all {
		f(one)
	}
}

func (s *session) touch() {
	s.mu.Lock()
	s.used = time.Now()
	s.mu.Unlock()
}

func (s *session) idle(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream == nil && len(s.calls) == 0 && now.Sub(s.used) > sessionIdle
}

func (s *session) close() {
	s.mu.Lock()
	calls, subs := s.calls, s.subs
	s.calls, s.subs = map[string]context.CancelFunc{}, map[string]func(){}
	s.mu.Unlock()
	for _, cancel := range calls {
		cancel()
	}
	for _, stop := range subs {
		stop()
	}
	for _, r := range s.hub.plan.Load().order {
		r.Leave(s.name)
	}
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
	s.used = time.Now()
	s.calls[key] = cancel
	s.mu.Unlock()
	return ctx, func() {
		cancel()
		s.mu.Lock()
		delete(s.calls, key)
		s.used = time.Now()
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
// opens a stream. What is too much is dropped, oldest first.
func (s *session) send(parts ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		// A stream that is full for the moment is still the client's.
		if err := s.stream.send(parts...); !errors.Is(err, errNoStream) {
			return err
		}
		s.stream = nil
	}
	var msg []byte
	for _, p := range parts {
		msg = append(msg, p...)
	}
	if len(msg) > backlogBytes {
		return fault.New(fault.Full, "the client reads no messages")
	}
	s.backlog = append(s.backlog, msg)
	s.size += len(msg)
	for len(s.backlog) > maxBacklog || s.size > backlogBytes {
		s.size -= len(s.backlog[0])
		s.backlog = s.backlog[1:]
	}
	return nil
}

// listen gives the session a stream for what belongs to no request, and what has been waiting.
func (s *session) listen(out outlet) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, msg := range s.backlog {
		if err := out.send(msg); err != nil {
			return err
		}
	}
	s.backlog, s.size, s.stream = nil, 0, out
	return nil
}

// unlisten takes a stream back that is closed.
func (s *session) unlisten(out outlet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == out {
		s.stream = nil
	}
	s.used = time.Now()
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
	msg := withID(tagged(server, q.Body, q.Params), id)
	if out.send(msg) != nil { // then by the stream for what belongs to no request
		if err := s.send(msg); err != nil {
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
func (s *session) Notify(server string, note rpc.Message) {
	if s.mute.Load() {
		return
	}
	req := &request{level: s.logLevel(), era: mcp.EraLegacy}
	if msg, ok := noteFor(req, server, note); ok {
		_ = s.send(msg)
	}
}

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
