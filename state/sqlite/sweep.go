package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ctxgate/ctxgate/state"
)

// A sweep runs in steps, each a transaction of its own, so that Puts of this and other processes get
// in between. The size of a step adapts to how long steps take: a Put behind one waits little longer
// than for its own commit, on a slow disk too.
const (
	maxStepGroups = 256
	maxStepBytes  = 16 << 20
	minStepBytes  = 64 << 10
	stepPages     = 256
	stepTarget    = 4 * time.Millisecond // how long a step should take
	maxPause      = 100 * time.Millisecond
	pauseFactor   = 3 // how much longer the pause after a step is than the step
)

// stepSize is the size of the next step; the writer's goroutine owns it.
type stepSize struct {
	groups int
	bytes  int64
}

func (s *stepSize) adapt(took time.Duration) {
	switch {
	case took > stepTarget:
		s.groups, s.bytes = max(1, s.groups/2), max(minStepBytes, s.bytes/2)
	case took < stepTarget/3:
		s.groups, s.bytes = min(maxStepGroups, s.groups*2), min(maxStepBytes, s.bytes*2)
	}
}

// Sweep implements [state.Sweeper]. A sweep for a Put leaves the free pages to it; one in the background
// gives them back to the file system, and pauses between its steps.
func (d *Driver) Sweep(ctx context.Context, sweep state.SweepRequest) (state.SweepResult, error) {
	var all state.SweepResult
	for more := true; more; {
		var step state.SweepResult
		began := time.Now()
		err := d.writer.submit(ctx, 0, func(w *writer) (err error) {
			began := time.Now()
			step, more, err = w.sweepStep(sweep)
			w.stepSize.adapt(time.Since(began))
			return err
		})
		if err != nil {
			return all, classify(err)
		}
		all.Groups += step.Groups
		all.Bytes += step.Bytes
		if sweep.Need == 0 && more {
			pauseAfterStep(ctx, began)
		}
	}
	if sweep.Need > 0 {
		return all, nil
	}
	return all, classify(d.shrinkFile(ctx))
}

func pauseAfterStep(ctx context.Context, began time.Time) {
	select {
	case <-time.After(min(pauseFactor*time.Since(began), maxPause)):
	case <-ctx.Done():
	}
}

// sweepStep removes some expired groups or, when there are none, some of the least recently used.
// more is true while there may be work left.
func (w *writer) sweepStep(s state.SweepRequest) (swept state.SweepResult, more bool, err error) {
	all, _, err := w.totals()
	if err != nil {
		return swept, false, err
	}
	over, err := w.overBy(s)
	if err != nil || over <= 0 && (s.Need > 0 || s.OwnerMax > 0) {
		return swept, false, err
	}
	enough := w.stepSize.bytes
	if s.Need > 0 {
		enough = min(enough, over)
	}
	var groups []groupRow
	if s.OwnerMax == 0 {
		if groups, err = w.listGroups(w.listExpired, s.Now.UnixMilli()); err != nil {
			return swept, false, err
		}
	}
	live := len(groups) == 0
	if live {
		if over <= 0 {
			return swept, false, nil
		}
		enough = min(enough, over)
		if groups, err = w.listEvictable(s); err != nil || len(groups) == 0 {
			return swept, false, err
		}
	}
	if swept.Groups, err = w.removeGroups(groups, enough, live, s.Now); err != nil {
		return swept, false, err
	}
	allAfter, _, err := w.totals()
	if err != nil {
		return swept, false, err
	}
	swept.Bytes = all - allAfter
	over, err = w.overBy(s)
	return swept, !live && s.Need == 0 || over > 0, err
}

// overBy is by how many bytes the store, or the owner that a sweep limits, is too large.
func (w *writer) overBy(s state.SweepRequest) (int64, error) {
	if s.OwnerMax == 0 {
		_, stored, err := w.totals()
		return stored + s.Need - s.MaxBytes, err
	}
	var owned int64
	if err := w.ownerBytes.QueryRow([]byte(s.Owner)).Scan(&owned); err != nil {
		return 0, fmt.Errorf("read an owner's total: %w", err)
	}
	return owned + s.Need - s.OwnerMax, nil
}

// listEvictable lists the least recently used groups of the owner that has most, among those that may lose
// groups.
func (w *writer) listEvictable(s state.SweepRequest) ([]groupRow, error) {
	owners := [][]byte{[]byte(s.Owner)}
	if s.OwnerMax == 0 {
		var err error
		if owners, err = w.evictableOwners(s.Owner); err != nil {
			return nil, err
		}
	}
	for _, owner := range owners {
		groups, err := w.listGroups(w.listOldest, owner, s.SpareAfter.UnixMilli(), s.Now.UnixMilli())
		if err != nil || len(groups) > 0 {
			return groups, err
		}
	}
	return nil, nil
}

func (w *writer) evictableOwners(to string) (owners [][]byte, err error) {
	rows, err := w.listOwners.Query([]byte(to))
	if err != nil {
		return nil, fmt.Errorf("list owners: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name []byte
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("list owners: %w", err)
		}
		if name == nil {
			name = []byte{} // nil would be NULL
		}
		owners = append(owners, name)
	}
	return owners, rows.Err()
}

