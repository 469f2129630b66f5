package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ctxgate/ctxgate/state"
)

// The limits of one commit and of the line before it. Whoever finds the line full waits for
// its context.
const (
	queueJobs  = 256
	batchJobs  = 128
	batchBytes = 16 << 20
	queueBytes = 32 << 20 // of the jobs that wait or run; their callers may have left
)

// writer is the one goroutine that writes. While it syncs a commit, new jobs gather in the
// queue; the next commit takes them all, so that one sync serves many.
type writer struct {
	conn    *sql.Conn
	queue   chan *job
	life    context.Context // ended to make the goroutine end
	end     context.CancelFunc
	done    chan struct{} // closed when it has ended
	commits atomic.Int64
	held    *semaphore.Weighted // bytes of the jobs that wait or run
	pace    pace

	expire, claim, store, renew, remove   *sql.Stmt
	expired, oldest, removeID, sumStored  *sql.Stmt
	hide, removeItems, quiet, newEpoch    *sql.Stmt
	begin, commit, rollback               *sql.Stmt
	savepoint, release, rollbackSavepoint *sql.Stmt
	statements                            []*sql.Stmt // all of these
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
		conn:  conn,
		queue: make(chan *job, queueJobs),
		done:  make(chan struct{}),
		held:  semaphore.NewWeighted(queueBytes),
		pace:  pace{groups: 16, bytes: 1 << 20},
	}
	w.life, w.end = context.WithCancel(context.Background())
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

		{&w.expire, `DELETE FROM grp WHERE name = ? AND expires <= ?`},
		{&w.claim, `INSERT INTO grp (name, seen, expires, pinned) VALUES (?, ?, ?, ?)
			ON CONFLICT (name) DO UPDATE
			SET seen = max(seen, excluded.seen), expires = max(expires, excluded.expires), pinned = max(pinned, excluded.pinned)
			RETURNING id`},
		{&w.store, `INSERT INTO item (key, grp, size, value) VALUES (?, ?, ?, ?)
			ON CONFLICT (key) DO UPDATE
			SET grp = excluded.grp, size = excluded.size, value = excluded.value`},
		{&w.renew, `UPDATE grp SET seen = max(seen, ?), expires = max(expires, ?)
			WHERE name = ? AND expires > ?`},
		{&w.remove, `DELETE FROM grp WHERE name = ?`},

		{&w.expired, `SELECT id, bytes, items, seen FROM grp WHERE expires <= ? ORDER BY expires LIMIT ?`},
		{&w.oldest, `SELECT id, bytes, items, seen FROM grp WHERE pinned = 0 AND seen <= ? ORDER BY seen, name LIMIT ?`},
		{&w.removeID, `DELETE FROM grp WHERE id = ?`},
		{&w.sumStored, `SELECT bytes, bytes - pinned FROM total`},
		{&w.hide, `UPDATE grp SET expires = 0 WHERE id = ?`},
		{&w.removeItems, `DELETE FROM item WHERE rowid IN (SELECT rowid FROM item WHERE grp = ? LIMIT ?)`},
		{&w.quiet, `UPDATE total SET quiet = ?, epoch = epoch + ?`},
		{&w.newEpoch, `UPDATE total SET epoch = random() RETURNING epoch`},
	} {
		var err error
		if *s.stmt, err = conn.PrepareContext(ctx, s.text); err != nil {
			w.closeStatements()
			return nil, fmt.Errorf("prepare %q: %w", s.text, err)
		}
		w.statements = append(w.statements, *s.stmt)
	}
	go w.work()
	return w, nil
}

