package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/internal/frame"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

const (
	maxDepth       = 10_000  // of a client's message; the gateway has its own limit
	maxReplyBytes  = 4 << 30 // of a gateway's message; the gateway has its own limit
	defaultMessage = 64 << 20

	// maxInFlight is how many requests of a client, and of servers to it, a bridge tracks.
	maxInFlight = 10_000

	// steadyTime is how long a connection must have lasted to be made again before the client needs it: a gateway that
	// ends at once is started once for each request, and not over and over.
	steadyTime = 10 * time.Second

	// refusalTimeout is how long a bridge that has no gateway waits for a request to tell why.
	refusalTimeout = 5 * time.Second
)

// BridgeOptions is what a bridge connects.
type BridgeOptions struct {
	In  io.Reader
	Out io.WriteCloser

	// Connect connects to the gateway. It is called again when the gateway is lost.
	Connect func(context.Context) (*Conn, Gateway, error)

	// Failed is called with the reason when the first connection fails, before the client is told; may be nil.
	Failed func(error)
}

// bridge forwards a client's messages to the gateway and back, and moves to another gateway when it must.
type bridge struct {
	opts BridgeOptions
	in   *frame.Reader
	out  *frame.Writer
	wg   sync.WaitGroup // of the goroutines that read links

	connecting sync.Mutex // one connection is made at a time

	mu      sync.Mutex
	current *link // where new requests go; nil for none
	links   map[*link]bool
	asks    map[string]*link // by id: requests of servers that the client has not answered
	session sessionState
	closed  bool // the client has closed its side
	ownIDs  int
}

// link is one connection to a gateway. The bridge's lock guards what is not said otherwise.
type link struct {
	conn  *Conn
	since time.Time

	writing sync.Mutex // held while a message is written

	inFlight  map[string]request // by the raw id
	own       map[string]string  // requests of the bridge itself: id → method
	moved     map[string]bool    // requests that another link answers
	muteAcks  map[string]bool    // listen streams that the client knows to be acknowledged
	leaving   bool               // the gateway stops
	halfClose bool               // nothing more is written
}

// request is a client's request in flight.
type request struct {
	method string
	body   []byte // to be sent again; nil if that is not safe
}

// RunBridge forwards messages until the client closes its side or ctx ends, and its requests in flight are answered.
func RunBridge(ctx context.Context, opts BridgeOptions) error {
	b := &bridge{opts: opts, links: map[*link]bool{}, asks: map[string]*link{}}
	b.in = frame.NewReader(opts.In, defaultMessage, func(line []byte) {
		slog.Warn("a line on stdin is not a JSON-RPC message", "line", fmt.Sprintf("%.80q", line))
	})
	b.out = frame.NewWriter(opts.Out, frame.Limits{MaxMessages: 1000, MaxBytes: 8 << 20}, b.in.Framing)
	if _, err := b.connect(ctx); err != nil {
		if opts.Failed != nil {
			opts.Failed(err)
		}
		b.refuseFirst(ctx, err)
		return errors.Join(err, b.out.Close(time.Second))
	}
	ended := make(chan error, 1)
	go func() { ended <- b.readClient(ctx) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	b.finish()
	b.wg.Wait()
	return errors.Join(err, b.out.Close(2*time.Second))
}

// readClient forwards the client's messages until its end of file.
func (b *bridge) readClient(ctx context.Context) error {
	for {
		body, err := b.in.Next()
		var big *frame.TooLargeError
		switch {
		case errors.As(err, &big):
			b.sendToClient(ctx, rpc.AppendErrorData(nil, rpc.ID{}, -31413, "the request is too large", []byte(`{"reason":"too_large","retryable":false}`)))
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading stdin: %w", err)
		default:
			b.forward(ctx, body)
		}
	}
}

// refuseFirst answers the client's first request with the reason why there is no gateway.
func (b *bridge) refuseFirst(ctx context.Context, cause error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			body, err := b.in.Next()
			if err != nil {
				return
			}
			if m, err := rpc.ParseMessage(body, maxDepth, math.MaxInt); err == nil && m.Method != "" && !m.IsNotification() {
				b.sendToClient(ctx, unavailable(m.MessageID(), cause.Error(), true))
				return
			}
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(refusalTimeout):
	}
}

// unavailable is the answer to a request that the gateway did not answer.
func unavailable(id rpc.ID, text string, retryable bool) []byte {
	return rpc.AppendErrorData(nil, id, -32603, text, fmt.Appendf(nil, `{"reason":"unavailable","retryable":%t}`, retryable))
}

// sendToClient sends one message to the client. Where the client does not read, it waits, and so does the gateway.
func (b *bridge) sendToClient(ctx context.Context, body []byte) {
	for errors.Is(b.out.Send(body), frame.ErrFull) && b.out.Flush(ctx) == nil {
	}
}

