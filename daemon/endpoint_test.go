//go:build unix

package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shortTempDir is a directory whose path leaves room for a socket.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "cg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func locate(t *testing.T, config string, p Places) Endpoint {
	t.Helper()
	e, err := Locate(config, p)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Clients pass different variables on, and name the same file in different ways; they find the same gateway.
func TestEndpointDependsOnUserAndFile(t *testing.T) {
	dir := shortTempDir(t)
	file := filepath.Join(dir, "ctxgate.toml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, filepath.Join(dir, "link.toml")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	places := Places{RuntimeDir: dir, DataDir: filepath.Join(dir, "data"), TempDir: dir}
	want := locate(t, file, places)
	for _, name := range []string{"ctxgate.toml", "./link.toml", filepath.Join(dir, "x", "..", "ctxgate.toml")} {
		if got := locate(t, name, places); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if other := locate(t, filepath.Join(dir, "other.toml"), places); other.Socket() == want.Socket() || other.Log == want.Log {
		t.Errorf("two files share %+v", other)
	}
	open := filepath.Join(dir, "open") // as /run/user of another user would be
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	without := locate(t, file, Places{DataDir: places.DataDir, TempDir: dir})
	if got := locate(t, file, Places{RuntimeDir: open, DataDir: places.DataDir, TempDir: dir}); got != without {
		t.Errorf("a runtime directory that others can read is used: %+v", got)
	}
}

// The directory of a socket is for its owner: one that is too open is closed, and one that is not a directory is refused.
func TestSocketDirIsOwnerOnly(t *testing.T) {
	dir := shortTempDir(t)
	places := Places{RuntimeDir: dir, TempDir: dir}
	if err := os.Mkdir(filepath.Join(dir, "ctxgate"), 0o755); err != nil {
		t.Fatal(err)
	}
	e := locate(t, "", places)
	if info, err := os.Stat(e.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if err := os.Remove(e.Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), e.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Locate("", places); err == nil {
		t.Error("a symbolic link, which another user could have made, is used")
	}
}

// A path that is too long for a socket is replaced by a short one.
func TestLongSocketPath(t *testing.T) {
	dir := shortTempDir(t)
	long := filepath.Join(dir, strings.Repeat("x", 80))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	e := locate(t, "", Places{RuntimeDir: long, DataDir: long, TempDir: dir})
	if want := filepath.Join(dir, fmt.Sprintf("ctxgate-%d", os.Getuid())); e.Dir != want {
		t.Errorf("%s, want %s", e.Dir, want)
	}
	if _, err := Locate("", Places{DataDir: long, RuntimeDir: long, TempDir: long}); err == nil || !strings.Contains(err.Error(), "--alone") {
		t.Errorf("got %v", err)
	}
}

// Only one process at a time starts the gateway; the lock ends with its holder, and waiting has an end.
func TestLock(t *testing.T) {
	e := locate(t, "", Places{RuntimeDir: shortTempDir(t)})
	unlock, err := e.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.Lock(ctx); err == nil {
		t.Fatal("it was locked twice")
	}
	unlock()
	unlock, err = e.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

// The log is bounded, keeps what was before, and two processes can write to it.
func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "x.log")
	var logs []*LogFile
	for range 2 {
		l, err := OpenLog(path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		l.max = 1000
		logs = append(logs, l)
	}
	for i := range 500 {
		l := logs[i/7%2]
		l.checked = time.Time{} // as if a second had passed
		if _, err := fmt.Fprintf(l, "line %03d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	now, err := os.ReadFile(path)
	older, err2 := os.ReadFile(OlderLog(path))
	if err != nil || err2 != nil || len(now) > 1000 || len(older) > 1000 || !strings.HasSuffix(string(older)+string(now), "line 498\nline 499\n") {
		t.Errorf("%v %v: %d and %d bytes: …%q", err, err2, len(older), len(now), now)
	}
	if all := strings.Count(string(older)+string(now), "\n"); all < 1000/9 {
		t.Errorf("only %d lines are left", all)
	}
}

// A changed executable is noticed when it has settled, and not while it is the same.
func TestExecutableHasChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ctxgate")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(path, "one")
	e := NewExecutable(path)
	for range 3 {
		if e.HasChanged() {
			t.Fatal("nothing has changed")
		}
	}
	write(path+".new", "two")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if e.HasChanged() {
		t.Error("it may still be written")
	}
	if !e.HasChanged() {
		t.Error("the change was not noticed")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if e.HasChanged() {
		t.Error("a file that is gone is no new version")
	}
}

// Only a newer release replaces a gateway, so two versions never replace each other in turns.
func TestIsNewer(t *testing.T) {
	order := []string{"v0.9.9", "v0.10.0", "1.0.0", "v1.0.1", "v10.0.0"}
	for i, a := range order {
		for j, b := range order {
			if IsNewer(a, b) != (i > j) {
				t.Errorf("IsNewer(%s, %s) = %v", a, b, i <= j)
			}
		}
		for _, b := range []string{"dev", "dev-0123456789ab", "", "v1.2", "v2.0.0-rc.1", "v0.0.0-20260101000000-0123456789ab", "v1.2.3.4", "v-1.0.0"} {
			if IsNewer(a, b) || IsNewer(b, a) {
				t.Errorf("%s and %s are ordered", a, b)
			}
		}
	}
}
