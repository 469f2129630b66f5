package main

import (
	"container/heap"
	"container/list"
	"math/rand/v2"
)

// cacheResult is how often an original that is read back is on the disk of the replica that reads it.
type cacheResult struct{ reads, hits int64 }

func (c cacheResult) share() float64 { return float64(c.hits) / float64(max(1, c.reads)) }

const (
	cachesSimulated = 8   // of the replicas: the others are like them
	cacheEntries    = 500 // of each: one original of so many is simulated that they fill it; the share of hits is the same
	cacheDays       = 9
)

// diskCache is a cache of the least recently used originals of one size.
type diskCache struct {
	order *list.List // the least recently used first
	at    map[int64]*list.Element
	most  int
}

func (c *diskCache) has(key int64) bool {
	e, ok := c.at[key]
	if ok {
		c.order.MoveToBack(e)
	}
	return ok
}

func (c *diskCache) put(key int64) {
	if c.has(key) {
		return
	}
	c.at[key] = c.order.PushBack(key)
	if c.order.Len() > c.most {
		oldest := c.order.Front()
		if k, ok := c.order.Remove(oldest).(int64); ok {
			delete(c.at, k)
		}
	}
}

// plannedRead is a read of an original.
type plannedRead struct {
	at, key int64
	replica int
}

type readPlan []plannedRead

func (p readPlan) Len() int { return len(p) }
func (p readPlan) Less(i, j int) bool {
	return p[i].at < p[j].at || p[i].at == p[j].at && p[i].key < p[j].key
}
func (p readPlan) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *readPlan) Push(x any) {
	if r, ok := x.(plannedRead); ok {
		*p = append(*p, r)
	}
}
func (p *readPlan) Pop() any { last := (*p)[len(*p)-1]; *p = (*p)[:len(*p)-1]; return last }

// simulateCaches simulates nine days of kept originals and reads, of n replicas that keep perSecond originals each.
func simulateCaches(n int, perSecond, storedBytes float64, a Assumptions, seed uint64) cacheResult {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	shown, sample := min(n, cachesSimulated), a.CacheBytes/storedBytes/cacheEntries
	caches := make([]diskCache, shown)
	for i := range caches {
		caches[i] = diskCache{list.New(), map[int64]*list.Element{}, cacheEntries}
	}
	var out cacheResult
	var plan readPlan
	end := int64(cacheDays * 24 * 3600 * 1e9)
	gap := 1e9 / perSecond / float64(shown) * sample
	for at, key := int64(0), int64(0); at < end; at += int64(rng.ExpFloat64() * gap) {
		for len(plan) > 0 && plan[0].at <= at {
			r, ok := heap.Pop(&plan).(plannedRead)
			if !ok {
				continue
			}
			c := &caches[r.replica]
			if hit := c.has(r.key); r.at > end/2 { // caches are full by then
				out.reads++
				if hit {
					out.hits++
				}
			}
			c.put(r.key)
		}
		key++
		from := rng.IntN(shown)
		caches[from].put(key)
		if rng.Float64() >= a.ReadShare {
			continue
		}
		delay := rng.ExpFloat64() * float64(a.ReadSoon)
		if rng.Float64() < a.LateReads {
			delay = rng.Float64() * float64(a.Lifetime)
		}
		if rng.Float64() >= a.Sticky {
			from = rng.IntN(n) % shown // another replica, which has it only by chance
			if rng.IntN(n) >= shown {
				key = -key // as on a replica that is not simulated
			}
		}
		heap.Push(&plan, plannedRead{at + int64(delay), key, from})
		key = max(key, -key)
	}
	return out
}
