// Package hub is the MCP endpoint. It joins many servers into one and shortens what would flood a client's
// context.
//
// Endpoints: /mcp is all servers and /mcp/{server} one of them under its own names, both over Streamable HTTP;
// [Hub.ServeStdio] is the same on stdin and stdout; /api/mcp-gateway/{server}/rpc relays one JSON-RPC message
// to a named server.
//
// Path through the files: http.go and stdio.go take messages, request.go is a request independent of the protocol
// revision, methods.go the table of methods, call.go ★ the straight line of one call, route.go finds the server in
// the catalog (package hub/catalog), stream.go and errors.go write the answer. listen.go and subscriptions.go notify
// clients of changes. relay.go relays single messages, builtin.go calls the servers that are part of the gateway,
// pins.go holds back what is not approved, recover.go is the tool that reads originals back, policy.go decides how a tool's strings are shortened and goal.go
// takes the goal out of a call. plan.go is a configuration in force, and its reload. legacy.go is what the hub needs
// of package hub/legacy, which serves the revisions up to 2025-11-25. replicas.go forwards what another replica has.
//
// Invariants: a request is parsed once, strictly. Of a request only names, protocol metadata and the proxy member
// differ upstream; of a reply only what was cut, the id, and what the client's revision requires. Every request
// passes Admit, whatever its revision and endpoint. A server's request reaches the client that caused it or none. A
// list never waits for a server that is known to be slow. Every failure is a JSON-RPC error with the request's id.
package hub

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/oauth"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/replica"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// Hub is the endpoint and the servers behind it. What a configuration decides is in its plan, which a reload
// replaces; sessions, streams and the catalog outlive it.
type Hub struct {
	deps   Deps
	recall *recall.Recall
	meter  *meter.Meter
	plan   atomic.Pointer[Plan]

	catalog       *catalog.Cache
	installs      *upstream.InstallQueue
	legacy        Legacy
	methods       map[string]Method
	serverScopes  serverScopes
	streams       openStreams
	listenStreams listenStreams
	watchers      watchers
	stdioCount    atomic.Int64 // connections of ServeStdio so far
	clients       clientList
	tasks         taskOwners
	completions   completions

	closing  chan struct{}
	once     sync.Once      // closes closing
	applying sync.Mutex     // held while a configuration is put into force; guards wanted and single
	wanted   *Plan          // of the last reload, which may still wait for servers
	single   *singleClient  // nil before the client is known, and where there are many
	retiring sync.WaitGroup // servers that a reload replaced
}

// singleClient is the only client of a hub on stdin and stdout.
type singleClient struct {
	client mcp.Client
	peer   upstream.Peer
}

// Deps is what a Hub needs.
type Deps struct {
	Transport    http.RoundTripper
	Exchange     func(ctx context.Context, s *oauth.Server, token secret.Text) error // as upstream.Deps has it
	Recall       *recall.Recall
	Meter        *meter.Meter
	Budget       *membudget.Budget
	Pins         *pins.Guard      // decides which tools and instructions may be served; nil: all
	Secret       []byte           // from which the keys of session ids are derived
	OldSecrets   [][]byte         // whose session ids are still accepted
	Env          []string         // the gateway's environment, of which child processes get a part
	SingleClient bool             // the only client is on stdin and stdout
	Replicas     *replica.Replica // this process among the replicas; nil: it is the only one
	ForReplicas  bool             // its clients are hubs of replicas, which offer recover_text themselves
	Builtins     []Builtin        // servers that are part of the gateway
	Version      string

	// AnnounceLists tells the other replicas that a server's lists changed, with a hash of the new ones; they call
	// [Hub.ReadListsAgain]. Nil: there are no other replicas.
	AnnounceLists func(server, hash string)

	// LoadFacts and SaveFacts keep what is found out about servers for the next process of the gateway, under a key.
	// Nil: nothing is kept.
	LoadFacts func(key string) string
	SaveFacts func(key, facts string)

	// Legacy makes what serves the revisions up to 2025-11-25. Nil: they are refused.
	Legacy func(*Hub) (Legacy, error)

	// MayRead reports whether a caller may read back what came from an origin, at the endpoint of all
	// servers. Nil: what came from servers that are configured.
	MayRead func(auth.Caller, recall.Origin) bool
}

// New builds the endpoint from a valid configuration. Servers are started by Start, or by the first
// request where there is a single client.
func New(s Settings, d Deps) (*Hub, error) {
	h := &Hub{deps: d, recall: d.Recall, meter: d.Meter, installs: upstream.NewInstallQueue(), closing: make(chan struct{}), tasks: newTaskOwners(), watchers: watchers{all: map[watched][]*watcher{}}}
	h.catalog = catalog.NewCache(catalog.Deps{
		Layout: func() *catalog.Layout { return &h.plan.Load().Layout },
		Budget: d.Budget, Pins: d.Pins, Closing: h.closing, Changed: h.notifyListChanged, Announce: d.AnnounceLists,
	})
	h.legacy = noLegacy{h}
	if d.Legacy != nil {
		var err error
		if h.legacy, err = d.Legacy(h); err != nil {
			return nil, err
		}
	}
	h.methods = h.methodTable()
	h.plan.Store(h.newPlan(s, nil))
	return h, nil
}

