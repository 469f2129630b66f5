package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

// lastWords is how long the client may take to read what was answered, once it has nothing more
// to ask.
const lastWords = 2 * time.Second

// stdioCaller is who holds what requests on stdin hold.
const stdioCaller = "stdio"

// stdio is the door of one client on stdin and stdout. It may speak either era, request by
// request; the first one says what the servers are told of it.
type stdio struct {
	hub    *Hub
	out    *frame.Writer
	held   *session // the client: of the older era by initialize, of the newer one in name only
	wg     sync.WaitGroup
	memory *membudget.Scope // of the message that is being read

	greeting chan struct{} // closed when the reply to the last initialize is written; nil before there was one
	attach   sync.Once     // gives the session this client's stdout

	// Of the goroutine that reads:
	met   bool   // the client has said who it is
	token string // the last one that a request showed, for notifications
}

func (d *stdio) send(parts ...[]byte) error { return d.out.Send(parts...) }

func (d *stdio) pass(m *message) error { return d.out.Send(m.body) }

// ServeStdio serves one client until it closes its side or ctx ends. Calls under way are answered
// first, for as long as draining may take.
func (h *Hub) ServeStdio(ctx context.Context, in io.Reader, out io.WriteCloser) error {
	p := h.plan.Load()
	reader := frame.NewReader(in, int64(p.HTTP.MaxRequestBytes), func(line []byte) {
		slog.Warn("what is no message came on stdin", "line", fmt.Sprintf("%.80q", line))
	})
	d := &stdio{hub: h, memory: h.deps.Budget.Scope(stdioCaller)}
	defer d.memory.Release()
	reader.Charge(d.memory)
	d.out = frame.NewWriter(out, h.stdioQueue(), reader.Framing)
	d.held = h.newSession(auth.Local(), mcp.Client{Capabilities: []byte("{}")}, "", "stdio")
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- d.read(work, reader) }()
	go h.tidy()
	var err error
	select {
	case err = <-ended:
		if errors.Is(err, io.EOF) {
			err = nil
		}
	case <-ctx.Done():
	}
	h.End()
	d.drain(h.plan.Load().HTTP.DrainGrace.D(), stop)
	return errors.Join(err, d.out.Close(lastWords))
}

// stdioQueue bounds what waits for the client to read: a quarter of the memory budget at the most.
func (h *Hub) stdioQueue() frame.Limits {
	limits := frame.Limits{MaxMessages: 10_000, MaxBytes: 256 << 20}
	if total := h.deps.Budget.Stats().Total; total > 0 {
		limits.MaxBytes = min(limits.MaxBytes, total/4)
	}
	return limits
}

// drain lets calls under way finish.
func (d *stdio) drain(grace time.Duration, stop func()) {
	done := make(chan struct{})
	go func() { d.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(grace):
		stop()
		<-done
	}
}

func (d *stdio) read(ctx context.Context, in *frame.Reader) error {
	for {
		in.SetLimit(int64(d.hub.plan.Load().HTTP.MaxRequestBytes))
		body, err := in.Next()
		var big *frame.TooLarge
		switch {
		case errors.As(err, &big) && big.Err != nil: // there is no memory for it
			d.fail(rpc.ID{}, big.Err)
		case errors.As(err, &big):
			d.fail(rpc.ID{}, fault.Wrap(fault.TooLarge, "the request is too large", err))
		case err != nil:
			return err
		default:
			d.admitMessage(ctx, body, in.Charged())
		}
	}
}

// admitMessage gives a message its part of the memory budget, and serves it. The scope of what is
// read holds charged bytes for it.
func (d *stdio) admitMessage(ctx context.Context, body []byte, charged int64) {
	memory := d.memory.Sibling()
	err := d.memory.MoveTo(memory, charged)
	if charged == 0 {
		err = memory.Take(int64(len(body)))
	}
	if err != nil {
		d.memory.Give(charged)
		memory.Release()
		parsed, _ := rpc.ParseRequest(body, d.hub.plan.Load().Hub.MaxDepth)
		d.fail(parsed.ID, err)
		return
	}
	d.take(membudget.With(ctx, memory), body, memory.Release)
}

