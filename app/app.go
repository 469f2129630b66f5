// Package app wires the gateway: it builds every part in order, opens the listeners, runs until it is told
// to stop, and reloads the configuration. Nothing else knows every part.
//
// Path through the files: app.go builds and runs, storage.go opens the store and the generated secrets,
// listeners.go mounts the handlers of the main, admin and pruner listeners, replicas.go that of the replicas, exported.go runs what one replica runs for all, status.go says what the gateway does, socket.go is the socket of `ctxgate stdio` and
// the life of a gateway in the background, reload.go applies a new
// configuration and watch.go notices it, changes.go tells other replicas and hears from them, pins.go keeps what was approved of tools, log.go makes the logger.
//
// Whatever is acquired is released in reverse order; each release is registered on the line after its
// acquisition. A failure while building releases what was built. When ctx ends, /readyz reports draining
// first, then the listeners drain, then the store closes.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/audit"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/budget"
	"github.com/ctxgate/ctxgate/changes"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/daemon"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/hub/legacy"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/limit"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/oauth"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/prunerd"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/replica"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/upstream"
)

// App is the running gateway. It is used once: New, Run.
type App struct {
	opts    Options
	started time.Time

	mu         sync.Mutex    // guards the fields of this group; held while a configuration is applied
	cfg        config.Config // the one in force
	stopping   bool          // no other configuration is applied
	lastReload *ReloadReport

	// Built by openShared.
	budget    *membudget.Budget
	storage   *Storage
	audit     *audit.Log
	transport *http.Transport
	limiter   *limit.Limiter // of all endpoints
	gate      *gate.Gate     // of the configuration in force
	pruner    *prunerd.Server

	// Built by build; nil where only the pruner is served.
	metrics  *meter.Meter
	oauth    *oauth.Transport
	pins     *pins.Guard
	lock     pins.Lock        // of the configuration in force
	exported exported         // the servers that run on one replica only
	replica  *replica.Replica // nil where this process is the only one
	hub      *hub.Hub
	chat     *chat.Proxy
	budgets  *budget.Tracker

	// The listeners, and what they serve under the current configuration.
	listeners      []*front.Listener
	listenerNames  []string                 // of the listeners, in their order
	feed           *changes.Feed            // what changes at other replicas; nil without any
	reloadHints    chan struct{}            // another replica was asked to reload
	reloadCalls    chan chan<- ReloadReport // the operator's API asks for a reload; nil without a source
	socket         *daemon.Server           // nil without one
	end            context.CancelCauseFunc  // ends Run
	ready          front.Readiness
	hasMain        bool
	mainTLS        atomic.Pointer[tls.Config] // nil: plain HTTP
	hasAdmin       bool
	mainHandler    front.SwappableHandler
	adminHandler   front.SwappableHandler
	prunerHandler  front.SwappableHandler
	replicaHandler front.SwappableHandler

	releases []func() error
}

// Options is what the configuration does not say.
type Options struct {
	Version     string
	Env         []string      // the process environment; child processes get a part of it
	ClientID    string        // the client of ctxgate stdio, as its entry names it
	ClientToken secret.Text   // the token in the environment of ctxgate stdio, used for requests without one
	Source      *ConfigSource // where new configurations come from; nil for none
	Socket      *Socket       // opens the gateway's socket; nil for none
	Stdout      io.Writer     // for audit.path = "-"; nil where this process uses its stdout for something else
	LogWriter   io.Writer     // the log's destination after a reload that changes logging; nil: the log never changes

	openDriver   func(context.Context, config.Config) (state.Driver, error) // in place of the one of the configuration; nil for that
	storeTimeout time.Duration                                              // of counting a call; 0 is the limiter's own
	readOnlyPins bool                                                       // what is seen of servers for the first time is not approved
}

