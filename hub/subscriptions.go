package hub

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// MaxSubscriptions is how many resources one client may watch.
const MaxSubscriptions = 1000

// watchers is the clients that watch resources.
type watchers struct {
	mu  sync.Mutex
	all map[watched][]*watcher
}

// watched is a resource on the connection by which its server sends updates.
type watched struct {
	conn *upstream.ManagedConn
	uri  string
}

// watcher is one client that watches one resource.
type watcher struct {
	caller upstream.Caller
	notify func(*ResourceUpdate)
	owner  auth.Caller
	target access.Target // as it was authorized
	at     watched
	ended  bool
}

// place puts a watcher at a resource, or moves it there; false when it has ended.
func (s *watchers) place(w *watcher, at watched) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(w)
	if w.ended {
		return false
	}
	w.at = at
	s.all[at] = append(s.all[at], w)
	return true
}

// endWatch removes a watcher and returns where it was.
func (s *watchers) endWatch(w *watcher) watched {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(w)
	w.ended = true
	return w.at
}

func (s *watchers) removeLocked(w *watcher) {
	left := slices.DeleteFunc(s.all[w.at], func(o *watcher) bool { return o == w })
	if s.all[w.at] = left; len(left) == 0 {
		delete(s.all, w.at)
	}
}

func (s *watchers) notify(at watched, update *ResourceUpdate) {
	s.mu.Lock()
	all := slices.Clone(s.all[at])
	s.mu.Unlock()
	for _, w := range all {
		w.notify(update)
	}
	update.releaseShared()
}

// Watch subscribes to a resource by the name that clients see. The function it returns ends the subscription.
func (h *Hub) Watch(ctx context.Context, req *Request, shown string, notify func(*ResourceUpdate)) (func(), error) {
	to, err := h.routeURI(ctx, req, shown)
	if err != nil {
		return nil, err
	}
	t := access.Target{Method: mcp.ResourcesSubscribe, Server: to.server(), Resource: to.name}
	pass, err := req.Plan.Gate.Enter(ctx, req.Caller, t)
	if errors.Is(err, gate.ErrDenied) {
		err = resourceNotFound(req, shown)
	}
	if err != nil {
		return nil, err
	}
	defer pass.Done()
	if req.Session != nil {
		req.Session.NoteUse(to.server())
	}
	caller := req.UpstreamCaller()
	caller.Operation = mcp.ResourcesSubscribe // the client uses the process, which holds the subscription
	conn, release, err := to.remote.Acquire(ctx, caller)
	if err != nil {
		return nil, err
	}
	defer release()
	caller.AccessToken = secret.Text{} // it is for this request alone
	w := &watcher{caller: caller, notify: notify, owner: req.Caller, target: t}
	h.watchers.place(w, watched{conn, to.name})
	if err := conn.Subscribe(ctx, to.name); err != nil {
		h.watchers.endWatch(w)
		return nil, err
	}
	return sync.OnceFunc(func() {
		at := h.watchers.endWatch(w)
		_ = at.conn.Unsubscribe(context.WithoutCancel(ctx), at.uri)
	}), nil
}

// recheckWatchers ends the subscriptions of clients that may not read their resource under a plan.
func (h *Hub) recheckWatchers(p *Plan) {
	h.watchers.mu.Lock()
	var denied []*watcher
	for _, all := range h.watchers.all {
		for _, w := range all {
			if !p.Gate.MayList(w.owner, w.target) {
				denied = append(denied, w)
			}
		}
	}
	h.watchers.mu.Unlock()
	for _, w := range denied {
		at := h.watchers.endWatch(w)
		go func() { _ = at.conn.Unsubscribe(context.Background(), at.uri) }()
	}
}

// moveWatchers moves the watchers of servers that a plan replaced to the new servers.
func (h *Hub) moveWatchers(p *Plan) {
	h.watchers.mu.Lock()
	defer h.watchers.mu.Unlock()
	for at, all := range h.watchers.all {
		r := p.ByID[at.conn.ServerID()]
		if r == nil || r == at.conn.Server() {
			continue
		}
		for _, w := range all {
			go h.moveWatcher(w, r, at.uri)
		}
	}
}

func (h *Hub) moveWatcher(w *watcher, r *upstream.Server, uri string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, release, err := r.Acquire(ctx, w.caller)
	if err == nil {
		defer release()
		err = conn.Subscribe(ctx, uri)
	}
	if err != nil {
		slog.Warn("a subscription was lost with its server", "server", r.ID(), "error", err)
		return
	}
	if !h.watchers.place(w, watched{conn, uri}) {
		_ = conn.Unsubscribe(ctx, uri)
	}
}

// ResourceUpdate is a server's notification that a resource changed, on its way to the clients that watch it.
type ResourceUpdate struct {
	hub    *Hub
	server string
	note   rpc.Message

	shown  string   // the name in shared
	shared *Message // most watchers see the resource under the same name, and share one message
}

// Server returns the server that sent the update.
func (u *ResourceUpdate) Server() string { return u.server }

// Message returns the update under the name that a client sees. It is valid until the client's notify function
// returns; a Sender retains it for longer.
func (u *ResourceUpdate) Message(shown string) (*Message, error) {
	if u.shared != nil && u.shown == shown {
		return u.shared, nil
	}
	u.releaseShared()
	m, err := u.hub.NewServerMessage(u.server, u.encode(shown, nil))
	if err == nil {
		u.shown, u.shared = shown, m
	}
	return m, err
}

func (u *ResourceUpdate) releaseShared() {
	if u.shared != nil {
		u.shared.Release()
		u.shared = nil
	}
}

// encode returns the update under the name that a client sees, with the id of the listen stream that it goes to, if
// there is one.
func (u *ResourceUpdate) encode(shown string, streamID []byte) []byte {
	params, err := mcp.ParseParams(u.note.Params.Of(u.note.Body))
	if err != nil {
		return u.note.Body
	}
	meta := []jsonscan.Change{{Key: mcp.MetaSubscriptionID, Value: streamID}} // nil removes the server's own
	if _, ok := params.Meta(mcp.MetaSubscriptionID); !ok && streamID == nil {
		meta = nil
	}
	raw := params.With([]jsonscan.Change{{Key: "uri", Value: mcp.Quote(shown)}}, meta)
	return jsonscan.AppendSpliced(nil, u.note.Body, []jsonscan.Edit{{Span: u.note.Params, Text: raw}})
}
