package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/frame"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// lastReadTimeout is how long the client may take to read the last replies, once it has closed its side.
const lastReadTimeout = 2 * time.Second

// maxQueuedPerClient is how much waits for one of many clients to read; a larger message may still go alone.
const maxQueuedPerClient = 8 << 20

// stdio is the transport of one client on a pair of byte streams: stdin and stdout, or a connection that carries
// them. It may speak any revision, request by request; the first one decides what the servers learn of it.
type stdio struct {
	hub       *Hub
	opts      StdioOptions
	callerKey string          // whose share of what is limited the client uses; "" for a single client
	conn      string          // no two connections have the same; "" for a single client
	life      context.Context //nolint:containedctx // ends with the connection
	out       *frame.Writer
	session   StdioSession
	inFlight  InFlight
	memory    *membudget.Scope // of the message that is being read
	closing   chan struct{}    // closed when the client gets no more than the replies to its requests in flight

	mu      sync.Mutex
	refuses bool // requests that begin from now on
	wg      sync.WaitGroup

	initialized chan struct{} // closed when the reply to the last initialize is written; nil before there was one
	attach      sync.Once     // attaches the session

	// Of the goroutine that reads:
	isKnown bool   // the client has made a request
	token   string // of the last request, for notifications
}

// stdioClientKey is the caller on byte streams, whatever its connection: a client that comes back finds the connections
// to servers that it had.
const stdioClientKey = "stdio"

// StdioOptions says who a client on byte streams is.
type StdioOptions struct {
	Client string // the id that the client's entry names; "" where it names none
	Token  string // stands for the token of messages that carry none; "" for none

	// Drain is called when the gateway stops. It returns a message that tells the client, and how long the client may
	// take: it sends new requests elsewhere and closes its side once it has its replies; until then it is served as
	// before. Nil: the client is not told, and requests that arrive while the gateway stops are refused.
	Drain func() (notice []byte, grace time.Duration)
}

// Send queues a message on stdout.
func (d *stdio) Send(parts ...[]byte) error { return d.out.Send(parts...) }

// SendMessage queues a message on stdout.
func (d *stdio) SendMessage(m *Message) error { return d.out.Send(m.body) }

// ServeStdio serves one client until it closes its side or ctx ends. Calls in flight are answered first, for as long
// as draining may take. Many clients can be served at once, beside those over HTTP, unless the hub was made for a
// single one. When it returns, the caller must close in.
func (h *Hub) ServeStdio(ctx context.Context, in io.Reader, out io.WriteCloser, opts StdioOptions) error {
	p := h.plan.Load()
	reader := frame.NewReader(in, int64(p.HTTP.MaxRequestBytes), func(line []byte) {
		slog.Warn("a line on stdin is not a JSON-RPC message", "line", fmt.Sprintf("%.80q", line))
	})
	d := &stdio{hub: h, opts: opts, closing: make(chan struct{})}
	if !h.deps.SingleClient {
		d.conn = stdioPrefix + strconv.FormatInt(h.stdioCount.Add(1), 10)
		d.callerKey = auth.LocalCaller().Key() + "@" + d.conn
	}
	d.memory = h.deps.Budget.Scope(cmp.Or(d.callerKey, stdioClientKey))
	defer d.memory.Release()
	reader.ChargeTo(d.memory)
	// At most a quarter of the memory budget waits for a single client to read.
	limits := frame.Limits{MaxMessages: 10_000, MaxBytes: 256 << 20}
	if !h.deps.SingleClient {
		limits.MaxBytes = maxQueuedPerClient
	}
	if total := h.deps.Budget.Stats().Total; total > 0 {
		limits.MaxBytes = min(limits.MaxBytes, total/4)
	}
	d.out = frame.NewWriter(out, limits, reader.Framing)
	d.session = h.legacy.OpenStdio(d, d.callerKey)
	defer d.session.Close()
	defer h.clients.removeConn(d.conn)
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	d.life = work
	ended := make(chan error, 1)
	go func() { ended <- d.readAll(work, reader) }()
	if h.deps.SingleClient {
		go h.sweepRegularly()
	}
	err := d.awaitEnd(ctx, ended)
	d.stopServing(stop)
	return errors.Join(err, d.out.Close(lastReadTimeout))
}