// deliver sends a reply. It is never dropped: where the queue is full, it waits for the client to read.
func (d *stdio) deliver(ctx context.Context, parts ...[]byte) {
	for errors.Is(d.out.Send(parts...), frame.ErrFull) && d.out.Flush(ctx) == nil {
	}
}

func (d *stdio) fail(id rpc.ID, err error) { _ = d.out.Send(appendFailure(nil, id, err)) }

// take serves one message. Requests are served beside each other, in order of their coming where
// the order says who the client is. release is called when the message is served.
func (d *stdio) take(ctx context.Context, body []byte, release func()) {
	p, leave := d.hub.enter()
	served := false
	defer func() {
		if !served {
			leave()
			release()
		}
	}()
	parsed, err := rpc.ParseRequest(body, p.Hub.MaxDepth)
	if errors.Is(err, rpc.ErrReply) {
		d.hub.takeReply(d.held, body)
		return
	}
	req := &request{Request: parsed, plan: p, leave: leave, who: d.held.who}
	if err == nil {
		req.params, err = mcp.ReadParams(parsed.Params)
	}
	if err == nil {
		err = d.check(req)
	}
	if err != nil {
		d.refuse(ctx, req, err)
		return
	}
	d.meet(req)
	if req.IsNotification() {
		req.held = d.held
		if err := d.hub.admit(req.plan, req); err != nil {
			slog.Debug("a notification was dropped", "method", clip(req.Method), "error", err)
			return
		}
		d.hub.heed(req)
		return
	}
	call, done := d.held.begin(ctx, req.ID)
	served = true
	greeted := d.greeting
	if req.Method == mcp.Initialize {
		d.greeting = make(chan struct{})
		greeted = d.greeting
	}
	d.wg.Go(func() {
		defer release()
		defer leave()
		defer done()
		d.inTurn(call, req, greeted)
	})
}

// inTurn serves a request when its turn has come: nothing but the answer to a ping is written before the
// reply to initialize. What belongs to no request waits for that, too.
func (d *stdio) inTurn(ctx context.Context, req *request, greeted chan struct{}) {
	if req.Method == mcp.Initialize {
		defer close(greeted)
		d.serve(ctx, req)
		d.attach.Do(func() { _ = d.held.listen(d) })
		return
	}
	if req.Method != mcp.Ping {
		if greeted != nil {
			select {
			case <-greeted:
			case <-ctx.Done(): // nobody waits for it
				return
			}
		}
		d.attach.Do(func() { _ = d.held.listen(d) })
	}
	d.serve(ctx, req)
}

// refuse answers what cannot be served. A notification has no answer.
func (d *stdio) refuse(ctx context.Context, req *request, err error) {
	ctx, write := logStdio(ctx, req)
	noteFault(ctx, err)
	write()
	if req.ID.IsSet() || !req.IsNotification() || req.Method == "" {
		d.fail(req.ID, err)
	}
}

// logStdio begins the log line of a message, with what a request has over HTTP too.
func logStdio(ctx context.Context, req *request) (context.Context, func(...slog.Attr)) {
	return front.Call(ctx, slog.String("transport", "stdio"), slog.String("rpc", clip(req.Method)))
}

// check refuses a message without the token, where one is asked for (A8): initialize and ping too,
// for each request is to carry it. The process may have been started with the token; then a message
// needs none, and a wrong one is refused all the same. A notification may leave it out once a request
// has shown it: clients that add it to their requests need not know how to add it to everything.
func (d *stdio) check(req *request) error {
	token := d.hub.deps.Token
	if token == "" && req.IsNotification() {
		token = d.token
	}
	if raw, ok := req.params.Get("proxy"); ok {
		if said, there := proxyToken(raw); there {
			token = said
		}
	}
	if _, err := req.plan.gate.Check(token); err != nil {
		return errStdioToken
	}
	if !req.IsNotification() {
		d.token = token
	}
	return nil
}

