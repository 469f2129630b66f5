package main

import (
	"math"
	"math/rand/v2"
	"time"
)

// fleet is replicas of the gateway with their Redis and their bucket, simulated event by event.
type fleet struct {
	costs    Costs
	assume   Assumptions
	work     *workload
	rng      *rand.Rand
	queue    eventQueue
	now      int64
	replicas []replica
	shards   []int64 // when each Redis primary is free again
	rate     float64 // requests per ns and replica
	toRedis  bool    // originals stay in Redis

	// movedAt is when the agents of a lost region begin to arrive, 0 for never; moved how many there are for each agent that was
	// here; movedOver the mean time until one arrives.
	movedAt   int64
	moved     float64
	movedOver time.Duration
	resetAt   int64 // when the measurement begins again
	hasReset  bool
	beforeEnd fleetResult // until then
	result    fleetResult
	segments  []segment
	free      []int32 // places in segments
}

// replica is one gateway: cores that take requests in order, and the open segment.
type replica struct {
	cores     [32]int64 // when each is free again
	open      int32     // the open segment, or -1
	lastFlush int64
}

// segment is originals on their way to the bucket.
type segment struct {
	replica int32
	bytes   int
	began   []int64 // when the requests of its originals came
	timer   int64   // when it is due: an earlier timer does nothing
	done    bool    // flushed
}

// fleetResult is what was measured.
type fleetResult struct {
	since        int64
	requests     int64
	busy         int64     // ns of all cores
	passed, kept histogram // what the gateway adds to requests that keep nothing, and to those that keep
	originals    int64
	segments     int64
	segmentBytes int64
	largest      int
	redisBusy    int64 // ns of all shards
	redisOps     int64
	tookTooLong  int64 // originals that were not stored in time: their texts go whole
}

// newFleet makes a fleet whose replicas have the assumed load.
func newFleet(n, shards int, c Costs, a Assumptions, seed uint64) *fleet {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	f := &fleet{costs: c, assume: a, work: newWorkload(c, rng), rng: rng, replicas: make([]replica, n), shards: make([]int64, shards)}
	f.rate = a.Load * float64(a.Cores) / f.work.figures().cpu
	for i := range f.replicas {
		f.replicas[i] = replica{open: -1, lastFlush: -int64(time.Minute)}
		f.queue.push(event{at: f.gap(), kind: arrival, replica: int32(i)})
	}
	return f
}

// gap is the time until the next request of a replica.
func (f *fleet) gap() int64 {
	rate := f.rate
	if f.movedAt > 0 && f.now >= f.movedAt {
		rate *= 1 + f.moved*(1-f.stillAway())
	}
	return int64(f.rng.ExpFloat64() / rate)
}

// run simulates the requests until a time, and then the rest of what they keep.
func (f *fleet) run(until time.Duration) fleetResult {
	for len(f.queue) > 0 {
		e := f.queue.pop()
		if e.kind == arrival && e.at >= int64(until) {
			continue
		}
		f.now = e.at
		if f.resetAt > 0 && !f.hasReset && f.now >= f.resetAt {
			f.hasReset, f.beforeEnd = true, f.result
			f.result = fleetResult{since: f.now}
		}
		switch e.kind {
		case arrival:
			f.arrive(e.replica)
		case keep:
			f.keepOriginal(e)
		case flushTimer:
			if s := &f.segments[e.number]; s.timer == e.at && s.replica == e.replica && !s.done {
				f.flushSegment(e.number)
			}
		case uploaded:
			f.storePointers(e.number)
		}
	}
	f.now = int64(until)
	return f.result
}

func (f *fleet) arrive(at int32) {
	f.queue.push(event{at: f.now + f.gap(), kind: arrival, replica: at})
	r, q := &f.replicas[at], f.work.requests[f.rng.IntN(len(f.work.requests))]
	if q.isModel && f.isFirstAfterMoving() {
		q.kept += q.carried
		q.cpu += int64(f.costs.MaskAgain) * int64(q.carried)
	}
	core := 0
	for i := range f.assume.Cores {
		if r.cores[i] < r.cores[core] {
			core = i
		}
	}
	done := max(f.now, r.cores[core]) + q.cpu
	r.cores[core] = done
	f.result.busy += q.cpu
	f.result.requests++
	if q.kept == 0 {
		f.result.passed.add(done - f.now)
		return
	}
	for range q.kept {
		f.queue.push(event{at: done, kind: keep, replica: at, number: int32(q.stored), began: f.now})
	}
}

