package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

const (
	goodbyeTime = 2 * time.Second // the longest to end a session
	streamWait  = time.Second     // the longest to wait for the stream of what belongs to no call
)

// stream is the wire of Streamable HTTP, in all its revisions: every message is a POST, and the
// answer to a call is its reply or a stream of events that leads to it.
type stream struct {
	web
	conn   *Conn
	remote *Remote
	life   context.Context
	stop   context.CancelFunc

	greeted atomic.Bool
	older   atomic.Bool  // the greeting was refused as a server of HTTP+SSE does
	gone    atomic.Bool  // the server does not know the session any more
	errands atomic.Int64 // cancellations on their way

	mu  sync.Mutex
	now tongue
}

// tongue is what the headers of every request say.
type tongue struct {
	modern  bool
	version string // "" before a server of the older era has answered initialize
	session string // of the older era, where the server gave one
}

func newStream(r *Remote, c *Conn) *stream {
	s := &stream{web: r.web(), conn: c, remote: r}
	s.life, s.stop = context.WithCancel(context.Background())
	return s
}

// dialStream greets a server over Streamable HTTP. One that refuses the greeting as an older one
// would is tried in the older way, as the specification says (Backward Compatibility).
func (r *Remote) dialStream(ctx context.Context, c *Conn, l *Lane) (*Conn, error) {
	s := newStream(r, c)
	c.wire = s
	err := s.greet(ctx, r.order(l), l.client)
	if err == nil && l.key.older {
		err = s.checkSession()
	}
	if err == nil {
		return c, nil
	}
	if l.key.older {
		c.end(err)
		return nil, olderFailure(err, false)
	}
	if s.older.Load() && c.Why() == nil {
		s.stop()
		if _, sseErr := r.dialSSE(ctx, c, l); sseErr == nil {
			r.mu.Lock()
			r.sse = true
			r.mu.Unlock()
			slog.Info("server speaks HTTP+SSE only: transport = \"sse\" would spare it a question", "server", r.entry.ID)
			return c, nil
		}
	}
	c.end(err)
	if fault.KindOf(err) == fault.BadReply {
		r.doubt()
	}
	return nil, err
}

// doubt forgets the era of a server that does not keep to it.
func (r *Remote) doubt() {
	r.mu.Lock()
	r.era, r.older = 0, olderUnknown
	r.mu.Unlock()
}

// greet finds out the server's era, unless it is known to be the older one. The newer one is asked
// for each time: it may have come. For a client of the older era, a server that lists both is greeted in
// the older one after that.
func (s *stream) greet(ctx context.Context, order greetOrder, client mcp.Client) error {
	if order != olderOnly {
		s.speak(tongue{modern: true, version: mcp.V20260728})
		probe, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		known, err := s.conn.discover(probe, client)
		if known && order == olderFirst && s.conn.hello.older && s.greetOlderToo(ctx, client) {
			return nil
		}
		if known || err != nil {
			s.greeted.Store(err == nil)
			return err
		}
	}
	return s.greetOlder(ctx, client)
}

// greetOlderToo greets a server that has answered in the newer era in the older one. Where that
// fails, or gives no session, the newer one is spoken on.
func (s *stream) greetOlderToo(ctx context.Context, client mcp.Client) bool {
	hello, spoken := s.conn.hello, s.spoken()
	try, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	s.speak(tongue{})
	if err := s.conn.initialize(try, client); err == nil && s.spoken().session != "" {
		s.openStream(ctx)
		return true
	}
	s.conn.hello = hello
	s.speak(spoken)
	return false
}

// greetOlder begins a session of the older era.
func (s *stream) greetOlder(ctx context.Context, client mcp.Client) error {
	s.speak(tongue{})
	if err := s.conn.initialize(ctx, client); err != nil {
		return err
	}
	s.openStream(ctx)
	return nil
}

