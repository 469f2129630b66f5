package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"
)

// printReport simulates everything and prints it.
func printReport(w io.Writer, c Costs, a Assumptions, seed uint64) {
	f := newWorkload(c, rand.New(rand.NewPCG(seed, 0))).figures()
	fmt.Fprintf(w, "# Simulated replicas, seed %d\n\n", seed)
	fmt.Fprintf(w, "An agent has a turn every %v: a model request of %s KB and %.2f tool calls with results of %s KB, of which %.0f %% are cut and kept.\n",
		a.TurnEvery, number(f.modelBytes/1000), f.perTurn-1, number(f.resultBytes/1000), 100*f.keptShare)
	fmt.Fprintf(w, "A turn keeps %.2f originals of %s KB as stored, model requests included; %.0f %% are read back. A request takes %s µs of a core.\n",
		f.keptPerTurn, number(f.storedBytes/1000), 100*a.ReadShare, number(f.cpu/1000))
	printFleets(w, c, a, seed)
	printLimiter(w, a, seed)
	printCaches(w, c, a, seed)
	printRegions(w, c, a, seed)
	printCapacity(w, c, a, seed)
}

func milliseconds(d time.Duration) string { return number(float64(d) / 1e6) }

func quantiles(h *histogram) string {
	return fmt.Sprintf("%s | %s | %s", milliseconds(h.quantile(.5)), milliseconds(h.quantile(.99)), milliseconds(h.quantile(.999)))
}

// shardsFor is how many Redis primaries are half busy with what replicas keep.
func shardsFor(n int, c Costs, a Assumptions, seed uint64) int {
	f := newFleet(1, 1, c, a, seed)
	w := f.work.figures()
	originals := f.rate * 1e9 * float64(n) * w.keptPerTurn / w.perTurn
	return max(1, int(math.Ceil(originals*c.RedisWrite.Seconds()/.5)))
}

func printFleets(w io.Writer, c Costs, a Assumptions, seed uint64) {
	fmt.Fprintf(w, "\n## Latency and segments: %d cores a replica, %.0f %% busy\n\n", a.Cores, 100*a.Load)
	fmt.Fprintln(w, "| replicas | store | agents | requests/s | keeps nothing p50 | p99 | p99.9 ms | keeps p50 | p99 | p99.9 ms | too late | originals/s | PUT/s | originals a PUT | segment KB | PUTs per 1,000 | PUT $/month | one PUT each, $/month | Redis primaries | busy |")
	fmt.Fprintln(w, "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, n := range []int{100, 1000} {
		for _, toRedis := range []bool{true, false} {
			shards := shardsFor(n, c, a, seed)
			f := newFleet(n, shards, c, a, seed)
			f.toRedis = toRedis
			seconds := max(1, 300/n) // about the same number of requests
			r := f.run(time.Duration(seconds) * time.Second)
			perSecond := func(x int64) float64 { return float64(x) / float64(seconds) }
			store, packed := "Redis", "– | – | – | – | –"
			if !toRedis {
				store = "bucket"
				packed = fmt.Sprintf("%s | %s | %s | %s | %s", number(perSecond(r.segments)), number(float64(r.originals)/float64(r.segments)), number(float64(r.segmentBytes)/float64(r.segments)/1000),
					number(1000*float64(r.segments)/float64(r.originals)), number(perSecond(r.segments)*secondsOfMonth/1000*prices.Put))
			}
			agents := perSecond(r.requests) / f.work.figures().perTurn * a.TurnEvery.Seconds()
			fmt.Fprintf(w, "| %d | %s | %s | %s | %s | %s | %.4f %% | %s | %s | %s | %d | %.0f %% |\n", n, store, number(agents), number(perSecond(r.requests)), quantiles(&r.passed), quantiles(&r.kept),
				100*float64(r.tookTooLong)/float64(r.originals), number(perSecond(r.originals)), packed, number(perSecond(r.originals)*secondsOfMonth/1000*prices.Put), shards, 100*float64(r.redisBusy)/float64(shards)/float64(f.now))
		}
	}
}

