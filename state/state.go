// Package state stores bytes for a limited time: the originals of what the gateway cuts, so that they
// can be read back, and tokens. A [Store] adds lifetime, a size cap, a time limit and a circuit breaker
// to a [Driver]; the drivers are in the folders below, and statetest is the suite that all of them pass.
//
// Path through the files: state.go is the contract of a driver, shared.go and rate.go what else a store can offer to replicas, store.go
// what the rest of the gateway calls, share.go the shares of owners, breaker.go what happens when the driver is slow or
// down, config.go what an operator can set.
//
// Invariants:
//   - A Put that returned nil is durable, whole, and readable until it expires or is evicted. After one that failed, each
//     group of it is stored as a whole or not at all.
//   - Items of one group expire together; an expired group is unreadable at once, swept or not.
//   - At most max_bytes are stored (several processes on one store may exceed it by their Puts in
//     flight). Expired groups go first, then the least recently used of the owner that has most, and never
//     one that was put or touched within the spare time. An owner with less than an equal part of all
//     loses nothing to others; one that has more than tenant_share of the cap loses its own. The background evicts from 95 % of the cap down to 90 %; a Put
//     that finds the store full all the same evicts no more than it needs.
//   - Pinned groups do not count towards max_bytes and are not evicted; together they have at
//     most 8 MiB.
//   - Values are opaque: nothing here reads, compresses or encrypts them.
//
// When the driver fails, every method returns a [fault.Error] within the configured timeout:
// UnknownHandle for a key that is not there, Full for no room, Timeout, Canceled or Unavailable
// otherwise. After a read or a write that times out the circuit breaker of reads or writes is open, and every such operation
// fails at once, until a probe in the background works; a reply does not wait for a store in the network that is slow
// ([Store.Ready]). After a failed Put nothing may be assumed: the caller must send
// the text whole.
package state

