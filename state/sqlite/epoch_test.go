package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

func epochOf(t *testing.T, d *Driver) state.Epoch {
	t.Helper()
	e, err := d.Epoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// When an operator empties the tables with another program, every process sees another epoch.
func TestEpochChangesWhenTheTablesAreEmptied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	d, other := mustOpen(t, path), mustOpen(t, path)
	outside, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	last := epochOf(t, d)
	for _, statement := range []string{"DELETE FROM grp", "DELETE FROM item", "DELETE FROM grp WHERE name = 'b'"} {
		put(t, d, "a", "1")
		put(t, d, "b", "2")
		if _, err := outside.Exec(statement); err != nil {
			t.Fatal(err)
		}
		now := epochOf(t, d)
		if statement != "DELETE FROM grp WHERE name = 'b'" && now == last { // a name is a blob: nothing is deleted
			t.Errorf("after %s the epoch is still %d", statement, now)
		}
		if seen := epochOf(t, other); seen != now {
			t.Errorf("one process sees epoch %d, another %d", now, seen)
		}
		last = now
		checkTotalsOf(t, d)
	}
}

func checkTotalsOf(t *testing.T, d *Driver) {
	t.Helper()
	if stat, err := d.Stat(t.Context()); err != nil || stat.Items < 0 || stat.Bytes < 0 {
		t.Errorf("Stat = %+v, %v", stat, err)
	}
}

// A file that is restored from a copy has the epoch of the copy; it gets a new one.
func TestEpochChangesWhenACopyIsRestored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	d := mustOpen(t, path)
	put(t, d, "a", "1")
	outside, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	exec := func(statement string) {
		t.Helper()
		if _, err := outside.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec(`CREATE TABLE copy AS SELECT * FROM total`)
	put(t, d, "b", "2")
	before := epochOf(t, d)
	exec(`BEGIN IMMEDIATE; DELETE FROM item WHERE key = x'62'; UPDATE total SET (items, bytes, pinned, epoch, writes, quiet) = (SELECT items, bytes, pinned, epoch, writes, quiet FROM copy); COMMIT`)
	after := epochOf(t, d)
	if after == before {
		t.Errorf("the epoch is still %d", after)
	}
	if again := epochOf(t, d); again != after {
		t.Errorf("the new epoch changed by itself, from %d to %d", after, again)
	}
}

// A file of schema version 1 is migrated: nothing is lost, tokens are pinned, and it has an epoch.
func TestVersionOneIsMigrated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	old, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		t.Fatal(err)
	}
	statements := []string{
		"PRAGMA auto_vacuum = INCREMENTAL", "PRAGMA journal_mode = WAL", schema1,
		fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = 1", applicationID),
		fmt.Sprintf("INSERT INTO grp (id, name, seen, expires) VALUES (1, x'61', %d, %d), (2, x'6f61757468006100', %[1]d, %[2]d)", epoch.UnixMilli(), epoch.Add(time.Hour).UnixMilli()),
		"INSERT INTO item VALUES (x'61', 1, 5, x'6f6c64'), (x'74', 2, 20, x'746f6b656e')",
	}
	for _, s := range statements {
		if _, err := old.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	old.Close()
	d := mustOpen(t, path)
	has(t, d, "a", "old")
	has(t, d, "t", "token")
	if stat, err := d.Stat(t.Context()); err != nil || stat != (state.Stat{Items: 2, Bytes: 5, Pinned: 20}) {
		t.Errorf("Stat = %+v, %v", stat, err)
	}
	if epochOf(t, d) == 0 {
		t.Error("no epoch")
	}
	if _, err := d.Sweep(t.Context(), state.SweepRequest{Now: epoch, SpareAfter: epoch, Need: 1}); err != nil {
		t.Fatal(err)
	}
	has(t, d, "t", "token")
	if _, err := d.Get(t.Context(), "a", "a", epoch); fault.KindOf(err) != fault.UnknownHandle {
		t.Errorf("the text was not evicted: %v", err)
	}
}

// The queue is bounded in bytes, with those of callers that have left.
func TestQueueIsBoundedInBytes(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	release := hold(t, d)
	const size = 4 << 20
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	value := []byte(strings.Repeat("x", size-100))
	for i := range maxQueuedBytes / size {
		wg.Go(func() { _ = d.Put(ctx, []state.Item{{Key: fmt.Sprint(i), Group: "g", Value: value}}, forever) })
	}
	queued(t, d, maxQueuedBytes/size)
	leave()
	wg.Wait() // no caller waits, but what they wrote is still there
	short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := d.Put(short, []state.Item{{Key: "more", Group: "g", Value: value}}, forever); err == nil || len(d.writer.queue) > maxQueuedBytes/size {
		t.Errorf("%d jobs of 4 MiB wait, %v", len(d.writer.queue), err)
	}
	release()
	put(t, d, "after", string(value)) // and it is given back
	large := []state.Item{{Key: "l", Group: "l", Value: make([]byte, maxQueuedBytes+1)}}
	if err := d.Put(t.Context(), large, forever); err != nil {
		t.Errorf("one that is larger than the queue: %v", err)
	}
}
