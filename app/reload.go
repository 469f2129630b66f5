package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/ctxgate/ctxgate/config"
)

// settle is how long a file must be quiet before it is read again: editors write in steps.
const settle = 100 * time.Millisecond

// Reload puts a new configuration into force: everything new is built first, then one pointer is
// swapped; requests under way end under the old one. Listeners stay open throughout.
func (a *App) Reload(cfg config.Config) {
	for _, key := range fixed(a.cfg, cfg) {
		slog.Warn("this change takes effect at the next start", "key", key)
	}
	next := cfg
	next.Front.PublicURL = a.cfg.Front.PublicURL
	next.Front.Listen, next.Admin, next.State, next.Recall = a.cfg.Front.Listen, a.cfg.Admin, a.cfg.State, a.cfg.Recall
	next.Secret, next.DataDir, next.Memory = a.cfg.Secret, a.cfg.DataDir, a.cfg.Memory
	next.Pruner = fixedPruner(a.cfg.Pruner, next.Pruner)
	a.reloadPruner(next)
	if a.door != nil {
		a.door.Apply(settings(next))
		a.chat.Apply(chatSettings(next))
	}
	if a.store != nil {
		a.main.Set(a.mainHandler(next, a.store))
	}
	a.cfg = next
	slog.Info("configuration reloaded", "servers", len(next.Upstream.Servers), "providers", len(next.Chat.Providers))
}

// fixed names what a running process does not change.
func fixed(old, next config.Config) []string {
	var keys []string
	for key, changed := range map[string]bool{
		"listen":        old.Front.Listen != next.Front.Listen,
		"public_url":    old.Front.PublicURL != next.Front.PublicURL,
		"admin":         old.Admin.Listen != next.Admin.Listen || old.Admin.Token.Reveal() != next.Admin.Token.Reveal(),
		"state":         old.State != next.State,
		"recall":        old.Recall != next.Recall,
		"secret":        old.Secret.Reveal() != next.Secret.Reveal(),
		"data_dir":      old.DataDir != next.DataDir,
		"memory_budget": old.Memory != next.Memory,
		"mcp_pruner":    fixedPruner(old.Pruner, next.Pruner) != next.Pruner,
	} {
		if changed {
			keys = append(keys, key)
		}
	}
	return keys
}

// Watch reloads whenever the file changes or somebody asks, until ctx ends. A configuration that
// cannot be loaded is said and changes nothing; neither does a file that is empty, for that is what
// a file is while it is being written.
func (a *App) Watch(ctx context.Context, file string, asked <-chan struct{}, load func() (config.Config, error)) error {
	changed, err := changes(ctx, file, asked)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		cfg, err := load()
		if info, e := os.Stat(file); err == nil && e == nil && info.Size() == 0 {
			err = errors.New("the file is empty")
		}
		if err != nil {
			slog.Error("the configuration was not reloaded: it stays as it was", "error", err)
			continue
		}
		a.Reload(cfg)
	}
}

// changes says when a file has changed, or somebody asks, and the file is quiet. The folder is
// watched, for editors put a new file in the place of the old one.
func changes(ctx context.Context, file string, asked <-chan struct{}) (<-chan struct{}, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("watching the config file: %w", err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching the config file: %w", err)
	}
	if err := w.Add(filepath.Dir(file)); err != nil {
		return nil, fmt.Errorf("watching the config file: %w", err)
	}
	out := make(chan struct{}, 1)
	go func() {
		defer func() { _ = w.Close() }()
		quiet := time.NewTimer(time.Hour)
		quiet.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-w.Events:
				if filepath.Base(e.Name) == filepath.Base(file) || filepath.Base(e.Name) == "..data" { // how Kubernetes swaps a ConfigMap
					quiet.Reset(settle)
				}
			case err := <-w.Errors:
				slog.Warn("watching the config file", "error", err)
			case <-asked:
				quiet.Reset(settle)
			case <-quiet.C:
				select {
				case out <- struct{}{}:
				default:
				}
			}
		}
	}()
	return out, nil
}
