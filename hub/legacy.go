package hub

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// This file and session.go are the older era at the doors: what begins with initialize. They go
// when it does.

// postLegacy serves one message of the older era. A client that leaves does not cancel.
func (h *Hub) postLegacy(w http.ResponseWriter, r *http.Request, req *request, body []byte, isReply bool) {
	req.era = mcp.EraLegacy
	if req.Method == mcp.Initialize && !isReply {
		h.initializeHTTP(w, r, req)
		return
	}
	held, err := h.sessionOf(r, req)
	if err != nil {
		h.refuseHTTP(w, r, mcp.EraLegacy, sessionStatus(err), req.ID, err)
		return
	}
	defer h.sessions.release(held)
	req.join(held)
	switch {
	case isReply:
		h.takeReply(held, body)
		w.WriteHeader(http.StatusAccepted)
	case req.IsNotification():
		if err := h.admit(req.plan, req); err != nil {
			h.refuseHTTP(w, r, mcp.EraLegacy, 0, rpc.ID{}, err)
			return
		}
		h.heed(req)
		w.WriteHeader(http.StatusAccepted)
	default:
		s := newStream(w, r, req.plan.HTTP)
		req.peer = &waiter{hub: h, req: req, out: s}
		ctx, done := held.begin(context.WithoutCancel(r.Context()), req.ID)
		defer done()
		h.answerHTTP(ctx, w, s, req)
	}
}

// sessionStatus is the HTTP status of a request that has no session; 0 for that of the failure.
func sessionStatus(err error) int {
	switch fault.KindOf(err) {
	case fault.NotFound:
		return http.StatusNotFound // by which a client knows that it has to begin again
	case fault.Full:
		return http.StatusServiceUnavailable
	}
	return 0
}

// join makes a request one of a session.
func (r *request) join(held *session) {
	r.held, r.client, r.level = held, held.client, held.logLevel()
	held.received(r)
}

// sessionOf finds the session that a request names. It is in use until it is released.
func (h *Hub) sessionOf(r *http.Request, req *request) (*session, error) {
	id := r.Header.Get(mcp.HeaderSession)
	if id == "" {
		return nil, fault.New(fault.Invalid, "the session id is missing: initialize first")
	}
	if v := r.Header.Get(mcp.HeaderVersion); v != "" && mcp.EraOf(v) != mcp.EraLegacy {
		return nil, fault.New(fault.Invalid, "the protocol version is not one of the session's")
	}
	return h.session(id, req.who, req.only, req.via.caller)
}

// initializeHTTP begins a session.
func (h *Hub) initializeHTTP(w http.ResponseWriter, r *http.Request, req *request) {
	if req.IsNotification() {
		h.refuseHTTP(w, r, mcp.EraLegacy, 0, req.ID, fault.New(fault.Invalid, "initialize must have an id"))
		return
	}
	var id string
	err := h.admit(req.plan, req)
	if err == nil {
		req.client = clientOf(req.params)
		req.held, id, err = h.openSession(req.who, req.client, req.only, req.via.caller)
	}
	if err != nil {
		h.refuseHTTP(w, r, mcp.EraLegacy, sessionStatus(err), req.ID, err)
		return
	}
	defer h.sessions.release(req.held)
	w.Header().Set(mcp.HeaderSession, id)
	newStream(w, r, req.plan.HTTP).finish(http.StatusOK, h.greeting(r.Context(), req))
}

// clientOf is what a client says of itself in initialize.
func clientOf(params mcp.Params) mcp.Client {
	c := mcp.Client{Version: mcp.Negotiate(params.Text("protocolVersion")), Capabilities: []byte("{}")}
	if raw, ok := params.Get("capabilities"); ok && raw[0] == '{' {
		c.Capabilities = bytes.Clone(raw) // it outlives the request
	}
	if raw, ok := params.Get("clientInfo"); ok && raw[0] == '{' {
		c.Info = bytes.Clone(raw)
	}
	return c
}