func printLimiter(w io.Writer, a Assumptions, seed uint64) {
	fmt.Fprintf(w, "\n## Limits: calls granted for %v, at most %.0f %% of a burst held by all, beside asking for each call\n\n", granting.For, 100*granting.Part)
	fmt.Fprintln(w, "| replicas | limit/s | asked for | accepted of the allowance | worst second over the limit | Redis calls per accepted | asking each time |")
	fmt.Fprintln(w, "|---:|---:|---:|---:|---:|---:|---:|")
	for _, n := range []int{100, 1000} {
		for _, limit := range []float64{1000, 100_000} {
			for _, demand := range []float64{.5, 2} {
				const seconds = 3
				r := simulateLimiter(n, limit, demand, granting, a, seconds, seed)
				each := simulateLimiter(n, limit, demand, Granting{}, a, seconds, seed)
				fmt.Fprintf(w, "| %d | %s | %.1f × | %.2f %% | %+.2f %% | %.3f | %.3f |\n", n, number(limit), demand, 100*float64(r.accepted)/min(r.allowed, demand*limit*float64(seconds)), 100*r.worst,
					float64(r.trips)/float64(r.accepted), float64(each.trips)/float64(each.accepted))
			}
		}
	}
}

func printCaches(w io.Writer, c Costs, a Assumptions, seed uint64) {
	fmt.Fprintf(w, "\n## Disk caches: %.0f GB a replica, %.0f %% of originals read back, %.0f %% of the reads at any time of seven days\n\n", a.CacheBytes/1e9, 100*a.ReadShare, 100*a.LateReads)
	fmt.Fprintln(w, "| replicas | same replica again | hits | read back p50 | p99 ms |")
	fmt.Fprintln(w, "|---:|---:|---:|---:|---:|")
	for _, n := range []int{100, 1000} {
		for _, sticky := range []float64{a.Sticky, 0} {
			b := a
			b.Sticky = sticky
			f := newFleet(1, 1, c, b, seed)
			w2 := f.work.figures()
			hits := simulateCaches(n, f.rate*1e9*w2.keptPerTurn/w2.perTurn, w2.storedBytes, b, seed)
			var h histogram
			for range 100_000 {
				took := int64(c.ReadBack) + a.RedisTrip.draw(f.rng) + int64(c.RedisRead)
				if f.rng.Float64() > hits.share() {
					took += a.BucketGet.draw(f.rng)
				}
				h.add(took)
			}
			fmt.Fprintf(w, "| %d | %.0f %% | %.1f %% | %s | %s |\n", n, 100*sticky, 100*hits.share(), milliseconds(h.quantile(.5)), milliseconds(h.quantile(.99)))
		}
	}
}

// printRegions simulates the loss of one of three regions: its agents go to the two others, and what their conversations masked is kept
// again there at their first request.
func printRegions(w io.Writer, c Costs, a Assumptions, seed uint64) {
	const n, lostAfter = 2, 3 * time.Second
	fmt.Fprintf(w, "\n## One of three regions is lost: replicas of the two others, before and after\n\n")
	fmt.Fprintln(w, "| load before | agents come within (mean) | seconds | load after | keeps nothing p50 | p99 | p99.9 ms | before p99 | keeps p99 ms | before | originals/s | before | too late |")
	fmt.Fprintln(w, "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, s := range []struct {
		load    float64
		over    time.Duration
		seconds time.Duration
	}{{a.Load, 20 * time.Second, 60}, {.25, 20 * time.Second, 60}, {a.Load, 5 * time.Minute, 300}, {.4, 5 * time.Minute, 300}} {
		b := a
		b.Load = s.load
		f := newFleet(n, shardsFor(n*2, c, b, seed), c, b, seed)
		f.moved, f.movedAt, f.movedOver, f.resetAt = .5, int64(lostAfter), s.over, int64(lostAfter)
		r := f.run(lostAfter + s.seconds*time.Second)
		before := f.beforeEnd
		fmt.Fprintf(w, "| %.0f %% | %v | %d | %.0f %% | %s | %s | %s | %s | %s | %s | %.1f %% |\n", 100*s.load, s.over, s.seconds, 100*r.load(f), quantiles(&r.passed), milliseconds(before.passed.quantile(.99)),
			milliseconds(r.kept.quantile(.99)), milliseconds(before.kept.quantile(.99)), number(float64(r.originals)/float64(s.seconds)), number(float64(before.originals)/lostAfter.Seconds()),
			100*float64(r.tookTooLong)/float64(r.originals))
	}
	keptByCalls := newFleet(1, 1, c, a, seed).work.figures()
	share := keptByCalls.keptShare * (keptByCalls.perTurn - 1) / keptByCalls.keptPerTurn
	fmt.Fprintf(w, "\nUnreadable until the region returns: the originals of cut tool results of its agents, %.0f %% of what they kept. What model requests masked is kept again at the agent's next turn.\n", 100*share)
}
