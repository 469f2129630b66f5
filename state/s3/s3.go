// Package s3 stores large values in an S3-compatible bucket, and everything else in another [state.Driver]. It is a driver
// itself: a value with [state.Item.Blob] goes into a segment, an object with the values of many Puts, and the other driver
// gets a pointer to it, in the same group under the same key. So groups, leases, conditions, owners and totals are the other
// driver's; totals count pointers, not what they point to.
//
// Path through the files: s3.go implements the driver; packer.go packs the values of concurrent Puts into segments;
// segment.go and pointer.go are the formats; bucket.go makes the requests; read.go and cache.go read values back; extend.go
// copies values whose segment does not live long enough; expire.go deletes segments; archive.go stores copies of secrets and
// tokens; rebuild.go makes the pointers again from what is in the bucket.
//
// Invariants:
//   - A Put is acknowledged after the PUT of its segment and, after that, of its pointers succeeded. What was in a segment
//     without a pointer was not acknowledged.
//   - A segment lives longer than the leases of all that is in it: its name says until when, and whatever would extend a
//     lease beyond that copies the value first. A Put without a Blob does not look for the blobs of its groups.
//   - An item with [state.Item.Archived] is acknowledged after it is an object of its own, too. Drop and DropOwners remove the
//     object first. The bytes of a dropped group stay in their segment until that expires: whoever must make them unreadable
//     at once encrypts them under a secret that is archived, and drops the secret.
//   - After the other driver lost everything, Rebuild finds all blobs that were acknowledged and have not expired, and all
//     archived items. Of a key with several values it finds the last one, by the clocks of the gateways that put them; that may be one
//     whose Put failed, or whose condition did not hold.
//   - Values are checked against their checksum, from the bucket and from the disk cache.
//   - What is waiting to be uploaded, and the disk cache, are bounded.
//
// When the bucket is down, Puts of blobs and archived items fail, and so do Gets of what is not in the disk cache; the rest
// works on.
package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/state"
)

// Driver is a driver with its large values in a bucket. Make one with [Open].
type Driver struct {
	base   state.Driver
	bucket *bucket
	packer *packer
	cache  *diskCache
	now    func() time.Time

	reads     singleflight.Group
	liveUntil *gencache.Cache[string, int64]    // by group: the hour at which the first of its segments ends
	archived  *gencache.Cache[string, struct{}] // keys whose values are archived: conditions about them are tried so first
	seed      maphash.Seed
	lost      atomic.Uint64 // how often a segment was not in the bucket

	mu     sync.RWMutex
	closed bool
	ops    sync.WaitGroup // operations under way, and the background
	stop   context.CancelFunc
}

// rememberedGroups is how many groups and keys a process remembers.
const rememberedGroups = 1 << 16

// Options say how a driver is opened.
type Options struct {
	Config   state.Blobs
	CacheDir string           // of the disk cache; missing directories are made
	Now      func() time.Time // for the removal of expired segments; nil is the wall clock
}

// Open makes a driver that stores blobs in a bucket and everything else in base, which it then owns. It can do what base
// can: sweep, and what is for replicas. The bucket must exist; Open does not ask for it, so that a gateway starts while it
// is down.
func Open(base state.Driver, opts Options) (state.Driver, error) {
	d, err := open(base, opts)
	if err != nil {
		return nil, err
	}
	d.startRemoval()
	sweeper, sweeps := base.(state.Sweeper)
	shared, shares := base.(state.Shared)
	switch {
	case sweeps && shares:
		return struct {
			*Driver
			state.Sweeper
			state.Shared
		}{d, sweeper, shared}, nil
	case sweeps:
		return struct {
			*Driver
			state.Sweeper
		}{d, sweeper}, nil
	case shares:
		return struct {
			*Driver
			state.Shared
		}{d, shared}, nil
	}
	return d, nil
}

func open(base state.Driver, opts Options) (*Driver, error) {
	b, err := newBucket(opts.Config)
	if err != nil {
		return nil, err
	}
	cache, err := openCache(opts.CacheDir, int64(opts.Config.CacheBytes))
	if err != nil {
		return nil, err
	}
	d := &Driver{
		base: base, bucket: b, cache: cache, now: opts.Now, seed: maphash.MakeSeed(),
		liveUntil: gencache.New[string, int64](rememberedGroups),
		archived:  gencache.New[string, struct{}](rememberedGroups),
		stop:      func() {},
	}
	if d.now == nil {
		d.now = time.Now
	}
	d.packer = newPacker(b, func(s *segment) {
		for i, e := range s.entries {
			cache.Put(s.pointer(i).cacheName(), e.Value)
		}
	})
	return d, nil
}

// Index is the driver with everything but the blobs.
func (d *Driver) Index() state.Driver { return d.base }

