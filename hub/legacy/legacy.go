// Package legacy serves the protocol revisions that begin with initialize, up to 2025-11-25. Without this package the
// hub serves the modern revision alone: delete the directory, and its line in package app.
//
// Path through the files: legacy.go serves HTTP requests and batch.go arrays of them; session.go is a client's session
// and sessions.go the table of all sessions; methods.go has the methods that only these revisions have; call.go makes
// calls between clients and servers of different revisions, and pending.go holds the calls that wait for input from a
// modern client; replicas.go finds the replica that has a session.
//
// Invariants: a session's id is a sealed token that holds all that identifies the session, so any replica can serve it;
// only its open stream, queued messages and pending requests are lost when a replica forgets it. At any time one
// replica serves a session: the one that opened it, and when that is gone, one that takes its place. A server's request
// reaches the client that caused it or none. What is held for a session or a pending call is charged to the memory
// budget.
package legacy

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/internal/seal"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// endpoint is the legacy side of a hub.
type endpoint struct {
	hub         *hub.Hub
	sessions    sessionTable
	pending     pendingCalls
	sessionSeal *seal.Sealer // of session ids
	stateSeal   *seal.Sealer // of request states
	owners      *gencache.Cache[string, sessionOwner]
}

// New returns what serves the legacy revisions of a hub.
func New(h *hub.Hub) (hub.Legacy, error) {
	e := &endpoint{hub: h, sessions: newSessionTable(), pending: pendingCalls{calls: map[string]*pendingCall{}}, owners: gencache.New[string, sessionOwner](maxOwners)}
	var err error
	if e.sessionSeal, err = seal.New(h.Deps().Secret, "session", h.Deps().OldSecrets...); err != nil {
		return nil, err
	}
	if e.stateSeal, err = seal.New(h.Deps().Secret, "request state", h.Deps().OldSecrets...); err != nil {
		return nil, err
	}
	return e, nil
}

// Versions lists the legacy revisions.
func (e *endpoint) Versions() []string {
	return slices.DeleteFunc(slices.Clone(mcp.Versions), func(v string) bool { return mcp.ProtocolOf(v) != mcp.Legacy })
}

// Counts returns how many sessions and pending calls are held.
func (e *endpoint) Counts() (sessions, pending int) {
	e.sessions.mu.Lock()
	defer e.sessions.mu.Unlock()
	e.pending.mu.Lock()
	defer e.pending.mu.Unlock()
	return len(e.sessions.held), len(e.pending.calls)
}

// Sweep forgets idle sessions, and ends calls whose clients did not come back.
func (e *endpoint) Sweep(now time.Time) {
	e.sessions.removeIdle(now)
	e.pending.endLate(now)
}

// Close ends all sessions and pending calls.
func (e *endpoint) Close() {
	e.sessions.closeWhere(func(*session) bool { return true })
	e.pending.endWhere(func(*pendingCall) bool { return true })
}

// ServePost serves one message of a legacy client. A client that disconnects does not cancel its request.
func (e *endpoint) ServePost(w http.ResponseWriter, r *http.Request, req *hub.Request, body []byte, isReply bool) {
	req.Protocol = mcp.Legacy
	if req.Method == mcp.Initialize && !isReply {
		e.initializeHTTP(w, r, req)
		return
	}
	s, forwarded, err := e.sessionHere(w, r, req, body)
	if forwarded {
		return
	}
	if err != nil {
		e.hub.WriteHTTPError(w, r, mcp.Legacy, sessionStatus(err), req.ID, err)
		return
	}
	defer e.sessions.release(s)
	s.join(req)
	switch {
	case isReply:
		s.TakeReply(body)
		w.WriteHeader(http.StatusAccepted)
	case req.IsNotification():
		if err := e.hub.Admit(req); err != nil {
			e.hub.WriteHTTPError(w, r, mcp.Legacy, 0, rpc.ID{}, err)
			return
		}
		e.takeNotification(s, req)
		w.WriteHeader(http.StatusAccepted)
	default:
		out := hub.NewStream(w, r, req.Plan.HTTP)
		req.Peer = s.callPeer(req, out)
		ctx, done := s.inFlight.Begin(context.WithoutCancel(r.Context()), req.ID)
		defer done()
		e.hub.ServeHTTPRequest(ctx, out, req)
	}
}

// takeNotification does what a client's notification asks for.
func (e *endpoint) takeNotification(s *session, req *hub.Request) {
	if id, ok := req.Params.Get("requestId"); ok && req.Method == mcp.NotifyCancelled {
		s.inFlight.Cancel(id)
	}
	e.hub.Forward(req)
}

