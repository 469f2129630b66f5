package hub

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/oauth"
	"github.com/ctxgate/ctxgate/redact"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// maxClientID bounds the id of a client; what is longer names none.
const maxClientID = 64

// maxClientBytes bounds what a client says of itself: its capabilities and its info.
const maxClientBytes = 4 << 10

// Request is a client's request, independent of the protocol revision and of the endpoint.
type Request struct {
	rpc.Request
	Params    mcp.Params // of the message, parsed
	Plan      *Plan
	Caller    auth.Caller
	CallerKey string // the caller and its address or connection: whose share of what is limited the request uses
	ClientID  string // as the client's entry names it, by ctxgate stdio --client or ?client=; "" where it names none
	Protocol  mcp.Protocol
	Client    mcp.Client
	LogLevel  string  // the least severe log messages that the client wants; "" for none
	Server    string  // the one server of the endpoint; "" for all
	Session   Session // of a legacy client; nil for a modern one
	Peer      *CallPeer

	hasAuthorizeState bool // it is made again after the client was asked to authorize a server

	clientKey   string          // as CallerKey, but the same for all connections; "" where CallerKey is
	conn        string          // no two connections have the same; "" on the stdio of a single client
	connCtx     context.Context //nolint:containedctx // ends with the connection; nil where that is not known
	redaction   *redact.Set     // what the access rules take out of the call; nil for nothing
	releasePlan func()          // the servers of the plan may be closed from then on
}

// NewHTTPRequest returns a request that came over HTTP, still without its message.
func NewHTTPRequest(r *http.Request, p *Plan, caller auth.Caller) *Request {
	req := &Request{Plan: p, Caller: caller, CallerKey: front.CallerKey(auth.WithCaller(r.Context(), caller)), Server: r.PathValue("server")}
	req.conn, req.connCtx = front.ConnectionOf(r)
	if id := r.URL.Query().Get("client"); len(id) <= maxClientID {
		req.ClientID = id
	}
	return req
}

// UpstreamCaller returns the client as upstream tells clients apart. A modern request identifies its client only by
// the caller, the address and the client's own name, which several clients may share.
func (r *Request) UpstreamCaller() upstream.Caller {
	caller := UpstreamCallerOf(r.Caller, r.Client)
	caller.Subject = cmp.Or(r.clientKey, r.CallerKey) + "\x00" + string(r.Client.Info)
	caller.ConnID, caller.ConnContext, caller.QuotaKey = r.conn, r.connCtx, r.CallerKey
	if r.Session != nil {
		caller.SessionID, caller.SessionPeer = r.Session.Name(), r.Session.Owner()
	}
	return caller
}

// UpstreamCallerOf returns a caller with a client of its own, as far as the credentials that servers see depend on it.
func UpstreamCallerOf(c auth.Caller, client mcp.Client) upstream.Caller {
	return upstream.Caller{
		Client: client, AccessToken: c.AccessToken(),
		Principal: oauth.Principal{Tenant: c.Tenant(), Issuer: c.Issuer(), Subject: c.Subject()},
	}
}

// LimitClient bounds what a client says of itself. Info that is too long is dropped; capabilities are not, as
// servers act on them.
func LimitClient(c mcp.Client) (mcp.Client, error) {
	if len(c.Capabilities) > maxClientBytes {
		return c, InvalidParams("the capabilities are too long")
	}
	if len(c.Capabilities)+len(c.Info) > maxClientBytes {
		c.Info = nil
	}
	return c, nil
}

// Reply is the answer to a request: a message, and the edits to make while it is written.
type Reply struct {
	Body  []byte
	Edits []jsonscan.Edit

	status int // of HTTP, where the protocol asks for another than 200
	code   int // of the server's error; 0 for a result
}

// ResultReply returns a reply of the gateway itself.
func ResultReply(req *Request, result []byte) Reply {
	return Reply{Body: rpc.AppendResult(nil, req.ID, result)}
}

// InFlight is the requests of one client that are being served, so that the client can cancel them.
type InFlight struct {
	mu      sync.Mutex
	closed  bool
	cancels map[string]context.CancelFunc // by the raw id of the request
}

// Begin adds a request. The function it returns must be called when the request is served.
func (f *InFlight) Begin(ctx context.Context, id rpc.ID) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	key := string(id.Raw())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		cancel()
	}
	if f.cancels == nil {
		f.cancels = map[string]context.CancelFunc{}
	}
	f.cancels[key] = cancel
	return ctx, func() {
		cancel()
		f.mu.Lock()
		delete(f.cancels, key)
		f.mu.Unlock()
	}
}

