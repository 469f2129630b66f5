package hub

import (
	"bytes"
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// A server of the older era asks in the middle of a call; a client of the newer one is asked by
// being answered, and comes back with what was asked for. Between the two the call is parked: the
// server waits, and the state that the client brings back says where (A5). It is sealed, and good
// only for the same client, the same request and a while.

const (
	maxParked = 1000                  // calls in all
	ownParked = 250                   // calls of one caller
	together  = 25 * time.Millisecond // between questions that are asked at once

	parkedOverhead = 16 << 10 // what a parked call costs beside its request
)

// lot is where calls are parked.
type lot struct {
	mu    sync.Mutex
	calls map[string]*parked
}

// parked is a call whose server waits for an answer of its client.
type parked struct {
	name   string
	caller string // whose share of the places it takes
	who    string // whose it is
	digest string // of the request
	until  time.Time
	to     target
	waiter *waiter
	cancel context.CancelFunc
	memory *membudget.Scope // what it holds while its client is away

	questions chan *question
	done      chan struct{} // closed when the server has answered
	m         rpc.Message
	err       error

	mu   sync.Mutex
	n    int
	open []*question // put to the client, and not answered
}

type question struct {
	key    string
	input  mcp.Input
	answer chan rpc.Reply
}

func (l *lot) init() { l.calls = map[string]*parked{} }

// parks says whether a call may have to wait for the client to come back.
func (r *request) parks(lane *upstream.Lane) bool {
	hello, up := lane.Up()
	legacy := !up || hello.Era == mcp.EraLegacy
	return r.era == mcp.EraModern && legacy && mcp.Interruptible(r.Method) && r.client.Answers() && r.peer != nil
}

// park makes a call that may be interrupted.
func (h *Hub) park(ctx context.Context, req *request, to target, lane *upstream.Lane, release func()) (reply, error) {
	memory := membudget.From(ctx).Sibling()
	if err := memory.Take(parkedOverhead + int64(len(req.params.Raw()))); err != nil {
		memory.Release()
		release()
		return reply{}, err
	}
	far, cancel := context.WithCancel(membudget.With(context.WithoutCancel(ctx), memory))
	p := &parked{
		name: rand.Text(), caller: front.CallerKey(ctx), who: req.principal(), digest: digest(req), to: to, waiter: req.peer, cancel: cancel, memory: memory,
		questions: make(chan *question, 16), done: make(chan struct{}),
		until: time.Now().Add(req.plan.Hub.AskTimeout.D()),
	}
	req.peer.lot = p
	if !h.lot.add(p) {
		cancel()
		release()
		memory.Release()
		return reply{}, fault.New(fault.Full, "too many calls wait for their clients")
	}
	go func() {
		defer release()
		defer cancel()
		defer close(p.done)
		p.err = contained(func() (err error) {
			p.m, err = h.far(far, req, to, lane)
			return err
		})
	}()
	return h.await(ctx, req, p)
}

// await waits for the server's answer or its next question.
func (h *Hub) await(ctx context.Context, req *request, p *parked) (reply, error) {
	select {
	case <-p.done:
		defer h.lot.remove(p)
		if p.err != nil {
			return reply{}, p.err
		}
		if err := p.memory.MoveTo(membudget.From(ctx), int64(len(p.m.Body))); err != nil {
			return reply{}, err
		}
		return h.finish(ctx, req, p.to, p.m)
	case q := <-p.questions:
		p.gather(q)
		return h.interrupt(req, p), nil
	case <-ctx.Done():
		h.lot.remove(p)
		p.cancel()
		return reply{}, fault.Wrap(fault.Canceled, "the client left", ctx.Err())
	}
}

// gather takes a question and those that come with it: a server that asks several at once has
// them all answered in one round.
func (p *parked) gather(q *question) {
	more := time.NewTimer(together)
	defer more.Stop()
	for q != nil {
		p.mu.Lock()
		p.open = append(p.open, q)
		p.mu.Unlock()
		select {
		case q = <-p.questions:
		case <-more.C:
			q = nil
		}
	}
}

// interrupt answers with the questions that are open.
func (h *Hub) interrupt(req *request, p *parked) reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	inputs := make([]mcp.Input, len(p.open))
	for i, q := range p.open {
		inputs[i] = q.input
	}
	p.until = time.Now().Add(req.plan.Hub.AskTimeout.D())
	plain := strings.Join([]string{p.name, p.who, p.digest, strconv.FormatInt(p.until.Unix(), 10)}, "\x01")
	return result(req, mcp.AppendInputs(nil, inputs, h.stateSeal.Seal([]byte(plain))))
}