// sessionStatus returns the HTTP status of a request that has no session; 0 for that of the failure.
func sessionStatus(err error) int {
	switch fault.KindOf(err) {
	case fault.NotFound:
		return http.StatusNotFound // by which a client knows that it has to initialize again
	case fault.Full, fault.Unavailable:
		return http.StatusServiceUnavailable
	}
	return 0
}

// sessionOf finds the session that a request names. It must be released. The error is an elsewhereError if another
// replica has it.
func (e *endpoint) sessionOf(r *http.Request, req *hub.Request) (*session, error) {
	id := r.Header.Get(mcp.HeaderSession)
	if id == "" {
		return nil, fault.New(fault.InvalidRequest, "the session id is missing: initialize first")
	}
	if v := r.Header.Get(mcp.HeaderVersion); v != "" && mcp.ProtocolOf(v) != mcp.Legacy {
		return nil, fault.New(fault.InvalidRequest, "the protocol version is not one of the session's")
	}
	t, err := e.readToken(id, req.Caller, req.Server)
	if err != nil {
		return nil, err
	}
	owner, err := e.ownerOf(r.Context(), t)
	if err != nil {
		return nil, err
	}
	if e.hub.IsElsewhere(owner) {
		return nil, &elsewhereError{req, t.name, owner}
	}
	return e.findSession(r.Context(), t, req.Caller, req.CallerKey)
}

// initializeHTTP opens a session.
func (e *endpoint) initializeHTTP(w http.ResponseWriter, r *http.Request, req *hub.Request) {
	if req.IsNotification() {
		e.hub.WriteHTTPError(w, r, mcp.Legacy, 0, req.ID, fault.New(fault.InvalidRequest, "initialize must have an id"))
		return
	}
	var s *session
	var id string
	err := e.hub.Admit(req)
	if err == nil {
		req.Client = clientOf(req.Params)
		s, id, err = e.openSession(req.Caller, req.Client, req.Server, req.CallerKey)
	}
	if err != nil {
		e.hub.WriteHTTPError(w, r, mcp.Legacy, sessionStatus(err), req.ID, err)
		return
	}
	defer e.sessions.release(s)
	req.Session = s
	w.Header().Set(mcp.HeaderSession, id)
	hub.NewStream(w, r, req.Plan.HTTP).Finish(http.StatusOK, e.initializeReply(r.Context(), s, req))
}

// clientOf returns what a client says of itself in initialize.
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

func (e *endpoint) initializeReply(ctx context.Context, s *session, req *hub.Request) hub.Reply {
	dst := append([]byte(`{"protocolVersion":`), mcp.Quote(req.Client.Version)...)
	dst = append(append(dst, `,"capabilities":`+hub.Capabilities+`,"serverInfo":`...), e.hub.ServerInfo()...)
	if text := e.hub.Instructions(ctx, req); text != "" {
		dst = jsonscan.AppendQuoted(append(dst, `,"instructions":`...), text)
	}
	c := e.hub.Catalog()
	s.lists.SetAll(c.Current(c.ClassOf(req.UpstreamCaller()), req.Server))
	return hub.ResultReply(req, append(dst, '}'))
}

// ServeSession serves GET, the stream of a session for messages that belong to no request, and DELETE, its end.
func (e *endpoint) ServeSession(w http.ResponseWriter, r *http.Request) {
	p := e.hub.Plan()
	caller, err := e.hub.Authenticate(w, r, p, mcp.Params{})
	if err != nil {
		e.hub.WriteHTTPError(w, r, mcp.Legacy, 0, rpc.ID{}, err)
		return
	}
	if r.Header.Get(mcp.HeaderSession) == "" || mcp.ProtocolOf(r.Header.Get(mcp.HeaderVersion)) == mcp.Modern {
		w.Header().Set("Allow", http.MethodPost)
		e.hub.WriteHTTPError(w, r, mcp.Legacy, http.StatusMethodNotAllowed, rpc.ID{}, fault.New(fault.InvalidRequest, "there is no session to serve"))
		return
	}
	req := hub.NewHTTPRequest(r, p, caller)
	s, forwarded, err := e.sessionHere(w, r, req, nil)
	if forwarded {
		return
	}
	if err == nil {
		defer e.sessions.release(s)
		if req.Server != "" && !p.Serves(req.Server) {
			err = fault.New(fault.NotFound, "there is no such server")
		}
	}
	switch {
	case fault.KindOf(err) == fault.Unavailable: // it is not known whether the session exists
		e.hub.WriteHTTPError(w, r, mcp.Legacy, http.StatusServiceUnavailable, rpc.ID{}, err)
	case err != nil:
		e.hub.WriteHTTPError(w, r, mcp.Legacy, http.StatusNotFound, rpc.ID{}, err)
	case r.Method == http.MethodDelete:
		e.endSession(r.Context(), s)
		w.WriteHeader(http.StatusNoContent)
	default:
		e.serveStream(w, r, s, caller)
	}
}