// openStream opens the stream of what belongs to no call, once the server was greeted.
func (s *stream) openStream(ctx context.Context) {
	s.greeted.Store(true)
	// A server may ask on its own stream as soon as it is called: the stream is there before.
	answered := make(chan struct{})
	go s.listen(sync.OnceFunc(func() { close(answered) }))
	select {
	case <-answered:
	case <-time.After(streamWait):
	case <-ctx.Done():
	}
}

func (s *stream) speak(t tongue) {
	s.mu.Lock()
	s.now = t
	s.mu.Unlock()
}

func (s *stream) spoken() tongue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// head are the headers of a POST, f's if it begins a call.
func (s *stream) head(t tongue, f *flight) http.Header {
	head := s.headers.Clone()
	t.put(head)
	if t.modern && f != nil {
		s.remote.mirrors.put(head, f.call)
	}
	return head
}

func (t tongue) put(head http.Header) {
	if t.version != "" {
		head.Set(mcp.HeaderVersion, t.version)
	}
	if t.session != "" {
		head.Set(mcp.HeaderSession, t.session)
	}
}

// send begins the POST of a call, and does not wait for it. A message of any other kind is sent
// when send returns.
func (s *stream) send(f *flight, msg []byte) error {
	if f == nil {
		ctx, cancel := context.WithTimeout(s.life, tellTime)
		defer cancel()
		return s.tell(ctx, msg)
	}
	ctx, cancel := leash(s.life, f)
	go func() {
		defer s.conn.guard(f)
		defer cancel()
		x := &exchange{stream: s, f: f, msg: msg, read: cancel}
		if err := x.run(ctx); err != nil {
			f.fail(err)
		}
	}()
	return nil
}

// tell sends what has no reply.
func (s *stream) tell(ctx context.Context, msg []byte) error {
	t := s.spoken()
	head := s.head(t, nil)
	if fields, err := jsonscan.FieldsOf(msg); err == nil && t.modern {
		head.Set(mcp.HeaderMethod, fields.Text("method")) // there are no answers in this era
	}
	resp, err := s.post(ctx, s.remote.entry.URL.Reveal(), msg, head)
	if err != nil {
		return failure(ctx, err)
	}
	defer resp.Body.Close()
	if isOK(resp) {
		if !isEvents(resp) {
			drain(resp.Body)
		}
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, drainBytes))
	a := newAnswer(resp, body)
	if s.forgot(t, a, false) {
		return forgotten()
	}
	return a.fault()
}

// cancel stops the POST. In the newer era that is the cancellation; in the older one the server
// is told, even if the connection is about to end: a tool may wait for nothing else.
func (s *stream) cancel(f *flight, reason string) {
	if !s.spoken().modern && f.call.Method != mcp.Initialize {
		s.errands.Add(1)
		go func() {
			defer s.errands.Add(-1)
			ctx, cancel := context.WithTimeout(context.Background(), goodbyeTime)
			defer cancel()
			if err := s.tell(ctx, cancellation(f.id, reason)); err != nil {
				slog.Debug("a cancellation did not reach its server", "server", s.conn.server, "error", err)
			}
		}()
	}
	f.stop()
}

// close ends everything that is under way, and the session.
func (s *stream) close() {
	s.stop()
	t := s.spoken()
	if t.session == "" || s.gone.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbyeTime)
	defer cancel()
	for s.errands.Load() > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	resp, err := s.do(ctx, http.MethodDelete, s.remote.entry.URL.Reveal(), nil, s.head(t, nil))
	if err != nil {
		slog.Debug("a session was not ended", "server", s.conn.server, "error", err)
		return
	}
	drain(resp.Body)
	resp.Body.Close()
}

// exchange is one call's way over HTTP.
type exchange struct {
	*stream
	f     *flight
	msg   []byte
	read  context.CancelFunc // says that there is nothing left to read
	again bool               // it was refused for its headers once
}

