package hub

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/internal/glob"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/upstream"
)

// Settings is the part of the configuration that a hub needs.
type Settings struct {
	Hub      Config
	HTTP     front.HTTP
	Gate     *gate.Gate // nil: no credential is required, and everything is allowed
	Upstream upstream.Config
}

// Plan is everything that one configuration decides. A request is served under one plan.
type Plan struct {
	Settings
	catalog.Layout
	rules    rules
	routes   []notificationRoute
	builtins map[string]*builtin // by id
	users    atomic.Int64        // requests that are being served under it
}

// notificationRoute is a kind of notification and the servers that get it.
type notificationRoute struct {
	method  glob.Pattern
	servers []string
}

// newPlan makes a plan. Servers that are the same in the old plan, which may be nil, are taken over as they are.
func (h *Hub) newPlan(s Settings, old *Plan) *Plan {
	if s.Gate == nil {
		s.Gate = gate.New(gate.Deps{})
	}
	p := &Plan{Settings: s, rules: compile(s.Hub), builtins: map[string]*builtin{}}
	p.Layout = catalog.Layout{
		ByID: map[string]*upstream.Server{}, Prefix: map[string]string{}, Naming: s.Hub.Naming,
		GatewayTool:       catalog.Item{Name: recoverTool, Raw: recoverItemFor(s.Hub.Masking.Markers)},
		RefusesLookAlikes: h.deps.Pins != nil && h.deps.Pins.Config().LookAlikes != pins.LookAlikesAllow,
		ListWait:          s.Hub.ListWait.D(), ListTTL: s.Upstream.ListTTL.D(), MaxListBytes: int64(s.Upstream.MaxListBytes),
	}
	if h.deps.ForReplicas {
		p.GatewayTool = catalog.Item{}
	}
	if p.rules.needsGoals {
		p.EditTool = func(server, tool string, raw []byte) ([]byte, bool) {
			if !p.rules.policyFor(server, tool).NeedsGoal() {
				return raw, false
			}
			return addGoalArgument(raw)
		}
	}
	for _, r := range s.Hub.Notifications {
		p.routes = append(p.routes, notificationRoute{glob.New(r.Method), r.Servers})
	}
	for _, entry := range s.Upstream.Servers {
		if entry.Disabled {
			continue
		}
		h.meter.AddServer(entry.ID)
		var r *upstream.Server
		if old != nil {
			r = old.ByID[entry.ID]
		}
		if r == nil || !r.IsSameConfig(entry, s.Upstream) {
			r = upstream.NewServer(entry, s.Upstream, upstream.Deps{
				Transport: h.deps.Transport, Events: h, Budget: h.deps.Budget, Env: h.deps.Env,
				ParseLimits: func() (depth, chars int) {
					p := h.plan.Load()
					return p.Hub.MaxDepth, p.rules.minChars
				},
				Exchange:     h.deps.Exchange,
				CountFailure: func(error) { h.meter.CountRestart(entry.ID) }, Installs: h.installs,
				KnownFacts: h.loadFacts(entry), Learned: h.serverLearned,
			})
		}
		p.Servers = append(p.Servers, r)
		p.ByID[entry.ID] = r
		p.Prefix[entry.ID] = cmp.Or(entry.Prefix, s.Hub.Naming.Prefix)
	}
	p.addBuiltins(h.deps)
	return p
}

// isUpstream reports whether a server is behind the gateway.
func (p *Plan) isUpstream(server string) bool { return p.ByID[server] != nil }

// Serves reports whether a server can be called: one behind the gateway or a builtin.
func (p *Plan) Serves(server string) bool { return p.isUpstream(server) || p.builtins[server] != nil }

// serversFor returns the servers that get a kind of notification of clients (A7).
func (p *Plan) serversFor(method string) []*upstream.Server {
	for _, r := range p.routes {
		if r.method.Match(method) {
			return slices.DeleteFunc(slices.Clone(p.Servers), func(s *upstream.Server) bool { return !slices.Contains(r.servers, s.ID()) })
		}
	}
	return p.Servers
}

// canCall reports whether the server that an origin names can be called.
func (p *Plan) canCall(o recall.Origin) bool {
	for id := range p.builtins {
		if o.Server == recall.BuiltinOrigin(id) {
			return true
		}
	}
	return p.isUpstream(o.Server)
}