// awaitEnd waits until the client closes its side or ctx ends. A client that can be told of it goes on using the
// connection until it has its replies, for as long as draining may take.
func (d *stdio) awaitEnd(ctx context.Context, ended <-chan error) (err error) {
	select {
	case err = <-ended:
	case <-ctx.Done():
		if d.opts.Drain == nil {
			return nil
		}
		notice, grace := d.opts.Drain()
		_ = d.out.Send(notice) // fails only if the client is gone, which ends the reading too
		select {
		case err = <-ended:
		case <-time.After(grace):
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// stopServing waits for the requests in flight, and cancels them when draining has taken too long.
func (d *stdio) stopServing(cancel func()) {
	d.mu.Lock()
	d.refuses = true
	d.mu.Unlock()
	close(d.closing)
	d.session.EndRequests()
	if d.hub.deps.SingleClient {
		d.hub.EndStreams()
	}
	served := make(chan struct{})
	go func() { d.wg.Wait(); close(served) }()
	select {
	case <-served:
	case <-time.After(d.hub.plan.Load().HTTP.DrainGrace.D()):
		cancel()
		<-served
	}
}

// startServing serves a request in its own goroutine, unless the connection ends.
func (d *stdio) startServing(serve func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.refuses {
		d.wg.Go(serve)
	}
	return !d.refuses
}

// readAll reads and serves messages until the client closes its side.
func (d *stdio) readAll(ctx context.Context, in *frame.Reader) error {
	for {
		in.SetLimit(int64(d.hub.plan.Load().HTTP.MaxRequestBytes))
		body, err := in.Next()
		var big *frame.TooLargeError
		switch {
		case errors.As(err, &big) && big.Err != nil: // there is no memory for it
			d.sendFailure(rpc.ID{}, big.Err)
		case errors.As(err, &big):
			d.sendFailure(rpc.ID{}, fault.Wrap(fault.TooLarge, "the request is too large", err))
		case err != nil:
			return err
		default:
			d.chargeMessage(ctx, body, in.ChargedBytes())
		}
	}
}

// chargeMessage moves the memory of a message from the reader's scope to one of its own, and serves it. The reader's
// scope holds charged bytes for it.
func (d *stdio) chargeMessage(ctx context.Context, body []byte, charged int64) {
	memory := d.memory.Sibling()
	err := d.memory.MoveTo(memory, charged)
	if charged == 0 {
		err = memory.Reserve(int64(len(body)))
	}
	if err != nil {
		d.memory.Free(charged)
		memory.Release()
		parsed, _ := rpc.ParseRequest(body, d.hub.plan.Load().Hub.MaxDepth)
		d.sendFailure(parsed.ID, err)
		return
	}
	d.serveMessage(membudget.NewContext(ctx, memory), body, memory.Release)
}

// sendReply sends a reply. It is never dropped: where the queue is full, it waits for the client to read.
func (d *stdio) sendReply(ctx context.Context, parts ...[]byte) {
	for errors.Is(d.out.Send(parts...), frame.ErrFull) && d.out.Flush(ctx) == nil {
	}
}

func (d *stdio) sendFailure(id rpc.ID, err error) { _ = d.out.Send(AppendFailure(nil, id, err)) }

// serveMessage serves one message. Requests are served concurrently, but what depends on their order is decided here.
// release is called when the message is served.
func (d *stdio) serveMessage(ctx context.Context, body []byte, release func()) {
	p, releasePlan := d.hub.acquirePlan()
	isServing := false
	defer func() {
		if !isServing {
			releasePlan()
			release()
		}
	}()
	message, err := rpc.ParseRequest(body, p.Hub.MaxDepth)
	if errors.Is(err, rpc.ErrUnexpectedReply) {
		d.session.TakeReply(body)
		return
	}
	req := &Request{
		Request: message, Plan: p, releasePlan: releasePlan, Caller: auth.LocalCaller(), CallerKey: d.callerKey, ClientID: d.opts.Client,
		conn: d.conn, connCtx: d.life, clientKey: stdioClientKey,
	}
	if err == nil {
		req.Params, err = mcp.ParseParams(message.Params)
	}
	if err == nil {
		err = d.checkToken(ctx, req)
	}
	if err == nil {
		err = d.identify(req)
	}
	if err != nil {
		ctx, writeLog := logStdio(ctx, req)
		noteFault(ctx, err)
		writeLog()
		if req.ID.IsSet() || !req.IsNotification() || req.Method == "" { // a notification has no reply
			d.sendFailure(req.ID, err)
		}
		return
	}
	if req.IsNotification() {
		if err := d.hub.Admit(req); err != nil {
			slog.Debug("a notification was dropped", "method", fault.Clip(req.Method), "error", err)
			return
		}
		if id, ok := req.Params.Get("requestId"); ok && req.Method == mcp.NotifyCancelled {
			d.inFlight.Cancel(id)
		}
		d.hub.Forward(req)
		return
	}
	call, done := d.inFlight.Begin(ctx, req.ID)
	initialized := d.initialized
	if req.Method == mcp.Initialize {
		d.initialized = make(chan struct{})
		initialized = d.initialized
	}
	isServing = d.startServing(func() {
		defer release()
		defer releasePlan()
		defer done()
		d.serveInTurn(call, req, initialized)
	})
	if !isServing {
		done()
		d.sendFailure(req.ID, errStopping)
	}
}

// serveInTurn serves a request when its turn has come: before the reply to initialize, only the reply to a ping is
// written. Messages that belong to no request wait for that, too.
func (d *stdio) serveInTurn(ctx context.Context, req *Request, initialized chan struct{}) {
	if req.Method == mcp.Initialize {
		defer close(initialized)
		d.serveRequest(ctx, req)
		d.attach.Do(d.session.Attach)
		return
	}
	if req.Method != mcp.Ping {
		if initialized != nil {
			select {
			case <-initialized:
			case <-ctx.Done(): // the request is cancelled
				return
			}
		}
		d.attach.Do(d.session.Attach)
	}
	d.serveRequest(ctx, req)
}

// logStdio starts the log line of a message, as requests over HTTP have it.
func logStdio(ctx context.Context, req *Request) (context.Context, func(...slog.Attr)) {
	attrs := []slog.Attr{slog.String("transport", "stdio"), slog.String("rpc", fault.Clip(req.Method))}
	if req.ClientID != "" {
		attrs = append(attrs, slog.String("client", req.ClientID))
	}
	return front.StartCallLog(ctx, attrs...)
}

// checkToken refuses a message without the token, where one is required (A8): initialize and ping too. Where the
// process was started with the token, a message needs none, but a wrong one is refused. A notification may
// leave it out once a request has shown it: not all clients can add it to notifications.
func (d *stdio) checkToken(ctx context.Context, req *Request) error {
	token := d.opts.Token
	if token == "" && req.IsNotification() {
		token = d.token
	}
	if raw, ok := req.Params.Get("proxy"); ok {
		if given, hasToken := proxyToken(raw); hasToken {
			token = given
		}
	}
	if req.Plan.Gate.IsRequired() {
		caller, err := req.Plan.Gate.AuthenticateToken(ctx, token)
		if err != nil {
			req.Plan.Gate.RefuseCredential(ctx, "", err)
			return errStdioToken
		}
		req.Caller = caller
	}
	if !req.IsNotification() {
		d.token = token
	}
	return nil
}

// errStdioToken explains the refusal to a client that has no headers.
var errStdioToken = fault.New(fault.Unauthorized, "a valid token is required: in params.proxy.authToken, or in CTXGATE_TOKEN when the process is started")

// identify finds out who the client is: from initialize, or from the request itself. The first request of a single
// client but a ping starts the servers, which learn what they may ask of the client.
func (d *stdio) identify(req *Request) error {
	if _, hasVersion := req.Params.Meta(mcp.MetaProtocolVersion); hasVersion && req.Method != mcp.Initialize {
		req.Protocol = mcp.Modern
	} else {
		req.Protocol = mcp.Legacy
		if err := d.session.Join(req); err != nil {
			return err
		}
	}
	if d.isKnown || req.IsNotification() || req.Method == mcp.Ping {
		return nil
	}
	if req.Protocol == mcp.Modern {
		if d.hub.readClient(req) != nil {
			return nil //nolint:nilerr // it is refused when it is served
		}
		if err := d.session.SetModern(req); err != nil {
			return err
		}
	}
	d.isKnown = true
	if !d.hub.deps.SingleClient {
		return nil
	}
	// If a reload is under way, it has started the servers of its plan, and they are started again here for the
	// client, or it starts them after this.
	h := d.hub
	h.applying.Lock()
	defer h.applying.Unlock()
	if h.isStopping() {
		return nil
	}
	h.single = &singleClient{req.Client, d.session}
	h.startServers(h.plan.Load())
	if h.wanted != nil {
		h.startServers(h.wanted)
	}
	return nil
}

func (d *stdio) serveRequest(ctx context.Context, req *Request) {
	ctx, writeLog := logStdio(ctx, req)
	if req.Peer == nil {
		req.Peer = d.hub.NewCallPeer(req, d, nil)
	}
	var out Reply
	err := Contain(func() (err error) {
		if req.Protocol == mcp.Modern {
			if err := d.hub.readClient(req); err != nil {
				return err
			}
			if req.Method == mcp.SubscriptionsListen {
				out, err = d.serveListen(ctx, req)
				return err
			}
		}
		out, err = d.hub.Serve(ctx, req)
		return err
	})
	if err != nil {
		noteFault(ctx, err)
	} else {
		front.AddLogAttrs(ctx, slog.Int("code", out.code))
	}
	writeLog()
	switch {
	case ctx.Err() != nil && fault.KindOf(err) == fault.Canceled: // the client does not wait for it
	case err != nil:
		d.sendReply(ctx, AppendFailure(nil, req.ID, err))
	case out.Body != nil:
		d.sendReply(ctx, replyParts(out)...)
		if len(out.Body) > membudget.MaxSmallScope { // what waits for the client to read is still held
			_ = d.out.Flush(ctx)
		}
	}
}

// serveListen serves subscriptions/listen until the client cancels it or the hub stops.
func (d *stdio) serveListen(ctx context.Context, req *Request) (Reply, error) {
	if err := d.hub.Admit(req); err != nil {
		return Reply{}, err
	}
	l, err := d.hub.openListenStream(ctx, d, req)
	if err != nil {
		return Reply{}, err
	}
	defer l.stop()
	req.releasePlan() // the stream may outlive many plans
	select {
	case <-ctx.Done():
		return Reply{}, nil
	case <-d.hub.closing:
	case <-d.closing:
	}
	return Reply{Body: l.lastMessage()}, nil
}
