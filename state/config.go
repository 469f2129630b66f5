package state

import (
	"errors"
	"fmt"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// Config says where originals are kept, for how long, and how many.
type Config struct {
	// Where originals are kept: "sqlite" (one file, shared by any number of processes on one
	// machine), "memory" (this process only, lost when it ends) or "redis" (shared by
	// replicas). Default "sqlite".
	Driver string `key:"driver"`

	// The SQLite file. It must be on a local disk, not a network share. Missing folders are
	// made with mode 0700, the file with 0600. Default empty: ctxgate.db in the user's data
	// directory.
	Path string `key:"path"`

	// The Redis server, redis://… or rediss://…; "env:NAME" and "file:PATH" work. Used by
	// the redis driver only. Default empty.
	URL secret.Text `key:"url" literal:"ok"`

	// How long an original can be read back after it was last shown; a duration. Default
	// 7d. Zero is refused: nothing could be read back.
	TTL unit.Duration `key:"ttl"`

	// The most that is kept; a size. From 95 % of it on, the originals not shown for longest are
	// removed in the background, down to 90 %. Tokens of servers (OAuth) do not count, and are
	// never removed for text; they may have 8MiB beside it. Default 1GiB. Zero is refused.
	MaxBytes unit.Bytes `key:"max_bytes"`

	// What was shown within this span is never removed to make room; when nothing else is
	// left, new text is sent on whole instead. A duration. Default 1h. Zero spares nothing.
	Spare unit.Duration `key:"spare"`

	// The longest one operation of the store may take before the text is sent on whole; a
	// duration. Default 2s. Zero is refused.
	Timeout unit.Duration `key:"timeout"`
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Driver:   "sqlite",
		TTL:      unit.Duration(7 * 24 * time.Hour),
		MaxBytes: 1 << 30,
		Spare:    unit.Duration(time.Hour),
		Timeout:  unit.Duration(2 * time.Second),
	}
}

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	switch c.Driver {
	case "memory", "sqlite":
	case "redis":
		problems = append(problems, errors.New("driver: redis is not in this version"))
	default:
		problems = append(problems, fmt.Errorf("driver: %q is not one of memory, sqlite, redis", c.Driver))
	}
	// A lease counts in milliseconds, so a shorter ttl would be none.
	if c.TTL.D() < time.Millisecond {
		problems = append(problems, errors.New("ttl: must be positive"))
	}
	if c.MaxBytes <= 0 {
		problems = append(problems, errors.New("max_bytes: must be positive"))
	}
	if c.Spare < 0 {
		problems = append(problems, errors.New("spare: must not be negative"))
	}
	if c.Timeout <= 0 {
		problems = append(problems, errors.New("timeout: must be positive"))
	}
	return problems
}
