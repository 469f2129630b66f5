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

// ReloadReport says what became of a new configuration. It names keys, never values.
type ReloadReport struct {
	At time.Time `json:"at"`
	// Applied are the keys that changed and are in force now.
	Applied []string `json:"applied"`
	// NeedsRestart are the keys whose new values take effect at the next start.
	NeedsRestart []string `json:"needs_restart"`
	// Failed is the part that could not be applied; "" when all could. The whole old configuration
	// is in force then, and Error says why.
	Failed string `json:"failed,omitempty"`
	Error  string `json:"error,omitempty"`
}

// partLoad is the part of a reload that reads the file and checks it.
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

// LastReload is what became of the last new configuration; false when there was none.
func (a *App) LastReload() (ReloadReport, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lastReload == nil {
		return ReloadReport{}, false
	}
	return *a.lastReload, true
}

// Reload puts a new configuration into force, but for what needs a restart. Requests under way end
// under the old one, and listeners stay open throughout. When a part fails, the parts before it go
// back to the old configuration. A gateway that is stopping takes no new one.
func (a *App) Reload(cfg config.Config) ReloadReport {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.report(a.reload(cfg))
}

// reportFailure notes a configuration that could not be loaded.
func (a *App) reportFailure(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report(ReloadReport{Failed: partLoad, Error: err.Error()})
}

// report keeps and logs what became of a reload; the lock is held.
func (a *App) report(r ReloadReport) ReloadReport {
	r.At = time.Now()
	a.lastReload = &r
	r.log()
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
	if len(r.Applied) == 0 {
		return r
	}
	if part, err := applyParts(a.reloadParts(), a.cfg, next); err != nil {
		return ReloadReport{Applied: []string{}, NeedsRestart: r.NeedsRestart, Failed: part, Error: err.Error()}
	}
	a.cfg = next
	return r
}

// reloadPart is what one part of the gateway does with a new configuration.
type reloadPart struct {
	name  string
	apply func(config.Config) error
}

// reloadParts are all parts, those that can fail first.
func (a *App) reloadParts() []reloadPart {
	return []reloadPart{
		{"admin", a.applyAdmin},
		{"servers", a.applyHub},
		{"providers", a.applyChat},
		{"rate_limit_per_minute", a.applyLimit},
		{"mcp_pruner", a.applyPruner},
		{"http", a.applyHTTP},
		{"log", a.applyLog},
	}
}

// applyParts puts a configuration into force part by part. When one fails, it and those before it get
// the running configuration again.
func applyParts(parts []reloadPart, running, next config.Config) (failed string, err error) {
	for i, part := range parts {
		err := applyPart(part, next)
		if err == nil {
			continue
		}
		for _, done := range slices.Backward(parts[:i+1]) {
			if e := applyPart(done, running); e != nil {
				slog.Error("going back to the old configuration failed", "part", done.name, "error", e)
			}
		}
		return part.name, err
	}
	return "", nil
}

// applyPart turns a panic into an error: a mistake of ours in a reload does not end the process.
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
	if a.metrics == nil || cfg.Admin.Listen == "" {
		return nil
	}
	handler, err := a.adminHandler(cfg)
	if err == nil {
		a.admin.Set(handler)
	}
	return err
}

func (a *App) applyHub(cfg config.Config) error {
	if a.door == nil {
		return nil
	}
	if a.opts.Token.IsSet() {
		if err := checkToken(cfg, a.opts); err != nil {
			slog.Warn("requests on stdio are refused from now on unless they carry the new token", "error", err)
		}
	}
	return a.door.Apply(settings(cfg))
}

func (a *App) applyChat(cfg config.Config) error {
	if a.chat != nil {
		a.chat.Apply(chatSettings(cfg))
	}
	return nil
}

func (a *App) applyLimit(cfg config.Config) error {
	a.limiter.Apply(cfg.Limit)
	return nil
}

// checkExposed refuses a configuration with which the main listener, as it is or as it would be at the
// next start, is open to everybody though nobody said so. Who has no main listener is not asked.
func (a *App) checkExposed(running, restarted config.Config) error {
	if a.store == nil {
		return nil
	}
	if err := running.CheckExposed(); err != nil {
		return err
	}
	return restarted.CheckExposed()
}

// applyHTTP makes the handlers of the main listener anew, after the parts they lead to.
func (a *App) applyHTTP(cfg config.Config) error {
	if a.store != nil {
		a.main.Set(a.mainHandler(cfg, a.store))
	}
	for _, l := range a.listeners {
		l.SetGrace(cfg.Front.HTTP.DrainGrace.D())
	}
	return nil
}

func (a *App) applyLog(cfg config.Config) error {
	if a.opts.LogTo != nil && cfg.Log != a.cfg.Log {
		slog.SetDefault(Logger(a.opts.LogTo, cfg.Log))
	}
	return nil
}

// limits are those of the configuration in force.
func (a *App) limits() front.HTTP {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cfg.Front.HTTP
}

// stopReloads lets no new configuration come into force any more; one that is being applied is
// waited for.
func (a *App) stopReloads() {
	a.mu.Lock()
	a.stopping = true
	a.mu.Unlock()
}