// Cancel cancels the request with a raw id, if it is being served.
func (f *InFlight) Cancel(rawID []byte) {
	f.mu.Lock()
	cancel := f.cancels[string(rawID)]
	f.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// CancelAll cancels every request, those that begin later too.
func (f *InFlight) CancelAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, cancel := range f.cancels {
		cancel()
	}
}

// Sender sends messages to a client. It does not wait for the client to read.
type Sender interface {
	// Send queues one message, whose parts must not change any more.
	Send(parts ...[]byte) error

	// SendMessage queues a message that others may hold too.
	SendMessage(m *Message) error
}

// AskFunc sends a server's request to a client and returns the client's reply.
type AskFunc func(ctx context.Context, server string, question rpc.Message) (rpc.Reply, error)

// ErrCannotAsk says that a client cannot be sent a request.
var ErrCannotAsk = fault.New(fault.NoMethod, "the client does not answer this")

// CallPeer is the client of a call under way, as the call's server reaches it.
type CallPeer struct {
	hub *Hub

	mu  sync.Mutex
	req *Request
	out Sender
	ask AskFunc // nil where the client cannot be asked
}

// NewCallPeer returns the client of a request, which gets messages by out. Ask may be nil.
func (h *Hub) NewCallPeer(req *Request, out Sender, ask AskFunc) *CallPeer {
	return &CallPeer{hub: h, req: req, out: out, ask: ask}
}

// SetAsk sets how servers ask the client.
func (p *CallPeer) SetAsk(ask AskFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ask = ask
}

// Continue makes the peer that of a later request of the same client, which continues the call.
func (p *CallPeer) Continue(next *CallPeer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.req, p.out = next.req, next.out
}

// Notify sends a notification of the call's server to the client, if the client wants it.
func (p *CallPeer) Notify(server string, note rpc.Message) {
	p.mu.Lock()
	req, out := p.req, p.out
	p.mu.Unlock()
	note, err := req.redactMessage(context.Background(), note)
	if err != nil {
		slog.Debug("a notification was dropped: it cannot be redacted", "server", server, "error", err)
		return
	}
	params, err := jsonscan.ReadFields(note.Body, note.Params)
	if err != nil {
		return
	}
	var body []byte
	switch note.Method {
	case mcp.NotifyProgress:
		token, ok := req.Params.Meta(mcp.MetaProgressToken)
		if !ok {
			return
		}
		body = jsonscan.AppendSpliced(nil, note.Body, params.Edits(jsonscan.Change{Key: mcp.MetaProgressToken, Value: token}))
	case mcp.NotifyMessage:
		if req.LogLevel == "" || mcp.LogSeverity(params.Text("level")) < mcp.LogSeverity(req.LogLevel) {
			return
		}
		fallthrough
	default:
		body = TagServer(server, note.Body, note.Params)
	}
	m, err := p.hub.NewServerMessage(server, body)
	if err == nil {
		defer m.Release()
		err = out.SendMessage(m)
	}
	if err != nil {
		slog.Debug("a notification did not reach its client", "server", server, "error", err)
	}
}

// Request sends a request of the call's server to the client.
func (p *CallPeer) Request(ctx context.Context, server string, question rpc.Message) (rpc.Reply, error) {
	p.mu.Lock()
	req, ask := p.req, p.ask
	p.mu.Unlock()
	if ask == nil || !req.Client.Supports(question.Method) {
		return rpc.Reply{}, ErrCannotAsk
	}
	question, err := req.redactMessage(ctx, question)
	if err != nil {
		return rpc.Reply{}, err
	}
	return ask(ctx, server, question)
}

// TagServer returns a message of a server with the server's id in its metadata (A5, A7). The span is that
// of its params, empty when it has none.
func TagServer(server string, body []byte, params jsonscan.Span) []byte {
	tag := append(append([]byte(`{"`+mcp.MetaServer+`":`), mcp.Quote(server)...), '}')
	if params.Len() == 0 {
		top, err := jsonscan.FieldsOf(body)
		if err != nil {
			return body
		}
		return top.With(jsonscan.Change{Key: "params", Value: append(append([]byte(`{"_meta":`), tag...), '}')})
	}
	fields, err := jsonscan.ReadFields(body, params)
	if err != nil {
		return body
	}
	meta := jsonscan.Change{Key: "_meta", Value: tag}
	if f, ok := fields.Field("_meta"); ok {
		if inner, err := jsonscan.ReadFields(body, f.Value); err == nil && body[f.Value.Start] == '{' {
			meta.Value = inner.With(jsonscan.Change{Key: mcp.MetaServer, Value: mcp.Quote(server)})
		}
	}
	return jsonscan.AppendSpliced(nil, body, fields.Edits(meta))
}
