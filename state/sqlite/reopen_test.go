package sqlite

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

func mustFollow(t *testing.T, path string) *ReopeningDriver {
	t.Helper()
	f, err := OpenReopening(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// A file that is removed or replaced is no longer written to: what is acknowledged is in the file that
// the next process opens, and the epoch changes because the rest is gone.
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
		if _, err := f.Get(t.Context(), name, name, epoch); fault.KindOf(err) != fault.UnknownHandle {
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

// While the path cannot be opened, every operation fails, and the log does not claim that another file
// is used; once it can be opened, it is used.
func TestFileThatCannotBeReplaced(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	folder := filepath.Join(t.TempDir(), "folder")
	f := mustFollow(t, filepath.Join(folder, "store.db"))
	if err := os.Rename(folder, folder+" of before"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder, nil, 0o600); err != nil { // a file, where a folder is needed
		t.Fatal(err)
	}
	for range 3 {
		if _, err := f.Epoch(t.Context()); err == nil || !strings.Contains(err.Error(), "removed or replaced") {
			t.Errorf("got %v", err)
		}
	}
	if strings.Contains(log.String(), "from now on") {
		t.Errorf("the log says %s", log.String())
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Epoch(t.Context()); err != nil || strings.Count(log.String(), "from now on") != 1 {
		t.Errorf("%v; the log says %s", err, log.String())
	}
}
