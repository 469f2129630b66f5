package memory

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/state"
)

// shared is what the driver offers as a [state.Shared]; the driver's lock guards it.
type shared struct {
	entries   map[entryKey]*entry
	sweepSize int // the table is swept when it has more entries
	topics    map[string]map[*subscriber]struct{}
	done      chan struct{} // closed with the driver
}

// entryKey is the name of an entry; each kind has names of its own.
type entryKey struct {
	kind rune // 'r'ate, 's'um, 'l'ease, 'm'embers
	key  string
}

// entry is one rate, sum, lease or set of members.
type entry struct {
	expires time.Time
	full    state.Moment
	sum     int64
	value   []byte
	members map[string]time.Time // until when
}

// minSweepSize is the size of a table that is not swept.
const minSweepSize = 1024

func newShared() shared {
	return shared{entries: map[entryKey]*entry{}, sweepSize: minSweepSize, topics: map[string]map[*subscriber]struct{}{}, done: make(chan struct{})}
}

// findEntry returns a live entry, nil for none.
func (s *shared) findEntry(kind rune, key string, now time.Time) *entry {
	e := s.entries[entryKey{kind, key}]
	if e == nil || !now.Before(e.expires) {
		return nil
	}
	return e
}

// findOrAdd returns a live entry, a new one if need be.
func (s *shared) findOrAdd(kind rune, key string, now time.Time) *entry {
	if e := s.findEntry(kind, key, now); e != nil {
		return e
	}
	if len(s.entries) >= s.sweepSize {
		maps.DeleteFunc(s.entries, func(_ entryKey, e *entry) bool { return !now.Before(e.expires) })
		s.sweepSize = max(minSweepSize, 2*len(s.entries))
	}
	e := &entry{}
	s.entries[entryKey{kind, key}] = e
	return e
}

// Take implements [state.Counters].
func (d *Driver) Take(ctx context.Context, rates []state.Rate) (state.Taken, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkOpen(ctx); err != nil {
		return state.Taken{}, err
	}
	now := time.Now()
	taken := state.Taken{OK: true, Extra: make([]int64, len(rates))}
	next := make([]state.Moment, len(rates))
	for i, r := range rates {
		var wait time.Duration
		if next[i], taken.Extra[i], wait = r.Use(d.fullAt(r.Key, now), now.UnixMicro()); wait > taken.Retry {
			taken.OK, taken.Limit, taken.Retry = false, i, wait
		}
	}
	if !taken.OK {
		taken.Extra = nil
		for i, r := range rates {
			r.Cost, r.Extra = 0, 0 // what was spent is taken all the same
			next[i], _, _ = r.Use(d.fullAt(r.Key, now), now.UnixMicro())
		}
	}
	for i, r := range rates {
		if taken.OK || r.Spent != 0 {
			e := d.shared.findOrAdd('r', r.Key, now)
			e.full, e.expires = next[i], time.UnixMicro(next[i].Micros+1)
		}
	}
	return taken, nil
}

// fullAt is when a rate will be full.
func (d *Driver) fullAt(key string, now time.Time) state.Moment {
	if e := d.shared.findEntry('r', key, now); e != nil {
		return e.full
	}
	return state.Moment{}
}

// Add implements [state.Counters].
func (d *Driver) Add(ctx context.Context, key string, delta int64, lifetime time.Duration) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkOpen(ctx); err != nil {
		return 0, err
	}
	now := time.Now()
	e := d.shared.findOrAdd('s', key, now)
	e.sum += delta
	e.expires = now.Add(lifetime)
	return e.sum, nil
}

// Hold implements [state.Leases].
func (d *Driver) Hold(ctx context.Context, key string, value []byte, lifetime time.Duration) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkOpen(ctx); err != nil {
		return false, err
	}
	now := time.Now()
	if e := d.shared.findEntry('l', key, now); e != nil && !bytes.Equal(e.value, value) {
		return false, nil
	}
	e := d.shared.findOrAdd('l', key, now)
	e.value, e.expires = append([]byte{}, value...), now.Add(lifetime)
	return true, nil
}

// Held implements [state.Leases].
func (d *Driver) Held(ctx context.Context, key string) ([]byte, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	e := d.shared.findEntry('l', key, time.Now())
	if e == nil {
		return nil, nil
	}
	return append([]byte{}, e.value...), nil
}

// Release implements [state.Leases].
func (d *Driver) Release(ctx context.Context, key string, value []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	if e := d.shared.findEntry('l', key, time.Now()); e != nil && bytes.Equal(e.value, value) {
		delete(d.shared.entries, entryKey{'l', key})
	}
	return nil
}

// Join implements [state.Leases].
func (d *Driver) Join(ctx context.Context, set, member string, lifetime time.Duration) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	now := time.Now()
	e := d.shared.findOrAdd('m', set, now)
	if e.members == nil {
		e.members = map[string]time.Time{}
	}
	e.members[member] = now.Add(lifetime)
	maps.DeleteFunc(e.members, func(_ string, until time.Time) bool { return !now.Before(until) })
	for _, until := range e.members {
		if until.After(e.expires) {
			e.expires = until
		}
	}
	return slices.Sorted(maps.Keys(e.members)), nil
}

// Leave implements [state.Leases].
func (d *Driver) Leave(ctx context.Context, set, member string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	if e := d.shared.findEntry('m', set, time.Now()); e != nil {
		delete(e.members, member)
	}
	return nil
}

// signalQueue is how many signals wait for a subscriber. If it is full, the subscriber is told that it missed some.
const signalQueue = 128

// subscriber gets the signals of a topic.
type subscriber struct {
	queue  chan []byte
	missed atomic.Bool
}

// Publish implements [state.Signals].
func (d *Driver) Publish(ctx context.Context, topic string, payload []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	for s := range d.shared.topics[topic] {
		select {
		case s.queue <- bytes.Clone(payload):
		default:
			s.missed.Store(true)
		}
	}
	return nil
}

// Subscribe implements [state.Signals].
func (d *Driver) Subscribe(ctx context.Context, topic string, f func(payload []byte)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.checkOpen(ctx) != nil {
		return
	}
	s := &subscriber{queue: make(chan []byte, signalQueue)}
	if d.shared.topics[topic] == nil {
		d.shared.topics[topic] = map[*subscriber]struct{}{}
	}
	d.shared.topics[topic][s] = struct{}{}
	go func() {
		defer d.unsubscribe(topic, s)
		f(nil)
		for {
			select {
			case payload := <-s.queue:
				if s.missed.Swap(false) {
					f(nil)
				}
				f(payload)
			case <-ctx.Done():
				return
			case <-d.shared.done:
				return
			}
		}
	}()
}

func (d *Driver) unsubscribe(topic string, s *subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.shared.topics[topic], s)
	if len(d.shared.topics[topic]) == 0 {
		delete(d.shared.topics, topic)
	}
}
