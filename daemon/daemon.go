// Package daemon lets one gateway serve all clients of a user. Each client starts `ctxgate stdio`, a bridge between its
// stdin and stdout and the gateway's socket; the first bridge starts the gateway in the background, which ends by itself
// when nobody uses it.
//
// Path through the files: endpoint.go finds the socket, the lock and the log of a config file; hello.go is the first line
// in each direction; server.go accepts connections on the gateway's side; start.go connects, and starts or replaces the
// gateway where that is needed; bridge.go and bridgesession.go are the bridge; handover.go passes the open listeners to
// the gateway that replaces this one; executable.go notices an upgrade; logfile.go is the log of a gateway in the
// background; system_*.go is what differs between systems.
//
// Invariants: the socket is in a directory that only its owner can use. Whoever starts or replaces a gateway holds the
// lock. A call is sent once: a bridge whose gateway dies answers the calls in flight with an error. A gateway is replaced
// only when its replacement serves, and only by a newer release or by its own changed executable, so that two versions
// never replace each other in turns.
package daemon

import (
	"errors"
	"time"

	"github.com/ctxgate/ctxgate/internal/unit"
)

// Config is the gateway in the background.
type Config struct {
	// How long the gateway that `ctxgate stdio` starts in the background goes on without clients and without
	// HTTP requests; a duration. 0: until `ctxgate stop`. `ctxgate serve` in the foreground never ends by
	// itself. Default 10m.
	IdleTimeout unit.Duration `key:"idle_timeout" reload:"restart"`
}

// Default is the configuration of an empty file.
func Default() Config { return Config{IdleTimeout: unit.Duration(10 * time.Minute)} }

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	if c.IdleTimeout < 0 {
		return []error{errors.New("idle_timeout: must not be negative")}
	}
	return nil
}

// Why a gateway ends, besides signals.
var (
	ErrStopped  = errors.New("'ctxgate stop' was called")
	ErrReplaced = errors.New("another gateway has taken over")
	ErrIdle     = errors.New("nobody has used the gateway for background.idle_timeout")
)
