// Package memory is the [state.Driver] that stores items in this process only: for tests and for
// trying things out. It depends on nothing that can fail.
//
// One lock guards two maps: every item names its group, and every group its items. Put and Get copy
// values.
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

// Driver stores items in memory. Make one with [New].
type Driver struct {
	mu     sync.RWMutex
	items  map[string]state.Item
	groups map[string]*group
	bytes  int64 // of unpinned groups
	pinned int64 // of pinned groups
	epoch  state.Epoch
	closed bool
}

type group struct {
	name              string
	lastUsed, expires time.Time
	keys              map[string]struct{}
	bytes             int64
	pinned            bool
}

// New makes an empty driver.
func New() *Driver {
	return &Driver{items: map[string]state.Item{}, groups: map[string]*group{}, epoch: state.Epoch(rand.Uint64())}
}

// Put implements [state.Driver].
func (d *Driver) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	for _, item := range items {
		item.Value = bytes.Clone(item.Value)
		g := d.leaseGroup(item.Group, lease)
		if old, ok := d.items[item.Key]; ok {
			d.removeItem(old)
		}
		// The old item may have been the last of this very group.
		d.groups[item.Group] = g
		d.items[item.Key] = item
		g.keys[item.Key] = struct{}{}
		if item.Pinned && !g.pinned {
			d.addToTotal(g, -g.bytes)
			g.pinned = true
			d.addToTotal(g, g.bytes)
		}
		g.bytes += item.Size()
		d.addToTotal(g, item.Size())
	}
	return nil
}

// Get implements [state.Driver].
func (d *Driver) Get(ctx context.Context, key string, now time.Time) ([]byte, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	item, ok := d.items[key]
	if !ok || !d.groups[item.Group].isLive(now) {
		return nil, state.ErrUnknown
	}
	return bytes.Clone(item.Value), nil
}

// List implements [state.Driver].
func (d *Driver) List(ctx context.Context, req state.ListRequest) ([]state.Entry, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	var entries []state.Entry
	for key, item := range d.items {
		if g := d.groups[item.Group]; key > req.After && strings.HasPrefix(key, req.Prefix) && g.isLive(req.Now) {
			entries = append(entries, state.Entry{Key: key, LastUsed: g.lastUsed})
		}
	}
	slices.SortFunc(entries, func(a, b state.Entry) int { return strings.Compare(a.Key, b.Key) })
	return entries[:min(req.Limit, len(entries))], nil
}

// Touch implements [state.Driver].
func (d *Driver) Touch(ctx context.Context, name string, lease state.Lease) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkOpen(ctx); err != nil {
		return false, err
	}
	g, ok := d.groups[name]
	if !ok || !g.isLive(lease.LastUsed) {
		return false, nil
	}
	g.extend(lease)
	return true, nil
}

// Drop implements [state.Driver].
func (d *Driver) Drop(ctx context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	if g, ok := d.groups[name]; ok {
		d.removeGroup(g)
		d.epoch++
	}
	return nil
}

// Epoch implements [state.Driver].
func (d *Driver) Epoch(ctx context.Context) (state.Epoch, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if err := d.checkOpen(ctx); err != nil {
		return 0, err
	}
	return d.epoch, nil
}

// Sweep implements [state.Driver].
func (d *Driver) Sweep(ctx context.Context, sweep state.SweepRequest) (state.SweepResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var swept state.SweepResult
	if err := d.checkOpen(ctx); err != nil {
		return swept, err
	}
	remove := func(groups []*group, all bool) {
		for _, g := range groups {
			if !all && d.bytes+sweep.Need <= sweep.MaxBytes {
				return
			}
			if g.isLive(sweep.Now) && g.lastUsed.After(sweep.Now.Add(-state.MaxAckLifetime)) {
				d.epoch++
			}
			swept.Groups++
			swept.Bytes += g.bytes
			d.removeGroup(g)
		}
	}
	var expired, evictable []*group
	for _, g := range d.groups {
		if !g.isLive(sweep.Now) {
			expired = append(expired, g)
		} else if !g.pinned && !g.lastUsed.After(sweep.SpareAfter) {
			evictable = append(evictable, g)
		}
	}
	remove(expired, sweep.Need == 0)
	if d.bytes+sweep.Need <= sweep.MaxBytes {
		return swept, nil
	}
	slices.SortFunc(evictable, func(a, b *group) int {
		return cmp.Or(a.lastUsed.Compare(b.lastUsed), strings.Compare(a.name, b.name))
	})
	remove(evictable, false)
	return swept, nil
}

// Stat implements [state.Driver].
func (d *Driver) Stat(ctx context.Context) (state.Stat, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if err := d.checkOpen(ctx); err != nil {
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

func (d *Driver) checkOpen(ctx context.Context) error {
	if d.closed {
		return state.ErrClosed
	}
	return ctx.Err()
}

// leaseGroup returns a live group with at least this lease, a new one if need be.
func (d *Driver) leaseGroup(name string, lease state.Lease) *group {
	g, ok := d.groups[name]
	if ok && !g.isLive(lease.LastUsed) {
		d.removeGroup(g)
		ok = false
	}
	if !ok {
		g = &group{name: name, keys: map[string]struct{}{}}
	}
	g.extend(lease)
	return g
}

// removeItem removes an item, and its group when it was the last.
func (d *Driver) removeItem(item state.Item) {
	g := d.groups[item.Group]
	delete(d.items, item.Key)
	delete(g.keys, item.Key)
	g.bytes -= item.Size()
	d.addToTotal(g, -item.Size())
	if len(g.keys) == 0 {
		delete(d.groups, item.Group)
	}
}

func (d *Driver) removeGroup(g *group) {
	for key := range g.keys {
		delete(d.items, key)
	}
	d.addToTotal(g, -g.bytes)
	delete(d.groups, g.name)
}

// addToTotal adds bytes of a group to the pinned or the unpinned total.
func (d *Driver) addToTotal(g *group, bytes int64) {
	if g.pinned {
		d.pinned += bytes
	} else {
		d.bytes += bytes
	}
}

func (g *group) isLive(now time.Time) bool { return g.expires.After(now) }

func (g *group) extend(lease state.Lease) {
	if lease.LastUsed.After(g.lastUsed) {
		g.lastUsed = lease.LastUsed
	}
	if lease.Expires.After(g.expires) {
		g.expires = lease.Expires
	}
}
