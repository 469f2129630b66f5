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

// ReopeningDriver uses whatever file is at its path. When the file is removed or replaced under a
// running process, it closes the old file, which could not be found after the process ends, and opens
// or creates the one at the path. The epoch changes. Operations in flight meanwhile fail.
type ReopeningDriver struct {
	path    string
	openMu  sync.Mutex
	current atomic.Pointer[Driver]
	closed  atomic.Bool
}

// OpenReopening is [Open] for a driver that reopens the path when its file is replaced.
func OpenReopening(ctx context.Context, path string) (*ReopeningDriver, error) {
	d, err := Open(ctx, path)
	if err != nil {
		return nil, err
	}
	f := &ReopeningDriver{path: path}
	f.current.Store(d)
	return f, nil
}

// currentDriver is the driver of the file that is at the path now.
func (f *ReopeningDriver) currentDriver(ctx context.Context) (*Driver, error) {
	d := f.current.Load()
	if d.isAtItsPath() || f.closed.Load() || ctx.Err() != nil {
		return d, nil
	}
	f.openMu.Lock()
	defer f.openMu.Unlock()
	if d = f.current.Load(); d.isAtItsPath() || f.closed.Load() || ctx.Err() != nil {
		return d, nil
	}
	next, err := Open(ctx, f.path)
	if err != nil {
		return nil, classify(fmt.Errorf("the store's file was removed or replaced, and the path cannot be opened: %w", err))
	}
	f.current.Store(next)
	slog.WarnContext(ctx, "the store's file was removed or replaced: the one at its path is used from now on", "path", f.path)
	if err := d.Close(); err != nil {
		slog.WarnContext(ctx, "the store's old file could not be closed", "error", err)
	}
	return next, nil
}

// isAtItsPath says whether the open file is still the one at its path.
func (d *Driver) isAtItsPath() bool {
	now, err := os.Stat(d.path)
	return err == nil && os.SameFile(d.opened, now)
}

// Put implements [state.Driver].
func (f *ReopeningDriver) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	d, err := f.currentDriver(ctx)
	if err != nil {
		return err
	}
	return d.Put(ctx, items, lease)
}

// PutIf implements [state.Driver].
func (f *ReopeningDriver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	d, err := f.currentDriver(ctx)
	if err != nil {
		return false, err
	}
	return d.PutIf(ctx, cond, items, lease)
}

// Get implements [state.Driver].
func (f *ReopeningDriver) Get(ctx context.Context, group, key string, now time.Time) ([]byte, error) {
	d, err := f.currentDriver(ctx)
	if err != nil {
		return nil, err
	}
	return d.Get(ctx, group, key, now)
}

// List implements [state.Driver].
func (f *ReopeningDriver) List(ctx context.Context, req state.ListRequest) ([]state.Entry, error) {
	d, err := f.currentDriver(ctx)
	if err != nil {
		return nil, err
	}
	return d.List(ctx, req)
}

// GroupKeys implements [state.GroupLister].
func (f *ReopeningDriver) GroupKeys(ctx context.Context, group string, now time.Time) ([]string, error) {
	d, err := f.currentDriver(ctx)
	if err != nil {
		return nil, err
	}
	return d.GroupKeys(ctx, group, now)
}

// Touch implements [state.Driver].
func (f *ReopeningDriver) Touch(ctx context.Context, group string, lease state.Lease) (bool, error) {
	d, err := f.currentDriver(ctx)
	if err != nil {
		return false, err
	}
	return d.Touch(ctx, group, lease)
}

// Drop implements [state.Driver].
func (f *ReopeningDriver) Drop(ctx context.Context, group string) error {
	d, err := f.currentDriver(ctx)
	if err != nil {
		return err
	}
	return d.Drop(ctx, group)
}

// DropOwners implements [state.Driver].
func (f *ReopeningDriver) DropOwners(ctx context.Context, prefix, keep string) (state.SweepResult, error) {
	d, err := f.currentDriver(ctx)
	if err != nil {
		return state.SweepResult{}, err
	}
	return d.DropOwners(ctx, prefix, keep)
}

// Owners implements [state.Driver].
func (f *ReopeningDriver) Owners(ctx context.Context, prefix string) ([]state.OwnerStat, error) {
	d, err := f.currentDriver(ctx)
	if err != nil {
		return nil, err
	}
	return d.Owners(ctx, prefix)
}

// Sweep implements [state.Sweeper].
func (f *ReopeningDriver) Sweep(ctx context.Context, sweep state.SweepRequest) (state.SweepResult, error) {
	d, err := f.currentDriver(ctx)
	if err != nil {
		return state.SweepResult{}, err
	}
	return d.Sweep(ctx, sweep)
}

// Epoch implements [state.Driver].
func (f *ReopeningDriver) Epoch(ctx context.Context) (state.Epoch, error) {
	d, err := f.currentDriver(ctx)
	if err != nil {
		return 0, err
	}
	return d.Epoch(ctx)
}

// Stat implements [state.Driver].
func (f *ReopeningDriver) Stat(ctx context.Context) (state.Stat, error) {
	d, err := f.currentDriver(ctx)
	if err != nil {
		return state.Stat{}, err
	}
	return d.Stat(ctx)
}

// Close implements [state.Driver].
func (f *ReopeningDriver) Close() error {
	f.closed.Store(true)
	f.openMu.Lock()
	defer f.openMu.Unlock()
	return f.current.Load().Close()
}

var _ state.Driver = (*ReopeningDriver)(nil)
