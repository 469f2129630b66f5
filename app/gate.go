package app

import (
	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/gate"
)

// applyGate makes the gate of a configuration. The parts that are applied after it use it.
func (a *App) applyGate(cfg config.Config) error {
	rules, err := access.New(cfg.Access)
	if err != nil {
		return err
	}
	a.gate = gate.New(gate.Deps{Authenticator: auth.New(cfg.Auth), Rules: rules, Limiter: a.limiter})
	return nil
}
