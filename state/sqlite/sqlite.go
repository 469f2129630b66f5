// Package sqlite is the [state.Driver] for one machine: one SQLite file that any number of
// processes may use at once.
//
// Path through the files: sqlite.go has the operations, writer.go how concurrent writes share one
// commit, sweep.go eviction, open.go and schema*.sql the file, reopen.go what happens when the file is
// replaced.
//
// Invariants:
//   - A write is acknowledged after its transaction was committed and synced (WAL,
//     synchronous=FULL); a process killed at any moment loses nothing it acknowledged.
//   - One goroutine and one connection write; readers have connections of their own and never
//     wait for a writer, here or in another process.
//   - The file is readable by its owner only, and a file of another program or a newer version is
//     refused and left untouched.
//
// When another process holds the file's write lock, writes wait until their context ends. A
// full disk is [fault.Full]; any other failure of the file is [fault.Unavailable], and the
// next operation tries again.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

// Driver stores items in one SQLite file. Make one with [Open].
type Driver struct {
	path   string
	opened os.FileInfo // the file that was at the path

	writer    *writer
	writeDB   *sql.DB
	writeConn *sql.Conn // the writer's, the only one of writeDB
	readDB    *sql.DB

	getValue, getLease, getTotals, getEpoch, getOwner *sql.Stmt // on readDB

	maxWrites atomic.Int64 // the most that Epoch has read of total.writes
	closeOnce sync.Once
	closeErr  error
}

// Put implements [state.Driver].
func (d *Driver) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	return classify(d.writer.submit(ctx, sizeOf(items), func(w *writer) error { return w.putItems(items, lease) }))
}

// PutIf implements [state.Driver].
func (d *Driver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	var held bool
	err := d.writer.submit(ctx, sizeOf(items), func(w *writer) (err error) {
		if held, err = w.checkValue(cond.Key, state.Expected{Value: cond.Value}, lease.LastUsed); !held || err != nil {
			return err
		}
		return w.putItems(items, lease)
	})
	if err != nil {
		// The writer may still be running the job and own the result.
		return false, classify(err)
	}
	return held, nil
}

func sizeOf(items []state.Item) (size int64) {
	for _, item := range items {
		size += item.Size()
	}
	return size
}

// Get implements [state.Driver].
func (d *Driver) Get(ctx context.Context, _, key string, now time.Time) ([]byte, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	var isLive bool
	var value []byte
	if err := d.getValue.QueryRowContext(ctx, []byte(key), now.UnixMilli()).Scan(&isLive, &value); err != nil {
		return nil, classify(err)
	}
	if !isLive {
		return nil, state.ErrUnknown
	}
	return value, nil
}

// List implements [state.Driver]. It reads the index of keys, not the values.
func (d *Driver) List(ctx context.Context, req state.ListRequest) ([]state.Entry, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	where, args := prefixRange("key", req.Prefix)
	query := `SELECT key, name, seen FROM item JOIN grp ON grp.id = item.grp WHERE ` + where + ` AND key > ? AND expires > ? ORDER BY key LIMIT ?`
	rows, err := d.readDB.QueryContext(ctx, query, append(args, []byte(req.After), req.Now.UnixMilli(), req.Limit)...)
	if err != nil {
		return nil, classify(err)
	}
	defer rows.Close()
	var entries []state.Entry
	for rows.Next() {
		var key, group []byte
		var seen int64
		if err := rows.Scan(&key, &group, &seen); err != nil {
			return nil, classify(err)
		}
		entries = append(entries, state.Entry{Key: string(key), Group: string(group), LastUsed: time.UnixMilli(seen)})
	}
	return entries, classify(rows.Err())
}

// GroupKeys implements [state.GroupLister].
func (d *Driver) GroupKeys(ctx context.Context, group string, now time.Time) ([]string, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	const query = `SELECT key FROM grp JOIN item ON item.grp = grp.id WHERE name = ? AND expires > ? ORDER BY key`
	rows, err := d.readDB.QueryContext(ctx, query, []byte(group), now.UnixMilli())
	if err != nil {
		return nil, classify(err)
	}
	defer rows.Close()
	var keys []string
	for rows.Next() {
		var key []byte
		if err := rows.Scan(&key); err != nil {
			return nil, classify(err)
		}
		keys = append(keys, string(key))
	}
	return keys, classify(rows.Err())
}

// prefixRange is the condition that a column begins with prefix, and its arguments.
func prefixRange(column, prefix string) (where string, args []any) {
	where, args = column+` >= ?`, []any{[]byte(prefix)}
	if end := prefixEnd(prefix); end != nil {
		where += ` AND ` + column + ` < ?`
		args = append(args, end)
	}
	return where, args
}

// prefixEnd is the first key after all that begin with prefix; nil if there is none.
func prefixEnd(prefix string) []byte {
	end := []byte(prefix)
	for n := len(end) - 1; n >= 0; n-- {
		if end[n] < 0xff {
			end[n]++
			return end[:n+1]
		}
	}
	return nil
}

