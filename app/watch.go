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

// settleTime is how long a file must be quiet before it is read again: editors write in steps.
const settleTime = 100 * time.Millisecond

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
		changed := make(chan struct{}, 1)
		wg.Go(func() { src.watch(ctx, changed) })
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

// watch says on changed when the file has changed, or somebody asks, and the file is quiet. Its
// folder is watched, because editors put a new file in the place of the old one. Where that is not
// possible, asking still works.
func (s *Source) watch(ctx context.Context, changed chan<- struct{}) {
	var events <-chan fsnotify.Event
	var failures <-chan error
	w, file, err := s.open()
	if err != nil {
		slog.Warn("changes of the config file are not noticed", "file", s.File, "error", err)
	} else {
		defer func() { _ = w.Close() }()
		events, failures = w.Events, w.Errors
	}
	quiet := time.NewTimer(time.Hour)
	quiet.Stop()
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			if name := filepath.Base(e.Name); name == file || name == "..data" { // how Kubernetes swaps a ConfigMap
				quiet.Reset(settleTime)
			}
		case err := <-failures:
			slog.Warn("watching the config file", "error", err)
		case <-s.Asked:
			quiet.Reset(settleTime)
		case <-quiet.C:
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}
}

// open watches the folder of the file, and gives the file's name in it.
func (s *Source) open() (*fsnotify.Watcher, string, error) {
	path, err := filepath.Abs(s.File)
	if err != nil {
		return nil, "", err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, "", err
	}
	if err := w.Add(filepath.Dir(path)); err != nil {
		return nil, "", errors.Join(err, w.Close())
	}
	return w, filepath.Base(path), nil
}
