package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/front"
)

// ReloadReport is the outcome of a reload. It names keys, never values.
type ReloadReport struct {
	At time.Time `json:"at"`
	// Applied are the changed keys that are in force now.
	Applied []string `json:"applied"`
	// NeedsRestart are the changed keys that take effect at the next start.
	NeedsRestart []string `json:"needs_restart"`
	// Failed is the part that failed; "" if none did. Then the whole old configuration stays in force,
	// and Error says why.
	Failed string `json:"failed,omitempty"`
	Error  string `json:"error,omitempty"`
}

// partLoad is the part of a reload that reads and validates the file.
const partLoad = "load"

func (r ReloadReport) log() {
	if r.Failed != "" {
		slog.Error("configuration not reloaded: the old one stays in force", "failed", r.Failed, "error", r.Error)
		return
	}
	level := slog.LevelInfo
	if len(r.NeedsRestart) > 0 {
		level = slog.LevelWarn
	}
	slog.Log(context.Background(), level, "configuration reloaded", "applied", r.Applied, "needs_restart", r.NeedsRestart)
}

// LastReload is the outcome of the last reload; false if there was none.
func (a *App) LastReload() (ReloadReport, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lastReload == nil {
		return ReloadReport{}, false
	}
	return *a.lastReload, true
}

// Reload applies a new configuration, except keys that need a restart. Requests in flight end under the
// old one, and the listeners stay open. When a part fails, it and the parts before it go back to the old
// configuration. A gateway that is stopping does not reload.
func (a *App) Reload(cfg config.Config) ReloadReport {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.recordReload(a.reload(cfg))
}

// recordLoadFailure records a configuration that could not be loaded.
func (a *App) recordLoadFailure(err error) ReloadReport {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.recordReload(ReloadReport{Applied: []string{}, NeedsRestart: []string{}, Failed: partLoad, Error: err.Error()})
}

// recordReload logs the outcome of a reload and keeps it for LastReload; a.mu is held.
func (a *App) recordReload(r ReloadReport) ReloadReport {
	r.At = time.Now()
	a.lastReload = &r
	r.log()
	a.audit.Record(r.auditEvent())
	return r
}

func (a *App) reload(cfg config.Config) ReloadReport {
	r := ReloadReport{Applied: []string{}, NeedsRestart: []string{}}
	if a.stopping {
		r.Failed, r.Error = "gateway", "it is stopping"
		return r
	}
	for _, d := range config.Diff(a.cfg, cfg) {
		if d.NeedsRestart {
			r.NeedsRestart = append(r.NeedsRestart, d.Key)
		} else {
			r.Applied = append(r.Applied, d.Key)
		}
	}
	next := cfg
	next.KeepUntilRestart(a.cfg)
	if err := a.checkExposed(next, cfg); err != nil {
		return ReloadReport{Applied: []string{}, NeedsRestart: r.NeedsRestart, Failed: "listen", Error: err.Error()}
	}
	lock, err := LoadLock(next.Pins) // the file may have changed while the configuration did not
	if err != nil {
		return ReloadReport{Applied: []string{}, NeedsRestart: r.NeedsRestart, Failed: "pins", Error: err.Error()}
	}
	undoPins := a.applyPins(next.Pins, lock)
	if len(r.Applied) == 0 {
		return r
	}
	if part, err := applyParts(a.reloadParts(), a.cfg, next); err != nil {
		undoPins()
		return ReloadReport{Applied: []string{}, NeedsRestart: r.NeedsRestart, Failed: part, Error: err.Error()}
	}
	a.cfg = next
	return r
}

// reloadPart is one part of the gateway that applies a new configuration.
type reloadPart struct {
	name  string
	apply func(config.Config) error
}

