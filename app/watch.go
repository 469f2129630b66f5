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

// A file must be quiet for settleTime before it is read again, because editors write in steps; one that
// is never quiet is read after settleLimit.
const (
	settleTime  = 100 * time.Millisecond
	settleLimit = 2 * time.Second
)

// Source is where new configurations come from.
type Source struct {
	File  string                        // read again when it changes
	Asked <-chan struct{}               // and when somebody asks; may be nil
	Load  func() (config.Config, error) // reads it, checks it and follows its secrets

	// Secrets names the files that secrets were read from at the last load: it is loaded again when
	// one of them changes, too. May be nil.
	Secrets func() []string

	mu      sync.Mutex
	watched map[string]bool // the paths whose changes count
}

// follow reloads whenever the source changes. The function it gives ends that: when it returns, no
// configuration is being loaded or applied, and none will be.
func (a *App) follow(ctx context.Context) (stop func()) {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	if src := a.opts.Source; src != nil {
		changed, w := make(chan struct{}, 1), src.open() // before anybody is served: no later change is missed
		wg.Go(func() { src.watch(ctx, w, changed) })
		wg.Go(func() { a.reloadOn(ctx, w, changed, src) })
	}
	return func() {
		cancel()
		wg.Wait()
		a.stopReloads()
	}
}

// reloadOn reloads at each change until ctx ends. A configuration that cannot be loaded is reported
// and changes nothing; neither does an empty file, for a file is empty while it is being written.
func (a *App) reloadOn(ctx context.Context, w *fsnotify.Watcher, changed <-chan struct{}, src *Source) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		cfg, err := src.Load()
		src.rewatch(w) // it may name other files now, or links that lead elsewhere
		if info, e := os.Stat(src.File); err == nil && e == nil && info.Size() == 0 {
			err = errors.New("the file is empty")
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			a.reportFailure(err)
		default:
			a.Reload(cfg)
		}
	}
}

// watch says on changed when the file has changed, or somebody asks, and the file is quiet. Without a
// watcher, asking still works.
func (s *Source) watch(ctx context.Context, w *fsnotify.Watcher, changed chan<- struct{}) {
	var events <-chan fsnotify.Event
	var failures <-chan error
	if w != nil {
		defer func() { _ = w.Close() }()
		events, failures = w.Events, w.Errors
	}
	quiet := time.NewTimer(time.Hour)
	quiet.Stop()
	defer quiet.Stop()
	var first time.Time // change that was not yet passed on
	settle := func() {
		if first.IsZero() {
			first = time.Now()
		}
		quiet.Reset(max(0, min(settleTime, settleLimit-time.Since(first))))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			if filepath.Base(e.Name) == "..data" || s.isWatched(e.Name) { // how Kubernetes swaps a ConfigMap or a Secret
				settle()
			}
		case err := <-failures:
			slog.Warn("watching the config file", "error", err)
		case <-s.Asked:
			settle()
		case <-quiet.C:
			first = time.Time{}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}
}

// open begins to watch; nil when that is not possible.
func (s *Source) open() *fsnotify.Watcher {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		s.unwatched(s.File, err)
		return nil
	}
	s.rewatch(w)
	return w
}

// rewatch watches the config file, the files of its secrets and what they are links to, as they
// are now. Folders are watched, because editors and secret stores put a new file in the place of
// the old one.
func (s *Source) rewatch(w *fsnotify.Watcher) {
	if w == nil {
		return
	}
	files := []string{s.File}
	if s.Secrets != nil {
		files = append(files, s.Secrets()...)
	}
	paths, folders := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			s.unwatched(file, err)
			continue
		}
		paths[path] = true
		if target, err := filepath.EvalSymlinks(path); err == nil {
			paths[target] = true
		}
	}
	for path := range paths {
		folders[filepath.Dir(path)] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = paths
	for _, folder := range w.WatchList() {
		if !folders[folder] {
			_ = w.Remove(folder) // one that is gone is not watched any more
		}
		delete(folders, folder)
	}
	for folder := range folders {
		if err := w.Add(folder); err != nil {
			s.unwatched(folder, err)
		}
	}
}

func (s *Source) isWatched(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watched[path]
}

func (s *Source) unwatched(path string, err error) {
	slog.Warn("changes of the configuration or its secrets are not noticed; SIGHUP has them read", "path", path, "error", err)
}
