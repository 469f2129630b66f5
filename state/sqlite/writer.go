package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ctxgate/ctxgate/state"
)

// The limits of one commit and of the queue before it. A write that finds the queue full waits until
// its context ends.
const (
	maxQueuedJobs  = 256
	maxBatchJobs   = 128
	maxBatchBytes  = 16 << 20
	maxQueuedBytes = 32 << 20 // of jobs that wait or run; their callers may have left
)

// writer is the one goroutine that writes. While it syncs a commit, new jobs gather in the
// queue; the next commit takes them all, so that one sync serves many.
type writer struct {
	conn        *sql.Conn
	queue       chan *job
	stopCtx     context.Context // canceled to stop the goroutine
	cancel      context.CancelFunc
	done        chan struct{} // closed when the goroutine has ended
	commits     atomic.Int64
	queuedBytes *semaphore.Weighted // bytes of jobs that wait or run
	stepSize    stepSize

	dropExpired, leaseGroup, putItem, renewLease, dropGroup *sql.Stmt
	listExpired, listOldest, removeGroup, sumBytes          *sql.Stmt
	readValue, ownerBytes, listOwned, listOwners            *sql.Stmt
	expireGroup, removeItems, setQuiet, newEpoch            *sql.Stmt
	begin, commit, rollback                                 *sql.Stmt
	savepoint, release, rollbackSavepoint                   *sql.Stmt
	statements                                              []*sql.Stmt // all of these
}

// job is one caller's write. It owns what run fills in until ack has been received.
type job struct {
	ctx  context.Context
	size int64
	run  func(*writer) error
	ack  chan error
}

func newWriter(ctx context.Context, conn *sql.Conn) (*writer, error) {
	w := &writer{
		conn:        conn,
		queue:       make(chan *job, maxQueuedJobs),
		done:        make(chan struct{}),
		queuedBytes: semaphore.NewWeighted(maxQueuedBytes),
		stepSize:    stepSize{groups: 16, bytes: 1 << 20},
	}
	w.stopCtx, w.cancel = context.WithCancel(context.Background())
	for _, s := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&w.begin, `BEGIN IMMEDIATE`},
		{&w.commit, `COMMIT`},
		{&w.rollback, `ROLLBACK`},
		{&w.savepoint, `SAVEPOINT job`},
		{&w.release, `RELEASE job`},
		{&w.rollbackSavepoint, `ROLLBACK TO job`},

		{&w.dropExpired, `DELETE FROM grp WHERE name = ? AND expires <= ?`},
		{&w.leaseGroup, `INSERT INTO grp (name, seen, expires, pinned, owner) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (name) DO UPDATE
			SET seen = max(seen, excluded.seen), expires = max(expires, excluded.expires), pinned = max(pinned, excluded.pinned), owner = excluded.owner
			RETURNING id`},
		{&w.putItem, `INSERT INTO item (key, grp, size, value) VALUES (?, ?, ?, ?)
			ON CONFLICT (key) DO UPDATE
			SET grp = excluded.grp, size = excluded.size, value = excluded.value`},
		{&w.renewLease, `UPDATE grp SET seen = max(seen, ?), expires = max(expires, ?)
			WHERE name = ? AND expires > ?`},
		{&w.dropGroup, `DELETE FROM grp WHERE name = ?`},

		{&w.listExpired, `SELECT id, bytes, items, seen FROM grp WHERE expires <= ? ORDER BY expires LIMIT ?`},
		{&w.listOldest, `SELECT id, bytes, items, seen FROM grp WHERE owner = ? AND pinned = 0 AND (seen <= ? OR expires <= ?) ORDER BY seen, name LIMIT ?`},
		{&w.listOwned, `SELECT id, bytes, items, seen FROM grp WHERE owner >= ? AND (? IS NULL OR owner < ?) AND owner <> ? LIMIT ?`},
		// Those that may lose groups to a Put: of the owner that it is for, and of those with at least an equal part.
		{&w.listOwners, `SELECT name FROM owner WHERE name = ? OR bytes * (SELECT count(*) FROM owner) >= (SELECT bytes - pinned FROM total) ORDER BY bytes DESC, name`},
		{&w.ownerBytes, `SELECT coalesce(sum(bytes), 0) FROM owner WHERE name = ?`},
		{&w.readValue, selectValue},
		{&w.removeGroup, `DELETE FROM grp WHERE id = ?`},
		{&w.sumBytes, `SELECT bytes, bytes - pinned FROM total`},
		{&w.expireGroup, `UPDATE grp SET expires = 0 WHERE id = ?`},
		{&w.removeItems, `DELETE FROM item WHERE rowid IN (SELECT rowid FROM item WHERE grp = ? LIMIT ?)`},
		{&w.setQuiet, `UPDATE total SET quiet = ?, epoch = epoch + ?`},
		{&w.newEpoch, `UPDATE total SET epoch = random() RETURNING epoch`},
	} {
		var err error
		if *s.stmt, err = conn.PrepareContext(ctx, s.text); err != nil {
			w.closeStatements()
			return nil, fmt.Errorf("prepare %q: %w", s.text, err)
		}
		w.statements = append(w.statements, *s.stmt)
	}
	go w.runJobs()
	return w, nil
}

