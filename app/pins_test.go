package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/pins"
)

// Without the file nothing is approved; a file that cannot be read, or that somebody edited, is an error.
func TestLoadLock(t *testing.T) {
	cfg := pins.Default()
	cfg.File = filepath.Join(t.TempDir(), pins.LockFile)
	if lock, err := LoadLock(cfg); lock != nil || err != nil {
		t.Errorf("off: %v, %v", lock, err)
	}
	cfg.Mode = pins.ModeLock
	if lock, err := LoadLock(cfg); len(lock) != 0 || err != nil {
		t.Errorf("no file: %v, %v", lock, err)
	}
	lock := pins.Lock{}
	lock.Approve(pins.Approval{Server: "a", Definition: pins.TextDefinition("be nice")})
	for _, tt := range []struct {
		text string
		ok   bool
	}{{string(lock.Encode()), true}, {strings.Replace(string(lock.Encode()), "nice", "evil", 1), false}, {"", false}, {strings.Repeat(" ", maxLockBytes+1), false}} {
		if err := os.WriteFile(cfg.File, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := LoadLock(cfg)
		if (err == nil) != tt.ok || tt.ok && len(got) != 1 || !tt.ok && !strings.HasPrefix(err.Error(), "pins.file: ") {
			t.Errorf("%.20q: %v, %v", tt.text, got, err)
		}
	}
}
