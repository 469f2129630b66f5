// Package app builds the house in one straight line and runs it: store, recall, meter, doors,
// listeners. Nothing else knows every part.
//
// What is acquired is released in reverse order, each release registered on the line after the
// acquisition. A failure while building releases what was built. When ctx ends, readiness is
// withdrawn first, then the listeners drain, then the store closes.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/admin"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/grant"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/limit"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/prunerd"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/upstream"
)

// App is the running gateway. It is used once: New, Run.
type App struct {
	opts Options

	mu         sync.Mutex    // held while a configuration is put into force, and to read which one is
	cfg        config.Config // in force; while the gateway is built, only its builder knows it
	stopping   bool          // no other comes into force
	lastReload *ReloadReport

	door      *hub.Hub // nil where only the pruner is served
	chat      *chat.Door
	pruner    *prunerd.Server
	grants    *grant.Desk
	limiter   *limit.Limiter // of every door
	main      front.Swap
	prune     front.Swap // the pruner's listener
	admin     front.Swap // the operator's
	metrics   *meter.Meter
	store     *state.Store
	budget    *membudget.Budget
	ready     front.Readiness
	listeners []*front.Listener
	releases  []func() error
}

// Options is what the configuration does not say.
type Options struct {
	Version string
	Env     []string    // the process environment, of which programs get a part
	Token   secret.Text // that ctxgate stdio was started with, which stands for its client's
	Source  *Source     // of new configurations while it runs; nil for none
	LogTo   io.Writer   // where to log, when a new configuration asks for another log; nil to leave the log alone
}

// New builds everything from a configuration whose secrets are resolved. Addresses are open when
// it returns; nobody is served before Run.
func New(ctx context.Context, cfg config.Config, opts Options) (_ *App, err error) {
	a := &App{cfg: cfg, opts: opts}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.release())
		}
	}()
	if err := cfg.CheckExposed(); err != nil {
		return nil, err
	}
	vault, metrics, err := a.build(ctx, false)
	if err != nil {
		return nil, err
	}
	if err := a.openMain(ctx, vault.Store); err != nil {
		return nil, err
	}
	if err := a.openAdmin(ctx, metrics); err != nil {
		return nil, err
	}
	if err := a.openPrunerToo(ctx); err != nil {
		return nil, err
	}
	a.door.Start()
	return a, nil
}

// found makes what everything else stands on: the store, the connections to others, the pruner.
func (a *App) found(ctx context.Context) (*Vault, *http.Transport, error) {
	a.budget = membudget.New(a.cfg.Memory.Size())
	vault, err := OpenVault(ctx, a.cfg)
	if err != nil {
		return nil, nil, err
	}
	a.onRelease(vault.Close)

	sweeping, stopSweeping := context.WithCancel(context.WithoutCancel(ctx))
	a.onRelease(func() error { stopSweeping(); return nil })
	go vault.Store.Run(sweeping)

	transport := upstream.NewTransport()
	a.onRelease(func() error { transport.CloseIdleConnections(); return nil })

	a.limiter = limit.New(a.cfg.Limit, time.Now)
	a.pruner, err = newPruner(a.cfg, vault, transport, a.opts)
	if err != nil {
		return nil, nil, err
	}
	a.onRelease(func() error { a.pruner.Close(); return nil })
	return vault, transport, nil
}

// build makes everything but the listeners.
func (a *App) build(ctx context.Context, sole bool) (*Vault, *meter.Meter, error) {
	vault, transport, err := a.found(ctx)
	if err != nil {
		return nil, nil, err
	}
	counting := context.WithoutCancel(ctx)
	metrics := meter.New(a.opts.Version, func() (meter.Store, bool) {
		stat, err := vault.Store.Stat(counting)
		return meter.Store{Items: stat.Items, Bytes: stat.Bytes}, err == nil
	})
	metrics.Memory(func() meter.Memory {
		held := a.budget.Stats()
		return meter.Memory{Budget: held.Total, Held: held.Held, Refused: held.Refused}
	})

	a.grants, err = grant.New(grant.Deps{Next: transport, Store: vault.Store, Secret: vault.Root})
	if err != nil {
		return nil, nil, err
	}
	a.onRelease(func() error { a.grants.Close(); return nil })

	a.door, err = hub.New(settings(a.cfg), hub.Deps{
		Transport: a.grants, Recall: vault.Recall, Meter: metrics, Limiter: a.limiter, Secret: vault.Root, Env: a.opts.Env,
		Budget: a.budget, Sole: sole, Token: a.opts.Token.Reveal(), Own: a.own(), Version: a.opts.Version, MayRead: a.mayRead,
	})
	if err != nil {
		return nil, nil, err
	}
	a.onRelease(func() error { a.door.Close(); return nil })
	a.chat = chat.New(chatSettings(a.cfg), chat.Deps{
		Transport: transport, Meter: metrics, Limiter: a.limiter, Shrink: chat.Mask(vault.Recall, time.Now), Recall: vault.Recall, Budget: a.budget,
		MayRead: a.mayRead,
	})
	return vault, metrics, nil
}