// forward sends a message of the client where it belongs.
func (b *bridge) forward(ctx context.Context, body []byte) {
	m, err := rpc.ParseMessage(body, maxDepth, math.MaxInt)
	switch {
	case err != nil: // the gateway says what is wrong with it
		b.forwardUntracked(ctx, body)
	case m.IsReply():
		b.mu.Lock()
		id := string(m.ID.Of(m.Body))
		to := b.asks[id]
		delete(b.asks, id)
		b.mu.Unlock()
		if to != nil {
			_, _ = to.send(body)
		}
	case m.IsNotification():
		b.forwardNotification(ctx, &m)
	default:
		b.forwardRequest(ctx, &m)
	}
}

func (b *bridge) forwardUntracked(ctx context.Context, body []byte) {
	if l, err := b.connect(ctx); err == nil {
		_, _ = l.send(body)
	}
}

func (b *bridge) forwardNotification(ctx context.Context, m *rpc.Message) {
	b.mu.Lock()
	to := b.current
	switch m.Method {
	case mcp.NotifyInitialized:
		b.session.initialized = m.Body
	case mcp.NotifyCancelled:
		params, _ := mcp.ParseParams(m.Params.Of(m.Body))
		if id, ok := params.Get("requestId"); ok {
			for l := range b.links {
				if _, ok := l.inFlight[string(id)]; ok {
					to = l
				}
			}
		}
	}
	b.mu.Unlock()
	if to == nil { // nothing that it could concern is there
		return
	}
	if _, err := to.send(m.Body); err != nil && m.Method != mcp.NotifyCancelled && m.Method != mcp.NotifyInitialized {
		b.forwardUntracked(ctx, m.Body)
	}
}

// forwardRequest sends a request to the gateway, which is started if none runs. It is sent again only if the gateway
// cannot have read all of it.
func (b *bridge) forwardRequest(ctx context.Context, m *rpc.Message) {
	id := string(m.ID.Of(m.Body))
	r := request{method: m.Method}
	if isRepeatable(m.Method) && len(m.Body) <= maxReplayed {
		r.body = m.Body
	}
	for {
		l, err := b.connect(ctx)
		if err != nil {
			slog.Error("the gateway cannot be reached", "error", err)
			b.sendToClient(ctx, unavailable(m.MessageID(), err.Error(), true))
			return
		}
		b.mu.Lock()
		switch {
		case !b.links[l] || l.halfClose: // lost meanwhile
			b.mu.Unlock()
			continue
		case len(l.inFlight) >= maxInFlight:
			b.mu.Unlock()
			b.sendToClient(ctx, unavailable(m.MessageID(), fmt.Sprintf("%d requests are in flight already", maxInFlight), true))
			return
		}
		l.inFlight[id] = r
		b.session.noteRequest(m)
		b.mu.Unlock()
		n, err := l.send(m.Body)
		if err == nil || n >= len(m.Body) {
			return // if it is lost, whoever reads the link answers
		}
		b.mu.Lock()
		_, unanswered := l.inFlight[id]
		delete(l.inFlight, id)
		if b.current == l {
			b.current = nil
		}
		b.mu.Unlock()
		if !unanswered {
			return
		}
	}
}

// send writes one message and returns how many of its bytes were written.
func (l *link) send(body []byte) (int, error) {
	line := append(oneLine(body), '\n')
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.conn.Write(line)
}

// oneLine returns a message as one line, in an array of its own: line breaks between its tokens become spaces.
func oneLine(body []byte) []byte {
	line := append(make([]byte, 0, len(body)+1), body...)
	for i, c := range line {
		if c == '\n' || c == '\r' {
			line[i] = ' '
		}
	}
	return line
}

// connect returns the link for new requests, and makes it where there is none. What the client has set up in its session
// is set up again first.
func (b *bridge) connect(ctx context.Context) (*link, error) {
	if l := b.usable(); l != nil {
		return l, nil
	}
	b.connecting.Lock()
	defer b.connecting.Unlock()
	if l := b.usable(); l != nil {
		return l, nil
	}
	conn, g, err := b.opts.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if g.MaxMessage > 0 {
		b.in.SetLimit(g.MaxMessage)
	}
	l := &link{conn: conn, since: time.Now(), inFlight: map[string]request{}, own: map[string]string{}, moved: map[string]bool{}, muteAcks: map[string]bool{}}
	l.writing.Lock() // what the client sends waits for the session
	b.mu.Lock()
	again := b.session.replay(b, l)
	for old := range b.links {
		again = append(again, old.moveListens(l)...)
	}
	isFirst := !b.session.wasConnected
	b.session.wasConnected = true
	b.links[l], b.current = true, l
	isClosed := b.closed
	b.wg.Add(1)
	b.mu.Unlock()
	go b.readLink(ctx, l)
	for _, body := range again {
		_, _ = l.conn.Write(append(body, '\n'))
	}
	l.writing.Unlock()
	if isClosed {
		_ = conn.CloseWrite()
	}
	if !isFirst {
		slog.Info("connected to another gateway", "pid", g.PID, "version", g.Version)
		for _, note := range b.changedLists() {
			b.sendToClient(ctx, note)
		}
	}
	return l, nil
}