// Touch implements [state.Driver]. It reads before it writes: most touches move the lease by less than
// its granularity, and those cost no commit.
func (d *Driver) Touch(ctx context.Context, group string, lease state.Lease) (bool, error) {
	if err := d.checkOpen(ctx); err != nil {
		return false, err
	}
	var seen, expires int64
	err := d.getLease.QueryRowContext(ctx, []byte(group), lease.LastUsed.UnixMilli()).Scan(&seen, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, classify(err)
	}
	if isCloseTo(seen, lease.LastUsed, lease.Granularity) && isCloseTo(expires, lease.Expires, lease.Granularity) {
		return true, nil
	}
	var found bool
	err = d.writer.submit(ctx, 0, func(w *writer) (err error) {
		found, err = w.touchGroup(group, lease)
		return err
	})
	if err != nil {
		// The writer may still be running the job and own the result.
		return false, classify(err)
	}
	return found, nil
}

// isCloseTo says that moving a stored time to want would move it by less than granularity, or back.
func isCloseTo(stored int64, want time.Time, granularity time.Duration) bool {
	behind := want.UnixMilli() - stored
	return behind <= 0 || behind < granularity.Milliseconds()
}

// Drop implements [state.Driver].
func (d *Driver) Drop(ctx context.Context, group string) error {
	return classify(d.writer.submit(ctx, 0, func(w *writer) error {
		return w.overwriteFreed(func() error {
			if err := execStmt(w.dropGroup, []byte(group)); err != nil {
				return fmt.Errorf("drop a group: %w", err)
			}
			return nil
		})
	}))
}

// Owners implements [state.Driver].
func (d *Driver) Owners(ctx context.Context, prefix string) ([]state.OwnerStat, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	// Mostly the prefix is a whole name.
	whole := state.OwnerStat{Owner: prefix}
	if err := d.getOwner.QueryRowContext(ctx, []byte(prefix)).Scan(&whole.Bytes); err == nil && prefix != "" {
		return []state.OwnerStat{whole}, nil
	} else if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, classify(err)
	}
	where, args := prefixRange("name", prefix)
	rows, err := d.readDB.QueryContext(ctx, `SELECT name, bytes FROM owner WHERE `+where+` ORDER BY name`, args...)
	if err != nil {
		return nil, classify(err)
	}
	defer rows.Close()
	var owners []state.OwnerStat
	for rows.Next() {
		var name []byte
		var o state.OwnerStat
		if err := rows.Scan(&name, &o.Bytes); err != nil {
			return nil, classify(err)
		}
		o.Owner = string(name)
		owners = append(owners, o)
	}
	return owners, classify(rows.Err())
}

// Stat implements [state.Driver].
func (d *Driver) Stat(ctx context.Context) (state.Stat, error) {
	var stat state.Stat
	if err := d.checkOpen(ctx); err != nil {
		return stat, err
	}
	err := d.getTotals.QueryRowContext(ctx).Scan(&stat.Items, &stat.Bytes, &stat.Pinned)
	return stat, classify(err)
}

// Epoch implements [state.Driver]. A file with fewer writes than before was restored from a copy, with
// the old epoch: it gets a new one.
func (d *Driver) Epoch(ctx context.Context) (state.Epoch, error) {
	if err := d.checkOpen(ctx); err != nil {
		return 0, err
	}
	had := d.maxWrites.Load() // before the query, which then must not find less
	var epoch, writes int64
	if err := d.getEpoch.QueryRowContext(ctx).Scan(&epoch, &writes); err != nil {
		return 0, classify(err)
	}
	if writes < had && d.maxWrites.CompareAndSwap(had, writes) {
		err := d.writer.submit(ctx, 0, func(w *writer) error { return w.newEpoch.QueryRowContext(context.Background()).Scan(&epoch) })
		return state.Epoch(epoch), classify(err)
	}
	for had < writes && !d.maxWrites.CompareAndSwap(had, writes) {
		had = d.maxWrites.Load()
	}
	return state.Epoch(epoch), nil
}

// Close implements [state.Driver].
func (d *Driver) Close() error {
	d.closeOnce.Do(func() {
		d.writer.stopAndWait()
		d.closeErr = d.closeAll()
	})
	return d.closeErr
}

func (d *Driver) checkOpen(ctx context.Context) error {
	if d.writer.isStopped() {
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
	case sqliteCode(err) == sqlite3.SQLITE_FULL:
		return fault.Wrap(fault.Full, "the store's disk is full", err)
	}
	return fault.Wrap(fault.Unavailable, "the store's file cannot be used", err)
}

// sqliteCode is SQLite's primary result code of err, or -1 when err is not SQLite's.
func sqliteCode(err error) int {
	var e *modernc.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return -1
}
