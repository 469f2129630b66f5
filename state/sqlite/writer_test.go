package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

// queued waits until n jobs are in the writer's queue.
func queued(t *testing.T, d *Driver, n int) {
	t.Helper()
	for range 1000 {
		if len(d.writer.queue) >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%d jobs in the queue, want %d", len(d.writer.queue), n)
}

func TestGroupCommit(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	release := hold(t, d)
	before := d.writer.commits.Load()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if err := d.Put(t.Context(), []state.Item{{Key: fmt.Sprint(i), Group: "g"}}, forever); err != nil {
				t.Error(err)
			}
		})
	}
	queued(t, d, 100)
	release()
	wg.Wait()
	if n := d.writer.commits.Load() - before; n != 2 { // the held one, and one for all the rest
		t.Errorf("%d commits, want 2", n)
	}
	for i := range 100 {
		has(t, d, fmt.Sprint(i), "")
	}
}

func TestOneFailureInABatch(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	release := hold(t, d)
	broken := errors.New("broken")
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() {
			err := d.writer.submit(t.Context(), 0, func(w *writer) error {
				if err := w.putItems([]state.Item{{Key: fmt.Sprint(i), Group: "g"}}, forever); err != nil || i != 4 {
					return err
				}
				return broken // after it wrote
			})
			if want := i == 4; errors.Is(err, broken) != want || !want && err != nil {
				t.Errorf("job %d: %v", i, err)
			}
		})
	}
	queued(t, d, 9)
	release()
	wg.Wait()
	for i := range 9 {
		_, err := d.Get(t.Context(), fmt.Sprint(i), fmt.Sprint(i), epoch)
		if gone := fault.KindOf(err) == fault.UnknownHandle; gone != (i == 4) {
			t.Errorf("job %d: %v", i, err)
		}
	}
}

// A panic in a job fails the batch, not the process.
func TestPanicInABatch(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	err := d.writer.submit(t.Context(), 0, func(w *writer) error {
		if err := w.putItems([]state.Item{{Key: "half", Group: "g"}}, forever); err != nil {
			return err
		}
		panic("a bug")
	})
	if err == nil {
		t.Error("a job that panicked was acknowledged")
	}
	if err := d.Put(t.Context(), []state.Item{{Key: "next", Group: "g"}}, forever); err != nil {
		t.Errorf("the next put: %v", err)
	}
	has(t, d, "next", "")
	if _, err := d.Get(t.Context(), "half", "half", time.Now()); fault.KindOf(err) != fault.UnknownHandle {
		t.Errorf("what the job wrote is there: %v", err)
	}
}

// A full disk fails the Puts that hit it, keeps what is stored, and recovers when there is space.
func TestFullDisk(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	put(t, d, "before", "kept")
	limit := func(pages int) {
		err := d.writer.submit(t.Context(), 0, func(w *writer) error {
			_, err := w.conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	limit(50)
	big := []state.Item{{Key: "a", Group: "g", Value: make([]byte, 1000)}, {Key: "b", Group: "g", Value: make([]byte, 1<<20)}}
	if err := d.Put(t.Context(), big, forever); fault.KindOf(err) != fault.Full {
		t.Errorf("Put = %v, want %v", err, fault.Full)
	}
	if _, err := d.Get(t.Context(), "a", "a", epoch); fault.KindOf(err) != fault.UnknownHandle {
		t.Errorf("half of the batch is there: %v", err)
	}
	has(t, d, "before", "kept")
	put(t, d, "small", "fits")
	limit(1 << 20)
	if err := d.Put(t.Context(), big, forever); err != nil {
		t.Errorf("Put after space was freed: %v", err)
	}
	checkTotals(t, d)
}

func TestWaitingPutIsCanceled(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	release := hold(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Put(ctx, []state.Item{{Key: "a"}}, forever) }()
	queued(t, d, 1)
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Put: %v", err)
		}
	case <-time.After(time.Second):
		t.Fatal("a canceled Put waits on")
	}
	release()
	put(t, d, "b", "after it")
	if _, err := d.Get(t.Context(), "a", "a", epoch); fault.KindOf(err) != fault.UnknownHandle {
		t.Errorf("a Put that was canceled in the queue was done: %v", err)
	}
}

// The queue is bounded in jobs; at the bound a Put waits until its context ends.
func TestFullQueue(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "store.db"))
	release := hold(t, d)
	var wg sync.WaitGroup
	for i := range maxQueuedJobs {
		wg.Go(func() {
			if err := d.Put(t.Context(), []state.Item{{Key: fmt.Sprint(i)}}, forever); err != nil {
				t.Error(err)
			}
		})
	}
	queued(t, d, maxQueuedJobs)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := d.Put(ctx, []state.Item{{Key: "late"}}, forever); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Put at a full queue: %v", err)
	}
	release()
	wg.Wait()
	if stat, err := d.Stat(t.Context()); err != nil || stat.Items != maxQueuedJobs {
		t.Errorf("Stat = %+v, %v", stat, err)
	}
}

// A write waits for another process's lock for longer than SQLite's busy timeout.
func TestLongLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	one, two := mustOpen(t, path), mustOpen(t, path)
	release := hold(t, one)
	done := make(chan error)
	go func() { done <- two.Put(t.Context(), []state.Item{{Key: "a"}}, forever) }()
	time.Sleep(1300 * time.Millisecond)
	has1 := func() bool { _, err := two.Get(t.Context(), "a", "a", epoch); return err == nil }
	if has1() {
		t.Error("written beside the lock")
	}
	release()
	if err := <-done; err != nil || !has1() {
		t.Errorf("Put after the lock: %v", err)
	}
}

func TestCloseBesideALock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	one, two := mustOpen(t, path), mustOpen(t, path)
	release := hold(t, one)
	done := make(chan error)
	go func() { done <- two.Put(t.Context(), []state.Item{{Key: "a"}}, forever) }()
	time.Sleep(50 * time.Millisecond)
	if err := two.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; fault.KindOf(err) != fault.Unavailable {
		t.Errorf("Put: %v", err)
	}
	release()
}