// Start starts the servers. With a single client they are started by its first request.
func (h *Hub) Start() {
	if h.deps.SingleClient {
		return
	}
	h.startServers(h.plan.Load())
	h.catalog.ClassOf(upstream.Caller{Client: mcp.Client{Capabilities: []byte("{}")}}) // starts to read their lists
	go h.sweepRegularly()
}

// sweepRegularly ends what has been idle for too long, and refreshes the catalog.
func (h *Hub) sweepRegularly() {
	t := time.NewTicker(30 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-h.closing:
			return
		case now := <-t.C:
			h.legacy.Sweep(now)
			h.catalog.Refresh()
		}
	}
}

// EndStreams ends all streams that have no end of their own. Calls in flight go on.
func (h *Hub) EndStreams() { h.once.Do(func() { close(h.closing) }) }

// Close stops the servers.
func (h *Hub) Close() {
	h.EndStreams()
	h.applying.Lock()
	defer h.applying.Unlock()
	plans := []*Plan{h.plan.Load()}
	if h.wanted != nil { // its servers may not have come into force
		plans = append(plans, h.wanted)
	}
	var wg sync.WaitGroup
	for _, p := range plans {
		for _, r := range p.Servers {
			wg.Go(r.Close)
		}
	}
	wg.Wait()
	h.retiring.Wait()
	h.legacy.Close()
	h.serverScopes.mu.Lock()
	defer h.serverScopes.mu.Unlock()
	for _, scope := range h.serverScopes.scopes {
		scope.Release()
	}
	h.catalog.Close()
}

// Routes mounts the endpoints.
func (h *Hub) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/mcp-gateway/{server}/rpc", h.serveRPC)
	mux.HandleFunc("/api/mcp-gateway/{server}/rpc", refuseMethod)
	for _, path := range []string{"/mcp", "/mcp/{server}"} {
		mux.HandleFunc(path, h.serveMCP)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		WriteError(w, r, fault.New(fault.NotFound, "there is nothing at this path"))
	})
}

// Admit is called once for every request and notification, whatever its method, revision and endpoint. A
// cancellation counts, but is always obeyed: it ends work.
func (h *Hub) Admit(req *Request) error {
	h.clients.noteRequest(req, time.Now())
	err := req.Plan.Gate.Admit(req.Caller)
	if req.IsNotification() && req.Method == mcp.NotifyCancelled {
		return nil
	}
	return err
}

// Catalog returns what the servers offer.
func (h *Hub) Catalog() *catalog.Cache { return h.catalog }

// Deps returns what the hub was made with.
func (h *Hub) Deps() Deps { return h.deps }

// Closing returns a channel that is closed when the hub stops.
func (h *Hub) Closing() <-chan struct{} { return h.closing }

// The hub is the upstream.EventHandler of its servers.

// ListChanged reads the lists of a server again.
func (h *Hub) ListChanged(l *upstream.ManagedConn, _ rpc.Message) { h.catalog.ListsChanged(l) }

// ServerIDs names the servers of the configuration in force.
func (h *Hub) ServerIDs() []string {
	var ids []string
	for _, r := range h.plan.Load().Servers {
		ids = append(ids, r.ID())
	}
	return ids
}

// ReadListsAgain reads a server's lists because another replica found that they changed: to those with this hash, or to
// any if it is "".
func (h *Hub) ReadListsAgain(server, hash string) { h.catalog.ReadChanged(server, hash) }

// ResourceUpdated notifies the watchers of a resource.
func (h *Hub) ResourceUpdated(l *upstream.ManagedConn, note rpc.Message) {
	params, err := jsonscan.ReadFields(note.Body, note.Params)
	if err != nil {
		return
	}
	h.watchers.notify(watched{l, params.Text("uri")}, &ResourceUpdate{hub: h, server: l.ServerID(), note: note})
}

// Notified takes a notification that belongs to no call (A7). A modern client asks for each kind of notification
// that it wants, so only legacy clients get it.
func (h *Hub) Notified(l *upstream.ManagedConn, note rpc.Message) {
	if l.IsShared() {
		h.legacy.ServerNotification(l, note)
	}
}

// StateChanged takes note that a connection to a server came up or went down.
func (h *Hub) StateChanged(l *upstream.ManagedConn, up bool) {
	if l.IsShared() {
		h.meter.SetServerUp(l.ServerID(), up)
	}
	if up {
		h.catalog.ServerUp(l)
	} else {
		h.catalog.ServerDown(l)
	}
}

// AwaitServers waits until every server has been tried once and its lists are read, or ctx ends.
func (h *Hub) AwaitServers(ctx context.Context) {
	p := h.plan.Load()
	for _, r := range p.Servers {
		r.AwaitFirstAttempt(ctx.Done())
	}
	h.catalog.Wait(ctx, upstream.Caller{Client: mcp.Client{Capabilities: []byte("{}")}}, &p.Layout)
}
