//go:build unix

package app

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// At the start other users lose their permissions on the data directory and its files, with a warning.
func TestLaxModesAreFixed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	cfg := load(t, dir, "")
	cfg.State.Driver = "sqlite"
	first, err := OpenStorage(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adminToken(cfg); err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	lax := map[string]fs.FileMode{dir: 0o755, filepath.Join(dir, "secret"): 0o644, filepath.Join(dir, "admin-token"): 0o666, filepath.Join(dir, "ctxgate.db"): 0o664}
	for path, mode := range lax {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	log := captureLog(t)
	again, err := OpenStorage(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for path := range lax {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&0o077 != 0 || !strings.Contains(log.String(), path+" was open to others") {
			t.Errorf("%s: %v, %v, log: %s", path, info.Mode(), err, log)
		}
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if info, err := os.Stat(filepath.Join(dir, "ctxgate.db"+suffix)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", suffix, info, err)
		}
	}
	logged := log.String()
	if err := fixModes(cfg); err != nil || log.String() != logged {
		t.Errorf("a second warning: %v %s", err, log)
	}
}

// A data directory that is the working directory is left unchanged, with a warning.
func TestWorkingDirectoryIsNotClosed(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	log := captureLog(t)
	cfg := load(t, dir, "")
	if err := fixModes(cfg); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 || !strings.Contains(log.String(), "working directory") {
		t.Errorf("%v %v %s", info.Mode(), err, log)
	}
}

// A file that everybody can write and that belongs to another user is rejected.
func TestWorldWritableOfOthersIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a folder of another user")
	}
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for mode, refused := range map[fs.FileMode]bool{0o777: true, 0o777 | fs.ModeSticky: false, 0o770: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if err := fixModes(load(t, dir, "")); (err != nil) != refused {
			t.Errorf("%v: %v", mode, err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != mode.Perm() {
			t.Errorf("another user's folder was changed: %v", info.Mode())
		}
	}
}
