package app

import (
	"fmt"
	"log/slog"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/gate"
)

// applyTLS makes the certificates of a configuration those of new connections. Whether the listener speaks TLS at all is
// decided at the start.
func (a *App) applyTLS(cfg config.Config) error {
	isRunning := a.mainTLS.Load() != nil
	if len(a.listeners) > 0 && isRunning != cfg.Auth.TLS.IsEnabled() {
		slog.Warn("the main listener starts or stops to speak TLS at the next start of the gateway")
		return nil
	}
	if !cfg.Auth.TLS.IsEnabled() {
		return nil
	}
	next, err := auth.NewServerTLS(cfg.Auth.TLS)
	if err != nil {
		return fmt.Errorf("tls.%w", err)
	}
	a.mainTLS.Store(next)
	return nil
}

// applyGate makes the gate of a configuration. The parts that are applied after it use it.
func (a *App) applyGate(cfg config.Config) error {
	rules, err := access.New(cfg.Access)
	if err != nil {
		return err
	}
	a.gate = gate.New(gate.Deps{Authenticator: a.openAuthenticator(cfg), Rules: rules, Limiter: a.limiter, Audit: a.audit})
	return nil
}
