package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"syscall"

	"github.com/ctxgate/ctxgate/admin"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/oauth"
	"github.com/ctxgate/ctxgate/prunerd"
)

func (a *App) listen(ctx context.Context, name, address string, h http.Handler) error {
	l, err := a.openListener(ctx, name, address, h)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	a.listeners, a.listenerNames = append(a.listeners, l), append(a.listenerNames, name)
	a.onRelease(l.Drain)
	slog.InfoContext(ctx, "listening", "listener", name, "address", l.Addr().String())
	return nil
}

// warnExposed warns if everybody in the network can use a listener without a credential.
func warnExposed(name, address string, cfg config.Config) {
	if address != "" && !front.IsLoopbackAddress(address) && !cfg.Auth.IsRequired() {
		slog.Warn("the listener is open to everybody who can reach it: set auth_token, or listen on a loopback address", "listener", name, "listen", address)
	}
}

// openMain opens the clients' listener.
func (a *App) openMain(ctx context.Context) error {
	if a.cfg.Front.Listen == "" {
		return nil
	}
	a.hasMain = true
	if err := a.applyTLS(a.cfg); err != nil {
		return err
	}
	a.mainHandler.Set(a.withMetadata(a.cfg, a.newMainHandler(a.cfg)))
	if err := a.listen(ctx, "main", a.cfg.Front.Listen, a.ready.CloseWhenDraining(&a.mainHandler)); err != nil {
		return err
	}
	main, publicURL := a.listeners[len(a.listeners)-1], a.cfg.Front.PublicURL
	if a.cfg.Auth.TLS.IsEnabled() {
		main.SetTLS(a.mainTLS.Load)
		publicURL = cmp.Or(publicURL, "https://"+main.Addr().String())
	}
	a.oauth.SetRedirectURL(main.Addr(), publicURL)
	return nil
}

// newMainHandler mounts everything the main listener serves under a configuration.
func (a *App) newMainHandler(cfg config.Config) http.Handler {
	limits := cfg.Front.HTTP
	guard := front.NewGuard(cfg.Front.Listen, limits)
	warnExposed("main", cfg.Front.Listen, cfg)

	mux := http.NewServeMux()
	a.hub.Routes(mux)
	mcpEndpoints := front.Wrap(mux, front.Chain(a.gate, guard, limits, a.budget, hub.WriteError, hub.ReadsTokenFromBody)...)
	llmEndpoints := a.chat.Handler(guard)

	// These need no credentials: health reveals no more than an open port does, and a browser that begins an
	// authorization, or comes back from the authorization server, has only what its address says and a cookie.
	public := []front.Middleware{front.RequestID, front.AccessLog, guard.Protect(hub.WriteError)}
	healthz := front.Wrap(http.HandlerFunc(front.Healthz), public...)
	readyz := front.Wrap(a.ready.Readyz(func(ctx context.Context) error {
		_, err := a.storage.Store.Stat(ctx)
		return err
	}), public...)
	callback := front.Wrap(http.HandlerFunc(a.oauth.HandleCallback), public...)
	startPage := front.Wrap(http.HandlerFunc(a.oauth.HandleStart), public...)

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /healthz", "HEAD /healthz":
			healthz.ServeHTTP(w, r)
		case "GET /readyz", "HEAD /readyz":
			readyz.ServeHTTP(w, r)
		case "GET " + oauth.CallbackPath:
			callback.ServeHTTP(w, r)
		case "GET " + oauth.StartPath, "POST " + oauth.StartPath:
			startPage.ServeHTTP(w, r)
		default:
			if _, pattern := mux.Handler(r); pattern == "/" && a.chat.Serves(r) { // no provider takes a path of the MCP endpoints
				llmEndpoints.ServeHTTP(w, r)
				return
			}
			mcpEndpoints.ServeHTTP(w, r)
		}
	})
}

// identifyBrowser says whose request a browser's is, if it carries a credential.
func (a *App) identifyBrowser(r *http.Request) (oauth.Principal, bool) {
	a.mu.Lock()
	g := a.gate
	a.mu.Unlock()
	if !g.IsRequired() {
		return oauth.Principal{}, false
	}
	c, err := g.Authenticate(r)
	if err != nil {
		return oauth.Principal{}, false
	}
	return oauth.Principal{Tenant: c.Tenant(), Issuer: c.Issuer(), Subject: c.Subject()}, true
}

