// Package memory is the [state.Driver] that stores items in this process only: for tests and for
// trying things out. It depends on nothing that can fail.
//
// One lock guards two maps: every item names its group, and every group its items. Put and Get copy
// values. shared.go is [state.Shared], for tests in which several users of one driver stand for several processes.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"maps"
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
	bytes  int64            // of unpinned groups
	owners map[string]int64 // the same by owner; none is 0
	pinned int64            // of pinned groups
	epoch  state.Epoch
	closed bool

	shared shared
}

type group struct {
	name              string
	lastUsed, expires time.Time
	keys              map[string]struct{}
	bytes             int64
	pinned            bool
	owner             string
}

// New makes an empty driver.
func New() *Driver {
	return &Driver{items: map[string]state.Item{}, groups: map[string]*group{}, owners: map[string]int64{}, epoch: state.Epoch(rand.Uint64()), shared: newShared()}
}

// Put implements [state.Driver].
func (d *Driver) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	return d.putItems(items, lease)
}

// PutIf implements [state.Driver].
func (d *Driver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkOpen(ctx); err != nil {
		return false, err
	}
	if !d.hasValue(cond.Key, state.Expected{Value: cond.Value}, lease.LastUsed) {
		return false, nil
	}
	err := d.putItems(items, lease)
	return err == nil, err
}

// hasValue compares the live value under a key.
func (d *Driver) hasValue(key string, want state.Expected, now time.Time) bool {
	have, found := d.items[key]
	if found = found && d.groups[have.Group].isLive(now); !found {
		have.Value = nil
	}
	return want.IsMet(have.Value, found)
}

func (d *Driver) putItems(items []state.Item, lease state.Lease) error {
	for _, item := range items {
		if item.Over != nil && !d.hasValue(item.Key, *item.Over, lease.LastUsed) {
			return state.ErrConflict
		}
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
		d.addToTotal(g, -g.bytes)
		g.pinned = g.pinned || item.Pinned
		g.owner = item.Owner
		g.bytes += item.Size()
		d.addToTotal(g, g.bytes)
	}
	return nil
}

// Get implements [state.Driver].
func (d *Driver) Get(ctx context.Context, _, key string, now time.Time) ([]byte, error) {
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
			entries = append(entries, state.Entry{Key: key, Group: item.Group, LastUsed: g.lastUsed})
		}
	}
	slices.SortFunc(entries, func(a, b state.Entry) int { return strings.Compare(a.Key, b.Key) })
	return entries[:min(req.Limit, len(entries))], nil
}

// GroupKeys implements [state.GroupLister].
func (d *Driver) GroupKeys(ctx context.Context, name string, now time.Time) ([]string, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	g, ok := d.groups[name]
	if !ok || !g.isLive(now) {
		return nil, nil
	}
	return slices.Sorted(maps.Keys(g.keys)), nil
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

// Sweep implements [state.Sweeper].
func (d *Driver) Sweep(ctx context.Context, sweep state.SweepRequest) (state.SweepResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var swept state.SweepResult
	if err := d.checkOpen(ctx); err != nil {
		return swept, err
	}
	remove := func(g *group) {
		if g.isLive(sweep.Now) && g.lastUsed.After(sweep.Now.Add(-state.MaxAckLifetime)) {
			d.epoch++
		}
		swept.Groups++
		swept.Bytes += g.bytes
		d.removeGroup(g)
	}
	var expired []*group
	evictable := map[string][]*group{} // by owner, the least recently used first
	for _, g := range d.groups {
		if isExpired := !g.isLive(sweep.Now); isExpired && sweep.OwnerMax == 0 {
			expired = append(expired, g)
		} else if !g.pinned && (isExpired || !g.lastUsed.After(sweep.SpareAfter)) {
			evictable[g.owner] = append(evictable[g.owner], g)
		}
	}
	for _, groups := range evictable {
		slices.SortFunc(groups, func(a, b *group) int {
			return cmp.Or(a.lastUsed.Compare(b.lastUsed), strings.Compare(a.name, b.name))
		})
	}
	if sweep.OwnerMax > 0 {
		for _, g := range evictable[sweep.Owner] {
			if d.owners[sweep.Owner]+sweep.Need <= sweep.OwnerMax {
				break
			}
			remove(g)
		}
		return swept, nil
	}
	for _, g := range expired {
		if sweep.Need == 0 || d.bytes+sweep.Need > sweep.MaxBytes {
			remove(g)
		}
	}
	for d.bytes+sweep.Need > sweep.MaxBytes {
		owner, ok := d.largestOwner(evictable, sweep.Owner)
		if !ok {
			break
		}
		remove(evictable[owner][0])
		evictable[owner] = evictable[owner][1:]
	}
	return swept, nil
}

// largestOwner is the owner that has most and that may lose a group to a Put of another.
func (d *Driver) largestOwner(evictable map[string][]*group, to string) (owner string, ok bool) {
	for name, groups := range evictable {
		if len(groups) == 0 || name != to && d.owners[name]*int64(len(d.owners)) < d.bytes {
			continue
		}
		if !ok || d.owners[name] > d.owners[owner] || d.owners[name] == d.owners[owner] && name < owner {
			owner, ok = name, true
		}
	}
	return owner, ok
}

// DropOwners implements [state.Driver].
func (d *Driver) DropOwners(ctx context.Context, prefix, keep string) (state.SweepResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var dropped state.SweepResult
	if err := d.checkOpen(ctx); err != nil {
		return dropped, err
	}
	for _, g := range d.groups {
		if strings.HasPrefix(g.owner, prefix) && g.owner != keep {
			dropped.Groups++
			dropped.Bytes += g.bytes
			d.removeGroup(g)
			d.epoch++
		}
	}
	return dropped, nil
}

// Owners implements [state.Driver].
func (d *Driver) Owners(ctx context.Context, prefix string) ([]state.OwnerStat, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	var owners []state.OwnerStat
	for name, bytes := range d.owners {
		if strings.HasPrefix(name, prefix) {
			owners = append(owners, state.OwnerStat{Owner: name, Bytes: bytes})
		}
	}
	slices.SortFunc(owners, func(a, b state.OwnerStat) int { return strings.Compare(a.Owner, b.Owner) })
	return owners, nil
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
	if !d.closed {
		close(d.shared.done)
	}
	d.closed, d.items, d.groups, d.owners, d.bytes, d.pinned = true, nil, nil, nil, 0, 0
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
		return
	}
	d.bytes += bytes
	if d.owners[g.owner] += bytes; d.owners[g.owner] == 0 {
		delete(d.owners, g.owner)
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
