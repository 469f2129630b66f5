package state

import (
	"context"
	"time"
)

// Shared is what a store that replicas share offers beside its items. None of it is durable: whatever is lost with the
// store is made anew. All methods are safe for concurrent use, and only the store's own clock counts.
type Shared interface {
	Counters
	Signals
	Leases
}

// Counters count across replicas.
type Counters interface {
	// Take takes from several rates, all or none. Rates of one group are taken in one step; a driver with several servers
	// may take those of several groups one after the other, and give back what it took if one refuses. No two rates of a
	// call have the same key.
	Take(ctx context.Context, rates []Rate) (Taken, error)

	// Add adds to a sum, and returns it. The sum is gone when nothing was added for the lifetime.
	Add(ctx context.Context, key string, delta int64, lifetime time.Duration) (int64, error)
}

// Taken is the answer to [Counters.Take].
type Taken struct {
	OK    bool
	Limit int           // the index of the rate that refused, and would for the longest
	Retry time.Duration // how long until it would not have
	Extra []int64       // of each rate, how much of Rate.Extra was taken; nil if none
}

// Signals tell other replicas that something changed. A signal is a hint and may be lost: what it is about must be found
// in the store, too.
type Signals interface {
	// Publish sends a signal to all subscribers of a topic, this process's own included. The payload must not be empty.
	Publish(ctx context.Context, topic string, payload []byte) error

	// Subscribe returns at once, and calls f with each signal of a topic until ctx ends or the driver is closed, one at a
	// time. f gets a nil payload when the subscription begins, and when it begins again: signals before it were missed.
	// f must not block.
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

	// Join makes a member of a set for a lifetime, and returns all its members, in byte order.
	Join(ctx context.Context, set, member string, lifetime time.Duration) ([]string, error)

	// Leave removes a member of a set.
	Leave(ctx context.Context, set, member string) error
}
