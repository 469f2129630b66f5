package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

func mustFollow(t *testing.T, path string) *Following {
	t.Helper()
	f, err := Follow(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// A file that is removed, or replaced by another, is not written to any more: what is acknowledged is
// in the file that the next process opens, and the epoch says that the rest is gone.
func TestFileIsReplacedUnderARunningProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	f := mustFollow(t, path)
	item := func(key string) []state.Item { return []state.Item{{Key: key, Group: key, Value: []byte("1")}} }
	remove := func() {
		for _, end := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(path + end); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
	replace := func() {
		other := filepath.Join(t.TempDir(), "other.db")
		d := mustOpen(t, other)
		put(t, d, "of the other", "1")
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		remove()
		if err := os.Rename(other, path); err != nil {
			t.Fatal(err)
		}
	}
	for name, do := range map[string]func(){"removed": remove, "replaced": replace} {
		if err := f.Put(t.Context(), item(name), forever); err != nil {
			t.Fatal(err)
		}
		before, err := f.Epoch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		do()
		if after, err := f.Epoch(t.Context()); err != nil || after == before {
			t.Errorf("%s: the epoch was %d and is %d, %v", name, before, after, err)
		}
		if _, err := f.Get(t.Context(), name, epoch); fault.KindOf(err) != fault.Unknown {
			t.Errorf("%s: what was in the old file is found: %v", name, err)
		}
		if err := f.Put(t.Context(), item(name+" since"), forever); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		d := mustOpen(t, path)
		has(t, d, name+" since", "1")
		checkTotals(t, d)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
