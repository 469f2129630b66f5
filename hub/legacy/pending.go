package legacy

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// A legacy server sends requests during a call; a modern client gets them as the reply, and makes the request again
// with the input. Until then the call is pending: the server waits, and the state that the client brings back says
// which call it is (A5). The state is sealed, and valid only for the same client, the same request and a limited time.

const (
	maxPending          = 1000
	maxPendingPerCaller = 250
	pendingOverhead     = 16 << 10 // what a pending call costs beside its request

	gatherWindow = 25 * time.Millisecond // within which the requests of a server go to the client together
)

// pendingCalls is the calls that may have to wait for input.
type pendingCalls struct {
	mu      sync.Mutex
	calls   map[string]*pendingCall // by name
	tenants membudget.Tenants
}

// pendingCall is a call whose server may wait for input from the client.
type pendingCall struct {
	name      string
	callerKey string // whose share of the pending calls it uses
	principal string // the caller that may continue it
	digest    string // of the request
	expires   time.Time
	target    hub.Target
	peer      *hub.CallPeer
	cancel    context.CancelFunc
	memory    *membudget.Scope

	questions chan *question
	done      chan struct{} // closed when the server has answered
	m         rpc.Message
	err       error

	mu            sync.Mutex
	questionCount int
	open          []*question // sent to the client, and not answered
}

// question is a server's request for input.
type question struct {
	input  mcp.InputRequest
	answer chan rpc.Reply
}

// callPending makes a call that may have to wait for input.
func (e *endpoint) callPending(ctx context.Context, req *hub.Request, to hub.Target, conn *upstream.ManagedConn, release func()) (hub.Reply, error) {
	memory := membudget.FromContext(ctx).Sibling()
	if err := memory.Reserve(pendingOverhead + int64(len(req.Params.Raw()))); err != nil {
		memory.Release()
		release()
		return hub.Reply{}, err
	}
	callCtx, cancel := context.WithCancel(membudget.NewContext(context.WithoutCancel(ctx), memory))
	p := &pendingCall{
		name: rand.Text(), callerKey: front.CallerKey(ctx), principal: principalOf(req), digest: digestOf(req), target: to, peer: req.Peer, cancel: cancel, memory: memory,
		questions: make(chan *question, 16), done: make(chan struct{}),
		expires: time.Now().Add(req.Plan.Hub.AskTimeout.D()),
	}
	req.Peer.SetAsk(p.askClient)
	if !e.pending.insert(p) {
		cancel()
		release()
		memory.Release()
		return hub.Reply{}, fault.New(fault.Full, "too many calls wait for their clients")
	}
	go func() {
		defer release()
		defer cancel()
		defer close(p.done)
		p.err = hub.Contain(func() (err error) {
			p.m, err = e.hub.CallUpstream(callCtx, req, to, conn)
			return err
		})
	}()
	return e.awaitAnswer(ctx, req, p)
}

// awaitAnswer waits for the server's answer or its next questions.
func (e *endpoint) awaitAnswer(ctx context.Context, req *hub.Request, p *pendingCall) (hub.Reply, error) {
	select {
	case <-p.done:
		defer e.pending.remove(p)
		if p.err != nil {
			return hub.Reply{}, p.err
		}
		if err := p.memory.MoveTo(membudget.FromContext(ctx), int64(len(p.m.Body))); err != nil {
			return hub.Reply{}, err
		}
		return e.hub.FinishCall(ctx, req, p.target, p.m)
	case q := <-p.questions:
		p.gatherQuestions(q)
		return e.replyWithQuestions(req, p), nil
	case <-ctx.Done():
		e.pending.remove(p)
		p.cancel()
		return hub.Reply{}, fault.Wrap(fault.Canceled, "the client left", ctx.Err())
	}
}

// gatherQuestions opens a question and those that come right after it: a server that asks several at once gets all
// answers in one round.
func (p *pendingCall) gatherQuestions(q *question) {
	window := time.NewTimer(gatherWindow)
	defer window.Stop()
	for q != nil {
		p.mu.Lock()
		p.open = append(p.open, q)
		p.mu.Unlock()
		select {
		case q = <-p.questions:
		case <-window.C:
			q = nil
		}
	}
}

// replyWithQuestions answers with the open questions.
func (e *endpoint) replyWithQuestions(req *hub.Request, p *pendingCall) hub.Reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	inputs := make([]mcp.InputRequest, len(p.open))
	for i, q := range p.open {
		inputs[i] = q.input
	}
	p.expires = time.Now().Add(req.Plan.Hub.AskTimeout.D())
	plain := strings.Join([]string{p.name, p.principal, p.digest, strconv.FormatInt(p.expires.Unix(), 10), e.hub.ReplicaID()}, "\x01")
	return hub.ResultReply(req, mcp.AppendInputRequired(nil, inputs, e.stateSeal.Seal([]byte(plain))))
}

// Resume continues a pending call, if the request has a state that was made here. Any other state is the server's.
func (e *endpoint) Resume(ctx context.Context, req *hub.Request) (_ hub.Reply, resumed bool, _ error) {
	if _, ok := req.Params.Get("requestState"); !ok || req.Protocol != mcp.Modern {
		return hub.Reply{}, false, nil
	}
	state, err := e.stateSeal.Open(req.Params.Text("requestState"))
	if err != nil {
		return hub.Reply{}, false, nil //nolint:nilerr // it is the server's
	}
	p, err := e.findPending(string(state), req)
	if err != nil {
		return hub.Reply{}, true, err
	}
	p.peer.Continue(req.Peer)
	raw, _ := req.Params.Get("inputResponses")
	answers, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return hub.Reply{}, true, hub.InvalidParams("inputResponses must be an object")
	}
	if p.answerQuestions(answers) > 0 {
		return e.replyWithQuestions(req, p), true, nil // the missing ones are asked for again
	}
	out, err := e.awaitAnswer(ctx, req, p)
	return out, true, err
}

