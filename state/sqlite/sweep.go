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

// Sweep implements [state.Driver]. A sweep for a Put leaves the free pages to it; one in the background
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
	all, stored, err := w.totals()
	if err != nil {
		return swept, false, err
	}
	over := stored + s.Need - s.MaxBytes
	if s.Need > 0 && over <= 0 {
		return swept, false, nil
	}
	enough := w.stepSize.bytes
	if s.Need > 0 {
		enough = min(enough, over)
	}
	expired, err := w.listGroups(w.listExpired, s.Now)
	if err != nil {
		return swept, false, err
	}
	groups := expired
	if len(groups) == 0 {
		if over <= 0 {
			return swept, false, nil
		}
		enough = min(enough, over)
		if groups, err = w.listGroups(w.listOldest, s.SpareAfter); err != nil || len(groups) == 0 {
			return swept, false, err
		}
	}
	live := len(expired) == 0
	if swept.Groups, err = w.removeGroups(groups, enough, live, s.Now); err != nil {
		return swept, false, err
	}
	allAfter, after, err := w.totals()
	swept.Bytes = all - allAfter
	return swept, !live && s.Need == 0 || after+s.Need > s.MaxBytes, err
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
func (w *writer) listGroups(query *sql.Stmt, until time.Time) ([]groupRow, error) {
	rows, err := query.Query(until.UnixMilli(), w.stepSize.groups)
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
