package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

var (
	epoch   = time.Unix(1_000_000_000, 0)
	forever = state.Lease{LastUsed: epoch, Expires: epoch.Add(time.Hour)}
)

func put(t testing.TB, d *Driver, key, value string) {
	t.Helper()
	if err := d.Put(t.Context(), []state.Item{{Key: key, Group: key, Value: []byte(value)}}, forever); err != nil {
		t.Fatalf("Put(%q): %v", key, err)
	}
}

func has(t testing.TB, d *Driver, key, value string) {
	t.Helper()
	got, err := d.Get(t.Context(), key, key, epoch)
	if err != nil || string(got) != value {
		t.Fatalf("Get(%q) = %.40q, %v; want %.40q", key, got, err, value)
	}
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	first := mustOpen(t, path)
	put(t, first, "a", "kept")
	want, _ := first.Stat(t.Context())
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); !os.IsNotExist(err) {
		t.Errorf("Close left the log behind: %v", err)
	}
	again := mustOpen(t, path)
	has(t, again, "a", "kept")
	if got, err := again.Stat(t.Context()); err != nil || got != want {
		t.Errorf("Stat = %+v, %v; want %+v", got, err, want)
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for it")
	path := filepath.Join(dir, "what? #1 100%.db")
	d := mustOpen(t, path)
	put(t, d, "a", "1")
	for name, want := range map[string]os.FileMode{
		dir: 0o700 | os.ModeDir, path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600,
	} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
	}
}

func TestTwoOnOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	one, two := mustOpen(t, path), mustOpen(t, path)
	put(t, one, "a", "from one")
	has(t, two, "a", "from one")
	put(t, two, "a", "from two")
	has(t, one, "a", "from two")
	put(t, one, "b", "1")
	s1, err1 := one.Stat(t.Context())
	s2, err2 := two.Stat(t.Context())
	if err1 != nil || err2 != nil || s1 != s2 || s1.Items != 2 {
		t.Errorf("%+v, %v and %+v, %v should be the same two items", s1, err1, s2, err2)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, two, "c", "alone")
	has(t, two, "c", "alone")
}

// Opening and closing drivers must not drop the file locks of other drivers of this process, whatever
// POSIX says about closing descriptors.
func TestOpenKeepsLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	holder := mustOpen(t, path)
	release := hold(t, holder)
	mustOpen(t, path).Close()
	other := mustOpen(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := other.Drop(ctx, "a"); fault.KindOf(err) != fault.Timeout {
		t.Errorf("a write beside a held lock: %v, want a timeout", err)
	}
	release()
	put(t, other, "a", "1")
}

// hold blocks the driver's writer inside a transaction until release is called.
func hold(t *testing.T, d *Driver) (release func()) {
	t.Helper()
	held, let, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- d.writer.submit(context.Background(), 0, func(*writer) error {
			close(held)
			<-let
			return nil
		})
	}()
	<-held
	release = sync.OnceFunc(func() {
		close(let)
		if err := <-done; err != nil {
			t.Errorf("the held transaction: %v", err)
		}
	})
	t.Cleanup(release) // before the driver's own, or a failed test would hang
	return release
}

func TestForeignFiles(t *testing.T) {
	sqliteFile := func(statements string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec(statements); err != nil {
				t.Fatal(err)
			}
		}
	}
	bytesFile := func(b []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	newer := fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d; CREATE TABLE t (x)", applicationID, schemaVersion+1)
	for name, c := range map[string]struct {
		make func(t *testing.T, path string)
		want string
	}{
		"newer":     {sqliteFile(newer), "newer ctxgate"},
		"foreign":   {sqliteFile("CREATE TABLE t (x)"), "another program"},
		"garbage":   {bytesFile(bytes.Repeat([]byte("no database "), 1000)), "not a database"},
		"short":     {bytesFile([]byte("x")), "not a database"},
		"cut":       {bytesFile(append([]byte("SQLite format 3\x00"), make([]byte, 84)...)), "not a database"},
		"directory": {func(t *testing.T, path string) { _ = os.Mkdir(path, 0o700) }, "open store"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			c.make(t, path)
			before, _ := os.ReadFile(path)
			d, err := Open(t.Context(), path)
			if err == nil {
				d.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %q does not say %q and where", err, c.want)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the refused file was changed")
			}
		})
	}
}

// A corrupt page makes operations fail, not the process.
func TestCorruptPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	d := mustOpen(t, path)
	for i := range 200 {
		put(t, d, fmt.Sprint("key", i), strings.Repeat("v", 5000))
	}
	d.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(b); i++ {
		b[i] ^= 0x5a
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err = Open(t.Context(), path)
	if err != nil {
		return // found out at once: as good
	}
	defer d.Close()
	if _, err := d.Get(t.Context(), "key1", "key1", epoch); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("Get: %v, want %v", err, fault.Unavailable)
	}
	if err := d.Put(t.Context(), []state.Item{{Key: "key1"}}, forever); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("Put: %v, want %v", err, fault.Unavailable)
	}
	if _, err := d.Sweep(t.Context(), state.SweepRequest{Now: epoch.Add(2 * time.Hour)}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("Sweep: %v, want %v", err, fault.Unavailable)
	}
}

func TestFileShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	d := mustOpen(t, path)
	mebi := strings.Repeat("v", 1<<20)
	for i := range 24 {
		put(t, d, fmt.Sprint(i), mebi)
	}
	put(t, d, "small", "1")
	if _, err := d.Touch(t.Context(), "small", state.Lease{LastUsed: epoch, Expires: epoch.Add(9 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	swept, err := d.Sweep(t.Context(), state.SweepRequest{Now: epoch.Add(2 * time.Hour), MaxBytes: 1 << 30})
	if err != nil || swept.Groups != 24 {
		t.Fatalf("Sweep = %+v, %v", swept, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > 256<<10 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	has(t, mustOpen(t, path), "small", "1")
}

func TestCloseLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	for i := range 5 {
		path := filepath.Join(t.TempDir(), "store.db")
		d := mustOpen(t, path)
		put(t, d, fmt.Sprint(i), "x")
		has(t, d, fmt.Sprint(i), "x")
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		_, _ = Open(t.Context(), filepath.Dir(path)) // a failed Open leaves nothing either
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<16)
	t.Errorf("%d goroutines before, %d after\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
}
