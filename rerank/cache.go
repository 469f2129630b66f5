package rerank

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"
)

// digest stands for a question to one endpoint.
type digest [sha256.Size]byte

// digest is taken of what would be sent. Lengths are part of it, so that texts cannot flow into one
// another.
func (c *Client) digest(q question) digest {
	h := sha256.New()
	var length [8]byte
	for _, text := range slices.Concat([]string{c.cfg.Shape, c.cfg.URL, c.cfg.Model, q.query}, q.docs) {
		binary.LittleEndian.PutUint64(length[:], uint64(len(text)))
		h.Write(length[:])
		h.Write([]byte(text))
	}
	return digest(h.Sum(nil))
}

// cache keeps the latest answers. All of them live equally long, so the oldest is both the first
// to expire and the first to make room.
type cache struct {
	ttl   time.Duration
	most  int
	known map[digest]kept
	order []digest // oldest first
}

type kept struct {
	scores []float64
	status int
	since  time.Time
}

func newCache(ttl time.Duration, most int) cache {
	if ttl <= 0 {
		most = 0
	}
	return cache{ttl: ttl, most: most, known: map[digest]kept{}}
}

func (c *cache) get(key digest) (kept, bool) {
	k, ok := c.known[key]
	return k, ok && time.Since(k.since) < c.ttl
}

// put makes room as it needs it: nothing runs in the background to forget.
func (c *cache) put(key digest, scores []float64, status int) {
	if c.most <= 0 {
		return
	}
	if _, ok := c.get(key); ok {
		return // two calls asked, for the first to do so hung up too late
	}
	for len(c.order) > 0 && (len(c.order) >= c.most || c.expired(c.order[0])) {
		delete(c.known, c.order[0])
		c.order = c.order[1:]
	}
	c.known[key] = kept{scores, status, time.Now()}
	c.order = append(c.order, key)
}

func (c *cache) expired(key digest) bool { return time.Since(c.known[key].since) >= c.ttl }
