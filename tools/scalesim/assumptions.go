package main

import (
	"math"
	"math/rand/v2"
	"time"
)

// Assumptions are what was not measured here. None was fitted to a result.
type Assumptions struct {
	// Agents. The shape of conversations (turns, calls, sizes) is that of internal/testkit/trajectories, which tools/cachecost replays.
	TurnEvery time.Duration // between the turns of an active agent: one model request and its tool calls
	ReadShare float64       // of kept originals that are read back; nobody publishes a figure
	ReadSoon  time.Duration // mean time until then, for most
	LateReads float64       // share of the reads that come at any time within the lifetime
	Sticky    float64       // share of an agent's requests that its load balancer sends to the replica that it used before

	// Replicas.
	Cores  int     // of a replica
	Load   float64 // of its cores, on average
	Memory float64 // GiB of a replica

	// Network and engines.
	RedisTrip    latency // to Redis and back, in the zone
	RedisSync    latency // until a write is on the disks of all its nodes: appendfsync always, WAIT
	BucketPut    latency
	BucketGet    latency
	StoreTimeout time.Duration // state.timeout: later, the text goes whole
	CacheBytes   float64       // of a replica's disk cache
	Lifetime     time.Duration // state.ttl
}

// assumed is what the report uses. Latencies of S3: about 400 ms p99 is WarpStream's published figure for S3 Standard; the
// medians and those of networks and disks are typical of a cloud's zone.
var assumed = Assumptions{
	TurnEvery: 20 * time.Second, ReadShare: .05, ReadSoon: 5 * time.Minute, LateReads: .2, Sticky: .95,
	Cores: 2, Load: .5, Memory: 4,
	RedisTrip: latency{300 * time.Microsecond, 2 * time.Millisecond}, RedisSync: latency{time.Millisecond, 8 * time.Millisecond},
	BucketPut: latency{80 * time.Millisecond, 400 * time.Millisecond}, BucketGet: latency{40 * time.Millisecond, 400 * time.Millisecond},
	StoreTimeout: 2 * time.Second, CacheBytes: 20e9, Lifetime: 7 * 24 * time.Hour,
}

// Packing is when a gateway uploads a segment: the rules and values of state/s3.
type Packing struct {
	SegmentBytes                  int
	ManyEntries                   int
	Linger, ShortSpacing, Spacing time.Duration
}

var packing = Packing{SegmentBytes: 8 << 20, ManyEntries: 64, Linger: 50 * time.Millisecond, ShortSpacing: 100 * time.Millisecond, Spacing: 600 * time.Millisecond}

// latency is a log-normal distribution by its median and its 99th percentile.
type latency struct{ p50, p99 time.Duration }

func (l latency) draw(rng *rand.Rand) int64 {
	sigma := math.Log(float64(l.p99)/float64(l.p50)) / 2.326
	return int64(float64(l.p50) * math.Exp(sigma*rng.NormFloat64()))
}
