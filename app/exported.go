package app

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/hub/legacy"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/reduce"
	"github.com/ctxgate/ctxgate/replica"
	"github.com/ctxgate/ctxgate/upstream"
)

// A server with replicas = "one" runs on the replica that leads. For the hub of every replica it is a server over HTTP,
// at a URL that the transport resolves to the leader; there a small hub of its own serves that one server,
// unshortened and to replicas alone. Access rules, limits, pins and shortening stay with the replica that has the client.

// exported is the servers that run on one replica only.
type exported struct {
	mu      sync.Mutex
	servers map[string]*exportedServer
}

// exportedServer is a server with replicas = "one": this replica runs it while it holds the lease.
type exportedServer struct {
	app   *App
	entry upstream.ServerConfig
	end   func()

	mu      sync.Mutex
	hub     *hub.Hub // nil while another replica runs the server
	handler http.Handler
}

// withoutExported returns the table of servers as the hub of a replica sees it: a server that runs on one replica only
// is at a URL.
func (a *App) withoutExported(cfg upstream.Config) upstream.Config {
	if a.replica == nil {
		return cfg
	}
	cfg.Servers = slices.Clone(cfg.Servers)
	for i, s := range cfg.Servers {
		if s.RunsOnOne() {
			isShared := true
			s.Command, s.Env, s.Cwd, s.Shared = nil, nil, "", &isShared
			s.URL, s.Transport = secret.URL(replica.LeaderURL(s.ID)), "http"
			cfg.Servers[i] = s
		}
	}
	return cfg
}

// applyExported makes this replica a candidate for the servers of a configuration, and no longer for others.
func (a *App) applyExported(cfg config.Config) error {
	if a.replica == nil {
		return nil
	}
	wanted := map[string]upstream.ServerConfig{}
	for _, s := range cfg.Upstream.Servers {
		if s.RunsOnOne() && !s.Disabled && s.Fault == "" {
			wanted[s.ID] = s
		}
	}
	a.exported.mu.Lock()
	defer a.exported.mu.Unlock()
	for id, s := range a.exported.servers {
		if entry, ok := wanted[id]; !ok || !reflect.DeepEqual(entry, s.entry) {
			delete(a.exported.servers, id)
			s.end()
		}
	}
	for id, entry := range wanted {
		if a.exported.servers[id] != nil {
			continue
		}
		s := &exportedServer{app: a, entry: entry}
		if a.exported.servers == nil {
			a.exported.servers = map[string]*exportedServer{}
		}
		a.exported.servers[id] = s
		s.end = a.replica.Lead(context.Background(), id, entry.ShutdownGrace.D(), func() { s.start(cfg) }, s.stop)
	}
	return nil
}

// endExported stops the servers, and lets other replicas take over.
func (a *App) endExported() error {
	a.exported.mu.Lock()
	defer a.exported.mu.Unlock()
	for _, s := range a.exported.servers {
		s.end()
	}
	a.exported.servers = nil
	return nil
}

// endExportedStreams ends the streams that other replicas have open to the servers that this one runs for all.
func (a *App) endExportedStreams() {
	a.exported.mu.Lock()
	defer a.exported.mu.Unlock()
	for _, s := range a.exported.servers {
		s.mu.Lock()
		if s.hub != nil {
			s.hub.EndStreams()
		}
		s.mu.Unlock()
	}
}

// start starts the server for all replicas.
func (s *exportedServer) start(cfg config.Config) {
	h, err := s.newHub(cfg)
	if err != nil {
		slog.Error("the server for all replicas was not started", "server", s.entry.ID, "error", err)
		return
	}
	mux := http.NewServeMux()
	h.Routes(mux)
	open := gate.New(gate.Deps{}) // replicas have proven that they are
	handler := front.Wrap(mux, front.RequestID, front.Recover(hub.WriteError), front.Authenticate(open, hub.WriteError, nil), front.ChargeMemory(s.app.budget, hub.WriteError), front.LimitBody(cfg.Front.HTTP))
	h.Start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hub, s.handler = h, handler
}

// newHub returns a hub for the server alone: it passes everything on as it is.
func (s *exportedServer) newHub(cfg config.Config) (*hub.Hub, error) {
	// Its tokens are not those of the main hub, through which they pass.
	root, err := hkdf.Key(sha256.New, s.app.storage.Root, nil, "ctxgate exported servers", 32)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	entry := s.entry
	isShared := true
	entry.Shared, entry.EnabledTools, entry.DisabledTools, entry.Prefix = &isShared, nil, nil, ""
	settings := hub.Settings{Hub: hub.Default(), HTTP: cfg.Front.HTTP, Upstream: cfg.Upstream}
	settings.Hub.MaxDepth, settings.Hub.AskTimeout, settings.Hub.MaxSessions, settings.Hub.MaxInstructionsChars = cfg.Hub.MaxDepth, cfg.Hub.AskTimeout, cfg.Hub.MaxSessions, 0
	settings.Hub.Policies = []hub.Policy{{Server: "*", Tool: "*", Reduce: reduce.None, Prune: reduce.DefaultPruneOptions()}}
	settings.Upstream.Servers = []upstream.ServerConfig{entry}
	return hub.New(settings, hub.Deps{
		Transport: s.app.transport, Recall: s.app.storage.Recall, Meter: meter.New(s.app.opts.Version, func() (meter.StoreStats, bool) { return meter.StoreStats{}, false }),
		Budget: s.app.budget, Secret: root, Env: s.app.opts.Env, Version: s.app.opts.Version, ForReplicas: true, Legacy: legacy.New,
	})
}

// stop stops the server here.
func (s *exportedServer) stop() {
	s.mu.Lock()
	h := s.hub
	s.hub, s.handler = nil, nil
	s.mu.Unlock()
	if h != nil {
		h.Close()
	}
}

// serveExported serves the requests of replicas for a server that this one runs.
func (a *App) serveExported(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, replica.LeaderPath)
	a.exported.mu.Lock()
	s := a.exported.servers[id]
	a.exported.mu.Unlock()
	var handler http.Handler
	if s != nil {
		s.mu.Lock()
		handler = s.handler
		s.mu.Unlock()
	}
	if handler == nil {
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	r.URL.Path = "/mcp/" + id
	handler.ServeHTTP(w, r)
}
