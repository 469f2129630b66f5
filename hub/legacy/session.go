package legacy

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
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

const (
	maxQueued       = 256     // messages for a client that has no stream open
	maxQueuedBytes  = 1 << 20 // and their size
	sessionOverhead = 2 << 10 // what a session costs beside what its client says of itself
)

// session is what a legacy client has between its requests. Its id is a sealed token that holds everything that
// identifies it, so a session that this process does not hold is made again from its id. Only the process that holds
// it has its open stream, its queued messages and the requests that wait for the client's reply.
type session struct {
	endpoint *endpoint
	name     string
	caller   auth.Caller
	client   mcp.Client
	server   string // of the endpoint where it was opened; "" for that of all servers
	lists    catalog.SeenLists
	inFlight hub.InFlight
	memory   *membudget.Scope
	expires  time.Time   // of its id
	isBound  atomic.Bool // other replicas know that it has state here
	place    place       // in the table of sessions

	ready     chan struct{} // closed when the client has followed up on initialize: it may be sent requests from then on
	readyOnce sync.Once

	gone     chan struct{} // closed when the client answers no more requests
	goneOnce sync.Once

	// On stdin and stdout, or on a connection that carries them:
	isStdio     bool
	clientKnown bool        // the client has made a request
	muted       atomic.Bool // the client is modern: it gets only what it asks for
	stdout      hub.Sender

	mu            sync.Mutex
	closed        bool
	level         string                    // of the log messages that the client wants; "" for none
	replies       map[string]chan rpc.Reply // by the id of the request that was sent to the client
	lastRequestID int
	stream        hub.Sender // for messages that belong to no request; nil when none is open
	queue         []*hub.Message
	queueBytes    int
	subscriptions map[string]func() // by resource; the functions end them
}

func (e *endpoint) newSession(caller auth.Caller, client mcp.Client, server, name string) *session {
	return &session{
		endpoint: e, name: name, caller: caller, client: client, server: server, ready: make(chan struct{}), gone: make(chan struct{}),
		replies: map[string]chan rpc.Reply{}, subscriptions: map[string]func(){},
	}
}

// openSession opens a session and returns its id. The session must be released.
func (e *endpoint) openSession(caller auth.Caller, client mcp.Client, server, callerKey string) (*session, string, error) {
	client, err := hub.LimitClient(client)
	if err != nil {
		return nil, "", err
	}
	s := e.newSession(caller, client, server, rand.Text())
	s.expires = time.Now().Add(e.hub.Plan().Hub.SessionTTL.D())
	part := []string{
		s.name, caller.Key(), server, client.Version, string(client.Capabilities), string(client.Info),
		strconv.FormatInt(s.expires.Unix(), 10),
	}
	if home := e.hub.ReplicaID(); home != "" {
		part = append(part, home)
	}
	id := e.sessionSeal.Seal([]byte(strings.Join(part, "\x01")))
	s, err = e.addSession(s, callerKey)
	return s, id, err
}

var errNoSession = fault.New(fault.NotFound, "the session is unknown or has expired: initialize again")

// sessionToken is what the id of a session holds.
type sessionToken struct {
	name, server string
	client       mcp.Client
	expires      time.Time
	home         string // the replica that opened it; "" where there were none
}

// readToken reads the id of a session, for the caller that opened it.
func (e *endpoint) readToken(id string, caller auth.Caller, server string) (none sessionToken, _ error) {
	plain, err := e.sessionSeal.Open(id)
	if err != nil {
		return none, errNoSession
	}
	part := strings.Split(string(plain), "\x01")
	if len(part) != 7 && len(part) != 8 || part[1] != caller.Key() || part[2] != server {
		return none, errNoSession
	}
	expires, err := strconv.ParseInt(part[6], 10, 64)
	if err != nil || time.Now().Unix() > expires {
		return none, errNoSession
	}
	t := sessionToken{name: part[0], server: server, client: mcp.Client{Version: part[3], Capabilities: []byte(part[4])}, expires: time.Unix(expires, 0)}
	if part[5] != "" {
		t.client.Info = []byte(part[5])
	}
	if len(part) == 8 {
		t.home = part[7]
	}
	return t, nil
}

// findSession finds the session of a token, or makes it again. The session must be released.
func (e *endpoint) findSession(ctx context.Context, t sessionToken, caller auth.Caller, callerKey string) (*session, error) {
	s, ended := e.sessions.acquire(t.name)
	switch {
	case ended:
		return nil, errNoSession
	case s != nil:
		return s, nil
	}
	if err := e.checkMark(ctx, t); err != nil {
		return nil, err
	}
	again := e.newSession(caller, t.client, t.server, t.name)
	again.expires = t.expires
	again.markReady() // a client that has the id has the reply to initialize
	return e.addSession(again, callerKey)
}