// begin counts an operation that is under way; its end must be called.
func (d *Driver) begin(ctx context.Context) (end func(), err error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return nil, state.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.ops.Add(1)
	return d.ops.Done, nil
}

// Put implements [state.Driver].
func (d *Driver) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	_, err := d.putItems(ctx, items, lease, func(stored []state.Item) (bool, error) {
		return true, d.base.Put(ctx, stored, lease)
	})
	return err
}

// PutIf implements [state.Driver].
func (d *Driver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	return d.putItems(ctx, items, lease, func(stored []state.Item) (bool, error) {
		return d.putBaseIf(ctx, cond, stored, lease)
	})
}

// putItems uploads what does not go into the other driver, puts the rest and the pointers there, and then archives.
func (d *Driver) putItems(ctx context.Context, items []state.Item, lease state.Lease, put func([]state.Item) (bool, error)) (bool, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	stored, blobs, pending := make([]state.Item, len(items)), []int(nil), []int(nil)
	written := time.Now().UnixNano()
	for i, item := range items {
		stored[i] = item
		switch {
		case item.Archived:
			if len(item.Owner) > maxOwnerBytes {
				return false, errLongOwner
			}
			stored[i].Value = pendingItem{item: item, lifetime: lease.Expires.Sub(lease.LastUsed), written: written}.encodeValue()
			pending = append(pending, i)
		case item.Blob || isOurs(item.Value):
			blobs = append(blobs, i)
		}
	}
	if err := d.expectStored(ctx, items, stored, lease.LastUsed, false); err != nil {
		return false, err
	}
	var ends int64
	if len(blobs) > 0 {
		if ends, err = d.uploadBlobs(ctx, stored, blobs, lease); err != nil {
			return false, err
		}
	}
	ok, err := put(stored)
	for range maxRaces {
		if !errors.Is(err, state.ErrConflict) {
			break
		}
		if err := d.expectStored(ctx, items, stored, lease.LastUsed, true); err != nil {
			return false, err
		}
		ok, err = put(stored)
	}
	if err != nil || !ok {
		return false, err
	}
	for _, i := range blobs {
		if known, ok := d.liveUntil.Get(items[i].Group); !ok || ends < known {
			d.liveUntil.Put(items[i].Group, ends, 1)
		}
	}
	for _, i := range pending {
		if _, err := d.archive(ctx, stored[i].Value, lease.LastUsed); err != nil {
			return false, err
		}
	}
	return true, nil
}

