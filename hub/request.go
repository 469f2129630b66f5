package hub

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// request is a client's request in no era's dress: who asks what, and how to reach the client
// while it waits.
type request struct {
	rpc.Request
	params mcp.Params
	plan   *plan
	leave  func() // says that the plan's servers are not needed any more
	who    auth.Caller
	via    visit
	era    mcp.Era
	client mcp.Client
	level  string   // the least severe log messages the client wants; "" for none
	only   string   // the one server that is asked; "" for all
	held   *session // of the older era; nil in the newer one
	peer   *waiter
}

// visit is how a request came: by which connection, and in whose name it uses what there is only
// so much of. On stdin and stdout there is one client, and nothing to tell apart.
type visit struct {
	conn   string          // no two connections have the same
	life   context.Context //nolint:containedctx // ends with the connection; nil where nobody knows
	caller string          // whose share is used
}

// visitOf says how a request came over HTTP.
func visitOf(r *http.Request, who auth.Caller) visit {
	v := visit{caller: front.CallerKey(auth.With(r.Context(), who))}
	v.conn, v.life = front.ConnectionOf(r)
	return v
}

// principal is who asks, whichever way the request came.
func (r *request) principal() string { return r.who.Tenant() + "\x00" + r.who.Subject() }

// from is the client as lanes see it. A request of the newer era says who its client is only by the
// caller, the address and the client's own name, which several may share.
func (r *request) from() upstream.Who {
	who := upstream.Who{Client: r.client, Subject: r.via.caller + "\x00" + string(r.client.Info), Conn: r.via.conn, Open: r.via.life, Caller: r.via.caller}
	if r.held != nil {
		who.Session, who.Owner = r.held.name, r.held.peer()
	}
	return who
}

// reply is what goes back: a message, and what of it is to be different.
type reply struct {
	body   []byte
	edits  []jsonscan.Edit
	status int // of HTTP, where the protocol asks for another than 200
	code   int // of the server's error; 0 for a result
}

// result is a reply of our own.
func result(req *request, raw []byte) reply { return reply{body: rpc.AppendResult(nil, req.ID, raw)} }

// empty is the reply to what only has to be acknowledged.
func empty(req *request) reply {
	if req.era == mcp.EraModern {
		return result(req, []byte(`{"resultType":"complete"}`))
	}
	return result(req, []byte(`{}`))
}

// outlet takes messages to a client.
type outlet interface {
	// send queues one message, whose parts are not changed any more. It does not wait for the
	// client to read.
	send(parts ...[]byte) error

	// pass is send for a message that others may wait for too.
	pass(m *message) error
}

// waiter is a client that waits for a request, as servers see it.
type waiter struct {
	hub *Hub
	mu  sync.Mutex
	req *request
	out outlet
	lot *parked // where a question waits for a client of the newer era; nil in the older
}

// attach goes on with another request of the same client: the one that brings what was asked for.
func (w *waiter) attach(next *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.req, w.out = next.req, next.out
}

func (w *waiter) now() (*request, outlet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.req, w.out
}

// Notify passes on what a server says about the call.
func (w *waiter) Notify(server string, note rpc.Message) {
	req, out := w.now()
	msg, ok := noteFor(req, server, note)
	if !ok {
		return
	}
	m, err := w.hub.notes.message(w.hub.deps.Budget, server, msg)
	if err == nil {
		defer m.release()
		err = out.pass(m)
	}
	if err != nil {
		slog.Debug("a notification did not reach its client", "server", server, "error", err)
	}
}

// Ask puts a server's question to the client.
func (w *waiter) Ask(ctx context.Context, server string, question rpc.Message) (rpc.Reply, error) {
	req, out := w.now()
	switch {
	case !req.client.Can(question.Method):
		return rpc.Reply{}, errCannotAsk
	case w.lot != nil:
		return w.lot.ask(ctx, server, question)
	case req.held != nil:
		return req.held.ask(ctx, out, server, question)
	}
	return rpc.Reply{}, errCannotAsk
}

// noteFor dresses a server's notification for the client of a request; false when the client does
// not want it.
func noteFor(req *request, server string, note rpc.Message) ([]byte, bool) {
	params, err := jsonscan.ReadFields(note.Body, note.Params)
	if err != nil {
		return nil, false
	}
	switch note.Method {
	case mcp.Progress:
		token, ok := req.params.Meta(mcp.KeyProgress)
		if !ok {
			return nil, false
		}
		return jsonscan.AppendSpliced(nil, note.Body, params.Edits(jsonscan.Change{Key: mcp.KeyProgress, Value: token})), true
	case mcp.LogMessage:
		if req.level == "" || mcp.Severity(params.Text("level")) < mcp.Severity(req.level) {
			return nil, false
		}
	}
	return tagged(server, note.Body, note.Params), true
}

// tagged is a message of a server with the server's id in its metadata (A5, A7). The span is that
// of its params, empty when it has none.
func tagged(server string, body []byte, params jsonscan.Span) []byte {
	tag := append(append([]byte(`{"`+mcp.KeyServer+`":`), mcp.Quote(server)...), '}')
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
			meta.Value = inner.With(jsonscan.Change{Key: mcp.KeyServer, Value: mcp.Quote(server)})
		}
	}
	return jsonscan.AppendSpliced(nil, body, fields.Edits(meta))
}
