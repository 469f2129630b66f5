package sqlite

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/state"
)

// Following is a driver of whatever file is at its path. A file that is removed or replaced under a
// running process stays open, and takes texts that nobody finds again once the process ends: it is
// given up, and the one at the path opened, or made. Its epoch is another. Operations that are under
// way meanwhile fail.
type Following struct {
	path    string
	opening sync.Mutex
	current atomic.Pointer[Driver]
	closed  atomic.Bool
}

// Follow opens the file at path as [Open] does, and follows the path from then on.
func Follow(ctx context.Context, path string) (*Following, error) {
	d, err := Open(ctx, path)
	if err != nil {
		return nil, err
	}
	f := &Following{path: path}
	f.current.Store(d)
	return f, nil
}

// driver is the driver of the file that is at the path now.
func (f *Following) driver(ctx context.Context) (*Driver, error) {
	d := f.current.Load()
	if d.isAtItsPath() || f.closed.Load() || ctx.Err() != nil {
		return d, nil
	}
	f.opening.Lock()
	defer f.opening.Unlock()
	if d = f.current.Load(); d.isAtItsPath() || f.closed.Load() || ctx.Err() != nil {
		return d, nil
	}
	next, err := Open(ctx, f.path)
	if err != nil {
		return nil, classify(fmt.Errorf("the store's file was removed or replaced, and there is none that can be used: %w", err))
	}
	f.current.Store(next)
	slog.WarnContext(ctx, "the store's file was removed or replaced: the one at its path is used from now on", "path", f.path)
	if err := d.Close(); err != nil {
		slog.WarnContext(ctx, "the store's old file could not be closed", "error", err)
	}
	return next, nil
}

// isAtItsPath says whether the open file is the one that its path names.
func (d *Driver) isAtItsPath() bool {
	now, err := os.Stat(d.path)
	return err == nil && os.SameFile(d.opened, now)
}

// Put implements [state.Driver].
func (f *Following) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	d, err := f.driver(ctx)
	if err != nil {
		return err
	}
	return d.Put(ctx, items, lease)
}

// Get implements [state.Driver].
func (f *Following) Get(ctx context.Context, key string, now time.Time) ([]byte, error) {
	d, err := f.driver(ctx)
	if err != nil {
		return nil, err
	}
	return d.Get(ctx, key, now)
}

// Touch implements [state.Driver].
func (f *Following) Touch(ctx context.Context, group string, lease state.Lease) (bool, error) {
	d, err := f.driver(ctx)
	if err != nil {
		return false, err
	}
	return d.Touch(ctx, group, lease)
}

// Drop implements [state.Driver].
func (f *Following) Drop(ctx context.Context, group string) error {
	d, err := f.driver(ctx)
	if err != nil {
		return err
	}
	return d.Drop(ctx, group)
}

// Sweep implements [state.Driver].
func (f *Following) Sweep(ctx context.Context, sweep state.Sweep) (state.Swept, error) {
	d, err := f.driver(ctx)
	if err != nil {
		return state.Swept{}, err
	}
	return d.Sweep(ctx, sweep)
}

// Epoch implements [state.Driver].
func (f *Following) Epoch(ctx context.Context) (state.Epoch, error) {
	d, err := f.driver(ctx)
	if err != nil {
		return 0, err
	}
	return d.Epoch(ctx)
}

// Stat implements [state.Driver].
func (f *Following) Stat(ctx context.Context) (state.Stat, error) {
	d, err := f.driver(ctx)
	if err != nil {
		return state.Stat{}, err
	}
	return d.Stat(ctx)
}

// Close implements [state.Driver].
func (f *Following) Close() error {
	f.closed.Store(true)
	f.opening.Lock()
	defer f.opening.Unlock()
	return f.current.Load().Close()
}

var _ state.Driver = (*Following)(nil)
