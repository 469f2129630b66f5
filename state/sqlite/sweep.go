package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ctxgate/ctxgate/state"
)

// A sweep goes in steps of at most this much, each a transaction of its own, so that Puts of
// this and other processes come in between.
const (
	stepGroups = 256
	stepBytes  = 32 << 20
	stepPages  = 2048
)

// Sweep implements [state.Driver]. One that makes room for a Put leaves the free pages to it;
// one that does not gives them back to the file system.
func (d *Driver) Sweep(ctx context.Context, sweep state.Sweep) (state.Swept, error) {
	var all state.Swept
	for more := true; more; {
		var step state.Swept
		err := d.writer.submit(ctx, 0, func(w *writer) (err error) {
			step, more, err = w.sweep(sweep)
			return err
		})
		if err != nil {
			return all, classify(err)
		}
		all.Groups += step.Groups
		all.Bytes += step.Bytes
	}
	if sweep.Need > 0 {
		return all, nil
	}
	return all, classify(d.shrink(ctx))
}

// sweep is one step: a run of expired groups, or when there are none a run of the oldest.
// More is true while there may be work left.
func (w *writer) sweep(s state.Sweep) (swept state.Swept, more bool, err error) {
	swept, err = w.removeRun(w.expired, s.Now.UnixMilli(), stepBytes)
	if err != nil || swept.Groups > 0 {
		return swept, true, err
	}
	var stored int64
	if err := w.sumStored.QueryRow().Scan(&stored); err != nil {
		return swept, false, fmt.Errorf("read the total: %w", err)
	}
	over := stored + s.Need - s.MaxBytes
	if over <= 0 {
		return swept, false, nil
	}
	swept, err = w.removeRun(w.oldest, s.SpareAfter.UnixMilli(), min(over, stepBytes))
	return swept, swept.Groups > 0 && swept.Bytes < over, err
}

// removeRun removes the groups that the query lists, in its order, until enough bytes went.
func (w *writer) removeRun(list *sql.Stmt, until, enough int64) (state.Swept, error) {
	var swept state.Swept
	groups, err := readGroups(list, until)
	if err != nil {
		return swept, fmt.Errorf("list groups to remove: %w", err)
	}
	for _, g := range groups {
		if swept.Bytes >= enough {
			break
		}
		if err := do(w.removeID, g.id); err != nil {
			return swept, fmt.Errorf("remove a group: %w", err)
		}
		swept.Groups++
		swept.Bytes += g.bytes
	}
	return swept, nil
}

type sized struct{ id, bytes int64 }

// readGroups reads to the end before anything is removed: the connection can do one at a time.
func readGroups(list *sql.Stmt, until int64) ([]sized, error) {
	rows, err := list.Query(until, stepGroups)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var groups []sized
	for rows.Next() {
		var g sized
		if err := rows.Scan(&g.id, &g.bytes); err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	return groups, rows.Err()
}

// shrink gives free pages back while they are more than an eighth of the file; fewer are kept
// for the next Puts.
func (d *Driver) shrink(ctx context.Context) error {
	for more := true; more; {
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
