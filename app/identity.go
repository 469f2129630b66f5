package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
)

// openAuthenticator makes the authenticator of a configuration. What the one before it knows of the identity provider
// survives a reload.
func (a *App) openAuthenticator(cfg config.Config) *auth.Authenticator {
	deps := auth.Deps{PublicURL: cfg.Front.PublicURL}
	if a.storage != nil && a.isShared() {
		deps.UseOnce = a.useOnce
	}
	if a.gate != nil {
		deps.Previous = a.gate.Authenticator
	}
	return auth.Open(cfg.Auth, deps)
}

// checkClientToken rejects a wrong token in the environment of ctxgate stdio: every request would fail. If the identity
// provider cannot be asked now, each request asks again.
func checkClientToken(a *auth.Authenticator, opts Options) error {
	if !a.IsRequired() {
		return nil
	}
	if !opts.ClientToken.IsSet() {
		slog.Info("auth_token is set: each request must carry it in params.proxy.authToken, or this process must be started with it in CTXGATE_TOKEN")
		return nil
	}
	if isWrongToken(a, opts.ClientToken.Reveal()) {
		return fmt.Errorf("the token in the variable %s is not the auth_token of the configuration: correct it, or unset it and send the token with each request",
			strings.TrimPrefix(opts.ClientToken.Source(), "env:"))
	}
	return nil
}

// isWrongToken says whether a token is refused, whoever is asked and whenever.
func isWrongToken(a *auth.Authenticator, token string) bool {
	_, err := a.AuthenticateToken(context.Background(), token)
	return err != nil && (fault.KindOf(err) == fault.Unauthorized || fault.KindOf(err) == fault.Forbidden)
}

// withMetadata also serves where clients get a token. That needs no credential: whoever asks has none yet.
func (a *App) withMetadata(cfg config.Config, next http.Handler) http.Handler {
	guard := front.NewGuard(cfg.Front.Listen, cfg.Front.HTTP)
	metadata := front.Wrap(http.HandlerFunc(a.gate.ServeMetadata), front.RequestID, front.AccessLog, front.RequireCleanPath(hub.WriteError), guard.Protect(hub.WriteError))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
		if rest, ok := strings.CutPrefix(r.URL.Path, auth.MetadataPath); ok && isRead && (rest == "" || rest[0] == '/') {
			metadata.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
