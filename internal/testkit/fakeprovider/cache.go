package fakeprovider

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

const (
	recentEnds     = 50 // ends of requests that chargeEnds finds
	lookback       = 20 // blocks searched back from a breakpoint, its own included
	maxBreakpoints = 4
	shortTTL       = 5 * time.Minute
	longTTL        = time.Hour
)

// cache holds hashes of prompt prefixes. Entries are never evicted before they expire.
type cache struct {
	seed    maphash.Seed
	mu      sync.Mutex
	entries map[uint64]*cacheEntry
	ends    map[string][]uint64 // the last keys of chargeEnds, by scope
}

type cacheEntry struct {
	expires time.Time
	ttl     time.Duration
}

// cacheUse is how one request's input is charged, in tokens.
type cacheUse struct{ uncached, cacheWritten, cacheWritten1h, cacheRead int }

func newCache() *cache {
	return &cache{seed: maphash.MakeSeed(), entries: map[uint64]*cacheEntry{}, ends: map[string][]uint64{}}
}

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
	clear(c.ends)
}

// refresh extends the entry if it has not expired, and reports whether it was found.
func (c *cache) refresh(key uint64, now time.Time) bool {
	e := c.entries[key]
	if e == nil || !now.Before(e.expires) {
		return false
	}
	e.expires = now.Add(e.ttl)
	return true
}

func (c *cache) addEntry(key uint64, now time.Time, ttl time.Duration) {
	c.entries[key] = &cacheEntry{now.Add(ttl), ttl}
}

// chargeAutomatic caches as most providers do: every prefix of at least minTokens, in steps of unit tokens, is
// found again if it was used within ttl. The longest such prefix is read.
func (c *cache) chargeAutomatic(scope string, p prompt, now time.Time, ttl time.Duration, minTokens, unit int) cacheUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	total, read := p.tokens(), 0
	keys := c.prefixKeys(scope, p, unit)
	for i, key := range keys {
		at := (i + 1) * unit
		if at >= minTokens && c.refresh(key, now) && read < at {
			read = at
		}
	}
	written := 0
	for i, key := range keys {
		if at := (i + 1) * unit; at >= minTokens && at > read {
			c.addEntry(key, now, ttl)
			written = at - read
		}
	}
	return cacheUse{uncached: total - read - written, cacheWritten: written, cacheRead: read}
}

// prefixKeys returns the keys of the prefixes of one, two, … units of tokens.
func (c *cache) prefixKeys(scope string, p prompt, unit int) []uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(scope)
	_ = h.WriteByte(0)
	var keys []uint64
	rest := unit * BytesPerToken
	for _, b := range p {
		text := b.text
		for len(text) >= rest {
			_, _ = h.WriteString(text[:rest])
			keys = append(keys, h.Sum64())
			text, rest = text[rest:], unit*BytesPerToken
		}
		_, _ = h.WriteString(text)
		rest -= len(text)
	}
	return keys
}

// chargeEnds caches as OpenAI does since GPT-5.6: each request writes one entry, at its end, and reads the longest of
// the last fifty entries that is a prefix of it. There is no other prefix to fall back to.
func (c *cache) chargeEnds(scope string, p prompt, now time.Time, ttl time.Duration, minTokens int) cacheUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	ends, read := c.blockEnds(scope, p), 0
	if len(ends) == 0 || ends[len(ends)-1].tokens < minTokens {
		return cacheUse{uncached: p.tokens()}
	}
	for _, e := range ends {
		if slices.Contains(c.ends[scope], e.key) && c.refresh(e.key, now) {
			read = e.tokens
		}
	}
	last := ends[len(ends)-1]
	c.addEntry(last.key, now, ttl)
	recent := append(slices.DeleteFunc(c.ends[scope], func(k uint64) bool { return k == last.key }), last.key)
	c.ends[scope] = recent[max(0, len(recent)-recentEnds):]
	return cacheUse{cacheWritten: last.tokens - read, cacheRead: read}
}

// blockEnd is a position where a cache entry can end.
type blockEnd struct {
	key    uint64
	tokens int
	ttl    time.Duration // of the breakpoint here; 0: none
}

func (c *cache) blockEnds(scope string, p prompt) []blockEnd {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(scope)
	out := make([]blockEnd, 0, len(p))
	size := 0
	for _, b := range p {
		// The zero separates blocks: "ab", "c" is not "a", "bc".
		_ = h.WriteByte(0)
		_, _ = h.WriteString(b.salt)
		_ = h.WriteByte(0)
		_, _ = h.WriteString(b.text)
		size += len(b.text)
		out = append(out, blockEnd{h.Sum64(), tokensOf(size), b.breakpointTTL})
	}
	return out
}

// chargeBreakpoints caches as Anthropic does: entries are written only at breakpoints with a long enough
// prefix, and searched from each breakpoint back over twenty blocks. Tokens between the prefix read and
// the last breakpoint are written; those before a one-hour breakpoint at its price.
func (c *cache) chargeBreakpoints(scope string, p prompt, now time.Time, minTokens int) cacheUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	ends := c.blockEnds(scope, p)
	found := c.findLongest(ends, now, minTokens)
	var h cacheUse
	if found >= 0 {
		h.cacheRead = ends[found].tokens
	}
	done := h.cacheRead
	for i, e := range ends {
		if e.ttl == 0 || e.tokens < minTokens {
			continue
		}
		if i <= found {
			// Inside the prefix read: refreshed if alive, and never paid for again.
			c.refresh(e.key, now)
			continue
		}
		if e.ttl == longTTL {
			h.cacheWritten1h += e.tokens - done
		} else {
			h.cacheWritten += e.tokens - done
		}
		done = e.tokens
		c.addEntry(e.key, now, e.ttl)
	}
	h.uncached = p.tokens() - done
	return h
}

// findLongest returns the index of the block where the longest usable entry ends, or -1.
func (c *cache) findLongest(ends []blockEnd, now time.Time, minTokens int) int {
	for i := len(ends) - 1; i >= 0; i-- {
		if ends[i].ttl == 0 || ends[i].tokens < minTokens {
			continue
		}
		for j := i; j >= 0 && j > i-lookback; j-- {
			if c.refresh(ends[j].key, now) {
				return j
			}
		}
	}
	return -1
}
