package rerank

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"
)

// digest identifies a query to one endpoint.
type digest [sha256.Size]byte

// digest hashes what would be sent, with the lengths of the texts, so that their boundaries count.
func (c *Client) digest(q scoreQuery) digest {
	h := sha256.New()
	var length [8]byte
	for _, text := range slices.Concat([]string{c.cfg.Shape, c.cfg.URL, c.cfg.Model, q.query}, q.docs) {
		binary.LittleEndian.PutUint64(length[:], uint64(len(text)))
		h.Write(length[:])
		h.Write([]byte(text))
	}
	return digest(h.Sum(nil))
}

// cache holds the latest results. All have the same TTL, so the oldest is the first to expire and the
// first to be evicted.
type cache struct {
	ttl        time.Duration
	maxEntries int
	entries    map[digest]cacheEntry
	order      []digest // oldest first
}

type cacheEntry struct {
	scores   []float64
	status   int
	storedAt time.Time
}

func newCache(ttl time.Duration, most int) cache {
	if ttl <= 0 {
		most = 0
	}
	return cache{ttl: ttl, maxEntries: most, entries: map[digest]cacheEntry{}}
}

func (c *cache) getScores(key digest) (cacheEntry, bool) {
	k, ok := c.entries[key]
	return k, ok && time.Since(k.storedAt) < c.ttl
}

// putScores evicts what is expired or too much; nothing runs in the background.
func (c *cache) putScores(key digest, scores []float64, status int) {
	if c.maxEntries <= 0 {
		return
	}
	if _, ok := c.getScores(key); ok {
		return // another call was faster
	}
	for len(c.order) > 0 && (len(c.order) >= c.maxEntries || c.isExpired(c.order[0])) {
		delete(c.entries, c.order[0])
		c.order = c.order[1:]
	}
	c.entries[key] = cacheEntry{scores, status, time.Now()}
	c.order = append(c.order, key)
}

func (c *cache) isExpired(key digest) bool { return time.Since(c.entries[key].storedAt) >= c.ttl }