// greeting is the answer to initialize.
func (h *Hub) greeting(ctx context.Context, req *request) reply {
	dst := append([]byte(`{"protocolVersion":`), mcp.Quote(req.client.Version)...)
	dst = append(append(dst, `,"capabilities":`+offered+`,"serverInfo":`...), h.serverInfo()...)
	if text := h.instructions(ctx, req); text != "" {
		dst = jsonscan.AppendString(append(dst, `,"instructions":`...), text)
	}
	req.held.lists.setAll(h.shelves.door(h.shelves.of(req), req.only))
	return result(req, append(dst, '}'))
}

// takeReply takes a client's answer to a server's question.
func (h *Hub) takeReply(held *session, body []byte) {
	r, err := rpc.ParseReply(body, h.plan.Load().Hub.MaxDepth, int(^uint(0)>>1))
	if err == nil {
		held.answered(r)
	}
}

// heed does what a client's notification asks for.
func (h *Hub) heed(req *request) {
	switch req.Method {
	case mcp.Initialized:
	case mcp.Cancelled:
		if id, ok := req.params.Get("requestId"); ok {
			req.held.cancel(id)
		}
	case mcp.Progress: // on a question of a server, whose token it is not ours to know
	default:
		h.forward(req)
	}
}

// serveGet opens the stream for what belongs to no request.
func (h *Hub) serveGet(w http.ResponseWriter, r *http.Request) {
	held, who, err := h.streamSession(w, r)
	if err != nil {
		return
	}
	defer h.sessions.release(held)
	front.BodyRead(w) // there is none, and the stream has no end
	s := newStream(w, r, h.plan.Load().HTTP)
	if !s.accepts {
		h.refuseHTTP(w, r, mcp.EraLegacy, http.StatusNotAcceptable, rpc.ID{}, fault.New(fault.Invalid, "an event stream is all there is here"))
		return
	}
	s.manual = true
	done, err := h.streams.open(h, s, who)
	if err == nil {
		defer done()
		err = held.listen(s)
	}
	if err != nil {
		s.discard()
		h.refuseHTTP(w, r, mcp.EraLegacy, 0, rpc.ID{}, err)
		return
	}
	defer held.unlisten(s)
	s.run(r.Context(), h.closing, nil)
}

// serveDelete ends a session.
func (h *Hub) serveDelete(w http.ResponseWriter, r *http.Request) {
	held, _, err := h.streamSession(w, r)
	if err != nil {
		return
	}
	defer h.sessions.release(held)
	h.sessions.end(h, held)
	w.WriteHeader(http.StatusNoContent)
}

var errNoGet = errors.New("refused")

// streamSession finds the session of a request that has no body. The newer era has none, and so
// nothing here. The session is in use until it is released.
func (h *Hub) streamSession(w http.ResponseWriter, r *http.Request) (*session, auth.Caller, error) {
	p := h.plan.Load()
	who, err := h.identify(w, r, p, mcp.Params{})
	if err != nil {
		h.refuseHTTP(w, r, mcp.EraLegacy, 0, rpc.ID{}, err)
		return nil, who, errNoGet
	}
	req := &request{who: who, via: visitOf(r, who), only: r.PathValue("server"), plan: p}
	if r.Header.Get(mcp.HeaderSession) == "" || mcp.EraOf(r.Header.Get(mcp.HeaderVersion)) == mcp.EraModern {
		w.Header().Set("Allow", http.MethodPost)
		h.refuseHTTP(w, r, mcp.EraLegacy, http.StatusMethodNotAllowed, rpc.ID{}, fault.New(fault.Invalid, "there is no session to serve"))
		return nil, who, errNoGet
	}
	held, err := h.sessionOf(r, req)
	if err == nil && req.only != "" && !p.serves(req.only) {
		h.sessions.release(held)
		err = fault.New(fault.NotFound, "there is no such server")
	}
	if err != nil {
		h.refuseHTTP(w, r, mcp.EraLegacy, http.StatusNotFound, rpc.ID{}, err)
		return nil, who, errNoGet
	}
	return held, who, nil
}