// uploadBlobs replaces the values of some items by pointers to what it uploaded. Meanwhile it extends the life of what else
// is in their groups. It returns the hour at which the segment ends.
func (d *Driver) uploadBlobs(ctx context.Context, items []state.Item, blobs []int, lease state.Lease) (int64, error) {
	entries := make([]entry, len(blobs))
	groups := map[string]map[string]bool{} // the keys that are put
	for n, i := range blobs {
		item := items[i]
		entries[n] = entry{Item: item, lastUsed: lease.LastUsed, expires: lease.Expires}
		if groups[item.Group] == nil {
			groups[item.Group] = map[string]bool{}
		}
		groups[item.Group][item.Key] = true
	}
	var pointers []pointer
	work, workCtx := errgroup.WithContext(ctx)
	work.SetLimit(5)
	work.Go(func() (err error) {
		pointers, err = d.packer.upload(workCtx, entries)
		return err
	})
	for group, keys := range groups {
		work.Go(func() error {
			err := d.extendLife(workCtx, group, keys, lease)
			if errors.Is(err, state.ErrUnknown) {
				return nil // what was lost is put again now, or by a later Put
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return 0, err
	}
	for n, i := range blobs {
		items[i].Value = pointers[n].encodeValue()
	}
	return pointers[0].endHour, nil
}

// putBaseIf is PutIf of the other driver, where the value under the condition's key may be apart.
func (d *Driver) putBaseIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	want := cond.Value
	if _, ok := d.archived.Get(cond.Group + "\x00" + cond.Key); ok && want != nil {
		cond.Value = encodeArchived(want)
	}
	for range maxRaces {
		if held, err := d.base.PutIf(ctx, cond, items, lease); held || err != nil {
			return held, err
		}
		stored, ok, err := d.storedFor(ctx, cond.Group, cond.Key, want, lease.LastUsed)
		if !ok || err != nil {
			return false, err
		}
		cond.Value = stored
	}
	return false, nil
}

// maxRaces is how often something is tried again that another process came between.
const maxRaces = 4

// storedFor returns what the other driver has under a key whose value is wanted; ok is false if the value is another one. A
// value that is no longer in the bucket is none.
func (d *Driver) storedFor(ctx context.Context, group, key string, want []byte, now time.Time) (stored []byte, ok bool, err error) {
	raw, err := d.base.Get(ctx, group, key, now)
	if errors.Is(err, state.ErrUnknown) {
		return nil, want == nil, nil
	}
	if err != nil {
		return nil, false, err
	}
	have, stored, err := d.follow(ctx, group, key, raw, now)
	if errors.Is(err, state.ErrUnknown) {
		return raw, want == nil, nil
	}
	return stored, want != nil && bytes.Equal(have, want), err
}

// expectStored replaces what items expect to be there by what the other driver has instead. Where all expect that there is
// nothing, that is not looked at.
func (d *Driver) expectStored(ctx context.Context, items, stored []state.Item, now time.Time, isRetry bool) error {
	for i, item := range items {
		if item.Over == nil || item.Over.Value == nil && !isRetry {
			continue
		}
		value, ok, err := d.storedFor(ctx, item.Group, item.Key, item.Over.Value, now)
		if err != nil {
			return err
		}
		if !ok {
			return state.ErrConflict
		}
		stored[i].Over = &state.Expected{Value: value}
	}
	return nil
}

// Get implements [state.Driver].
func (d *Driver) Get(ctx context.Context, group, key string, now time.Time) ([]byte, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	raw, err := d.base.Get(ctx, group, key, now)
	if err != nil || !isOurs(raw) {
		return raw, err
	}
	value, _, err := d.follow(ctx, group, key, raw, now)
	return value, err
}

// follow returns the value that the other driver has, or has a pointer to, and what the other driver has now: what is not
// archived yet is archived first.
func (d *Driver) follow(ctx context.Context, group, key string, raw []byte, now time.Time) (value, stored []byte, err error) {
	if !isOurs(raw) {
		return raw, raw, nil
	}
	switch storedKind(raw) {
	case kindPointer:
		p, err := decodePointer(raw)
		if err != nil {
			return nil, nil, fmt.Errorf("the pointer of an original: %w", err)
		}
		value, err = d.read(ctx, p)
		return value, raw, err
	case kindArchived:
		d.archived.Put(group+"\x00"+key, struct{}{}, 1)
		return raw[len(magic)+1:], raw, nil
	case kindPending:
		done, err := d.archive(ctx, raw, now)
		if err != nil {
			return nil, nil, err
		}
		return done[len(magic)+1:], done, nil
	}
	return nil, nil, errors.New("a stored value is of a later version")
}

// List implements [state.Driver].
func (d *Driver) List(ctx context.Context, req state.ListRequest) ([]state.Entry, error) {
	return d.base.List(ctx, req)
}

// Touch implements [state.Driver]. A group with a value that is no longer in the bucket is gone.
func (d *Driver) Touch(ctx context.Context, group string, lease state.Lease) (bool, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	err = d.extendLife(ctx, group, nil, lease)
	if errors.Is(err, state.ErrUnknown) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return d.base.Touch(ctx, group, lease)
}

// Drop implements [state.Driver].
func (d *Driver) Drop(ctx context.Context, group string) error {
	end, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := d.removeArchived(ctx, group); err != nil {
		return err
	}
	return d.base.Drop(ctx, group)
}

// DropOwners implements [state.Driver].
func (d *Driver) DropOwners(ctx context.Context, prefix, keep string) (state.SweepResult, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return state.SweepResult{}, err
	}
	defer end()
	if err := d.removeArchivedOf(ctx, prefix, keep); err != nil {
		return state.SweepResult{}, err
	}
	return d.base.DropOwners(ctx, prefix, keep)
}

// Owners implements [state.Driver].
func (d *Driver) Owners(ctx context.Context, prefix string) ([]state.OwnerStat, error) {
	return d.base.Owners(ctx, prefix)
}

// Epoch implements [state.Driver]. It changes for this process when a segment was not in the bucket: somebody else deleted
// it, and perhaps others.
func (d *Driver) Epoch(ctx context.Context) (state.Epoch, error) {
	epoch, err := d.base.Epoch(ctx)
	if lost := d.lost.Load(); err == nil && lost > 0 {
		epoch ^= state.Epoch(maphash.Comparable(d.seed, lost))
	}
	return epoch, err
}

// Stat implements [state.Driver].
func (d *Driver) Stat(ctx context.Context) (state.Stat, error) { return d.base.Stat(ctx) }

// Close implements [state.Driver]. What waits to be uploaded is uploaded first.
func (d *Driver) Close() error {
	d.mu.Lock()
	wasClosed := d.closed
	d.closed = true
	d.mu.Unlock()
	d.stop()
	d.packer.Close()
	d.ops.Wait()
	if wasClosed {
		return nil
	}
	d.bucket.Close()
	if err := d.base.Close(); err != nil {
		return fmt.Errorf("close the index of the bucket: %w", err)
	}
	return nil
}

// warn logs what nobody waits for.
func (d *Driver) warn(ctx context.Context, message string, err error, args ...any) {
	if ctx.Err() == nil {
		slog.WarnContext(ctx, message, append(args, "error", err)...)
	}
}
