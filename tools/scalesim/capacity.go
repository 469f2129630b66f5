package main

import (
	"fmt"
	"io"
	"math"
	"time"
)

// Prices are list prices in dollars, on demand, as of November 2026 in a large region of a large cloud.
type Prices struct {
	ReplicaHour float64 // a machine of 2 cores and 4 GiB
	RedisGB     float64 // a month of a GiB of memory of a managed Redis node
	BucketGB    float64 // a month of a GB in the bucket
	Put, Get    float64 // 1,000 requests
	DiskGB      float64 // a month of a GB of disk
	IndexHour   float64 // a machine of an index node: 2 cores, 16 GiB, IndexGB of local NVMe
	IndexGB     float64
}

var prices = Prices{ReplicaHour: .0725, RedisGB: 12.1, BucketGB: .022, Put: .005, Get: .0004, DiskGB: .08, IndexHour: .172, IndexGB: 468}

const (
	hoursOfMonth    = 730
	secondsOfMonth  = hoursOfMonth * 3600
	redisCopies     = 3    // a primary and two replicas
	redisUsable     = .7   // of a node's memory
	pointerBytes    = 60.  // of the pointer to an original in the bucket: a segment's name, offset, length, checksum
	sessionBytes    = 2000 // of an agent: session, limits, lease
	mostInRedisGB   = 100  // of originals: above, they go to the bucket
	mostIndexGB     = 2000 // of pointers in Redis: above, index nodes
	indexEntryBytes = 60.  // on an index node's disk
	indexCopies     = 2
	probeReplicas   = 4  // that are simulated
	perConnectionKB = 43 // of an agent's open call: docs/performance.md
)

// redisOverhead is the memory that Redis needs for an original beside its bytes.
func (c Costs) redisOverhead() float64 { return c.RedisMemory - c.ItemBytes - 8192*c.StoredShare }

// capacity is what a number of agents needs.
type capacity struct {
	agents, requests, originals, storedGB float64
	replicas, cores                       int
	load                                  float64 // of their cores
	memoryGB                              float64 // of a replica's calls
	redisGB                               float64 // of one copy
	redisShards                           int
	engine                                string
	puts, gets                            float64 // a second
	indexNodes                            int
	dollars                               map[string]float64
	total                                 float64
}

// capacityFor works the model out for a number of agents, all active.
func capacityFor(agents float64, c Costs, a Assumptions, seed uint64) capacity {
	if agents >= 1e6 {
		a.Cores *= 8 // PUTs are paid per replica: fewer and larger ones are cheaper
	}
	probe := newFleet(probeReplicas, 8, c, a, seed)
	f := probe.work.figures()
	turns := agents / a.TurnEvery.Seconds()
	out := capacity{cores: a.Cores, agents: agents, requests: turns * f.perTurn, originals: turns * f.keptPerTurn, dollars: map[string]float64{}}
	out.storedGB = out.originals * f.storedBytes * a.Lifetime.Seconds() / 1e9
	cores := out.requests * f.cpu / 1e9
	out.replicas = max(3, int(math.Ceil(cores/a.Load/float64(a.Cores))))
	out.load = cores / float64(out.replicas*a.Cores)
	out.memoryGB = agents / float64(out.replicas) * perConnectionKB * float64(time.Second) / float64(a.TurnEvery) / 1e6 // a call of a second each turn
	entries := out.originals * a.Lifetime.Seconds()

	small := agents * sessionBytes / 1e9
	writes := out.originals
	switch {
	case out.storedGB <= mostInRedisGB:
		out.engine = "Redis"
		out.redisGB = small + entries*(f.storedBytes+c.redisOverhead())/1e9
	default:
		out.engine = "Redis and a bucket"
		// The packing of segments depends on how much each replica keeps.
		probe.rate = out.requests / float64(out.replicas) / 1e9
		r := probe.run(time.Second)
		out.puts = float64(r.segments) / probeReplicas * float64(out.replicas)
		// A larger replica has a larger disk.
		a.CacheBytes *= float64(a.Cores) / float64(assumed.Cores)
		cached := simulateCaches(out.replicas, out.originals/float64(out.replicas), f.storedBytes, a, seed)
		out.gets = out.originals * a.ReadShare * (1 - cached.share())
		index := entries * (c.SmallBytes + pointerBytes + c.redisOverhead()) / 1e9
		out.redisGB = small + index
		if index > mostIndexGB {
			out.engine = "Redis, a bucket, index nodes"
			out.indexNodes = int(math.Ceil(entries * indexEntryBytes * indexCopies / 1e9 / (prices.IndexGB * .7)))
			out.redisGB = small + index*time.Hour.Seconds()/a.Lifetime.Seconds() // the last hour
		}
		out.dollars["bucket storage"] = out.storedGB * prices.BucketGB
		out.dollars["bucket PUT"] = out.puts * secondsOfMonth / 1000 * prices.Put
		out.dollars["bucket GET"] = out.gets * secondsOfMonth / 1000 * prices.Get
		out.dollars["cache disks"] = float64(out.replicas) * a.CacheBytes / 1e9 * prices.DiskGB
		out.dollars["index nodes"] = float64(out.indexNodes) * prices.IndexHour * hoursOfMonth
	}
	out.redisShards = max(1, int(math.Ceil(writes*c.RedisWrite.Seconds()/.5)))
	out.dollars["replicas"] = float64(out.replicas*a.Cores) / 2 * prices.ReplicaHour * hoursOfMonth
	// A shard has at least a small node's memory of 1.5 GB.
	out.dollars["Redis"] = max(out.redisGB/redisUsable, 1.5*float64(out.redisShards)) * redisCopies * prices.RedisGB
	for _, d := range out.dollars {
		out.total += d
	}
	return out
}

