package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ctxgate/ctxgate/state"
)

// Rebuilt is what [Rebuild] found and restored.
type Rebuilt struct {
	Segments int // read
	Values   int // in them
	Restored int // values that had no pointer, or one to an older value that was restored, too
	Archived int // archived items that were restored
	Damaged  int // segments and objects that could not be read
}

const (
	rebuildWorkers = 16
	footerGuess    = 64 << 10 // most footers are smaller
)

// Rebuild puts into base what the bucket has and base lacks: archived items, and pointers to the values in all segments that
// have not expired. Gateways may use both meanwhile: what they put is never replaced. What was dropped, without its secret
// being archived, or evicted may come back until its segment expires.
//
// A restored group lives as long as its segments, because nobody knows how often its lease was extended.
func Rebuild(ctx context.Context, base state.Driver, opts Options) (Rebuilt, error) {
	b, err := newBucket(opts.Config)
	if err != nil {
		return Rebuilt{}, err
	}
	defer b.Close()
	r := &rebuild{base: base, bucket: b, now: opts.Now}
	if r.now == nil {
		r.now = time.Now
	}
	// Secrets first: what is stored under them can be read as soon as it has a pointer.
	if err := r.eachObject(ctx, archivePrefix, r.restoreArchived); err != nil {
		return r.found, err
	}
	err = r.eachObject(ctx, segmentsPrefix, r.restoreSegment)
	if err == nil && r.found.Damaged > 0 {
		err = fmt.Errorf("%d objects of the bucket could not be read, the first one because: %w", r.found.Damaged, r.damage)
	}
	return r.found, err
}

type rebuild struct {
	base   state.Driver
	bucket *bucket
	now    func() time.Time

	mu     sync.Mutex
	found  Rebuilt
	damage error // of the first damaged object
}

func (r *rebuild) note(f func(*Rebuilt)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.found)
}

// errDamaged marks an object that can never be read; the others are restored all the same.
var errDamaged = errors.New("an object of the bucket is damaged")

func (r *rebuild) eachObject(ctx context.Context, prefix string, restore func(ctx context.Context, name string, size int64) error) error {
	work, workCtx := errgroup.WithContext(ctx)
	work.SetLimit(rebuildWorkers)
	err := r.bucket.List(workCtx, prefix, true, func(name string, size int64) error {
		work.Go(func() error {
			err := restore(workCtx, name, size)
			if errors.Is(err, errNoObject) {
				return nil // it was removed meanwhile
			}
			if errors.Is(err, errDamaged) {
				r.note(func(f *Rebuilt) {
					f.Damaged++
					if r.damage == nil {
						r.damage = err
					}
				})
				return nil
			}
			return err
		})
		return nil
	})
	if workErr := work.Wait(); workErr != nil {
		return workErr
	}
	return err
}

// restoreArchived restores an archived item. If there are several versions of it, the last one stays.
func (r *rebuild) restoreArchived(ctx context.Context, name string, _ int64) error {
	object, err := r.bucket.Get(ctx, name, maxObjectBytes)
	if err != nil {
		return err
	}
	p, err := decodePending(object)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errDamaged, name, err)
	}
	newest, err := r.isNewestVersion(ctx, p, name)
	if err != nil || !newest {
		return err
	}
	now := r.now().Truncate(time.Millisecond)
	item := p.item
	item.Value = encodeArchived(item.Value)
	held, err := r.base.PutIf(ctx, state.Condition{Group: item.Group, Key: item.Key}, []state.Item{item}, state.Lease{LastUsed: now, Expires: now.Add(p.lifetime)})
	if err != nil || !held {
		return err
	}
	// Its owner may have been forgotten after it was read here.
	exists, err := r.bucket.Exists(ctx, name)
	if err != nil {
		return err
	}
	if !exists {
		if have, err := r.base.Get(ctx, item.Group, item.Key, now); err != nil || !bytes.Equal(have, item.Value) {
			return nil //nolint:nilerr // it is gone again
		}
		return r.base.Drop(ctx, item.Group)
	}
	r.note(func(f *Rebuilt) { f.Archived++ })
	return nil
}

// isNewestVersion looks for later values of the same key.
func (r *rebuild) isNewestVersion(ctx context.Context, p pendingItem, name string) (bool, error) {
	newest := true
	err := r.bucket.List(ctx, keyFolder(p.item.Group, p.item.Key), true, func(other string, _ int64) error {
		if other == name {
			return nil
		}
		object, err := r.bucket.Get(ctx, other, maxObjectBytes)
		if errors.Is(err, errNoObject) {
			return nil
		}
		if err != nil {
			return err
		}
		if o, err := decodePending(object); err == nil && (o.written > p.written || o.written == p.written && other > name) {
			newest = false
		}
		return nil
	})
	return newest, err
}

// restoreSegment restores the pointers to the values of a segment.
func (r *rebuild) restoreSegment(ctx context.Context, name string, size int64) error {
	now := r.now().Truncate(time.Millisecond)
	hour, ok := parseHourFolder(name)
	ends := time.Unix(hour*3600, 0)
	if !ok || !ends.After(now) {
		return nil
	}
	if size > maxSegmentBytes {
		return fmt.Errorf("%w: %s: %w", errDamaged, name, errFormat)
	}
	tail, err := r.readTail(ctx, name, int(size), footerGuess)
	if err != nil {
		return err
	}
	if n, err := footerLength(tail); err == nil && n+trailerBytes > len(tail) {
		if tail, err = r.readTail(ctx, name, int(size), n+trailerBytes); err != nil {
			return err
		}
	}
	s, err := decodeFooter(name, tail)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errDamaged, name, err)
	}
	restored := 0
	for i, e := range s.entries {
		ok, err := r.restoreValue(ctx, e.Item, s.pointer(i), state.Lease{LastUsed: now, Expires: ends})
		if err != nil {
			return err
		}
		if ok {
			restored++
		}
	}
	r.note(func(f *Rebuilt) {
		f.Segments++
		f.Values += len(s.entries)
		f.Restored += restored
	})
	return nil
}

// readTail reads the end of an object.
func (r *rebuild) readTail(ctx context.Context, name string, size, length int) ([]byte, error) {
	length = min(size, length)
	return r.bucket.GetRange(ctx, name, size-length, length)
}

// restoreValue puts a pointer where there is none, or one to an older value that was restored, too.
func (r *rebuild) restoreValue(ctx context.Context, item state.Item, p pointer, lease state.Lease) (bool, error) {
	p.isRebuilt = true
	item.Value = p.encodeValue()
	cond := state.Condition{Group: item.Group, Key: item.Key}
	for {
		held, err := r.base.PutIf(ctx, cond, []state.Item{item}, lease)
		if held || err != nil {
			return held, err
		}
		raw, err := r.base.Get(ctx, item.Group, item.Key, lease.LastUsed)
		if errors.Is(err, state.ErrUnknown) {
			cond.Value = nil
			continue // it was removed meanwhile
		}
		if err != nil {
			return false, err
		}
		have, err := decodePointer(raw)
		if err != nil || !have.isRebuilt || !p.isNewer(have) {
			return false, nil //nolint:nilerr // what is no pointer was put by a gateway
		}
		cond.Value = raw
	}
}