// errStdioToken is the refusal of every other door, in words for who has no headers.
var errStdioToken = fault.New(fault.Unauthorized, "a valid token is required: in params.proxy.authToken, or in CTXGATE_TOKEN when the process is started")

// meet finds out what the client is: from initialize, or from the request itself. The servers are
// started by the first request that says what they may ask of the client.
func (d *stdio) meet(req *request) {
	_, modern := req.params.Meta(mcp.KeyVersion)
	switch {
	case req.Method == mcp.Initialize:
		req.era = mcp.EraLegacy
		if !d.met {
			d.held.client = clientOf(req.params)
		}
		d.held.mute.Store(false)
	case modern:
		req.era = mcp.EraModern
	default:
		req.era = mcp.EraLegacy
	}
	if req.era == mcp.EraLegacy {
		req.join(d.held)
	}
	if req.Method == mcp.Initialize {
		req.client = clientOf(req.params) // it may have been met in the newer era
	}
	if d.met || req.IsNotification() || req.Method == mcp.Ping {
		return
	}
	if req.era == mcp.EraModern {
		if req.readMeta() != nil {
			return
		}
		d.held.client = req.client
		d.held.mute.Store(true)
	}
	d.met = true
	d.hub.startFor(d.held)
}

// startFor starts the servers for the one client. A reload may be under way: it starts the servers of
// its plan before this, and then they are started here, or after it, and then by itself.
func (h *Hub) startFor(client *session) {
	h.applying.Lock()
	defer h.applying.Unlock()
	if h.ended() {
		return
	}
	h.sessions.mu.Lock()
	h.sessions.one = client
	h.sessions.mu.Unlock()
	h.start(h.plan.Load())
	if h.wanted != nil {
		h.start(h.wanted)
	}
}

func (d *stdio) serve(ctx context.Context, req *request) {
	ctx, write := logStdio(ctx, req)
	req.peer = &waiter{hub: d.hub, req: req, out: d}
	var out reply
	err := contained(func() (err error) {
		out, err = d.answer(ctx, req)
		return err
	})
	if err != nil {
		noteFault(ctx, err)
	} else {
		front.Note(ctx, slog.Int("code", out.code))
	}
	write()
	switch {
	case ctx.Err() != nil && fault.KindOf(err) == fault.Canceled: // nobody waits for it
	case err != nil:
		d.deliver(ctx, appendFailure(nil, req.ID, err))
	case out.body != nil:
		d.deliver(ctx, partsOf(out)...)
		if len(out.body) > membudget.SmallScope { // what waits for the client to read is still held
			_ = d.out.Flush(ctx)
		}
	}
}

func (d *stdio) answer(ctx context.Context, req *request) (reply, error) {
	if req.era == mcp.EraModern {
		if err := req.readMeta(); err != nil {
			return reply{}, err
		}
		if req.Method == mcp.Listen {
			return d.listen(ctx, req)
		}
	}
	if req.Method == mcp.Initialize {
		if err := d.hub.admit(req.plan, req); err != nil {
			return reply{}, err
		}
		return d.hub.greeting(ctx, req), nil
	}
	return d.hub.serve(ctx, req)
}

// listen keeps a subscription until the client cancels it or the hub ends.
func (d *stdio) listen(ctx context.Context, req *request) (reply, error) {
	if err := d.hub.admit(req.plan, req); err != nil {
		return reply{}, err
	}
	l, err := d.hub.listen(ctx, d, req)
	if err != nil {
		return reply{}, err
	}
	defer l.stop()
	req.leave() // a stream may outlive many plans
	select {
	case <-ctx.Done():
		return reply{}, nil
	case <-d.hub.closing:
		return reply{body: l.farewell()}, nil
	}
}
