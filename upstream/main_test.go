package upstream_test

import (
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ctxgate/ctxgate/internal/child"
)

// This binary is the test, the shim that programs run under, and the programs of the tests.
func TestMain(m *testing.M) {
	child.Lifeline()
	if len(os.Args) > 1 && os.Args[1] == "run:server" {
		os.Exit(serve(os.Args[2:]))
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}
