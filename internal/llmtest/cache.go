package llmtest

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	stride    = 128 // tokens: automatic caches grow by these
	lookback  = 20  // blocks: how far back from a breakpoint an entry is looked for, itself included
	maxMarks  = 4
	shortLife = 5 * time.Minute
	longLife  = time.Hour
)

// cache holds the prefixes of prompts by their hashes. Entries are never evicted before their time.
type cache struct {
	seed maphash.Seed
	mu   sync.Mutex
	live map[uint64]*entry
}

type entry struct {
	until time.Time
	life  time.Duration
}

// hit is how the input of one request is charged, in tokens.
type hit struct{ fresh, created, createdLong, cached int }

func newCache() *cache { return &cache{seed: maphash.MakeSeed(), live: map[uint64]*entry{}} }

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.live)
}

// touch renews the entry if it is alive.
func (c *cache) touch(key uint64, now time.Time) bool {
	e := c.live[key]
	if e == nil || !now.Before(e.until) {
		return false
	}
	e.until = now.Add(e.life)
	return true
}

func (c *cache) put(key uint64, now time.Time, life time.Duration) {
	c.live[key] = &entry{now.Add(life), life}
}

// automatic caches as OpenAI does: every prefix of least tokens or more, in steps of 128, is found
// again as long as it was used within life. What is read is the longest such prefix.
func (c *cache) automatic(scope string, p prompt, now time.Time, life time.Duration, least int) hit {
	c.mu.Lock()
	defer c.mu.Unlock()
	total, read := p.tokens(), 0
	keys := c.steps(scope, p)
	for i, key := range keys {
		at := (i + 1) * stride
		if at >= least && c.touch(key, now) && read < at {
			read = at
		}
	}
	written := 0
	for i, key := range keys {
		if at := (i + 1) * stride; at >= least && at > read {
			c.put(key, now, life)
			written = at - read
		}
	}
	return hit{fresh: total - read - written, created: written, cached: read}
}

// steps are the keys of the prefixes that are 128, 256, … tokens long.
func (c *cache) steps(scope string, p prompt) []uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(scope)
	_ = h.WriteByte(0)
	var keys []uint64
	room := stride * bytesPerToken
	for _, b := range p {
		text := b.text
		for len(text) >= room {
			_, _ = h.WriteString(text[:room])
			keys = append(keys, h.Sum64())
			text, room = text[room:], stride*bytesPerToken
		}
		_, _ = h.WriteString(text)
		room -= len(text)
	}
	return keys
}

// boundary is the end of a block.
type boundary struct {
	key    uint64
	tokens int
	mark   time.Duration
}

func (c *cache) boundaries(scope string, p prompt) []boundary {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(scope)
	out := make([]boundary, 0, len(p))
	size := 0
	for _, b := range p {
		// The zero keeps "ab", "c" apart from "a", "bc": entries end at blocks.
		_ = h.WriteByte(0)
		_, _ = h.WriteString(b.salt)
		_ = h.WriteByte(0)
		_, _ = h.WriteString(b.text)
		size += len(b.text)
		out = append(out, boundary{h.Sum64(), tokensOf(size), b.mark})
	}
	return out
}

// marked caches as Anthropic does: entries are written only at breakpoints whose prefix is long
// enough, and looked for from each breakpoint back over the last twenty blocks. Tokens between what
// was read and the last breakpoint are written; those up to the last one-hour breakpoint at the
// price of an hour.
func (c *cache) marked(scope string, p prompt, now time.Time, least int) hit {
	c.mu.Lock()
	defer c.mu.Unlock()
	ends := c.boundaries(scope, p)
	found := c.longest(ends, now, least)
	var h hit
	if found >= 0 {
		h.cached = ends[found].tokens
	}
	done := h.cached
	for i, e := range ends {
		if e.mark == 0 || e.tokens < least {
			continue
		}
		if i <= found {
			// Reading goes through it, so it is used; one that ran out is not paid for again.
			c.touch(e.key, now)
			continue
		}
		if e.mark == longLife {
			h.createdLong += e.tokens - done
		} else {
			h.created += e.tokens - done
		}
		done = e.tokens
		c.put(e.key, now, e.mark)
	}
	h.fresh = p.tokens() - done
	return h
}

// longest is the block at whose end the longest usable entry lies, -1 when there is none.
func (c *cache) longest(ends []boundary, now time.Time, least int) int {
	for i := len(ends) - 1; i >= 0; i-- {
		if ends[i].mark == 0 || ends[i].tokens < least {
			continue
		}
		for j := i; j >= 0 && j > i-lookback; j-- {
			if c.touch(ends[j].key, now) {
				return j
			}
		}
	}
	return -1
}