// isFirstAfterMoving draws whether a model request is the first of an agent that came from the lost region.
func (f *fleet) isFirstAfterMoving() bool {
	if f.movedAt == 0 || f.now < f.movedAt {
		return false
	}
	arriving := f.moved * f.stillAway() / f.movedOver.Seconds() // a second, for each agent that was here
	turns := (1 + f.moved*(1-f.stillAway())) / f.assume.TurnEvery.Seconds()
	return f.rng.Float64() < arriving/turns
}

// stillAway is the share of the lost region's agents that have not arrived yet.
func (f *fleet) stillAway() float64 {
	return math.Exp(-float64(f.now-f.movedAt) / float64(f.movedOver))
}

func (f *fleet) keepOriginal(e event) {
	f.result.originals++
	if f.toRedis {
		f.recordKept(e.began, f.writeToRedis())
		return
	}
	r, bytes := &f.replicas[e.replica], int(e.number)
	if r.open >= 0 && f.segments[r.open].bytes+bytes > packing.SegmentBytes {
		f.flushSegment(r.open)
	}
	if r.open < 0 {
		r.open = f.newSegment(e.replica)
		f.setTimer(r.open, max(f.now+int64(packing.Linger), r.lastFlush+int64(packing.Spacing)))
	}
	s := &f.segments[r.open]
	s.bytes += bytes
	s.began = append(s.began, e.began)
	if len(s.began) == packing.ManyEntries {
		f.setTimer(r.open, max(f.now, r.lastFlush+int64(packing.ShortSpacing)))
	}
}

func (f *fleet) newSegment(owner int32) int32 {
	if n := len(f.free); n > 0 {
		at := f.free[n-1]
		f.free = f.free[:n-1]
		s := &f.segments[at]
		*s = segment{replica: owner, began: s.began[:0]}
		return at
	}
	f.segments = append(f.segments, segment{replica: owner})
	return int32(len(f.segments) - 1)
}

func (f *fleet) setTimer(number int32, at int64) {
	s := &f.segments[number]
	s.timer = at
	f.queue.push(event{at: at, kind: flushTimer, replica: s.replica, number: number})
}

func (f *fleet) flushSegment(number int32) {
	s := &f.segments[number]
	r := &f.replicas[s.replica]
	s.done, r.open, r.lastFlush = true, -1, f.now
	f.result.segments++
	f.result.segmentBytes += int64(s.bytes)
	f.result.largest = max(f.result.largest, s.bytes)
	f.queue.push(event{at: f.now + f.assume.BucketPut.draw(f.rng), kind: uploaded, replica: s.replica, number: number})
}

// storePointers writes the pointers of an uploaded segment to Redis; then its originals are acknowledged.
func (f *fleet) storePointers(number int32) {
	s := &f.segments[number]
	for _, began := range s.began {
		f.recordKept(began, f.writeToRedis())
	}
	f.free = append(f.free, number)
}

// writeToRedis is when a write is durable: the primary takes writes in order.
func (f *fleet) writeToRedis() int64 {
	trip := f.assume.RedisTrip.draw(f.rng)
	shard := f.rng.IntN(len(f.shards))
	done := max(f.now+trip/2, f.shards[shard]) + int64(f.costs.RedisWrite)
	f.shards[shard] = done
	f.result.redisBusy += int64(f.costs.RedisWrite)
	f.result.redisOps++
	return done + trip/2 + f.assume.RedisSync.draw(f.rng)
}

func (f *fleet) recordKept(began, done int64) {
	f.result.kept.add(done - began)
	if done-began > int64(f.assume.StoreTimeout) {
		f.result.tookTooLong++
	}
}

// load is the mean load of the cores of a fleet while the result was measured.
func (r fleetResult) load(f *fleet) float64 {
	return float64(r.busy) / float64(f.now-r.since) / float64(f.assume.Cores*len(f.replicas))
}