// addSession puts a session into the table. Its memory is counted apart from that of the caller's requests: a caller
// with many idle sessions can still make calls, and loses the oldest session when it opens another.
func (e *endpoint) addSession(s *session, callerKey string) (*session, error) {
	s.place.callerKey = callerKey
	s.memory = e.hub.Deps().Budget.Scope(callerKey + " sessions")
	size := sessionOverhead + int64(len(s.client.Capabilities)+len(s.client.Info))
	err := s.memory.Reserve(size)
	for err != nil && e.sessions.evictIdleOf(callerKey) {
		err = s.memory.Reserve(size)
	}
	added := s
	if err == nil {
		added, err = e.sessions.insert(s, e.hub.Plan().Hub)
	}
	if added != s || err != nil {
		s.memory.Release()
	}
	return added, err
}

// endSession ends a session that its client is done with, and its connections to servers.
func (e *endpoint) endSession(ctx context.Context, s *session) {
	p := e.hub.Plan()
	e.markEnded(ctx, s)
	e.sessions.endSession(s, time.Now().Add(p.Hub.SessionTTL.D()))
	s.closeSession()
	for _, r := range p.Servers {
		r.CloseSession(s.name)
	}
}

// closeSession ends what the session has in flight. Its connections to servers stay: a client that comes back with its id
// finds its state there.
func (s *session) closeSession() {
	s.mu.Lock()
	s.closed = true
	subscriptions, out := s.subscriptions, s.stream
	s.subscriptions = map[string]func(){}
	for len(s.queue) > 0 {
		s.dropFirst()
	}
	s.mu.Unlock()
	s.inFlight.CancelAll()
	for _, stop := range subscriptions {
		stop()
	}
	if stream, ok := out.(*hub.Stream); ok {
		stream.Close()
	}
	s.memory.Release()
}

// join makes a request one of the session's. The client may be sent requests once it has sent
// notifications/initialized, or any request but a ping.
func (s *session) join(req *hub.Request) {
	req.Session, req.Client, req.LogLevel = s, s.client, s.logLevel()
	if req.Method == mcp.NotifyInitialized || !req.IsNotification() && req.Method != mcp.Initialize && req.Method != mcp.Ping {
		s.markReady()
	}
}

func (s *session) markReady() { s.readyOnce.Do(func() { close(s.ready) }) }

func (s *session) logLevel() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

// callPeer returns the client of a request, as servers reach it: by out or else by the session's stream.
func (s *session) callPeer(req *hub.Request, out hub.Sender) *hub.CallPeer {
	return s.endpoint.hub.NewCallPeer(req, out, func(ctx context.Context, server string, question rpc.Message) (rpc.Reply, error) {
		return s.sendRequest(ctx, out, server, question)
	})
}

// Name identifies the session towards servers.
func (s *session) Name() string { return s.name }

// SeenLists returns the lists as the client knows them.
func (s *session) SeenLists() *catalog.SeenLists { return &s.lists }

// NoteUse makes the session one of those that use a server.
func (s *session) NoteUse(server string) { s.endpoint.sessions.addUse(s, server) }

// Owner returns the session as servers reach it outside its calls. They may outlive the session in this process.
func (s *session) Owner() upstream.Peer {
	if s.endpoint.hub.Deps().SingleClient {
		return s
	}
	return sessionPeer{s.endpoint, s.name}
}

// Send sends a message that belongs to no request, or queues it until the client opens a stream.
func (s *session) Send(parts ...[]byte) error {
	m, err := hub.NewMessage(s.memory, parts...)
	if err != nil {
		return err
	}
	defer m.Release()
	return s.SendMessage(m)
}

// SendMessage is Send for a message that others may hold too. Where too much is queued, the oldest is dropped.
func (s *session) SendMessage(m *hub.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // it was evicted or ended meanwhile
		return hub.ErrNoStream
	}
	if s.stream != nil {
		// A stream whose queue is full for the moment is still the client's.
		if err := s.stream.SendMessage(m); !errors.Is(err, hub.ErrNoStream) {
			return err
		}
		s.stream = nil
	}
	if len(m.Body()) > maxQueuedBytes {
		return fault.New(fault.Full, "the client reads no messages")
	}
	m.Retain()
	s.queue = append(s.queue, m)
	s.queueBytes += len(m.Body())
	for len(s.queue) > maxQueued || s.queueBytes > maxQueuedBytes {
		s.dropFirst()
	}
	return nil
}

// dropFirst drops the oldest queued message; the lock is held.
func (s *session) dropFirst() {
	m := s.queue[0]
	s.queue[0] = nil // or the array would hold it
	s.queue = s.queue[1:]
	s.queueBytes -= len(m.Body())
	m.Release()
}

// dropOldest drops the older half of the queued messages of sessions, and reports whether there were any.
func dropOldest(of []*session) bool {
	dropped := false
	for _, s := range of {
		s.mu.Lock()
		for range (len(s.queue) + 1) / 2 {
			s.dropFirst()
			dropped = true
		}
		s.mu.Unlock()
	}
	return dropped
}