// usable returns the link for new requests, if there is one.
func (b *bridge) usable() *link {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current != nil && !b.current.leaving {
		return b.current
	}
	return nil
}

// readLink forwards the gateway's messages until the connection ends.
func (b *bridge) readLink(ctx context.Context, l *link) {
	defer b.wg.Done()
	in := frame.NewReader(l.conn, maxReplyBytes, nil)
	for {
		body, err := in.Next()
		if err != nil {
			break
		}
		b.takeMessage(ctx, l, body)
	}
	_ = l.conn.Close()
	b.loseLink(ctx, l)
}

// takeMessage takes a message of the gateway.
func (b *bridge) takeMessage(ctx context.Context, l *link, body []byte) {
	m, err := rpc.ParseMessage(body, maxDepth, math.MaxInt)
	if err != nil {
		b.sendToClient(ctx, body)
		return
	}
	b.mu.Lock()
	pass, isDone := true, false
	switch id := string(m.ID.Of(m.Body)); {
	case m.Method == NoteDrain:
		params, _ := mcp.ParseParams(m.Params.Of(m.Body))
		replaced, _ := params.Get("replaced")
		b.wg.Go(func() { b.leave(ctx, l, string(replaced) == "true") })
		pass = false
	case m.IsNotification():
		pass = !l.isKnownAck(&m)
	case !m.IsReply():
		if len(b.asks) < maxInFlight {
			b.asks[id] = l
		}
	case l.own[id] != "":
		if m.IsError {
			slog.Warn("the new gateway refused a part of the session", "method", l.own[id], "error", string(m.Error.Of(m.Body)))
		}
		delete(l.own, id)
		pass = false
	case l.moved[id]:
		delete(l.moved, id)
		pass = false
	default:
		delete(l.inFlight, id)
		if !m.IsError {
			b.session.noteReply(id)
		} else {
			delete(b.session.pending, id)
		}
		isDone = l.isDone(b)
	}
	b.mu.Unlock()
	if pass {
		b.sendToClient(ctx, body)
	}
	if isDone {
		_ = l.conn.CloseWrite()
	}
}

// isDone reports, once, that a link which the client leaves has nothing in flight any more; the lock is held.
func (l *link) isDone(b *bridge) bool {
	if !l.leaving || l == b.current || l.halfClose {
		return false
	}
	for _, r := range l.inFlight {
		if r.method != mcp.SubscriptionsListen { // which the gateway ends when nothing else is left
			return false
		}
	}
	l.halfClose = true
	return true
}

// leave moves to another gateway. Requests in flight are answered by the old one.
func (b *bridge) leave(ctx context.Context, l *link, replaced bool) {
	b.mu.Lock()
	l.leaving = true
	if !replaced && b.current == l {
		b.current = nil // the next request starts another gateway
	}
	closed := b.closed
	b.mu.Unlock()
	if replaced && !closed {
		if _, err := b.connect(ctx); err != nil {
			slog.Error("the gateway was replaced, and the new one cannot be reached", "error", err)
		}
	}
	b.mu.Lock()
	if b.current == l {
		b.current = nil
	}
	isDone := l.isDone(b)
	b.mu.Unlock()
	if isDone {
		_ = l.conn.CloseWrite()
	}
}

// loseLink answers what was in flight on a link that has ended. What is safe to repeat is sent to another gateway; a call
// may have been executed, so the client decides.
func (b *bridge) loseLink(ctx context.Context, l *link) {
	b.mu.Lock()
	delete(b.links, l)
	if b.current == l {
		b.current = nil
	}
	for id, of := range b.asks {
		if of == l {
			delete(b.asks, id)
		}
	}
	inFlight := l.inFlight
	l.inFlight = nil
	var again [][]byte
	var lost []string
	for id, r := range inFlight {
		delete(b.session.pending, id)
		if r.body != nil && !b.closed {
			again = append(again, r.body)
		} else {
			lost = append(lost, id)
		}
	}
	expected := l.leaving || b.closed
	b.mu.Unlock()
	if !expected {
		slog.Warn("the gateway ended", "requests_in_flight", len(inFlight))
	}
	for _, id := range lost {
		b.sendToClient(ctx, unavailable(rpc.RawID([]byte(id)),
			"the gateway ended while this request was in flight: it may have been executed, and is not repeated. Check before you call again; new calls work", false))
	}
	for _, body := range again {
		b.forward(ctx, body)
	}
	if !expected && len(again) == 0 && time.Since(l.since) > steadyTime {
		b.wg.Go(func() {
			if _, err := b.connect(ctx); err != nil {
				slog.Error("the gateway cannot be started again", "error", err)
			}
		})
	}
}

// finish tells the gateways that the client sends nothing more. They answer what is in flight.
func (b *bridge) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for l := range b.links {
		l.halfClose = true
		_ = l.conn.CloseWrite()
	}
}
