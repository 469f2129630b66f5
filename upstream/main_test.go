package upstream_test

import (
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ctxgate/ctxgate/internal/child"
)

// This binary is the test, the shim, and the children of the tests.
func TestMain(m *testing.M) {
	child.RunIfShim()
	if len(os.Args) > 1 && os.Args[1] == "run:server" {
		os.Exit(runChildServer(os.Args[2:]))
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}
