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
}

// follow reloads whenever the source changes. The function it gives ends that: when it returns, no
// configuration is being loaded or applied, and none will be.
func (a *App) follow(ctx context.Context) (stop func()) {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	if src := a.opts.Source; src != nil {
		changed, w := make(chan struct{}, 1), src.open() // before anybody is served: no later change is missed
		wg.Go(func() { src.watch(ctx, w, changed) })
		wg.Go(func() { a.reloadOn(ctx, changed, src) })
	}
	return func() {
		cancel()
		wg.Wait()
		a.stopReloads()
	}
}

// reloadOn reloads at each change until ctx ends. A configuration that cannot be loaded is reported
// and changes nothing; neither does an empty file, for a file is empty while it is being written.
func (a *App) reloadOn(ctx context.Context, changed <-chan struct{}, src *Source) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		cfg, err := src.Load()
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
	file := filepath.Base(s.File)
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
			if name := filepath.Base(e.Name); name == file || name == "..data" { // how Kubernetes swaps a ConfigMap
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

// open watches the folder of the file, because editors put a new file in the place of the old one; nil
// when that is not possible.
func (s *Source) open() *fsnotify.Watcher {
	path, err := filepath.Abs(s.File)
	if err != nil {
		s.unwatched(err)
		return nil
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		s.unwatched(err)
		return nil
	}
	if err := w.Add(filepath.Dir(path)); err != nil {
		s.unwatched(errors.Join(err, w.Close()))
		return nil
	}
	return w
}

func (s *Source) unwatched(err error) {
	slog.Warn("changes of the config file are not noticed; SIGHUP has it read", "file", s.File, "error", err)
}
