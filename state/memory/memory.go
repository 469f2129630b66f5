// Package memory is the [state.Driver] that lives in this process and dies with it: for tests
// and for trying things out. Nothing it depends on can fail.
//
// One lock guards two maps: every item names its group, and every group its items. Values are
// copied on the way in and on the way out.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/state"
)

// Driver keeps items in memory. Make one with [New].
type Driver struct {
	mu     sync.RWMutex
	items  map[string]state.Item
	groups map[string]*group
	bytes  int64 // of what may be evicted
	pinned int64 // of what is pinned
	epoch  state.Epoch
	closed bool
}

type group struct {
	name          string
	seen, expires time.Time
	keys          map[string]struct{}
	bytes         int64
	pinned        bool
}

// New makes an empty driver.
func New() *Driver {
	return &Driver{items: map[string]state.Item{}, groups: map[string]*group{}, epoch: state.Epoch(rand.Uint64())}
}

// Put implements [state.Driver].
func (d *Driver) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(ctx); err != nil {
		return err
	}
	for _, item := range items {
		item.Value = bytes.Clone(item.Value)
		g := d.claim(item.Group, lease)
		if old, ok := d.items[item.Key]; ok {
			d.remove(old)
		}
		// The old item may have been the last of this very group.
		d.groups[item.Group] = g
		d.items[item.Key] = item
		g.keys[item.Key] = struct{}{}
		if item.Pinned && !g.pinned {
			d.count(g, -g.bytes)
			g.pinned = true
			d.count(g, g.bytes)
		}
		g.bytes += item.Size()
		d.count(g, item.Size())
	}
	return nil
}

// Get implements [state.Driver].
func (d *Driver) Get(ctx context.Context, key string, now time.Time) ([]byte, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if err := d.usable(ctx); err != nil {
		return nil, err
	}
	item, ok := d.items[key]
	if !ok || !d.groups[item.Group].live(now) {
		return nil, state.ErrUnknown
	}
	return bytes.Clone(item.Value), nil
}

// Touch implements [state.Driver].
func (d *Driver) Touch(ctx context.Context, name string, lease state.Lease) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(ctx); err != nil {
		return false, err
	}
	g, ok := d.groups[name]
	if !ok || !g.live(lease.Seen) {
		return false, nil
	}
	g.extend(lease)
	return true, nil
}

// Drop implements [state.Driver].
func (d *Driver) Drop(ctx context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(ctx); err != nil {
		return err
	}
	if g, ok := d.groups[name]; ok {
		d.drop(g)
		d.epoch++
	}
	return nil
}

// Epoch implements [state.Driver].
func (d *Driver) Epoch(ctx context.Context) (state.Epoch, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if err := d.usable(ctx); err != nil {
		return 0, err
	}
	return d.epoch, nil
}

// Sweep implements [state.Driver].
func (d *Driver) Sweep(ctx context.Context, sweep state.Sweep) (state.Swept, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var swept state.Swept
	if err := d.usable(ctx); err != nil {
		return swept, err
	}
	drop := func(groups []*group, must bool) {
		for _, g := range groups {
			if !must && d.bytes+sweep.Need <= sweep.MaxBytes {
				return
			}
			if g.live(sweep.Now) && g.seen.After(sweep.Now.Add(-state.MaxAckAge)) {
				d.epoch++
			}
			swept.Groups++
			swept.Bytes += g.bytes
			d.drop(g)
		}
	}
	var expired, rest []*group
	for _, g := range d.groups {
		if !g.live(sweep.Now) {
			expired = append(expired, g)
		} else if !g.pinned && !g.seen.After(sweep.SpareAfter) {
			rest = append(rest, g)
		}
	}
	drop(expired, sweep.Need == 0)
	if d.bytes+sweep.Need <= sweep.MaxBytes {
		return swept, nil
	}
	slices.SortFunc(rest, func(a, b *group) int {
		return cmp.Or(a.seen.Compare(b.seen), strings.Compare(a.name, b.name))
	})
	drop(rest, false)
	return swept, nil
}

// Stat implements [state.Driver].
func (d *Driver) Stat(ctx context.Context) (state.Stat, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if err := d.usable(ctx); err != nil {
		return state.Stat{}, err
	}
	return state.Stat{Items: int64(len(d.items)), Bytes: d.bytes, Pinned: d.pinned}, nil
}

// Close implements [state.Driver].
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed, d.items, d.groups, d.bytes, d.pinned = true, nil, nil, 0, 0
	return nil
}

func (d *Driver) usable(ctx context.Context) error {
	if d.closed {
		return state.ErrClosed
	}
	return ctx.Err()
}

// claim finds or makes a live group with at least this lease.
func (d *Driver) claim(name string, lease state.Lease) *group {
	g, ok := d.groups[name]
	if ok && !g.live(lease.Seen) {
		d.drop(g)
		ok = false
	}
	if !ok {
		g = &group{name: name, keys: map[string]struct{}{}}
	}
	g.extend(lease)
	return g
}

// remove takes one item out, and its group when it was the last.
func (d *Driver) remove(item state.Item) {
	g := d.groups[item.Group]
	delete(d.items, item.Key)
	delete(g.keys, item.Key)
	g.bytes -= item.Size()
	d.count(g, -item.Size())
	if len(g.keys) == 0 {
		delete(d.groups, item.Group)
	}
}

func (d *Driver) drop(g *group) {
	for key := range g.keys {
		delete(d.items, key)
	}
	d.count(g, -g.bytes)
	delete(d.groups, g.name)
}

// count adds bytes of a group to the total they count towards.
func (d *Driver) count(g *group, bytes int64) {
	if g.pinned {
		d.pinned += bytes
	} else {
		d.bytes += bytes
	}
}

func (g *group) live(now time.Time) bool { return g.expires.After(now) }

func (g *group) extend(lease state.Lease) {
	if lease.Seen.After(g.seen) {
		g.seen = lease.Seen
	}
	if lease.Expires.After(g.expires) {
		g.expires = lease.Expires
	}
}