// DropOwners implements [state.Driver]. It overwrites what it removes, and the log with it, if no other
// process uses the file in this moment.
func (d *Driver) DropOwners(ctx context.Context, prefix, keep string) (state.SweepResult, error) {
	var all state.SweepResult
	end := prefixEnd(prefix)
	for more := true; more; {
		var step state.SweepResult
		began := time.Now()
		err := d.writer.submit(ctx, 0, func(w *writer) error {
			began := time.Now()
			defer func() { w.stepSize.adapt(time.Since(began)) }()
			groups, err := w.listGroups(w.listOwned, []byte(prefix), end, end, []byte(keep))
			if more = err == nil && len(groups) > 0; !more {
				return err
			}
			before, _, err := w.totals()
			if err != nil {
				return err
			}
			now := time.UnixMilli(groups[0].seen) // as if it was used just now: the epoch changes
			err = w.overwriteFreed(func() (err error) {
				step.Groups, err = w.removeGroups(groups, w.stepSize.bytes, true, now)
				return err
			})
			if err != nil {
				return err
			}
			after, _, err := w.totals()
			step.Bytes = before - after
			return err
		})
		if err != nil {
			return all, classify(err)
		}
		all.Groups += step.Groups
		all.Bytes += step.Bytes
		if more {
			pauseAfterStep(ctx, began)
		}
	}
	d.emptyLog(ctx)
	return all, nil
}

// emptyLog copies the log into the file and truncates it, so that nothing that was removed is left in it. While
// others read the file that is not possible; then later writes overwrite the log.
func (d *Driver) emptyLog(ctx context.Context) {
	db, err := sql.Open("sqlite", dsn(d.path))
	if err != nil {
		return
	}
	defer func() { _ = db.Close() }()
	_, _ = db.ExecContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`)
}

// totals are the bytes of everything, and of unpinned groups.
func (w *writer) totals() (all, stored int64, err error) {
	if err := w.sumBytes.QueryRow().Scan(&all, &stored); err != nil {
		return 0, 0, fmt.Errorf("read the total: %w", err)
	}
	return all, stored, nil
}

// removeGroups removes groups in order until enough bytes are gone, and returns how many it removed. A
// live group that was used a short while ago changes the epoch: receipts for it are void.
func (w *writer) removeGroups(groups []groupRow, enough int64, live bool, now time.Time) (removed int, err error) {
	if err := execStmt(w.setQuiet, 1, 0); err != nil {
		return 0, fmt.Errorf("begin a step: %w", err)
	}
	epochChange := int64(0)
	for _, g := range groups {
		if enough <= 0 {
			break
		}
		if live && g.seen > now.Add(-state.MaxAckLifetime).UnixMilli() {
			epochChange = 1
		}
		if g.bytes > maxStepBytes && g.bytes > 2*w.stepSize.bytes {
			// Too large for one step: it expires, so that it is unreadable at once, and loses some of
			// its items. The next steps find it among the expired.
			if err := execStmt(w.expireGroup, g.id); err != nil {
				return removed, fmt.Errorf("expire a group: %w", err)
			}
			if err := execStmt(w.removeItems, g.id, max(1, g.items*w.stepSize.bytes/g.bytes)); err != nil {
				return removed, fmt.Errorf("remove a part of a group: %w", err)
			}
			break
		}
		if err := execStmt(w.removeGroup, g.id); err != nil {
			return removed, fmt.Errorf("remove a group: %w", err)
		}
		removed++
		enough -= g.bytes
	}
	if err := execStmt(w.setQuiet, 0, epochChange); err != nil {
		return removed, fmt.Errorf("end a step: %w", err)
	}
	return removed, nil
}

type groupRow struct{ id, bytes, items, seen int64 }

// listGroups reads all rows before anything is removed: the connection runs one statement at a time.
func (w *writer) listGroups(query *sql.Stmt, args ...any) ([]groupRow, error) {
	rows, err := query.Query(append(args, w.stepSize.groups)...)
	if err != nil {
		return nil, fmt.Errorf("list groups to remove: %w", err)
	}
	defer rows.Close()
	var groups []groupRow
	for rows.Next() {
		var g groupRow
		if err := rows.Scan(&g.id, &g.bytes, &g.items, &g.seen); err != nil {
			return nil, fmt.Errorf("list groups to remove: %w", err)
		}
		groups = append(groups, g)
	}
	return groups, rows.Err()
}

// shrinkFile gives free pages back to the file system while they are more than an eighth of the file;
// fewer stay for the next Puts.
func (d *Driver) shrinkFile(ctx context.Context) error {
	for more := true; more; {
		began := time.Now()
		err := d.writer.submit(ctx, 0, func(w *writer) error {
			before, pages, err := w.freePages()
			if more = err == nil && before*8 > pages; !more {
				return err
			}
			step := fmt.Sprintf("PRAGMA incremental_vacuum(%d)", min(before, stepPages))
			if _, err := w.conn.ExecContext(context.Background(), step); err != nil {
				return fmt.Errorf("shrink the file: %w", err)
			}
			after, _, err := w.freePages()
			more = after < before
			return err
		})
		if err != nil {
			return err
		}
		if more {
			pauseAfterStep(ctx, began)
		}
	}
	return nil
}

func (w *writer) freePages() (free, all int64, err error) {
	row := w.conn.QueryRowContext(context.Background(),
		`SELECT freelist_count, page_count FROM pragma_freelist_count, pragma_page_count`)
	if err := row.Scan(&free, &all); err != nil {
		return 0, 0, fmt.Errorf("count free pages: %w", err)
	}
	return free, all, nil
}
