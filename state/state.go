// Package state keeps bytes for a while: what the gateway takes out of a model's sight, so
// that it can be read back. A [Store] adds lifetime, a size cap and a time limit to a
// [Driver]; the drivers are in the folders below, and statetest is the suite all of them pass.
//
// Read state.go for the words and the contract of a driver, store.go for what the rest of the
// gateway calls, config.go for what an operator can set.
//
// Invariants:
//   - A Put that returned nil is durable, whole, and readable until it expires or is evicted.
//   - Items of one group live and die together; a group that has expired is gone at once,
//     whether or not it was swept.
//   - No more than max_bytes are kept (several processes on one store may go over it by the
//     Puts they have under way). Room is made by expiry first, then by the oldest Seen, and
//     never by a group that was put or touched within the spare span. It is made in the
//     background, from 95 % of the cap down to 90 %; a Put that finds the store full all the
//     same removes no more than is needed.
//   - Pinned groups do not count towards max_bytes and are not evicted; together they have at
//     most 8 MiB.
//   - What is kept is opaque: nothing here reads, compresses or encrypts a value.
//
// When the driver fails, every method returns a [fault.Error] within the configured timeout:
// Unknown for a key that is not there, Full for no room, Timeout, Canceled or Unavailable
// otherwise. A driver that lets its timeout pass is then not asked for five times as long, and
// whoever asks is told so at once. After a failed Put nothing may be assumed: the caller must keep
// the text whole.
package state

import (
	"context"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

// Item is one value under one key. Key and Group are any bytes; so is Value, whose backing
// array must not be changed after it was handed to Put, even by a Put that failed.
type Item struct {
	Key   string
	Group string // items of one group are kept, touched and dropped together
	Value []byte

	// Pinned makes its group one that is not evicted to make room, for as long as the group
	// lives. Pinned groups have a bound of their own.
	Pinned bool
}

// Size is what the item counts towards the cap, the same for every driver.
func (i Item) Size() int64 { return int64(len(i.Key) + len(i.Group) + len(i.Value)) }

// Lease says until when a group is kept. Times are whole milliseconds.
type Lease struct {
	Seen    time.Time // when the group was last shown; it is also the operation's "now"
	Expires time.Time // from this moment on the group is gone

	// Grain lets Touch leave a group as it is when both times would move by less than this,
	// so that showing the same text every turn costs a read and not a durable write.
	Grain time.Duration
}

// Sweep asks a driver to remove groups.
type Sweep struct {
	Now        time.Time // groups that expire at or before Now go first
	SpareAfter time.Time // a live group whose Seen is after this is never removed, nor is a pinned one
	MaxBytes   int64     // then the oldest Seen go, until Stat.Bytes + Need <= MaxBytes

	// Need is how much a Put waits for. With 0 nobody waits: then all that has expired goes, and
	// the driver takes its time, so that Puts come in between. Otherwise nothing more goes than
	// it takes, expired or not.
	Need int64
}

// Swept is what a sweep removed.
type Swept struct {
	Groups int
	Bytes  int64
}

// Stat is what a driver holds, expired groups that nobody swept yet included.
type Stat struct {
	Items  int64
	Bytes  int64 // sum of [Item.Size] of what may be evicted
	Pinned int64 // sum of [Item.Size] of what is pinned
}

// Epoch tells a store from what it becomes when it is flushed, replaced or put back from a copy.
// While it stays the same, the store has what it acknowledged within the last [MaxAckAge], however
// many sweeps there were.
type Epoch uint64

// MaxAckAge is how old an acknowledgement may be that anybody relies on without asking again: a sweep
// that removes a live group which was seen within this span before Now changes the epoch.
const MaxAckAge = 10 * time.Minute

// Driver is where items are. It has no clock and no limits of its own; both come with the
// call. All methods may be called at once from any goroutine, do nothing when their context
// has already ended, and return [ErrClosed] after Close.
type Driver interface {
	// Put stores all items or none; when it returns nil they are durable. A key that is
	// already there is overwritten, and moves when the group differs; a group left without
	// items is gone. The lease of a group that is there is extended, never shortened, and
	// a group that has expired is emptied first.
	Put(ctx context.Context, items []Item, lease Lease) error

	// Get returns a copy of the value, or [ErrUnknown] when it is absent or expired.
	Get(ctx context.Context, key string, now time.Time) ([]byte, error)

	// Touch extends the lease of a live group, never shortens it, and says whether there
	// is one.
	Touch(ctx context.Context, group string, lease Lease) (found bool, err error)

	// Drop removes a group; one that is not there is no error.
	Drop(ctx context.Context, group string) error

	// Sweep removes what the request says. What was removed before an error stays removed.
	Sweep(ctx context.Context, sweep Sweep) (Swept, error)

	// Epoch is cheap: it reads one number. It is the same for all who share the store, and
	// changes when a live group is removed by a Drop or by anything that is not in this
	// interface, such as an operator who empties the store.
	Epoch(ctx context.Context) (Epoch, error)

	// Stat is cheap: it reads a maintained total.
	Stat(ctx context.Context) (Stat, error)

	// Close waits for what is under way and leaves nothing running. A second call does
	// nothing.
	Close() error
}

var (
	// ErrUnknown is what drivers return for a key that is absent or has expired.
	ErrUnknown error = fault.New(fault.Unknown, "nothing is kept under this id, or it has expired")

	// ErrClosed is what drivers return after Close.
	ErrClosed error = fault.New(fault.Unavailable, "the store is closed")
)