// openAdmin opens the operator's listener.
func (a *App) openAdmin(ctx context.Context) error {
	if a.cfg.Admin.Listen == "" {
		return nil
	}
	a.hasAdmin = true
	handler, err := a.newAdminHandler(a.cfg)
	if err != nil {
		return err
	}
	a.adminHandler.Set(handler)
	return a.listen(ctx, "admin", a.cfg.Admin.Listen, &a.adminHandler)
}

// newAdminHandler mounts everything the admin listener serves under a configuration.
func (a *App) newAdminHandler(cfg config.Config) (http.Handler, error) {
	token, err := adminToken(cfg)
	if err != nil {
		return nil, err
	}
	mux := a.newAdminMux()
	limits := cfg.Front.HTTP
	guard := front.NewGuard(cfg.Admin.Listen, limits)
	operators := gate.New(gate.Deps{Authenticator: a.gate.Operators(token), Audit: a.audit})
	return front.Wrap(mux, front.Chain(operators, guard, limits, a.budget, hub.WriteError, nil)...), nil
}

// newAdminMux mounts the operator's API.
func (a *App) newAdminMux() *http.ServeMux {
	mux := http.NewServeMux()
	admin.Routes(mux, a.metrics.Handler(), a.metrics.Savings, a.status, hub.WriteError)
	admin.PinRoutes(mux, a.hub.PinReport, a.hub.ApprovePins, hub.WriteError)
	mux.HandleFunc("POST /api/v1/reload", a.serveReload)
	return mux
}

// openPruner opens the pruner's listener.
func (a *App) openPruner(ctx context.Context) error {
	warnMissingKey(a.cfg.Pruner)
	a.prunerHandler.Set(a.newPrunerHandler(a.cfg))
	return a.listen(ctx, "pruner", a.cfg.Pruner.ListenAddress(), a.ready.CloseWhenDraining(&a.prunerHandler))
}

// openPrunerIfFree opens it beside the other listeners. If another process, perhaps another gateway, uses
// the default address, which is not configured, the gateway still serves the rest.
func (a *App) openPrunerIfFree(ctx context.Context) error {
	if a.cfg.Pruner.Listen == "" {
		return nil
	}
	err := a.openPruner(ctx)
	if errors.Is(err, syscall.EADDRINUSE) && a.cfg.Pruner.Listen == prunerd.Default().Listen {
		slog.WarnContext(ctx, "the pruner's default address is in use, so its listener is not opened: set mcp_pruner.listen", "address", a.cfg.Pruner.Listen)
		return nil
	}
	return err
}

// warnMissingKey warns of what every answer of the pruner would report, too.
func warnMissingKey(cfg prunerd.Config) {
	if cfg.MissingAPIKey() {
		slog.Warn("DEEPINFRA_API_KEY is not set: texts are pruned by the local engine, and none is sent anywhere")
	}
}

// newPrunerHandler mounts everything the pruner's listener serves under a configuration.
func (a *App) newPrunerHandler(cfg config.Config) http.Handler {
	limits := cfg.Front.HTTP
	limits.MaxRequestBytes = max(limits.MaxRequestBytes, cfg.Pruner.MaxRequestBytes())
	address := cfg.Pruner.ListenAddress()
	guard := front.NewGuard(address, limits)
	warnExposed("pruner", address, cfg)
	endpoint := a.pruner.Handler(prunerd.Endpoint{Gate: a.gate, HTTP: limits, Refuse: hub.WriteError, MaxDepth: cfg.Hub.MaxDepth})
	endpoint = front.Wrap(endpoint, front.Chain(a.gate, guard, limits, a.budget, hub.WriteError, prunerd.AcceptsTokenInBody)...)

	// Health needs no credentials, and is requested too often for the log.
	health := front.Wrap(http.HandlerFunc(a.pruner.Health), front.RequestID, guard.Protect(hub.WriteError))

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /health", "HEAD /health":
			health.ServeHTTP(w, r)
		default:
			endpoint.ServeHTTP(w, r)
		}
	})
}