var dollarRows = []string{"replicas", "Redis", "bucket storage", "bucket PUT", "bucket GET", "cache disks", "index nodes"}

// printCapacity prints the capacity model as a table.
func printCapacity(w io.Writer, c Costs, a Assumptions, seed uint64) {
	var all []capacity
	for _, agents := range []float64{1e3, 1e5, 1e7} {
		all = append(all, capacityFor(agents, c, a, seed))
	}
	row := func(name string, value func(capacity) string) {
		fmt.Fprintf(w, "| %s |", name)
		for _, k := range all {
			fmt.Fprintf(w, " %s |", value(k))
		}
		fmt.Fprintln(w)
	}
	_, _ = fmt.Fprint(w, "\n## Capacity\n\n")
	row("active agents", func(k capacity) string { return number(k.agents) })
	fmt.Fprintln(w, "|---|---:|---:|---:|")
	row("requests a second", func(k capacity) string { return number(k.requests) })
	row("originals kept a second", func(k capacity) string { return number(k.originals) })
	row("originals of seven days, GB", func(k capacity) string { return number(k.storedGB) })
	row("store", func(k capacity) string { return k.engine })
	row("replicas × cores", func(k capacity) string { return fmt.Sprintf("%s × %d", number(float64(k.replicas)), k.cores) })
	row("load of their cores", func(k capacity) string { return fmt.Sprintf("%.1f %%", 100*k.load) })
	row("memory for calls of a replica, MB", func(k capacity) string { return number(1000 * k.memoryGB) })
	row("Redis memory, one copy, GB", func(k capacity) string { return number(k.redisGB) })
	row("Redis primaries by processor time", func(k capacity) string { return number(float64(k.redisShards)) })
	row("bucket PUT a second", func(k capacity) string { return number(k.puts) })
	row("bucket GET a second", func(k capacity) string { return number(k.gets) })
	row("index nodes (on paper)", func(k capacity) string { return number(float64(k.indexNodes)) })
	for _, name := range dollarRows {
		row("$ a month: "+name, func(k capacity) string { return number(k.dollars[name]) })
	}
	row("$ a month", func(k capacity) string { return number(k.total) })
	row("$ a month for each agent", func(k capacity) string { return fmt.Sprintf("%.4f", k.total/k.agents) })
}

// number prints three digits, and thousands with commas.
func number(x float64) string {
	switch {
	case x == 0:
		return "–"
	case x < 1:
		return fmt.Sprintf("%.2g", x)
	case x < 100:
		return fmt.Sprintf("%.3g", x)
	}
	scale := math.Pow(10, math.Floor(math.Log10(x))-2)
	text := fmt.Sprintf("%.0f", math.Round(x/scale)*scale)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