// resume goes on with a parked call.
func (h *Hub) resume(ctx context.Context, req *request) (reply, error) {
	p, err := h.parked(req)
	if err != nil {
		return reply{}, err
	}
	p.waiter.attach(req.peer)
	raw, _ := req.params.Get("inputResponses")
	answers, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return reply{}, invalidParams("inputResponses must be an object")
	}
	if p.settle(answers) > 0 {
		return h.interrupt(req, p), nil // what is missing is asked for again
	}
	return h.await(ctx, req, p)
}

// settle gives the server the answers to its questions, and says how many are still open.
func (p *parked) settle(answers jsonscan.Fields) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var left []*question
	for _, q := range p.open {
		raw, ok := answers.Get(q.key)
		if !ok {
			left = append(left, q)
			continue
		}
		q.answer <- rpc.Reply{Body: bytes.Clone(raw), Result: jsonscan.Span{End: len(raw)}}
	}
	p.open = left
	return len(left)
}

// ownState says whether a request's state was made here: a server's own state goes to the server.
func (h *Hub) ownState(req *request) bool {
	_, err := h.stateSeal.Open(req.params.Text("requestState"))
	return req.era == mcp.EraModern && err == nil
}

// stray says whether a request brings a state that is nobody's: it was not made here, and a server
// of the older era makes none.
func (r *request) stray(lane *upstream.Lane) bool {
	_, brought := r.params.Get("requestState")
	hello, up := lane.Up()
	if !up {
		hello, up = lane.Remote().Shared().Up()
	}
	return brought && r.era == mcp.EraModern && up && hello.Era == mcp.EraLegacy
}

var errState = invalidParams("requestState is not valid any more: make the request again without it")

// parked finds the call that a request goes on with, if it is the same client and request.
func (h *Hub) parked(req *request) (*parked, error) {
	plain, err := h.stateSeal.Open(req.params.Text("requestState"))
	if err != nil {
		return nil, errState
	}
	part := strings.Split(string(plain), "\x01")
	if len(part) != 4 || part[1] != req.principal() || part[2] != digest(req) {
		return nil, errState
	}
	if until, err := strconv.ParseInt(part[3], 10, 64); err != nil || time.Now().Unix() > until {
		return nil, errState
	}
	h.lot.mu.Lock()
	defer h.lot.mu.Unlock()
	if p := h.lot.calls[part[0]]; p != nil {
		return p, nil
	}
	return nil, errState
}

// digest is a request's identity without what differs when it is made again.
func digest(req *request) string {
	rest := req.params.With([]jsonscan.Change{{Key: "_meta"}, {Key: "proxy"}, {Key: "inputResponses"}, {Key: "requestState"}}, nil)
	return hashText(req.Method + "\x00" + req.only + "\x00" + string(rest))
}

// ask waits for the client to come back with an answer.
func (p *parked) ask(ctx context.Context, server string, m rpc.Message) (rpc.Reply, error) {
	size := int64(len(m.Body))
	if err := p.memory.Take(size); err != nil {
		return rpc.Reply{}, err
	}
	defer p.memory.Give(size)
	body := tagged(server, m.Body, m.Params)
	fields, err := jsonscan.FieldsOf(body)
	if err != nil {
		return rpc.Reply{}, err
	}
	params, _ := fields.Get("params")
	p.mu.Lock()
	p.n++
	key := "q" + strconv.Itoa(p.n)
	p.mu.Unlock()
	q := &question{key: key, input: mcp.Input{Key: key, Method: m.Method, Params: params}, answer: make(chan rpc.Reply, 1)}
	select {
	case p.questions <- q:
	case <-ctx.Done():
		return rpc.Reply{}, ctx.Err()
	}
	select {
	case r := <-q.answer:
		return r, nil
	case <-p.done:
		return rpc.Reply{}, fault.New(fault.Canceled, "the call is over")
	case <-ctx.Done():
		return rpc.Reply{}, ctx.Err()
	}
}

func (l *lot) add(p *parked) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := 0
	for _, other := range l.calls {
		if other.caller == p.caller {
			own++
		}
	}
	if len(l.calls) >= maxParked || own >= ownParked {
		return false
	}
	l.calls[p.name] = p
	return true
}

func (l *lot) remove(p *parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, p.name)
	p.memory.Release()
}

// close ends every parked call.
func (l *lot) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, p := range l.calls {
		delete(l.calls, name)
		p.cancel()
		p.memory.Release()
	}
}

// sweep ends the calls whose clients did not come back.
func (l *lot) sweep(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, p := range l.calls {
		p.mu.Lock()
		late := now.After(p.until) && len(p.open) > 0
		p.mu.Unlock()
		if late {
			delete(l.calls, name)
			p.cancel()
			p.memory.Release()
		}
	}
}
