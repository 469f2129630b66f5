package recall

import (
	"hash/maphash"
	"sync"
	"time"
)

// recent remembers which originals this process kept, or found kept, a short while ago. A
// conversation shows the same texts on every turn; their leases need no renewal each time, and
// their ids no hashing.
//
// What is remembered was acknowledged by the store within the last span, which is far less than
// what the store spares. Nothing is remembered for longer than that, however often it is asked
// for: then the store is asked again.
type recent struct {
	span  time.Duration
	seeds [2]maphash.Seed

	mu     sync.Mutex
	turned time.Time // when before was left
	now    map[mark]string
	before map[mark]string
}

const (
	recentSpan = 5 * time.Minute
	recentMost = 1 << 16 // texts in each half
)

// mark tells a tenant's texts of an origin apart, by two hashes that nobody outside can aim at.
type mark [2]uint64

func newRecent(ttl time.Duration) *recent {
	return &recent{span: min(recentSpan, ttl/8), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, now: map[mark]string{}}
}

// Sure is for how long an id that KeepAll gave can be used again without asking it.
func (r *Recall) Sure() time.Duration { return r.recent.span / 2 }

func (c *recent) mark(tenant string, t *Text) (m mark) {
	for i, seed := range c.seeds {
		var h maphash.Hash
		h.SetSeed(seed)
		for _, s := range []string{tenant, t.From.Server, t.From.Tool} {
			_, _ = h.WriteString(s)
			_ = h.WriteByte(0)
		}
		for _, raw := range t.Raw {
			maphash.WriteComparable(&h, len(raw))
			_, _ = h.Write(raw)
		}
		m[i] = h.Sum64()
	}
	return m
}

// id is the id under which a text was kept lately, "" when it was not.
func (c *recent) id(m mark, now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(now)
	if id, ok := c.now[m]; ok {
		return id
	}
	return c.before[m]
}

func (c *recent) note(m mark, id string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(now)
	c.now[m] = id
}

// turn forgets the older half when it is time, or there are too many.
func (c *recent) turn(now time.Time) {
	switch age := now.Sub(c.turned); {
	case age > c.span:
		c.now, c.before, c.turned = map[mark]string{}, nil, now
	case age > c.span/2 || len(c.now) >= recentMost:
		c.now, c.before, c.turned = map[mark]string{}, c.now, now
	}
}