func (e *endpoint) serveStream(w http.ResponseWriter, r *http.Request, s *session, caller auth.Caller) {
	front.ClearBodyDeadline(w) // there is none, and the stream has no end
	out := hub.NewStream(w, r, e.hub.Plan().HTTP)
	if !out.AcceptsEvents() {
		e.hub.WriteHTTPError(w, r, mcp.Legacy, http.StatusNotAcceptable, rpc.ID{}, fault.New(fault.InvalidRequest, "an event stream is all there is here"))
		return
	}
	err := e.hub.KeepOpen(r.Context(), out, caller, func() (func(), func() []byte, error) {
		return func() { s.detachStream(out) }, nil, s.attachStream(out)
	})
	if err != nil {
		e.hub.WriteHTTPError(w, r, mcp.Legacy, 0, rpc.ID{}, err)
	}
}

// ListChanged notifies the sessions of a class whose list would be another now.
func (e *endpoint) ListChanged(class *catalog.Class, k catalog.Kind) {
	note := []byte(`{"jsonrpc":"2.0","method":"` + k.ChangedMethod() + `"}`)
	for _, s := range e.sessions.all() {
		if !s.muted.Load() && e.hub.Catalog().IsOf(class, hub.UpstreamCallerOf(s.caller, s.client)) && s.lists.Update(k, e.hub.VisibleTo(s.caller, e.hub.Catalog().Current(class, s.server))) {
			_ = s.Send(note)
		}
	}
}

// ServerNotification sends a notification that belongs to no call to the sessions that use the server (A7): those that
// were opened at the server's own endpoint, have called a tool, prompt, resource or completion of it, or are
// subscribed to a resource of it. On stdin and stdout the single client gets everything. A connection with credentials of its own
// has nothing to say to sessions of others.
func (e *endpoint) ServerNotification(from *upstream.ManagedConn, note rpc.Message) {
	server := from.ServerID()
	to := slices.DeleteFunc(e.sessions.using(server), func(s *session) bool { return !from.IsFor(hub.UpstreamCallerOf(s.caller, s.client)) })
	e.notifySessions(server, to, note)
}

// notifySessions sends a server's notification to sessions. It is encoded once, and held once however many of them do
// not read it yet. Where the memory budget refuses it, the oldest messages of the sessions are dropped.
func (e *endpoint) notifySessions(server string, to []*session, note rpc.Message) {
	params, err := jsonscan.ReadFields(note.Body, note.Params)
	if err != nil || note.Method == mcp.NotifyProgress { // which belongs to a call
		return
	}
	isLog, severity := note.Method == mcp.NotifyMessage, mcp.LogSeverity(params.Text("level"))
	to = slices.DeleteFunc(slices.Clone(to), func(s *session) bool {
		level := s.logLevel()
		return s.muted.Load() || isLog && (level == "" || severity < mcp.LogSeverity(level))
	})
	var same []*session // that see the notification as it is
	for _, s := range to {
		switch seen, ok := e.hub.NoticeFor(s.caller, server, note); {
		case !ok:
		case bytes.Equal(seen.Body, note.Body):
			same = append(same, s)
		default:
			e.sendNote(server, []*session{s}, seen)
		}
	}
	e.sendNote(server, same, note)
}

// sendNote sends one message to sessions.
func (e *endpoint) sendNote(server string, to []*session, note rpc.Message) {
	if len(to) == 0 {
		return
	}
	body := hub.TagServer(server, note.Body, note.Params)
	m, err := e.hub.NewServerMessage(server, body)
	for err != nil && dropOldest(to) {
		m, err = e.hub.NewServerMessage(server, body)
	}
	if err != nil {
		slog.Debug("a notification was dropped", "server", server, "error", err)
		return
	}
	defer m.Release()
	for _, s := range to {
		if err := s.SendMessage(m); err != nil {
			slog.Debug("a notification did not reach its client", "server", server, "error", err)
		}
	}
}