// submit runs a write in the next commit and returns when it is durable, or when ctx ends,
// whichever is first. After an error the write may or may not have happened.
func (w *writer) submit(ctx context.Context, size int64, run func(*writer) error) error {
	if w.stopped() {
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
	// The writer's last act may have been this very job.
	select {
	case err := <-j.ack:
		return err
	default:
		return state.ErrClosed
	}
}

// acquireBytes waits until the bytes of a job may stand in the queue. A job that is larger than all of it
// goes alone.
func (w *writer) acquireBytes(ctx context.Context, size int64) error {
	if size == 0 || w.held.TryAcquire(min(size, queueBytes)) {
		return nil
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(w.life, cancel)
	defer stop()
	err := w.held.Acquire(waiting, min(size, queueBytes))
	if err != nil && ctx.Err() == nil {
		return state.ErrClosed
	}
	return err
}

func (w *writer) releaseBytes(size int64) { w.held.Release(min(size, queueBytes)) }

func (w *writer) work() {
	defer close(w.done)
	defer w.closeStatements()
	for !w.stopped() {
		select {
		case j := <-w.queue:
			w.serve(w.gather(j))
		case <-w.life.Done():
		}
	}
}

// closeStatements lets go of the connection, which would stay open behind them.
func (w *writer) closeStatements() {
	for _, s := range w.statements {
		_ = s.Close()
	}
}

// stop ends the goroutine after the commit it is in. Jobs still in the queue were not begun.
func (w *writer) stop() {
	w.end()
	<-w.done
}

func (w *writer) stopped() bool { return w.life.Err() != nil }

// gather takes what waits in the queue, up to the limits of one commit.
func (w *writer) gather(first *job) []*job {
	batch, size := []*job{first}, first.size
	for len(batch) < batchJobs && size < batchBytes {
		select {
		case j := <-w.queue:
			batch, size = append(batch, j), size+j.size
		default:
			return batch
		}
	}
	return batch
}

// serve commits a batch and then tells each job how it went.
func (w *writer) serve(batch []*job) {
	answers := make([]error, len(batch))
	err := w.lock(batch)
	if err == nil {
		err = w.transact(batch, answers)
	}
	for i, j := range batch {
		if answers[i] == nil {
			answers[i] = err
		}
		j.run = nil // and with it the items: the caller may hold on to the job
		w.releaseBytes(j.size)
		j.ack <- answers[i]
	}
}

// lock begins the transaction. Another process may hold the file's write lock for long: as
// long as somebody still waits here, so does the writer.
func (w *writer) lock(batch []*job) error {
	for {
		err := do(w.begin)
		if code(err) != sqlite3.SQLITE_BUSY || w.stopped() || !wanted(batch) {
			return err
		}
	}
}

func wanted(batch []*job) bool {
	for _, j := range batch {
		if j.ctx.Err() == nil {
			return true
		}
	}
	return false
}

// transact runs each job under a savepoint of its own, so that one that fails takes no other
// with it, and commits.
func (w *writer) transact(batch []*job, answers []error) error {
	for i, j := range batch {
		if answers[i] = j.ctx.Err(); answers[i] != nil {
			continue
		}
		var lost error
		if answers[i], lost = w.isolate(j); lost != nil {
			_ = do(w.rollback) // SQLite may have rolled back by itself, as on a full disk
			return errors.Join(answers[i], lost)
		}
	}
	if err := do(w.commit); err != nil {
		_ = do(w.rollback)
		return fmt.Errorf("commit: %w", err)
	}
	w.commits.Add(1)
	return nil
}

// isolate runs one job. The second error means that the whole transaction is lost, as it is when
// the job panics: nobody knows how far it came.
func (w *writer) isolate(j *job) (failed, lost error) {
	defer func() {
		if p := recover(); p != nil {
			lost = fmt.Errorf("panicked: %v\n%s", p, debug.Stack())
		}
	}()
	if err := do(w.savepoint); err != nil {
		return nil, err
	}
	if failed = j.run(w); failed != nil {
		if err := do(w.rollbackSavepoint); err != nil {
			return failed, err
		}
	}
	return failed, do(w.release)
}

func (w *writer) put(items []state.Item, lease state.Lease) error {
	seen, expires := lease.Seen.UnixMilli(), lease.Expires.UnixMilli()
	var id int64
	for i, item := range items {
		// The parts of one text come in a row; only a change of group can have dropped one.
		if i == 0 || item.Group != items[i-1].Group || item.Pinned != items[i-1].Pinned {
			name := []byte(item.Group)
			if err := do(w.expire, name, seen); err != nil {
				return fmt.Errorf("empty an expired group: %w", err)
			}
			if err := w.claim.QueryRow(name, seen, expires, item.Pinned).Scan(&id); err != nil {
				return fmt.Errorf("claim a group: %w", err)
			}
		}
		value := item.Value
		if value == nil {
			value = []byte{} // nil would be NULL
		}
		if err := do(w.store, []byte(item.Key), id, item.Size(), value); err != nil {
			return fmt.Errorf("store an item: %w", err)
		}
	}
	return nil
}

func (w *writer) touch(group string, lease state.Lease) (bool, error) {
	seen, expires := lease.Seen.UnixMilli(), lease.Expires.UnixMilli()
	result, err := w.renew.Exec(seen, expires, []byte(group), seen)
	if err != nil {
		return false, fmt.Errorf("touch a group: %w", err)
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

func (w *writer) drop(group string) error {
	if err := do(w.remove, []byte(group)); err != nil {
		return fmt.Errorf("drop a group: %w", err)
	}
	return nil
}

// do runs to the end whatever its callers' contexts do: the transaction is not theirs alone.
func do(s *sql.Stmt, args ...any) error {
	_, err := s.Exec(args...)
	return err
}
