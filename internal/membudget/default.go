package membudget

import (
	"fmt"
	"math"
	"runtime/debug"

	"github.com/ctxgate/ctxgate/internal/unit"
)

// Config is how much memory the process may hold for its callers.
type Config struct {
	// The most memory that requests, replies, lists and messages on their way may hold together; a
	// size. What does not fit is refused (HTTP 503, Retry-After), one caller may hold half of it,
	// and a quarter is kept for small requests. Also sets Go's memory limit, somewhat above it,
	// unless GOMEMLIMIT is set. At least 64MiB. Default: a quarter of the machine's memory, at
	// least 256MiB and at most 2GiB.
	Total unit.Bytes `key:"memory_budget" reload:"restart"`
}

// The bounds of the default, and of what can be configured.
const (
	leastDefault = 256 << 20
	mostDefault  = 2 << 30

	// Least is the smallest budget that can be configured.
	Least = 64 << 20
)

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	if c.Total != 0 && c.Total < Least {
		return []error{fmt.Errorf("memory_budget: must be at least %s", unit.Bytes(Least))}
	}
	return nil
}

// Size is the configured budget, or the default for this machine.
func (c Config) Size() int64 {
	if c.Total > 0 {
		return int64(c.Total)
	}
	machine, ok := machineMemory()
	if !ok {
		return leastDefault
	}
	return min(max(machine/4, leastDefault), mostDefault)
}

// LimitRuntime tells Go's collector how much memory the process should stay within: the budget
// and what the process itself needs. A limit that somebody set in the environment stays.
func (c Config) LimitRuntime() {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(runtimeLimit(c.Size()))
	}
}

func runtimeLimit(budget int64) int64 { return budget + max(budget/16, 32<<20) }