// submit runs a write in the next commit and returns when it is durable, or when ctx ends,
// whichever is first. After an error the write may or may not have happened.
func (w *writer) submit(ctx context.Context, size int64, run func(*writer) error) error {
	if w.isStopped() {
		return state.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.acquireBytes(ctx, size); err != nil {
		return err
	}
	j := &job{ctx: ctx, size: size, run: run, ack: make(chan error, 1)}
	select {
	case w.queue <- j:
	case <-ctx.Done():
		w.releaseBytes(size)
		return ctx.Err()
	case <-w.done:
		w.releaseBytes(size)
		return state.ErrClosed
	}
	select {
	case err := <-j.ack:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-w.done:
	}
	// This may have been the writer's last job.
	select {
	case err := <-j.ack:
		return err
	default:
		return state.ErrClosed
	}
}

// acquireBytes waits until the queue has room for the bytes of a job. A job larger than the whole
// queue takes all of it.
func (w *writer) acquireBytes(ctx context.Context, size int64) error {
	if size == 0 || w.queuedBytes.TryAcquire(min(size, maxQueuedBytes)) {
		return nil
	}
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(w.stopCtx, cancel)
	defer stop()
	err := w.queuedBytes.Acquire(waitCtx, min(size, maxQueuedBytes))
	if err != nil && ctx.Err() == nil {
		return state.ErrClosed
	}
	return err
}

func (w *writer) releaseBytes(size int64) { w.queuedBytes.Release(min(size, maxQueuedBytes)) }

func (w *writer) runJobs() {
	defer close(w.done)
	defer w.closeStatements()
	for !w.isStopped() {
		select {
		case j := <-w.queue:
			w.commitBatch(w.collectBatch(j))
		case <-w.stopCtx.Done():
		}
	}
}

// closeStatements releases the connection, which open statements would keep open.
func (w *writer) closeStatements() {
	for _, s := range w.statements {
		_ = s.Close()
	}
}

// stopAndWait stops the goroutine after the commit it is in. Jobs still in the queue do not run.
func (w *writer) stopAndWait() {
	w.cancel()
	<-w.done
}

func (w *writer) isStopped() bool { return w.stopCtx.Err() != nil }

// collectBatch takes what waits in the queue, up to the limits of one commit.
func (w *writer) collectBatch(first *job) []*job {
	batch, size := []*job{first}, first.size
	for len(batch) < maxBatchJobs && size < maxBatchBytes {
		select {
		case j := <-w.queue:
			batch, size = append(batch, j), size+j.size
		default:
			return batch
		}
	}
	return batch
}

// commitBatch commits a batch and sends each job its result.
func (w *writer) commitBatch(batch []*job) {
	results := make([]error, len(batch))
	err := w.beginTransaction(batch)
	if err == nil {
		err = w.runTransaction(batch, results)
	}
	for i, j := range batch {
		if results[i] == nil {
			results[i] = err
		}
		j.run = nil // frees the items: the caller may hold on to the job
		w.releaseBytes(j.size)
		j.ack <- results[i]
	}
}

// beginTransaction waits for the file's write lock, which another process may hold for long, until no
// caller of the batch waits any more.
func (w *writer) beginTransaction(batch []*job) error {
	isWaiting := func(j *job) bool { return j.ctx.Err() == nil }
	for {
		err := execStmt(w.begin)
		if sqliteCode(err) != sqlite3.SQLITE_BUSY || w.isStopped() || !slices.ContainsFunc(batch, isWaiting) {
			return err
		}
	}
}

// runTransaction runs each job under a savepoint of its own, so that a job that fails does not fail
// the others, and commits.
func (w *writer) runTransaction(batch []*job, results []error) error {
	for i, j := range batch {
		if results[i] = j.ctx.Err(); results[i] != nil {
			continue
		}
		var lost error
		if results[i], lost = w.runJob(j); lost != nil {
			_ = execStmt(w.rollback) // SQLite may have rolled back by itself, as on a full disk
			return errors.Join(results[i], lost)
		}
	}
	if err := execStmt(w.commit); err != nil {
		_ = execStmt(w.rollback)
		return fmt.Errorf("commit: %w", err)
	}
	w.commits.Add(1)
	return nil
}

// runJob runs one job. The second error means that the whole transaction is lost, as when the job
// panics: it is not known how far it got.
func (w *writer) runJob(j *job) (failed, lost error) {
	defer func() {
		if p := recover(); p != nil {
			lost = fmt.Errorf("panicked: %v\n%s", p, debug.Stack())
		}
	}()
	if err := execStmt(w.savepoint); err != nil {
		return nil, err
	}
	if failed = j.run(w); failed != nil {
		if err := execStmt(w.rollbackSavepoint); err != nil {
			return failed, err
		}
	}
	return failed, execStmt(w.release)
}

// checkValue reports whether the live value under a key is as expected.
func (w *writer) checkValue(key string, want state.Expected, now time.Time) (bool, error) {
	var isLive bool
	var value []byte
	if err := w.readValue.QueryRow([]byte(key), now.UnixMilli()).Scan(&isLive, &value); err != nil {
		return false, fmt.Errorf("read the condition of a put: %w", err)
	}
	return want.IsMet(value, isLive), nil
}

// overwriteFreed runs a job that frees pages of the file, and overwrites what was in them.
func (w *writer) overwriteFreed(remove func() error) error {
	if _, err := w.conn.ExecContext(context.Background(), `PRAGMA secure_delete = ON`); err != nil {
		return fmt.Errorf("turn on secure_delete: %w", err)
	}
	err := remove()
	if _, e := w.conn.ExecContext(context.Background(), `PRAGMA secure_delete = OFF`); err == nil && e != nil {
		err = fmt.Errorf("turn off secure_delete: %w", e)
	}
	return err
}

func (w *writer) putItems(items []state.Item, lease state.Lease) error {
	seen, expires := lease.LastUsed.UnixMilli(), lease.Expires.UnixMilli()
	for _, item := range items {
		if item.Over == nil {
			continue
		}
		if ok, err := w.checkValue(item.Key, *item.Over, lease.LastUsed); err != nil {
			return err
		} else if !ok {
			return state.ErrConflict
		}
	}
	var id int64
	for i, item := range items {
		// The parts of one text come in a row: the group is leased once for them.
		if i == 0 || item.Group != items[i-1].Group || item.Pinned != items[i-1].Pinned || item.Owner != items[i-1].Owner {
			name := []byte(item.Group)
			if err := execStmt(w.dropExpired, name, seen); err != nil {
				return fmt.Errorf("drop an expired group: %w", err)
			}
			if err := w.leaseGroup.QueryRow(name, seen, expires, item.Pinned, []byte(item.Owner)).Scan(&id); err != nil {
				return fmt.Errorf("lease a group: %w", err)
			}
		}
		value := item.Value
		if value == nil {
			value = []byte{} // nil would be NULL
		}
		if err := execStmt(w.putItem, []byte(item.Key), id, item.Size(), value); err != nil {
			return fmt.Errorf("put an item: %w", err)
		}
	}
	return nil
}

func (w *writer) touchGroup(group string, lease state.Lease) (bool, error) {
	seen, expires := lease.LastUsed.UnixMilli(), lease.Expires.UnixMilli()
	result, err := w.renewLease.Exec(seen, expires, []byte(group), seen)
	if err != nil {
		return false, fmt.Errorf("touch a group: %w", err)
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// execStmt takes no context: a transaction serves many callers, and none of their contexts may end it.
func execStmt(s *sql.Stmt, args ...any) error {
	_, err := s.Exec(args...)
	return err
}
