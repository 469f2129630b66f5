package memory_test

import (
	"testing"

	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/state/statetest"
)

func TestDriver(t *testing.T) {
	statetest.Test(t, func(*testing.T) state.Driver { return memory.New() })
}
