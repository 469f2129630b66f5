package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ctxgate/ctxgate/state"
)

// A sweep goes in steps, each a transaction of its own, so that Puts of this and other processes
// come in between. How large the steps are depends on how long they take: a Put that is behind one
// waits little longer than for its own commit, on a slow disk too.
const (
	maxStepGroups = 256
	maxStepBytes  = 16 << 20
	minStepBytes  = 64 << 10
	stepPages     = 256
	stepTakes     = 4 * time.Millisecond // what a step should take
	maxPause      = 100 * time.Millisecond
	restFactor    = 3 // how much longer the rest after a step is than the step
)

// pace is how large the next step is; the writer's goroutine owns it.
type pace struct {
	groups int
	bytes  int64
}

func (p *pace) adapt(took time.Duration) {
	switch {
	case took > stepTakes:
		p.groups, p.bytes = max(1, p.groups/2), max(minStepBytes, p.bytes/2)
	case took < stepTakes/3:
		p.groups, p.bytes = min(maxStepGroups, p.groups*2), min(maxStepBytes, p.bytes*2)
	}
}

// Sweep implements [state.Driver]. One that makes room for a Put leaves the free pages to it; one
// that does not gives them back to the file system, and rests between its steps.
func (d *Driver) Sweep(ctx context.Context, sweep state.Sweep) (state.Swept, error) {
	var all state.Swept
	for more := true; more; {
		var step state.Swept
		began := time.Now()
		err := d.writer.submit(ctx, 0, func(w *writer) (err error) {
			began := time.Now()
			step, more, err = w.sweep(sweep)
			w.pace.adapt(time.Since(began))
			return err
		})
		if err != nil {
			return all, classify(err)
		}
		all.Groups += step.Groups
		all.Bytes += step.Bytes
		if sweep.Need == 0 && more {
			pause(ctx, min(restFactor*time.Since(began), maxPause))
		}
	}
	if sweep.Need > 0 {
		return all, nil
	}
	return all, classify(d.shrink(ctx))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// sweep is one step: a run of expired groups, or when there are none a run of the oldest.
// More is true while there may be work left.
func (w *writer) sweep(s state.Sweep) (swept state.Swept, more bool, err error) {
	all, stored, err := w.totals()
	if err != nil {
		return swept, false, err
	}
	over := stored + s.Need - s.MaxBytes
	if s.Need > 0 && over <= 0 {
		return swept, false, nil
	}
	enough := w.pace.bytes
	if s.Need > 0 {
		enough = min(enough, over)
	}
	expired, err := w.list(w.expired, s.Now)
	if err != nil {
		return swept, false, err
	}
	groups := expired
	if len(groups) == 0 {
		if over <= 0 {
			return swept, false, nil
		}
		enough = min(enough, over)
		if groups, err = w.list(w.oldest, s.SpareAfter); err != nil || len(groups) == 0 {
			return swept, false, err
		}
	}
	live := len(expired) == 0
	if swept.Groups, err = w.removeRun(groups, enough, live, s.Now); err != nil {
		return swept, false, err
	}
	allAfter, after, err := w.totals()
	swept.Bytes = all - allAfter
	return swept, !live && s.Need == 0 || after+s.Need > s.MaxBytes, err
}

// totals are the bytes of everything, and of what may be evicted.
func (w *writer) totals() (all, stored int64, err error) {
	if err := w.sumStored.QueryRow().Scan(&all, &stored); err != nil {
		return 0, 0, fmt.Errorf("read the total: %w", err)
	}
	return all, stored, nil
}

// removeRun removes groups in order until enough bytes went, and says how many went. Others may rely
// on live groups that were seen a short while ago: the epoch tells them.
func (w *writer) removeRun(groups []listed, enough int64, live bool, now time.Time) (removed int, err error) {
	if err := do(w.quiet, 1, 0); err != nil {
		return 0, fmt.Errorf("begin a step: %w", err)
	}
	relied := int64(0)
	for _, g := range groups {
		if enough <= 0 {
			break
		}
		if live && g.seen > now.Add(-state.MaxAckAge).UnixMilli() {
			relied = 1
		}
		if g.bytes > maxStepBytes && g.bytes > 2*w.pace.bytes {
			if err := w.removeSome(g); err != nil {
				return removed, err
			}
			break
		}
		if err := do(w.removeID, g.id); err != nil {
			return removed, fmt.Errorf("remove a group: %w", err)
		}
		removed++
		enough -= g.bytes
	}
	if err := do(w.quiet, 0, relied); err != nil {
		return removed, fmt.Errorf("end a step: %w", err)
	}
	return removed, nil
}

// removeSome begins to remove a group that is too large for one step: it expires, so that it is gone
// for everybody at once, and loses some of its items. The next steps find it among the expired.
func (w *writer) removeSome(g listed) error {
	if err := do(w.hide, g.id); err != nil {
		return fmt.Errorf("expire a group: %w", err)
	}
	if err := do(w.removeItems, g.id, max(1, g.items*w.pace.bytes/g.bytes)); err != nil {
		return fmt.Errorf("remove a part of a group: %w", err)
	}
	return nil
}

type listed struct{ id, bytes, items, seen int64 }

// list reads to the end before anything is removed: the connection can do one at a time.
func (w *writer) list(query *sql.Stmt, until time.Time) ([]listed, error) {
	rows, err := query.Query(until.UnixMilli(), w.pace.groups)
	if err != nil {
		return nil, fmt.Errorf("list groups to remove: %w", err)
	}
	defer rows.Close()
	var groups []listed
	for rows.Next() {
		var g listed
		if err := rows.Scan(&g.id, &g.bytes, &g.items, &g.seen); err != nil {
			return nil, fmt.Errorf("list groups to remove: %w", err)
		}
		groups = append(groups, g)
	}
	return groups, rows.Err()
}

// shrink gives free pages back while they are more than an eighth of the file; fewer are kept
// for the next Puts.
func (d *Driver) shrink(ctx context.Context) error {
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
			pause(ctx, min(restFactor*time.Since(began), maxPause))
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
