// Package sqlite is the [state.Driver] for one machine: one SQLite file that any number of
// processes may use at once.
//
// Read sqlite.go for the operations, writer.go for how concurrent writes share one commit,
// sweep.go for how room is made, open.go and schema*.sql for the file, reopen.go for what happens
// when it is replaced.
//
// Invariants:
//   - A write is acknowledged after its transaction was committed and synced (WAL,
//     synchronous=FULL); a process killed at any moment loses nothing it acknowledged.
//   - One goroutine and one connection write; readers have connections of their own and never
//     wait for a writer, here or in another process.
//   - The file is readable by its owner only, and a file that this version does not know is
//     refused untouched.
//
// When another process holds the file's write lock, writes wait until their context ends. A
// full disk is [fault.Full]; any other failure of the file is [fault.Unavailable], and the
// next operation tries again.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

// Driver keeps items in one SQLite file. Make one with [Open].
type Driver struct {
	path   string
	opened os.FileInfo // the file that was at the path

	writer  *writer
	conn    *sql.Conn // the writer's, the only one of writing
	writing *sql.DB
	reading *sql.DB

	get, look, stat, epoch *sql.Stmt // on reading

	writes  atomic.Int64 // the most that Epoch has read of total.writes
	closing sync.Once
	closed  error
}

// Put implements [state.Driver].
func (d *Driver) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	var size int64
	for _, item := range items {
		size += item.Size()
	}
	return classify(d.writer.submit(ctx, size, func(w *writer) error { return w.put(items, lease) }))
}

// Get implements [state.Driver].
func (d *Driver) Get(ctx context.Context, key string, now time.Time) ([]byte, error) {
	if err := d.usable(ctx); err != nil {
		return nil, err
	}
	var value []byte
	err := d.get.QueryRowContext(ctx, []byte(key), now.UnixMilli()).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, state.ErrUnknown
	}
	return value, classify(err)
}

// Touch implements [state.Driver]. It looks before it writes: most touches come within the
// lease's grain of the one before, and those cost no commit.
func (d *Driver) Touch(ctx context.Context, group string, lease state.Lease) (bool, error) {
	if err := d.usable(ctx); err != nil {
		return false, err
	}
	var seen, expires int64
	err := d.look.QueryRowContext(ctx, []byte(group), lease.Seen.UnixMilli()).Scan(&seen, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, classify(err)
	}
	if fresh(seen, lease.Seen, lease.Grain) && fresh(expires, lease.Expires, lease.Grain) {
		return true, nil
	}
	var found bool
	err = d.writer.submit(ctx, 0, func(w *writer) (err error) {
		found, err = w.touch(group, lease)
		return err
	})
	if err != nil {
		// The writer may still be at it and own the result.
		return false, classify(err)
	}
	return found, nil
}

// fresh says that moving a stored time to want would move it by less than the grain, or back.
func fresh(stored int64, want time.Time, grain time.Duration) bool {
	behind := want.UnixMilli() - stored
	return behind <= 0 || behind < grain.Milliseconds()
}

// Drop implements [state.Driver].
func (d *Driver) Drop(ctx context.Context, group string) error {
	return classify(d.writer.submit(ctx, 0, func(w *writer) error { return w.drop(group) }))
}

// Stat implements [state.Driver].
func (d *Driver) Stat(ctx context.Context) (state.Stat, error) {
	var stat state.Stat
	if err := d.usable(ctx); err != nil {
		return stat, err
	}
	err := d.stat.QueryRowContext(ctx).Scan(&stat.Items, &stat.Bytes, &stat.Pinned)
	return stat, classify(err)
}

// Epoch implements [state.Driver]. A file with fewer writes than it had was put back from a copy,
// which has the epoch of then: it gets a new one.
func (d *Driver) Epoch(ctx context.Context) (state.Epoch, error) {
	if err := d.usable(ctx); err != nil {
		return 0, err
	}
	had := d.writes.Load() // before the query, which then must not find less
	var epoch, writes int64
	if err := d.epoch.QueryRowContext(ctx).Scan(&epoch, &writes); err != nil {
		return 0, classify(err)
	}
	if writes < had && d.writes.CompareAndSwap(had, writes) {
		err := d.writer.submit(ctx, 0, func(w *writer) error { return w.newEpoch.QueryRowContext(context.Background()).Scan(&epoch) })
		return state.Epoch(epoch), classify(err)
	}
	for had < writes && !d.writes.CompareAndSwap(had, writes) {
		had = d.writes.Load()
	}
	return state.Epoch(epoch), nil
}

// Close implements [state.Driver].
func (d *Driver) Close() error {
	d.closing.Do(func() {
		d.writer.stop()
		d.closed = d.closeAll()
	})
	return d.closed
}

func (d *Driver) usable(ctx context.Context) error {
	if d.writer.stopped() {
		return state.ErrClosed
	}
	return ctx.Err()
}

// classify gives SQLite's errors their kind; a context's own errors pass as they are.
func classify(err error) error {
	var classified *fault.Error
	switch {
	case err == nil, errors.As(err, &classified),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case code(err) == sqlite3.SQLITE_FULL:
		return fault.Wrap(fault.Full, "the store's disk is full", err)
	}
	return fault.Wrap(fault.Unavailable, "the store's file cannot be used", err)
}

// code is SQLite's primary result code for err, or -1 when it is not SQLite's.
func code(err error) int {
	var e *modernc.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return -1
}
