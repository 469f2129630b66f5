package state

import (
	"context"
	"time"
)

// Shared is what a store that replicas share offers beside its items. None of it is durable: whatever is lost with the
// store is made anew. All methods are safe for concurrent use.
type Shared interface {
	Counters
	Signals
	Leases
}

// Rate is a limit of the generic cell rate algorithm: Burst at once, and one more every Interval.
type Rate struct {
	Key      string
	Interval time.Duration
	Burst    int64 // at least 1
	Cost     int64 // of this call, in cells
}

// Taken is the answer to [Counters.Take].
type Taken struct {
	OK    bool
	Limit int           // the index of the rate that refused
	Retry time.Duration // how long until it would not have
}

// Counters count across replicas.
type Counters interface {
	// Take takes from several rates, all or none. Only the store's own clock counts.
	Take(ctx context.Context, rates []Rate) (Taken, error)

	// Add adds to a sum, and returns it. The sum is gone when nothing was added for the lifetime.
	Add(ctx context.Context, key string, delta int64, lifetime time.Duration) (int64, error)
}

// Signals tell other replicas that something changed. A signal is a hint and may be lost: what it is about must be found
// in the store, too.
type Signals interface {
	// Publish sends a signal to all subscribers of a topic, this process's own included.
	Publish(ctx context.Context, topic string, payload []byte) error

	// Subscribe calls f with each signal of a topic until ctx ends. After a connection was lost it calls f with a nil
	// payload: signals may have been missed. f must not block.
	Subscribe(ctx context.Context, topic string, f func(payload []byte))
}

// Leases are small values that live only while their process renews them.
type Leases interface {
	// Hold sets a value for a lifetime, if there is none or it is the same. It reports whether the value is now this one.
	Hold(ctx context.Context, key string, value []byte, lifetime time.Duration) (bool, error)

	// Held returns the value that is held, nil for none.
	Held(ctx context.Context, key string) ([]byte, error)

	// Release ends a lease if it has this value.
	Release(ctx context.Context, key string, value []byte) error
}
