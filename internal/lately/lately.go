// Package lately remembers what was met lately, and no more than it may: a map in two halves, of
// which the older is forgotten when the younger is full. What is asked for moves to the younger, so
// that what is in use stays. Forgetting costs time and nothing else: whoever uses it can find out
// again what it held.
package lately

import (
	"hash/maphash"
	"sync"
)

// Map is such a map, for any number of goroutines.
type Map[K comparable, V any] struct {
	most int

	mu     sync.Mutex
	weight int // of the younger half
	young  map[K]entry[V]
	old    map[K]entry[V]
}

type entry[V any] struct {
	value  V
	weight int
}

// NewMap makes a map whose halves weigh at most so much each.
func NewMap[K comparable, V any](most int) *Map[K, V] { return &Map[K, V]{most: most} }

// Get is the value of a key, where it is remembered.
func (m *Map[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.young[key]; ok {
		return e.value, true
	}
	e, ok := m.old[key]
	if ok {
		m.put(key, e)
	}
	return e.value, ok
}

// Put remembers a value, which weighs so much. One that weighs more than a quarter of a half is not
// remembered: it would push all others out.
func (m *Map[K, V]) Put(key K, value V, weight int) {
	if weight > max(1, m.most/4) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, entry[V]{value, weight})
}

func (m *Map[K, V]) put(key K, e entry[V]) {
	before, again := m.young[key]
	if again {
		m.weight -= before.weight
	}
	if m.young == nil || m.weight+e.weight > m.most {
		m.young, m.old, m.weight = map[K]entry[V]{}, m.young, 0
	}
	m.young[key] = e
	m.weight += e.weight
}

// Mark tells contents apart by two hashes that nobody outside of the process can aim at.
type Mark [2]uint64

// Marker makes marks; those of two Markers have nothing to do with each other.
type Marker [2]maphash.Seed

// NewMarker makes a Marker.
func NewMarker() Marker { return Marker{maphash.MakeSeed(), maphash.MakeSeed()} }

// Mark is the mark of what is written.
func (m Marker) Mark(write func(h *maphash.Hash)) (out Mark) {
	for i, seed := range m {
		var h maphash.Hash
		h.SetSeed(seed)
		write(&h)
		out[i] = h.Sum64()
	}
	return out
}
