//go:build linux

package syncdisk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestPowerCut: what was synced stays, what was only written goes, also under another name and in the middle of a file.
func TestPowerCut(t *testing.T) {
	d := Mount(t)
	path := filepath.Join(d.Path, "a")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("one ")
	write("two ")
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	write("three")
	if _, err := f.WriteAt([]byte("ONE"), 0); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "ONE two three" {
		t.Fatalf("before: %q, %v", got, err)
	}
	renamed := filepath.Join(d.Path, "b")
	never := filepath.Join(d.Path, "never synced")
	if err := errors.Join(os.Rename(path, renamed), os.WriteFile(never, []byte("x"), 0o600), f.Close()); err != nil {
		t.Fatal(err)
	}
	if lost, err := d.CutPower(); err != nil || lost != int64(len("three")+len("ONE")+len("x")) {
		t.Errorf("%d bytes lost, %v", lost, err)
	}
	if got, err := os.ReadFile(renamed); err != nil || string(got) != "one two " {
		t.Errorf("after: %q, %v", got, err)
	}
	if got, err := os.ReadFile(never); err != nil || len(got) != 0 {
		t.Errorf("never synced: %q, %v", got, err)
	}
	if err := os.Truncate(renamed, 4); err != nil {
		t.Fatal(err)
	}
	if _, err := d.CutPower(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(renamed); err != nil || string(got) != "one two " {
		t.Errorf("after a truncation: %q, %v", got, err)
	}
}