// reloadParts lists the parts, those that can fail first.
func (a *App) reloadParts() []reloadPart {
	return []reloadPart{
		{"tls", a.applyTLS},
		{"access", a.applyGate},
		{"audit", a.applyAudit},
		{"admin", a.applyAdmin},
		{"servers", a.applyExported},
		{"servers", a.applyHub},
		{"providers", a.applyChat},
		{"rate_limit_per_minute", a.applyLimit},
		{"mcp_pruner", a.applyPruner},
		{"http", a.applyHTTP},
		{"log", a.applyLog},
	}
}

// applyParts applies a configuration part by part. When one fails, it and those before it get the running
// configuration again.
func applyParts(parts []reloadPart, running, next config.Config) (failed string, err error) {
	for i, part := range parts {
		err := applyPart(part, next)
		if err == nil {
			continue
		}
		for _, undo := range slices.Backward(parts[:i+1]) {
			if e := applyPart(undo, running); e != nil {
				slog.Error("a part of the gateway could not go back to the old configuration: restart the gateway", "part", undo.name, "error", e)
			}
		}
		return part.name, err
	}
	return "", nil
}

// applyPart turns a panic into an error, so that a bug in a reload does not end the process.
func applyPart(part reloadPart, cfg config.Config) (err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("a reload panicked", "part", part.name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errors.New("internal error")
		}
	}()
	return part.apply(cfg)
}

func (a *App) applyAdmin(cfg config.Config) error {
	if !a.hasAdmin {
		return nil
	}
	handler, err := a.newAdminHandler(cfg)
	if err == nil {
		a.adminHandler.Set(handler)
	}
	return err
}

func (a *App) applyHub(cfg config.Config) error {
	if a.hub == nil {
		return nil
	}
	if a.opts.ClientToken.IsSet() {
		if err := checkClientToken(a.gate.Authenticator, a.opts); err != nil {
			slog.Warn("auth_token has changed: requests on stdio are rejected unless they carry the new token in params.proxy.authToken", "error", err)
		}
	}
	return a.hub.Apply(a.hubSettings(cfg))
}

func (a *App) applyChat(cfg config.Config) error {
	if a.chat != nil {
		a.chat.Apply(a.chatSettings(cfg))
		a.budgets.Apply(cfg.Budget)
	}
	return nil
}

func (a *App) applyLimit(cfg config.Config) error {
	a.limiter.Apply(cfg.Limit)
	return nil
}

// checkExposed rejects a configuration that exposes the main listener without a credential, now or after
// the next start. Without a main listener there is nothing to check.
func (a *App) checkExposed(running, restarted config.Config) error {
	if !a.hasMain {
		return nil
	}
	if err := running.CheckExposed(); err != nil {
		return err
	}
	return restarted.CheckExposed()
}

// applyHTTP replaces the main handler. It runs after the parts that the handler leads to.
func (a *App) applyHTTP(cfg config.Config) error {
	if a.hasMain {
		a.mainHandler.Set(a.withMetadata(cfg, a.newMainHandler(cfg)))
	}
	if a.replica != nil {
		a.replicaHandler.Set(a.newReplicaHandler(cfg))
	}
	for _, l := range a.listeners {
		l.SetDrainGrace(cfg.Front.HTTP.DrainGrace.D())
	}
	return nil
}

func (a *App) applyLog(cfg config.Config) error {
	if a.opts.LogWriter != nil && cfg.Log != a.cfg.Log {
		slog.SetDefault(NewLogger(a.opts.LogWriter, cfg.Log))
	}
	return nil
}

// httpLimits are the limits of the configuration in force.
func (a *App) httpLimits() front.HTTP {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cfg.Front.HTTP
}

// stopReloads prevents further reloads; it waits for one that is being applied.
func (a *App) stopReloads() {
	a.mu.Lock()
	a.stopping = true
	a.mu.Unlock()
}

// applyPruner applies what can change while the pruner runs.
func (a *App) applyPruner(cfg config.Config) error {
	if a.cfg.Pruner.Backend != cfg.Pruner.Backend {
		warnMissingKey(cfg.Pruner)
	}
	a.pruner.Apply(cfg.Pruner)
	a.prunerHandler.Set(a.newPrunerHandler(cfg))
	return nil
}
