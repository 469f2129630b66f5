// Package gencache is a bounded cache in two generations: when the younger is full, the older is
// dropped and the younger takes its place. A hit in the older generation moves the entry to the
// younger, so entries in use stay. A miss costs the caller time only: it must be able to compute the
// value again.
package gencache

import (
	"hash/maphash"
	"sync"
)

// Cache maps keys to values. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	maxWeight int // of one generation

	mu     sync.Mutex
	weight int // of young
	young  map[K]entry[V]
	old    map[K]entry[V]
}

type entry[V any] struct {
	value  V
	weight int
}

// New makes a cache whose generations weigh at most maxWeight each.
func New[K comparable, V any](maxWeight int) *Cache[K, V] { return &Cache[K, V]{maxWeight: maxWeight} }

// Get returns the value of a key.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.young[key]; ok {
		return e.value, true
	}
	e, ok := c.old[key]
	if ok {
		c.putYoung(key, e)
	}
	return e.value, ok
}

// Put adds a value of some weight. A value of more than a quarter of a generation is not cached: it
// would push out all others.
func (c *Cache[K, V]) Put(key K, value V, weight int) {
	if weight > max(1, c.maxWeight/4) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putYoung(key, entry[V]{value, weight})
}

// Clear removes all values.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.young, c.old, c.weight = nil, nil, 0
}

func (c *Cache[K, V]) putYoung(key K, e entry[V]) {
	if before, ok := c.young[key]; ok {
		c.weight -= before.weight
	}
	if c.young == nil || c.weight+e.weight > c.maxWeight {
		c.young, c.old, c.weight = map[K]entry[V]{}, c.young, 0
	}
	c.young[key] = e
	c.weight += e.weight
}

// Fingerprint identifies content by two seeded hashes, for which no one outside the process can make
// a collision.
type Fingerprint [2]uint64

// Hasher computes fingerprints. Those of two Hashers cannot be compared.
type Hasher [2]maphash.Seed

// NewHasher makes a Hasher with random seeds.
func NewHasher() Hasher { return Hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

// Sum is the fingerprint of what write writes. It calls write once for each hash.
func (s Hasher) Sum(write func(h *maphash.Hash)) (sum Fingerprint) {
	for i, seed := range s {
		var h maphash.Hash
		h.SetSeed(seed)
		write(&h)
		sum[i] = h.Sum64()
	}
	return sum
}