// Plan returns the plan in force.
func (h *Hub) Plan() *Plan { return h.plan.Load() }

// acquirePlan returns the plan to serve a request under, and a function to release it: the servers of a plan are not
// closed while a request may be about to call them.
func (h *Hub) acquirePlan() (*Plan, func()) {
	for {
		p := h.plan.Load()
		p.users.Add(1)
		if h.plan.Load() == p {
			return p, sync.OnceFunc(func() { p.users.Add(-1) })
		}
		p.users.Add(-1)
	}
}

// Apply puts a new configuration into force for every request from now on. New servers are started, servers that are
// gone are closed when their calls are done, and unchanged servers stay untouched. A server that changed is served by
// the old one until the new one is up. A hub that is stopping takes no configuration: nothing would stop the servers.
func (h *Hub) Apply(s Settings) error {
	h.applying.Lock()
	defer h.applying.Unlock()
	if h.isStopping() {
		return errStopping
	}
	inForce, last := h.plan.Load(), h.wanted
	if last == nil {
		last = inForce
	}
	next := h.newPlan(s, last)
	h.startServers(next)
	h.wanted = next
	h.installWhenUp(next)
	for id, r := range last.ByID { // servers that never came into force
		if next.ByID[id] != r && inForce.ByID[id] != r {
			h.retiring.Go(r.Close)
		}
	}
	return nil
}

var errStopping = fault.New(fault.Unavailable, "the gateway is stopping")

// startServers starts the servers of a plan that are not started yet. With a single client they are started for that
// client, once it is known; the lock is held then.
func (h *Hub) startServers(p *Plan) {
	for _, r := range p.Servers {
		switch {
		case !h.deps.SingleClient:
			r.Start()
		case h.single != nil:
			r.StartForClient(h.single.client, h.single.peer)
		}
	}
}

// installWhenUp installs a plan, with servers of the plan in force in the place of those that are not up yet, and
// again when they are; the lock is held.
func (h *Hub) installWhenUp(next *Plan) {
	now := h.plan.Load()
	standIns := map[*upstream.Server]*upstream.Server{} // new → old
	for id, r := range next.ByID {
		if old := now.ByID[id]; old != nil && old != r && !r.HasAttempted() {
			standIns[r] = old
		}
	}
	h.install(next.withStandIns(standIns))
	if len(standIns) == 0 {
		return
	}
	go func() {
		for r := range standIns {
			r.AwaitFirstAttempt(h.closing)
		}
		h.applying.Lock()
		defer h.applying.Unlock()
		if h.wanted == next && !h.isStopping() {
			h.installWhenUp(next)
		}
	}()
}

// withStandIns returns the plan with some of its servers replaced.
func (p *Plan) withStandIns(standIns map[*upstream.Server]*upstream.Server) *Plan {
	if len(standIns) == 0 {
		return p
	}
	q := &Plan{Settings: p.Settings, Layout: p.Layout, rules: p.rules, routes: p.routes, builtins: p.builtins}
	q.Servers, q.ByID = slices.Clone(p.Servers), map[string]*upstream.Server{}
	for i, r := range q.Servers {
		if old := standIns[r]; old != nil {
			q.Servers[i] = old
		}
		q.ByID[r.ID()] = q.Servers[i]
	}
	return q
}

// install puts a plan into force and closes the servers that only the old one has, once their calls are done.
func (h *Hub) install(next *Plan) {
	old := h.plan.Load()
	h.plan.Store(next)
	h.streams.recheckAll(next.Gate)
	h.catalog.ApplyLayout()
	h.recheckWatchers(next)
	h.moveWatchers(next)
	if old.Gate != next.Gate {
		h.catalog.NotifyAll() // who sees what may have changed
	}
	grace := next.HTTP.DrainGrace.D()
	h.retiring.Go(func() {
		for until := time.Now().Add(grace); old.users.Load() > 0 && time.Now().Before(until) && !h.isStopping(); {
			time.Sleep(10 * time.Millisecond)
		}
		for id, r := range old.ByID {
			if next.ByID[id] != r {
				h.retiring.Go(func() { r.Shutdown(grace) })
			}
		}
	})
}

func (h *Hub) isStopping() bool {
	select {
	case <-h.closing:
		return true
	default:
		return false
	}
}
