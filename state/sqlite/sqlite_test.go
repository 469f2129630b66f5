package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/statetest"
)

func TestDriver(t *testing.T) {
	statetest.Test(t, func(t *testing.T) state.Driver {
		return mustFollow(t, filepath.Join(t.TempDir(), "store.db"))
	})
}

func mustOpen(t testing.TB, path string) *Driver {
	t.Helper()
	d, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}
