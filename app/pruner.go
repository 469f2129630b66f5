package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"syscall"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/prunerd"
)

// NewPruner builds the pruner alone. Its address is open when it returns; nobody is served before
// Run.
func NewPruner(ctx context.Context, cfg config.Config, opts Options) (*App, error) {
	a := &App{cfg: cfg, opts: opts}
	_, _, err := a.found(ctx)
	if err == nil {
		err = a.openPruner(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, a.release())
	}
	return a, nil
}

func newPruner(cfg config.Config, vault *Vault, transport http.RoundTripper, opts Options) (*prunerd.Server, error) {
	keeper := vault.Recall
	if ttl := cfg.Pruner.PruneIDTTL; ttl > 0 {
		var err error
		if keeper, err = vault.lasting(cfg, time.Duration(ttl)*time.Second); err != nil {
			return nil, err
		}
	}
	return prunerd.New(cfg.Pruner, prunerd.Deps{Recall: keeper, Transport: transport, Version: opts.Version}), nil
}

// own are the servers that are part of the gateway.
func (a *App) own() []hub.Own {
	if !a.cfg.Pruner.Builtin {
		return nil
	}
	return []hub.Own{ownPruner(a.pruner)}
}

// ownPruner is the pruner as one of the servers that clients of the gateway see.
func ownPruner(s *prunerd.Server) hub.Own {
	return hub.Own{ID: "pruner", Tools: s.Tools, Call: func(ctx context.Context, tenant, name string, args []byte) ([]byte, error) {
		result, err := s.Call(ctx, tenant, name, args)
		var told *prunerd.Error
		if errors.As(err, &told) {
			return nil, &hub.Failure{Code: told.Code, Message: told.Message, Data: told.Data}
		}
		return result, err
	}}
}

// openPruner opens the pruner's own listener.
func (a *App) openPruner(ctx context.Context) error {
	warnKey(a.cfg.Pruner)
	a.prune.Set(a.prunerHandler(a.cfg))
	return a.listen(ctx, "pruner", a.cfg.Pruner.Address(), a.ready.Closing(&a.prune))
}

// openPrunerToo opens it beside the others. At its default address, which nobody asked for, another
// program may be, or another gateway: that is no reason not to serve at all.
func (a *App) openPrunerToo(ctx context.Context) error {
	if a.cfg.Pruner.Listen == "" {
		return nil
	}
	err := a.openPruner(ctx)
	if errors.Is(err, syscall.EADDRINUSE) && a.cfg.Pruner.Listen == prunerd.Default().Listen {
		slog.WarnContext(ctx, "the pruner has no listener of its own: its default address is taken", "address", a.cfg.Pruner.Listen)
		return nil
	}
	return err
}

// warnKey says what every answer of the pruner would say too.
func warnKey(cfg prunerd.Config) {
	if cfg.LacksKey() {
		slog.Warn("DEEPINFRA_API_KEY is not set: texts are pruned by the local engine, and none is sent anywhere")
	}
}

// prunerHandler is everything the pruner's listener serves, as a configuration has it.
func (a *App) prunerHandler(cfg config.Config) http.Handler {
	limits := cfg.Front.HTTP
	limits.MaxRequestBytes = max(limits.MaxRequestBytes, cfg.Pruner.MaxRequestBytes())
	guard := front.NewGuard(cfg.Pruner.Address(), limits)
	warnExposed("pruner", cfg.Pruner.Address(), cfg)
	gate := auth.New(cfg.Auth)
	door := a.pruner.Handler(prunerd.Door{Gate: gate, Limiter: a.limiter, HTTP: limits, Refuse: hub.Refuse, MaxDepth: cfg.Hub.MaxDepth})
	doors := front.Wrap(door, front.Chain(gate, guard, limits, a.budget, hub.Refuse, prunerd.ReadsToken)...)

	// Health needs no credentials, and is asked too often for the log.
	health := front.Wrap(http.HandlerFunc(a.pruner.Health), front.Identified, guard.Stage(hub.Refuse))

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /health", "HEAD /health":
			health.ServeHTTP(w, r)
		default:
			doors.ServeHTTP(w, r)
		}
	})
}

// applyPruner puts what can change while it runs into force.
func (a *App) applyPruner(next config.Config) error {
	if a.cfg.Pruner.Backend != next.Pruner.Backend {
		warnKey(next.Pruner)
	}
	a.pruner.Apply(next.Pruner)
	a.prune.Set(a.prunerHandler(next))
	return nil
}
