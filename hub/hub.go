// Package hub is the MCP door. It joins many servers into one, in either era of the protocol, and
// shortens what would flood a client's context.
//
// The doors: /mcp is all servers, /mcp/{server} one of them under its own names, both over
// Streamable HTTP; [Hub.ServeStdio] is the same on stdin and stdout; and
// /api/mcp-gateway/{server}/rpc takes one JSON-RPC message for a named server.
//
// Path through the files: hub.go holds the parts, request.go is a client's request in no era's
// dress, serve.go the table of methods, call.go ★ the straight line of one call, route.go which server
// is meant; shelf.go and offer.go read what servers offer, catalog.go lays it out under names.go's
// names, list.go pages it; park.go takes a server's question to the client that caused it; apply.go
// is a reload; subscribe.go, events.go and shown.go tell clients what changed. http.go, stream.go and stdio.go are the
// doors, modern.go and legacy.go the two eras at them (legacy.go, session.go and sessions.go, the table of
// sessions, go when the older era does; message.go is what waits for several of them at once and streams.go what is open
// for long); relay.go is the gateway of one message, recover.go the tool that reads back, own.go the
// servers that are part of the gateway, policy.go says how a tool's strings are cut, focus.go by
// what a call looks for, errors.go what a failure looks like.
//
// Invariants: a request is read once, strictly; of what it says only names, protocol metadata and
// the proxy member differ on the far side, and of a reply only what was cut, the id, and what the
// client's era wants said. Every request passes admit, whatever its era and door. What a server
// asks reaches the client that caused it or nobody. A list never waits for a server that is
// known to be slow. Every failure is a JSON-RPC error that carries the request's id.
package hub

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/seal"
	"github.com/ctxgate/ctxgate/limit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/upstream"
)

// Hub is the door and the servers behind it. What a configuration decides is in its plan, which
// a reload replaces; sessions, streams and what servers offer outlive it.
type Hub struct {
	deps   Deps
	recall *recall.Recall
	meter  *meter.Meter
	plan   atomic.Pointer[plan]

	sessionSeal *seal.Sealer
	stateSeal   *seal.Sealer

	shelves  shelves
	sessions sessions
	notes    notes
	streams  streams
	listens  listens
	lot      lot
	subs     subscriptions
	closing  chan struct{}
	once     sync.Once
	applying sync.Mutex
	wanted   *plan          // that of the last reload, which may still have servers to wait for
	retiring sync.WaitGroup // servers that a reload replaced
}

// Deps is what a Hub is made of.
type Deps struct {
	Transport http.RoundTripper
	Recall    *recall.Recall
	Meter     *meter.Meter
	Budget    *membudget.Budget
	Limiter   *limit.Limiter // of all doors; nil: nobody is limited
	Secret    []byte         // the root of session tokens
	Env       []string       // the gateway's environment, of which programs get a part
	Sole      bool           // there is one client only, on stdin and stdout
	Token     string         // that the process was started with, which stands for its client's; "" for none
	Own       []Own          // servers that are part of the gateway
	Version   string

	// MayRead says whether a caller may read back what came from an origin, at the door of all
	// servers. Nil: what came from servers that are there.
	MayRead func(auth.Caller, recall.Origin) bool
}

// Settings is the part of the configuration that a hub needs.
type Settings struct {
	Hub      Config
	HTTP     front.HTTP
	Auth     auth.Config
	Upstream upstream.Config
}

// plan is everything that one configuration decides. A request is decided under one plan.
type plan struct {
	Settings
	gate    *auth.Gate
	rules   rules
	routes  []route
	order   []*upstream.Remote
	remotes map[string]*upstream.Remote
	prefix  map[string]string        // when names of a server carry its id: always, auto or never
	raw     map[string]*upstream.RPC // servers of plain JSON-RPC, for messages that go as they came
	owns    []*own                   // servers that are part of the gateway, in their order
	own     map[string]*own          // and by id
	users   atomic.Int64             // requests that are being decided under it
}

// enter gives the plan under which a request is decided, and a function to give it back: the
// servers of a plan are not closed while somebody may be about to call them.
func (h *Hub) enter() (*plan, func()) {
	for {
		p := h.plan.Load()
		p.users.Add(1)
		if h.plan.Load() == p {
			return p, sync.OnceFunc(func() { p.users.Add(-1) })
		}
		p.users.Add(-1)
	}
}

// New builds the door from a valid configuration. Servers are started by Start, or by the first
// client where there is only one.
func New(s Settings, d Deps) (*Hub, error) {
	h := &Hub{deps: d, recall: d.Recall, meter: d.Meter, closing: make(chan struct{})}
	var err error
	if h.sessionSeal, err = seal.New(d.Secret, "session"); err != nil {
		return nil, err
	}
	if h.stateSeal, err = seal.New(d.Secret, "request state"); err != nil {
		return nil, err
	}
	h.shelves.init(h)
	h.sessions.init()
	h.lot.init()
	h.subs.init()
	h.plan.Store(h.newPlan(s, nil))
	return h, nil
}