// stateParts is how many parts the state of a pending call has; the last one is the replica that holds it.
const stateParts = 5

// PendingOwner returns the replica that holds the call that a request continues.
func (e *endpoint) PendingOwner(req *hub.Request) (string, error) {
	if _, ok := req.Params.Get("requestState"); !ok {
		return "", nil
	}
	state, err := e.stateSeal.Open(req.Params.Text("requestState"))
	if err != nil {
		return "", nil //nolint:nilerr // it is the server's
	}
	part := strings.Split(string(state), "\x01")
	if len(part) != stateParts || part[1] != principalOf(req) {
		return "", nil
	}
	return part[4], errState
}

// findPending returns the call that a state names, if it is of the same client and request.
func (e *endpoint) findPending(state string, req *hub.Request) (*pendingCall, error) {
	part := strings.Split(state, "\x01")
	if len(part) != stateParts || part[1] != principalOf(req) || part[2] != digestOf(req) {
		return nil, errState
	}
	if expires, err := strconv.ParseInt(part[3], 10, 64); err != nil || time.Now().Unix() > expires {
		return nil, errState
	}
	e.pending.mu.Lock()
	defer e.pending.mu.Unlock()
	if p := e.pending.calls[part[0]]; p != nil {
		return p, nil
	}
	return nil, errState
}

// answerQuestions passes the answers to the server, and returns how many questions are still open.
func (p *pendingCall) answerQuestions(answers jsonscan.Fields) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var open []*question
	for _, q := range p.open {
		raw, ok := answers.Get(q.input.Key)
		if !ok {
			open = append(open, q)
			continue
		}
		q.answer <- rpc.Reply{Body: bytes.Clone(raw), Result: jsonscan.Span{End: len(raw)}}
	}
	p.open = open
	return len(open)
}

// hasForeignState reports whether a request has an unknown state: it was not made here, and a legacy server
// makes none.
func hasForeignState(req *hub.Request, conn *upstream.ManagedConn) bool {
	_, hasState := req.Params.Get("requestState")
	hello, up := conn.Handshake()
	if !up {
		hello, up = conn.SharedHandshake()
	}
	return hasState && req.Protocol == mcp.Modern && up && hello.Protocol == mcp.Legacy
}

var errState = hub.InvalidParams("requestState is not valid any more: make the request again without it")

// principalOf identifies the caller. Two callers of one name are the same only if the same issuer vouches for them.
func principalOf(req *hub.Request) string { return req.Caller.Key() }

// digestOf identifies a request, without what differs when the client makes it again.
func digestOf(req *hub.Request) string {
	rest := req.Params.With([]jsonscan.Change{{Key: "_meta"}, {Key: "proxy"}, {Key: "inputResponses"}, {Key: "requestState"}}, nil)
	sum := sha256.Sum256([]byte(req.Method + "\x00" + req.Server + "\x00" + string(rest)))
	return hex.EncodeToString(sum[:])
}

// askClient sends a server's request to the client as a question of the call's reply, and waits for the answer.
func (p *pendingCall) askClient(ctx context.Context, server string, m rpc.Message) (rpc.Reply, error) {
	size := int64(len(m.Body))
	if err := p.memory.Reserve(size); err != nil {
		return rpc.Reply{}, err
	}
	defer p.memory.Free(size)
	body := hub.TagServer(server, m.Body, m.Params)
	fields, err := jsonscan.FieldsOf(body)
	if err != nil {
		return rpc.Reply{}, err
	}
	params, _ := fields.Get("params")
	p.mu.Lock()
	p.questionCount++
	key := "q" + strconv.Itoa(p.questionCount)
	p.mu.Unlock()
	q := &question{input: mcp.InputRequest{Key: key, Method: m.Method, Params: params}, answer: make(chan rpc.Reply, 1)}
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

// insert adds a call, unless there are too many, or its caller has its share.
func (t *pendingCalls) insert(p *pendingCall) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	sameCaller, sameTenant := 0, 0
	tenant := membudget.TenantOf(p.callerKey)
	for _, other := range t.calls {
		if other.callerKey == p.callerKey {
			sameCaller++
		}
		if membudget.TenantOf(other.callerKey) == tenant {
			sameTenant++
		}
	}
	if len(t.calls) >= maxPending || sameCaller >= maxPendingPerCaller || t.tenants.AreSeveral(tenant) && sameTenant >= maxPending/2 {
		return false
	}
	t.calls[p.name] = p
	return true
}

func (t *pendingCalls) remove(p *pendingCall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.calls, p.name)
	p.memory.Release()
}

// endLate ends the calls whose clients did not come back.
func (t *pendingCalls) endLate(now time.Time) {
	t.endWhere(func(p *pendingCall) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return now.After(p.expires) && len(p.open) > 0
	})
}

func (t *pendingCalls) endWhere(match func(*pendingCall) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, p := range t.calls {
		if match(p) {
			delete(t.calls, name)
			p.cancel()
			p.memory.Release()
		}
	}
}
