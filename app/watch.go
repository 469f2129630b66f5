package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/ctxgate/ctxgate/config"
)

// A changed file is read after it was unchanged for quietTime, because editors write in steps, and after
// maxQuietWait at the latest.
const (
	quietTime    = 100 * time.Millisecond
	maxQuietWait = 2 * time.Second
)

// ConfigSource is where new configurations come from while the gateway runs.
type ConfigSource struct {
	File           string                        // watched for changes
	ReloadRequests <-chan struct{}               // also reloads, such as SIGHUP; may be nil
	Load           func() (config.Config, error) // reads and validates the file and resolves its secrets

	// Secrets names the files that secrets were read from at the last load: it is loaded again when
	// one of them changes, too. May be nil.
	SecretFiles func() []string

	hints    <-chan struct{} // another replica was asked to reload; nil for none
	announce func()          // tells the other replicas that this one was asked; nil for none

	mu      sync.Mutex
	watched map[string]bool // the paths whose changes count
}

// followSource reloads whenever the source changes. When the returned function returns, no configuration
// is being loaded or applied, and none will be.
func (a *App) followSource(ctx context.Context) (stop func()) {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	if src := a.opts.Source; src != nil {
		changed, w := make(chan struct{}, 1), src.newWatcher() // before requests are served: no later change is missed
		a.reloadCalls = make(chan chan<- ReloadReport)
		if a.feed != nil {
			src.hints, src.announce = a.reloadHints, func() { a.feed.Announce(configTopic, "") }
		}
		wg.Go(func() { src.watchFiles(ctx, w, changed) })
		wg.Go(func() { a.reloadOn(ctx, w, changed, src) })
	}
	return func() {
		cancel()
		wg.Wait()
		a.stopReloads()
	}
}

// reloadOn reloads at each change until ctx ends. A configuration that cannot be loaded is reported and
// changes nothing. Neither does an empty file: a file may be empty while it is being written.
func (a *App) reloadOn(ctx context.Context, w *fsnotify.Watcher, changed <-chan struct{}, src *ConfigSource) {
	for {
		var reply chan<- ReloadReport
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case reply = <-a.reloadCalls:
			src.announceRequest()
		}
		cfg, err := src.Load()
		src.updateWatches(w) // it may refer to other files now, or symlinks may have changed
		if info, e := os.Stat(src.File); err == nil && e == nil && info.Size() == 0 {
			err = errors.New("the file is empty")
		}
		var report ReloadReport
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			report = a.recordLoadFailure(err)
		default:
			report = a.Reload(cfg)
		}
		if reply != nil {
			reply <- report
		}
	}
}

// watchFiles sends on changed after the files have changed, or a reload was requested, and the files are
// quiet. Without a watcher, requested reloads still work.
func (s *ConfigSource) watchFiles(ctx context.Context, w *fsnotify.Watcher, changed chan<- struct{}) {
	var events <-chan fsnotify.Event
	var failures <-chan error
	if w != nil {
		defer func() { _ = w.Close() }()
		events, failures = w.Events, w.Errors
	}
	quiet := time.NewTimer(time.Hour)
	quiet.Stop()
	defer quiet.Stop()
	var first time.Time // the first change since the last reload
	restartTimer := func() {
		if first.IsZero() {
			first = time.Now()
		}
		quiet.Reset(max(0, min(quietTime, maxQuietWait-time.Since(first))))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			if filepath.Base(e.Name) == "..data" || s.isWatched(e.Name) { // how Kubernetes swaps a ConfigMap or a Secret
				restartTimer()
			}
		case err := <-failures:
			slog.Warn("watching the config file failed; send SIGHUP to reload", "error", err)
		case <-s.ReloadRequests:
			s.announceRequest()
			restartTimer()
		case <-s.hints:
			restartTimer()
		case <-quiet.C:
			first = time.Time{}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}
}

// announceRequest tells the other replicas that this one was asked to reload.
func (s *ConfigSource) announceRequest() {
	if s.announce != nil {
		s.announce()
	}
}

// newWatcher starts watching; nil if that is not possible.
func (s *ConfigSource) newWatcher() *fsnotify.Watcher {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		s.warnUnwatched(s.File, err)
		return nil
	}
	s.updateWatches(w)
	return w
}

// updateWatches watches the config file, the files of its secrets and the targets of their symlinks, as
// they are now. It watches directories, because editors and secret stores replace files.
func (s *ConfigSource) updateWatches(w *fsnotify.Watcher) {
	if w == nil {
		return
	}
	files := []string{s.File}
	if s.SecretFiles != nil {
		files = append(files, s.SecretFiles()...)
	}
	paths, dirs := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			s.warnUnwatched(file, err)
			continue
		}
		paths[path] = true
		if target, err := filepath.EvalSymlinks(path); err == nil {
			paths[target] = true
		}
	}
	for path := range paths {
		dirs[filepath.Dir(path)] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = paths
	for _, dir := range w.WatchList() {
		if !dirs[dir] {
			_ = w.Remove(dir) // the error says that it no longer exists
		}
		delete(dirs, dir)
	}
	for dir := range dirs {
		if err := w.Add(dir); err != nil {
			s.warnUnwatched(dir, err)
		}
	}
}

func (s *ConfigSource) isWatched(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watched[path]
}

func (s *ConfigSource) warnUnwatched(path string, err error) {
	slog.Warn("changes of the configuration or its secrets are not noticed; send SIGHUP to reload", "path", path, "error", err)
}