// Start starts the servers. A hub with one client starts them when it comes.
func (h *Hub) Start() {
	if h.deps.Sole {
		return
	}
	p := h.plan.Load()
	h.start(p)
	h.shelves.of(&request{plan: p, client: mcp.Client{Capabilities: []byte("{}")}}) // begin to read what they offer
	go h.tidy()
}

// newPlan makes a plan; servers of the old one that are the same are taken over as they are.
func (h *Hub) newPlan(s Settings, old *plan) *plan {
	p := &plan{
		Settings: s, gate: auth.New(s.Auth), rules: compile(s.Hub),
		remotes: map[string]*upstream.Remote{}, raw: map[string]*upstream.RPC{}, prefix: map[string]string{},
	}
	for _, r := range s.Hub.Notifications {
		p.routes = append(p.routes, route{newGlob(r.Method), r.Servers})
	}
	for _, entry := range s.Upstream.Servers {
		h.meter.Server(entry.ID)
		r := h.remote(entry, s, old)
		p.order = append(p.order, r)
		p.remotes[entry.ID] = r
		p.prefix[entry.ID] = cmp.Or(entry.Prefix, s.Hub.Naming.Prefix)
		if entry.RPC != "" {
			p.raw[entry.ID] = upstream.NewRPC(entry, s.Upstream, h.deps.Transport)
		}
	}
	p.addOwn(h.deps)
	return p
}

func (h *Hub) remote(entry upstream.Server, s Settings, old *plan) *upstream.Remote {
	if old != nil {
		if r := old.remotes[entry.ID]; r != nil && r.Same(entry, s.Upstream) {
			return r
		}
	}
	return upstream.NewRemote(entry, s.Upstream, upstream.Deps{
		Transport: h.deps.Transport, Listener: h, Budget: h.deps.Budget, Env: h.deps.Env,
		Limits: func() (depth, chars int) {
			p := h.plan.Load()
			return p.Hub.MaxDepth, p.rules.least
		},
		Count: func(error) { h.meter.Restart(entry.ID) },
	})
}

// End tells everybody who holds a stream that it ends. Calls under way go on.
func (h *Hub) End() { h.once.Do(func() { close(h.closing) }) }

// Close ends the servers.
func (h *Hub) Close() {
	h.End()
	h.applying.Lock()
	defer h.applying.Unlock()
	plans := []*plan{h.plan.Load()}
	if h.wanted != nil { // its servers may not have come into force
		plans = append(plans, h.wanted)
	}
	var wg sync.WaitGroup
	for _, p := range plans {
		for _, r := range p.order {
			wg.Go(r.Close)
		}
	}
	wg.Wait()
	h.retiring.Wait()
	h.sessions.close()
	h.notes.release()
	h.lot.close()
	h.shelves.forget()
}

// tidy ends what nobody uses any more.
func (h *Hub) tidy() {
	t := time.NewTicker(30 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-h.closing:
			return
		case now := <-t.C:
			h.sessions.sweep(now)
			h.lot.sweep(now)
			h.shelves.refresh()
		}
	}
}

// Routes mounts the door.
func (h *Hub) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/mcp-gateway/{server}/rpc", h.serveRPC)
	mux.HandleFunc("/api/mcp-gateway/{server}/rpc", notPOST)
	for _, path := range []string{"/mcp", "/mcp/{server}"} {
		mux.HandleFunc(path, h.serveMCP)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		Refuse(w, r, fault.New(fault.NotFound, "there is nothing at this path"))
	})
}

// admit is asked once for every request and notification, whatever its method, era and door. A
// cancellation counts and is always heeded: it ends work.
func (h *Hub) admit(_ *plan, req *request) error {
	err := h.deps.Limiter.Admit(req.who.Subject())
	if req.IsNotification() && req.Method == mcp.Cancelled {
		return nil
	}
	return err
}

// route is a kind of notification and the servers that get it.
type route struct {
	method  glob
	servers []string
}

// notified are the servers that get a kind of notification of clients (A7).
func (p *plan) notified(method string) []*upstream.Remote {
	for _, r := range p.routes {
		if r.method.match(method) {
			return slices.DeleteFunc(slices.Clone(p.order), func(s *upstream.Remote) bool { return !slices.Contains(r.servers, s.ID()) })
		}
	}
	return p.order
}

// ask is a request of our own to a server.
func ask(ctx context.Context, l *upstream.Lane, call *upstream.Call) (mcp.Result, error) {
	m, err := l.Call(ctx, call)
	if err != nil {
		return mcp.Result{}, err
	}
	if m.IsError {
		return mcp.Result{}, fault.New(fault.BadReply, "the server refused "+call.Method)
	}
	return mcp.ReadResult(m)
}