// mayRead says whether a caller may read back what came from an origin: whether it may call that
// today. Every reader of the gateway asks here, but for those at the door of one server, which see
// what that server made.
func (a *App) mayRead(who auth.Caller, o recall.Origin) bool {
	return a.door.Calls(who, o) || a.chat.Calls(who, o)
}

// settings is the part of the configuration that the hub needs.
func settings(cfg config.Config) hub.Settings {
	return hub.Settings{Hub: cfg.Hub, HTTP: cfg.Front.HTTP, Auth: cfg.Auth, Upstream: cfg.Upstream}
}

// chatSettings is the part of it that the LLM door needs.
func chatSettings(cfg config.Config) chat.Settings {
	return chat.Settings{Chat: cfg.Chat, HTTP: cfg.Front.HTTP, Auth: cfg.Auth}
}

// Stdio serves one client on stdin and stdout, until it leaves or ctx ends.
func Stdio(ctx context.Context, cfg config.Config, opts Options, in io.Reader, out io.WriteCloser) error {
	if err := checkToken(cfg, opts); err != nil {
		return err
	}
	a := &App{cfg: cfg, opts: opts}
	_, _, err := a.build(ctx, true)
	if err == nil {
		stopFollowing := a.follow(ctx)
		err = a.door.ServeStdio(ctx, in, out)
		stopFollowing()
	}
	return errors.Join(err, a.release())
}

// checkToken refuses a process that was started with a wrong token: each of its requests would be
// refused. One that was started without is told what that means.
func checkToken(cfg config.Config, opts Options) error {
	if !cfg.Auth.Token.IsSet() {
		return nil
	}
	if !opts.Token.IsSet() {
		slog.Info("auth_token is set: each request must carry it in params.proxy.authToken, or this process must be started with it in CTXGATE_TOKEN")
		return nil
	}
	if _, err := auth.New(cfg.Auth).Check(opts.Token.Reveal()); err != nil {
		return fmt.Errorf("the token in the variable %s is not the auth_token of the configuration: correct it, or unset it and send the token with each request",
			strings.TrimPrefix(opts.Token.Source(), "env:"))
	}
	return nil
}

// Survey starts every server, says what each of them is, and ends them.
func Survey(ctx context.Context, cfg config.Config, opts Options) ([]hub.Finding, []string, error) {
	a := &App{cfg: cfg, opts: opts}
	a.cfg.State.Driver = "memory" // nothing is kept
	if _, _, err := a.build(ctx, false); err != nil {
		return nil, nil, errors.Join(err, a.release())
	}
	a.door.Start()
	found, clashes := a.door.Survey(ctx)
	return found, clashes, a.release()
}

// openMain opens the listener that clients use.
func (a *App) openMain(ctx context.Context, store *state.Store) error {
	if a.cfg.Front.Listen == "" {
		return nil
	}
	a.main.Set(a.mainHandler(a.cfg, store))
	a.store = store
	if err := a.listen(ctx, "main", a.cfg.Front.Listen, a.ready.Closing(&a.main)); err != nil {
		return err
	}
	a.grants.Serve(a.listeners[len(a.listeners)-1].Addr(), a.cfg.Front.PublicURL)
	return nil
}