import (
	"bytes"
	"context"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

// Item is one value under one key. Key and Group are any bytes; so is Value, whose backing
// array must not be changed after it was handed to Put, even by a Put that failed. A key is always put in the same
// group: the group decides where a driver with several servers stores it.
type Item struct {
	Key   string
	Group string // items of one group are leased, touched and dropped together
	Value []byte

	// Pinned exempts the item's group from eviction for as long as the group lives. Pinned groups
	// have a cap of their own.
	Pinned bool

	// Owner is whose group it is, such as a tenant; "" for the gateway's own. A group belongs to the
	// owner of the item that was put last. All items of one Put have the same owner.
	Owner string

	// Fence orders the writers of a group: a driver that cannot check the condition of a PutIf in the same step stores
	// nothing in a group that was put with a larger fence.
	Fence uint64

	// Over says what the item may replace; nil for anything. If the live value under the key is another, nothing of the
	// item's group is stored, and the put fails with [ErrConflict].
	Over *Expected

	// Blob says that the value is large and need not be with the small ones: a driver may store it apart, and count towards
	// the totals only what it stores in its place. Whoever puts into a group with blobs puts a blob, too.
	Blob bool

	// Archived says that the value, which is small and changes rarely, must be there after a driver that stores blobs apart
	// has lost everything else: without it they could not be read.
	Archived bool
}

// Expected is a value that must be there or, if Value is nil, none.
type Expected struct{ Value []byte }

// IsMet compares what is there with what is expected.
func (e Expected) IsMet(value []byte, found bool) bool {
	return found == (e.Value != nil) && bytes.Equal(value, e.Value)
}

// Size is what the item counts towards the cap, in every driver.
func (i Item) Size() int64 { return int64(len(i.Key) + len(i.Group) + len(i.Value)) }

// Lease says until when a group is stored. Times are whole milliseconds.
type Lease struct {
	LastUsed time.Time // of the group; also the operation's "now"
	Expires  time.Time // from this moment on the group is gone

	// Granularity lets Touch leave a group as it is when both times would move by less than this,
	// so that showing the same text every turn costs a read and not a durable write.
	Granularity time.Duration
}

// ListRequest asks a driver which items there are.
type ListRequest struct {
	Prefix string    // of the keys
	Groups string    // prefix of the groups that may have such keys
	After  string    // only keys after this one, so that a long list is read in pages; "" for the first page
	Limit  int       // the most entries to return
	Now    time.Time // items that expire at or before Now are left out
}

// Entry is an item in a list, without its value.
type Entry struct {
	Key      string
	Group    string
	LastUsed time.Time // of its group
}

// SweepRequest asks a driver to remove groups.
type SweepRequest struct {
	Now        time.Time // groups that expire at or before Now go first
	SpareAfter time.Time // a live group that was used after this is never removed, nor is a pinned one
	MaxBytes   int64     // then the least recently used go, until Stat.Bytes + Need <= MaxBytes

	// Need is how many bytes a waiting Put needs; then no more is removed than that, expired or not.
	// With 0 no caller waits: all expired groups go, and the driver pauses between steps to let Puts
	// through.
	Need int64

	// Owner is whose Put needs the room. The owner with the most bytes loses groups first. One that has
	// less than an equal part of all bytes loses none, unless it is Owner itself.
	Owner string

	// OwnerMax limits Owner alone, if it is positive: only groups of Owner go, expired or not spared,
	// until its bytes + Need <= OwnerMax. MaxBytes is not looked at.
	OwnerMax int64
}

// SweepResult is what a sweep removed.
type SweepResult struct {
	Groups int
	Bytes  int64
}

// Stat is what a driver holds, with expired groups that were not swept yet.
type Stat struct {
	Items  int64
	Bytes  int64 // sum of [Item.Size] of unpinned groups
	Pinned int64 // sum of [Item.Size] of pinned groups
}

// OwnerStat is what one owner has in a driver.
type OwnerStat struct {
	Owner string
	Bytes int64 // sum of [Item.Size] of its unpinned groups
}

// Condition is what must hold for [Driver.PutIf] to store anything: the live value under Key, in Group, is Value or,
// if Value is nil, there is none.
type Condition struct {
	Group string
	Key   string
	Value []byte
}

// Epoch changes when a store is emptied, replaced or restored from a copy. While it stays the same,
// the store has what it acknowledged within the last [MaxAckLifetime], however often it was swept.
type Epoch uint64

// MaxAckLifetime is the longest that an acknowledgement may be relied on without asking again: a sweep
// that removes a live group which was used within this time before Now changes the epoch.
const MaxAckLifetime = 10 * time.Minute

// Driver stores items. It has no clock and no limits of its own; both come with the call. All
// methods are safe for concurrent use, do nothing when their context has already ended, and return
// [ErrClosed] after Close.
type Driver interface {
	// Put stores the items; when it returns nil they are durable. Of each group it stores all items or none; after an
	// error some groups may be stored and others not. A key that is already there is overwritten. The lease of a group
	// that is there is extended, never shortened, and a group that has expired is emptied first.
	Put(ctx context.Context, items []Item, lease Lease) error

	// PutIf is Put if the condition holds, and reports whether it held. If all items are in the group of the condition, it
	// is one step that no other writer, here or in another process, can come between. Otherwise the condition held at a
	// moment after the items were stored; if it did not, or a group has a larger [Item.Fence], some of the items may be stored.
	PutIf(ctx context.Context, cond Condition, items []Item, lease Lease) (bool, error)

	// Get returns a copy of the value of a key in a group, or [ErrUnknown] when it is absent or expired.
	Get(ctx context.Context, group, key string, now time.Time) ([]byte, error)

	// List returns the live items whose keys begin with a prefix, in the byte order of their keys. It
	// is for people who look for something, not for the path of a request. An item that is put or
	// removed between two pages may or may not be listed.
	List(ctx context.Context, req ListRequest) ([]Entry, error)

	// Touch extends the lease of a live group, never shortens it, and says whether there
	// is one.
	Touch(ctx context.Context, group string, lease Lease) (found bool, err error)

	// Drop removes a group; one that is not there is no error.
	Drop(ctx context.Context, group string) error

	// DropOwners removes all groups, pinned ones too, of the owners whose names begin with prefix, except
	// those of the owner keep, and changes the epoch if there were any. As far as the driver can, it
	// leaves no copy of them behind. What was removed before an error stays removed.
	DropOwners(ctx context.Context, prefix, keep string) (SweepResult, error)

	// Owners lists the owners whose names begin with prefix and that have unpinned groups, in the byte
	// order of their names. For a whole name it is as cheap as Stat.
	Owners(ctx context.Context, prefix string) ([]OwnerStat, error)

	// Epoch is cheap: it reads one number. It is the same for all processes that share the store,
	// and changes when a live group is removed by a Drop or by anything outside this interface,
	// such as an operator who empties the store.
	Epoch(ctx context.Context) (Epoch, error)

	// Stat is cheap: it reads a maintained total.
	Stat(ctx context.Context) (Stat, error)

	// Close waits for operations in flight and leaves nothing running. A second call does
	// nothing.
	Close() error
}

// Sweeper is a driver that can remove expired and the least recently used groups. In a store whose driver cannot, expired
// groups go by themselves, and a store that is full stays so until then.
type Sweeper interface {
	// Sweep removes groups. What was removed before an error stays removed.
	Sweep(ctx context.Context, sweep SweepRequest) (SweepResult, error)
}

// GroupLister is a driver that finds the keys of a group without looking at others.
type GroupLister interface {
	// GroupKeys returns the keys of a group, none if it is absent or expired.
	GroupKeys(ctx context.Context, group string, now time.Time) ([]string, error)
}

var (
	// ErrUnknown is what drivers return for a key that is absent or has expired.
	ErrUnknown error = fault.New(fault.UnknownHandle, "nothing is kept under this id, or it has expired")

	// ErrConflict is the failure of a Put over a value that another has replaced.
	ErrConflict error = fault.New(fault.Unavailable, "another process has stored this in the same moment")

	// ErrClosed is what drivers return after Close.
	ErrClosed error = fault.New(fault.Unavailable, "the store is closed")
)