// New builds everything from a configuration whose secrets are resolved. The addresses are open when it
// returns; requests are served by Run.
func New(ctx context.Context, cfg config.Config, opts Options) (_ *App, err error) {
	a := &App{cfg: cfg, opts: opts, started: time.Now(), end: func(error) {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.release())
		}
	}()
	if err := cfg.CheckExposed(); err != nil {
		return nil, err
	}
	if err := a.build(ctx, false); err != nil {
		return nil, err
	}
	if err := a.openReplicas(ctx); err != nil {
		return nil, err
	}
	if err := a.openMain(ctx); err != nil {
		return nil, err
	}
	if err := a.openAdmin(ctx); err != nil {
		return nil, err
	}
	if err := a.openPrunerIfFree(ctx); err != nil {
		return nil, err
	}
	a.hub.Start()
	if err := a.openSocket(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// NewPruner builds the pruner alone. Its address is open when it returns; requests are served by Run.
func NewPruner(ctx context.Context, cfg config.Config, opts Options) (*App, error) {
	a := &App{cfg: cfg, opts: opts, started: time.Now()}
	err := a.openShared(ctx)
	if err == nil {
		err = a.openPruner(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, a.release())
	}
	return a, nil
}

// ServeStdio serves one client on stdin and stdout, until it closes stdin or ctx ends.
func ServeStdio(ctx context.Context, cfg config.Config, opts Options, in io.Reader, out io.WriteCloser) error {
	a := &App{cfg: cfg, opts: opts, started: time.Now()}
	if err := checkClientToken(a.openAuthenticator(cfg), opts); err != nil {
		return err
	}
	err := a.build(ctx, true)
	if err == nil {
		stopReloads := a.followSource(ctx)
		err = a.hub.ServeStdio(ctx, in, out, hub.StdioOptions{Client: opts.ClientID, Token: opts.ClientToken.Reveal()})
		stopReloads()
	}
	return errors.Join(err, a.release())
}

// ProbeServers starts every server, tells the watcher what each of them is, and stops them. It returns the names that
// two of them want.
func ProbeServers(ctx context.Context, cfg config.Config, opts Options, watch hub.ProbeWatcher) ([]string, error) {
	a := &App{cfg: cfg, opts: opts}
	a.cfg.State.Driver = "memory" // nothing is stored
	a.cfg.Audit.Path = ""         // and no client calls
	a.cfg.Replicas.Listen = ""    // nor a replica
	if err := a.build(ctx, false); err != nil {
		return nil, errors.Join(err, a.release())
	}
	a.hub.Start()
	clashes := a.hub.Probe(ctx, watch)
	return clashes, a.release()
}

// openShared builds what the whole gateway and the pruner alone both need.
func (a *App) openShared(ctx context.Context) error {
	a.budget = membudget.New(a.cfg.Memory.Size())

	// The store, and recall over it. Expired items are removed in the background.
	var err error
	open := openDriver
	if a.opts.openDriver != nil {
		open = a.opts.openDriver
	}
	if a.storage, err = openStorage(ctx, a.cfg, open); err != nil {
		return err
	}
	a.onRelease(a.storage.Close)
	sweepCtx, stopSweep := context.WithCancel(context.WithoutCancel(ctx))
	a.onRelease(func() error { stopSweep(); return nil })
	go a.storage.Store.Run(sweepCtx)
	go a.storage.Keys.Watch(sweepCtx)

	// The audit log. What is released before it is recorded.
	if a.audit, err = audit.Open(a.cfg.Audit, a.auditOptions()); err != nil {
		return err
	}
	a.onRelease(a.audit.Close)

	// The connection pool to servers and providers.
	a.transport = upstream.NewTransport()
	a.onRelease(func() error { a.transport.CloseIdleConnections(); return nil })

	a.limiter = limit.New(a.cfg.Limit, time.Now)
	a.shareLimits(ctx)
	if err := a.applyGate(a.cfg); err != nil {
		return err
	}

	// The pruner. Its originals may have their own lifetime.
	originals := a.storage.Recall
	if ttl := a.cfg.Pruner.PruneIDTTL; ttl > 0 {
		originals, err = recall.WithKeyring(a.storage.Store.WithTTL(time.Duration(ttl)*time.Second), a.storage.Keys, a.cfg.Recall)
		if err != nil {
			return err
		}
	}
	a.pruner = prunerd.New(a.cfg.Pruner, prunerd.Deps{Recall: originals, Transport: a.transport, Version: a.opts.Version})
	a.onRelease(func() error { a.pruner.Close(); return nil })
	return nil
}

// build builds everything but the listeners.
func (a *App) build(ctx context.Context, singleClient bool) error {
	if err := a.openShared(ctx); err != nil {
		return err
	}
	storage := a.storage

	// Metrics and the savings ledger. The store and the memory budget are read at each scrape.
	scrapeCtx := context.WithoutCancel(ctx)
	a.metrics = meter.New(a.opts.Version, func() (meter.StoreStats, bool) {
		stat, err := storage.Store.Stat(scrapeCtx)
		return meter.StoreStats{Items: stat.Items, Bytes: stat.Bytes}, err == nil
	})
	if status := storage.redisStatus; status != nil {
		a.metrics.RegisterReplication(func() meter.ReplicationStats {
			s := status()
			return meter.ReplicationStats{Missing: int64(s.ReplicasMissing), Refusing: s.Problem != ""}
		})
	}
	a.metrics.RegisterMemory(func() meter.MemoryStats {
		held := a.budget.Stats()
		return meter.MemoryStats{Budget: held.Total, Held: held.Held, Refused: held.Refused}
	})

	a.metrics.RegisterAudit(func() meter.AuditStats {
		s := a.audit.Stats()
		return meter.AuditStats{Lines: s.Written, Dropped: s.Dropped, Failing: s.Failing}
	})

	a.keepDay(ctx)

	// Tokens for servers that require OAuth.
	var err error
	if a.oauth, err = oauth.New(oauth.Deps{Base: a.transport, Store: storage.Store, Secret: storage.Root, OldSecrets: storage.OldRoots, Grants: storage.grants()}); err != nil {
		return err
	}
	a.onRelease(func() error { a.oauth.Close(); return nil })
	a.oauth.SetIdentify(a.identifyBrowser)

	// What was approved of the servers' tools.
	if err := a.newPins(); err != nil {
		return err
	}

	// This process among the replicas.
	if !singleClient {
		if err := a.newReplica(); err != nil {
			return err
		}
	}
	a.newFeed()

	// The MCP endpoint and the servers behind it.
	var builtins []hub.Builtin
	if a.cfg.Pruner.Builtin {
		builtins = append(builtins, builtinPruner(a.pruner))
	}
	saveFacts := storage.saveFacts
	if a.opts.readOnlyPins {
		saveFacts = nil // a probe tells servers of clients that there are not
	}
	var transport http.RoundTripper = a.oauth
	if a.replica != nil {
		transport = a.replica.Transport(a.oauth)
	}
	a.hub, err = hub.New(a.hubSettings(a.cfg), hub.Deps{
		Transport: transport, Exchange: a.oauth.EnsureExchanged, Recall: storage.Recall, Meter: a.metrics, Secret: storage.Root, OldSecrets: storage.OldRoots, Env: a.opts.Env,
		Budget: a.budget, Pins: a.pins, SingleClient: singleClient, Replicas: a.replica, Builtins: builtins, Version: a.opts.Version, MayRead: a.mayRead,
		LoadFacts: storage.loadFacts, SaveFacts: saveFacts, AnnounceLists: a.announceLists,
		Legacy: legacy.New, // the revisions up to 2025-11-25: without this line and its package, only the modern protocol is served
	})
	if err != nil {
		return err
	}
	a.onRelease(func() error { a.hub.Close(); return nil })
	a.runFeed(ctx)

	// The LLM endpoint.
	a.budgets = budget.New(a.cfg.Budget, storage.Store, time.Now)
	a.onRelease(func() error { a.budgets.Close(); return nil })
	masker := masking.New(storage.Recall, time.Now)
	storage.Keys.OnForget(func(tenant string) {
		a.metrics.ForgetTenant(tenant)
		a.oauth.ForgetTenant(tenant)
		masker.ForgetEdits()
	})
	a.chat = chat.New(a.chatSettings(a.cfg), chat.Deps{
		Transport: a.transport, Meter: a.metrics, Shrink: masker.Shrink, CountInput: masker.CountInput, Recall: storage.Recall, Budget: a.budget, Budgets: a.budgets,
		MayRead: a.mayRead,
	})
	return nil
}

// mayRead reports whether a caller may read back originals of an origin: whether it may call that origin
// now. The endpoints of single servers do not ask; they only see what their server sent.
func (a *App) mayRead(c auth.Caller, o recall.Origin) bool {
	return a.hub.CanRead(c, o) || a.chat.CanRead(c, o)
}

func (a *App) hubSettings(cfg config.Config) hub.Settings {
	return hub.Settings{Hub: cfg.Hub, HTTP: cfg.Front.HTTP, Gate: a.gate, Upstream: a.withoutExported(cfg.Upstream)}
}

func (a *App) chatSettings(cfg config.Config) chat.Settings {
	return chat.Settings{Chat: cfg.Chat, HTTP: cfg.Front.HTTP, Gate: a.gate}
}

// builtinPruner presents the pruner as one of the hub's servers.
func builtinPruner(s *prunerd.Server) hub.Builtin {
	return hub.Builtin{ID: prunerd.ServerID, Tools: s.Tools, Call: func(ctx context.Context, tenant, name string, args []byte) ([]byte, error) {
		result, err := s.Call(ctx, tenant, name, args)
		var rpcErr *prunerd.Error
		if errors.As(err, &rpcErr) {
			return nil, &hub.RPCError{Code: rpcErr.Code, Message: rpcErr.Message, Data: rpcErr.Data}
		}
		return result, err
	}}
}

// Run serves until ctx ends or a listener fails, then drains. Reloads stop before it drains.
func (a *App) Run(ctx context.Context) error {
	ctx, a.end = context.WithCancelCause(ctx)
	stopReloads := a.followSource(ctx)
	failed := make(chan error, len(a.listeners))
	for _, l := range a.listeners {
		go func() { failed <- l.Serve() }()
	}
	if a.socket != nil {
		a.serveSocket(ctx)
	}
	var err error
	select {
	case err = <-failed:
		stopReloads()
	case <-ctx.Done():
		stopReloads()
		limits := a.httpLimits()
		slog.Info("draining", "grace", limits.DrainGrace.String(), "cause", context.Cause(ctx))
		a.ready.StartDraining()
		time.Sleep(limits.DrainDelay.D())
		if a.socket != nil {
			err = a.drainAll(context.Cause(ctx))
		}
	}
	if a.hub != nil {
		a.hub.EndStreams() // they would not end by themselves within the grace period
		a.endExportedStreams()
	}
	err = errors.Join(err, a.release())
	slog.Info("stopped")
	return err
}

func (a *App) onRelease(f func() error) { a.releases = append(a.releases, f) }

// release runs the registered releases, last first.
func (a *App) release() error {
	var errs []error
	for _, f := range slices.Backward(a.releases) {
		errs = append(errs, f())
	}
	a.releases = nil
	return errors.Join(errs...)
}