// mainHandler is everything the main listener serves, as a configuration has it.
func (a *App) mainHandler(cfg config.Config, store *state.Store) http.Handler {
	limits := cfg.Front.HTTP
	guard := front.NewGuard(cfg.Front.Listen, limits)
	warnExposed("main", cfg.Front.Listen, cfg)
	guarded := http.NewServeMux()
	a.door.Routes(guarded)

	models := a.chat.Handler(guard)
	doors := front.Wrap(guarded, front.Chain(auth.New(cfg.Auth), guard, limits, a.budget, hub.Refuse, hub.ReadsToken)...)

	// Health needs no credentials; it says nothing that a closed port would not.
	open := []front.Stage{front.Identified, front.Logged, guard.Stage(hub.Refuse)}
	live := front.Wrap(http.HandlerFunc(front.Live), open...)
	// A browser that comes from an authorization server has nothing but the state it was given.
	callback := front.Wrap(http.HandlerFunc(a.grants.Callback), open...)
	ready := front.Wrap(a.ready.Ready(func(ctx context.Context) error {
		_, err := store.Stat(ctx)
		return err
	}), open...)

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /healthz", "HEAD /healthz":
			live.ServeHTTP(w, r)
		case "GET /readyz", "HEAD /readyz":
			ready.ServeHTTP(w, r)
		case "GET " + grant.CallbackPath:
			callback.ServeHTTP(w, r)
		default:
			if chat.Serves(r.URL.Path) {
				models.ServeHTTP(w, r)
				return
			}
			doors.ServeHTTP(w, r)
		}
	})
}

// warnExposed says what whoever reaches a listener may do where no credential is asked for.
func warnExposed(name, address string, cfg config.Config) {
	if address != "" && !front.IsLocal(address) && !cfg.Auth.Token.IsSet() {
		slog.Warn("the listener is open to everybody who can reach it: set auth_token, or keep it to loopback", "listener", name, "listen", address)
	}
}

// openAdmin opens the listener that the operator uses.
func (a *App) openAdmin(ctx context.Context, metrics *meter.Meter) error {
	cfg := a.cfg.Admin
	if cfg.Listen == "" {
		return nil
	}
	a.metrics = metrics
	handler, err := a.adminHandler(a.cfg)
	if err != nil {
		return err
	}
	a.admin.Set(handler)
	return a.listen(ctx, "admin", cfg.Listen, &a.admin)
}

// adminHandler is everything the operator's listener serves, as a configuration has it.
func (a *App) adminHandler(cfg config.Config) (http.Handler, error) {
	token, err := adminToken(cfg)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	admin.Routes(mux, a.metrics.Handler(), hub.Refuse)
	admin.Savings(mux, a.metrics.Savings, hub.Refuse)
	limits := cfg.Front.HTTP
	guard := front.NewGuard(cfg.Admin.Listen, limits)
	gate := auth.New(auth.Config{Token: token})
	return front.Wrap(mux, front.Chain(gate, guard, limits, a.budget, hub.Refuse, nil)...), nil
}

func (a *App) listen(ctx context.Context, name, address string, h http.Handler) error {
	l, err := front.Listen(ctx, address, a.cfg.Front.HTTP, a.budget, h)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	a.listeners = append(a.listeners, l)
	a.onRelease(l.Drain)
	slog.InfoContext(ctx, "listening", "listener", name, "address", l.Addr().String())
	return nil
}

// Run serves until ctx ends or a listener fails, then drains. While it serves it follows the source of
// new configurations; before it drains that has ended.
func (a *App) Run(ctx context.Context) error {
	stopFollowing := a.follow(ctx)
	failed := make(chan error, len(a.listeners))
	for _, l := range a.listeners {
		go func() { failed <- l.Serve() }()
	}
	var err error
	select {
	case err = <-failed:
		stopFollowing()
	case <-ctx.Done():
		stopFollowing()
		limits := a.limits()
		slog.Info("draining", "grace", limits.DrainGrace.String())
		a.ready.Withdraw()
		time.Sleep(limits.DrainDelay.D())
	}
	if a.door != nil {
		a.door.End() // streams that have no end of their own
	}
	err = errors.Join(err, a.release())
	slog.Info("stopped")
	return err
}

func (a *App) onRelease(f func() error) { a.releases = append(a.releases, f) }

// release gives back what was acquired, last first.
func (a *App) release() error {
	var errs []error
	for _, f := range slices.Backward(a.releases) {
		errs = append(errs, f())
	}
	a.releases = nil
	return errors.Join(errs...)
}

// Vault is the store and what is kept in it: all of the gateway that `recover` needs.
type Vault struct {
	Store  *state.Store
	Recall *recall.Recall
	Root   []byte // the secret everything else is derived from
}

// Close closes the store.
func (v *Vault) Close() error { return v.Store.Close() }