// attachStream gives the session a stream for messages that belong to no request, and sends what is queued.
func (s *session) attachStream(out hub.Sender) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errNoSession
	}
	for len(s.queue) > 0 {
		if err := out.SendMessage(s.queue[0]); err != nil {
			return err
		}
		s.dropFirst()
	}
	s.queue, s.stream = nil, out
	return nil
}

// detachStream removes a stream that is closed.
func (s *session) detachStream(out hub.Sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == out {
		s.stream = nil
	}
}

// sendRequest sends a server's request to the client, under an id of the session, and waits for the reply.
func (s *session) sendRequest(ctx context.Context, out hub.Sender, server string, question rpc.Message) (rpc.Reply, error) {
	if !s.client.Supports(question.Method) {
		return rpc.Reply{}, hub.ErrCannotAsk
	}
	h := s.endpoint.hub
	reply := make(chan rpc.Reply, 1)
	s.mu.Lock()
	s.lastRequestID++
	id := strconv.Itoa(s.lastRequestID)
	s.replies[id] = reply
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.replies, id)
		s.mu.Unlock()
	}()
	body := hub.TagServer(server, question.Body, question.Params)
	if fields, err := jsonscan.FieldsOf(body); err == nil {
		body = fields.With(jsonscan.Change{Key: "id", Value: []byte(id)})
	}
	m, err := h.NewServerMessage(server, body)
	if err != nil {
		return rpc.Reply{}, err
	}
	defer m.Release()
	if out.SendMessage(m) != nil { // then by the stream for what belongs to no request
		if err := s.SendMessage(m); err != nil {
			return rpc.Reply{}, err
		}
	}
	timeout := time.NewTimer(h.Plan().Hub.AskTimeout.D())
	defer timeout.Stop()
	select {
	case r := <-reply:
		return r, nil
	case <-timeout.C:
		return rpc.Reply{}, fault.New(fault.Timeout, "the client did not answer in time")
	case <-s.gone:
		return rpc.Reply{}, errClientGone
	case <-h.Closing():
		return rpc.Reply{}, errStopping
	case <-ctx.Done():
		_ = out.Send([]byte(`{"jsonrpc":"2.0","method":"` + mcp.NotifyCancelled + `","params":{"requestId":` + id + `}}`))
		return rpc.Reply{}, ctx.Err()
	}
}

var (
	errStopping   = fault.New(fault.Canceled, "the gateway is stopping")
	errClientGone = fault.New(fault.Canceled, "the client has closed its connection")
)

// TakeReply takes the client's reply to a server's request.
func (s *session) TakeReply(body []byte) {
	r, err := rpc.ParseReply(body, s.endpoint.hub.Plan().Hub.MaxDepth, int(^uint(0)>>1))
	if err != nil {
		return
	}
	s.mu.Lock()
	reply := s.replies[string(r.ID.Of(r.Body))]
	s.mu.Unlock()
	if reply != nil {
		select {
		case reply <- r:
		default:
		}
	}
}

// Notify sends a notification that belongs to no call.
func (s *session) Notify(server string, note rpc.Message) {
	s.endpoint.notifySessions(server, []*session{s}, note)
}

// Request sends a server's request that belongs to no call, once the client has followed up on initialize.
func (s *session) Request(ctx context.Context, server string, question rpc.Message) (rpc.Reply, error) {
	if s.muted.Load() {
		return rpc.Reply{}, hub.ErrCannotAsk
	}
	timeout := time.NewTimer(s.endpoint.hub.Plan().Hub.AskTimeout.D())
	defer timeout.Stop()
	select {
	case <-s.ready:
		return s.sendRequest(ctx, s, server, question)
	case <-timeout.C:
		return rpc.Reply{}, fault.New(fault.Timeout, "the client did not say that it is initialized")
	case <-s.gone:
		return rpc.Reply{}, errClientGone
	case <-s.endpoint.hub.Closing():
		return rpc.Reply{}, errStopping
	case <-ctx.Done():
		return rpc.Reply{}, ctx.Err()
	}
}

// sessionPeer reaches a session by its name: one that was evicted is made again from its id, and is the same client.
type sessionPeer struct {
	endpoint *endpoint
	name     string
}

// Notify sends a notification to the session, if this process holds it.
func (p sessionPeer) Notify(server string, note rpc.Message) {
	if s, _ := p.endpoint.sessions.acquire(p.name); s != nil {
		defer p.endpoint.sessions.release(s)
		s.Notify(server, note)
	}
}

// Request sends a request to the session, if this process holds it.
func (p sessionPeer) Request(ctx context.Context, server string, question rpc.Message) (rpc.Reply, error) {
	s, _ := p.endpoint.sessions.acquire(p.name)
	if s == nil {
		return rpc.Reply{}, hub.ErrCannotAsk
	}
	defer p.endpoint.sessions.release(s)
	return s.Request(ctx, server, question)
}