// run makes the POST and gives what is answered to the connection. An error is the call's; nil
// says that it has its reply.
func (x *exchange) run(ctx context.Context) error {
	t := x.spoken()
	resp, err := x.post(ctx, x.remote.entry.URL.Reveal(), x.msg, x.head(t, x.f))
	if err != nil {
		return x.unmet(failure(ctx, err))
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode/100 == 3:
		return newAnswer(resp, nil).fault()
	case isOK(resp) && isEvents(resp):
		x.begin(resp)
		return x.follow(ctx, resp.Body, t)
	}
	body, err := bodyOf(ctx, resp, x.limit, x.f.memory)
	if err != nil {
		return err
	}
	if !isOK(resp) {
		return x.refused(ctx, t, newAnswer(resp, body))
	}
	x.begin(resp)
	x.read()
	x.deliver(body, x.f)
	if !x.f.over.Load() {
		return newAnswer(resp, body).fault()
	}
	return nil
}

// unmet is the failure of a call that did not reach the server itself. A server that was not there
// has not said which era is its own: only a greeting that it answered is followed by an older one.
func (x *exchange) unmet(err error) error {
	if x.f.call.Method == mcp.Discover && !x.greeted.Load() && fault.KindOf(err) != fault.Canceled {
		x.conn.end(err)
	}
	return err
}

// begin notes the session that came with the answer to initialize.
func (x *exchange) begin(resp *http.Response) {
	if x.f.call.Method != mcp.Initialize {
		return
	}
	x.mu.Lock()
	x.now.session = resp.Header.Get(mcp.HeaderSession)
	x.mu.Unlock()
}

// follow reads the call's events up to its reply. A stream of the older era that breaks off is
// taken up again where it was, if its server gave the place a name.
func (x *exchange) follow(ctx context.Context, body io.ReadCloser, t tongue) error {
	var at place
	for {
		err := x.events(body, x.f, &at)
		switch {
		case x.f.over.Load():
			return nil
		case errors.Is(err, sse.ErrTooLarge):
			return tooLarge(err)
		case fault.KindOf(err) == fault.Full:
			return err
		case t.modern || at.last == "":
			return fault.Wrap(fault.Unavailable, "the server went away during the call", err)
		}
		if body, err = x.resume(ctx, &at); err != nil {
			return err
		}
	}
}

// deliver gives what came to the connection: one message, or several at once as servers of
// 2025-03-26 may send.
func (s *stream) deliver(body []byte, f *flight) {
	if body = bytes.TrimLeft(body, " \t\r\n"); len(body) == 0 {
		return
	}
	if body[0] != '[' {
		s.note(body, f)
		s.conn.take(body, f)
		return
	}
	err := jsonscan.Elements(body, jsonscan.Span{End: len(body)}, func(at jsonscan.Span) error {
		s.note(at.Of(body), f)
		s.conn.take(at.Of(body), f)
		return nil
	})
	if err != nil {
		s.conn.odd(f, "a server sent what is no message", err)
	}
}

// note remembers what a reply says about the requests to come.
func (s *stream) note(body []byte, f *flight) {
	switch {
	case f == nil:
	case f.call.Method == mcp.Initialize:
		if result, ok := resultOf(body); ok {
			s.mu.Lock()
			s.now.version = result.Text("protocolVersion")
			s.mu.Unlock()
		}
	case f.call.Method == mcp.ToolsList && s.spoken().modern:
		s.remote.mirrors.learn(body)
	}
}

// resultOf is the result of a reply.
func resultOf(body []byte) (jsonscan.Fields, bool) {
	fields, err := jsonscan.FieldsOf(body)
	if err != nil {
		return jsonscan.Fields{}, false
	}
	result, ok := fields.Field("result")
	if !ok {
		return jsonscan.Fields{}, false
	}
	members, err := jsonscan.ReadFields(body, result.Value)
	return members, err == nil
}
