package main

import (
	"bytes"
	"math"
	"testing"
	"time"
)

// The costs in use are those of the code: processor time within a factor of two, counts and bytes within a tenth. A busy machine gets
// three tries.
func TestCostsInUse(t *testing.T) {
	const tries = 3
	missed := map[string]costRow{}
	for try := range tries {
		c, err := measureCosts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range compareCosts(c) {
			if row.ratio <= row.tolerance && row.ratio >= 1/row.tolerance {
				delete(missed, row.name)
			} else if try == 0 {
				missed[row.name] = row
			}
		}
		if len(missed) == 0 {
			return
		}
	}
	for _, row := range missed {
		t.Errorf("%s: costs.go says %s, measured %s; renew it from go run ./tools/scalesim -measure", row.name, row.inUse, row.measured)
	}
}

func TestRunIsRepeatable(t *testing.T) {
	run := func(seed uint64) fleetResult {
		return newFleet(4, 2, measured, assumed, seed).run(300 * time.Millisecond)
	}
	first := run(1)
	if first != run(1) {
		t.Error("two runs with one seed differ")
	}
	if first == run(2) {
		t.Error("another seed changes nothing")
	}
}

// A queue with one core, fixed service and random arrivals waits ρ/(2(1-ρ)) services on average (M/D/1).
func TestQueueLikeTheory(t *testing.T) {
	a := assumed
	a.Cores, a.Load = 1, .6
	f := newFleet(8, 1, measured, a, 1)
	const service = int64(time.Millisecond)
	for i := range f.work.requests {
		f.work.requests[i] = request{cpu: service}
	}
	f.rate = a.Load / float64(service)
	waited, count := 0., 0.
	for f.now < int64(100*time.Second) {
		e := f.queue.pop()
		f.now = e.at
		waited += float64(max(0, f.replicas[e.replica].cores[0]-f.now))
		count++
		f.arrive(e.replica)
	}
	want := float64(service) * a.Load / 2 / (1 - a.Load)
	if mean := waited / count; math.Abs(mean/want-1) > .05 {
		t.Errorf("a request waits %.0f ns, expected %.0f", mean, want)
	}
}

func TestSegmentsFollowThePacking(t *testing.T) {
	f := newFleet(1, 1, measured, assumed, 1)
	for i := range f.work.requests {
		f.work.requests[i] = request{cpu: 1000, kept: 1, stored: 1000}
	}
	f.rate = 100e-9 // 100 originals a second
	r := f.run(60 * time.Second)
	if per1000 := 1000 * float64(r.segments) / float64(r.originals); per1000 > 20 || per1000 < 10 {
		t.Errorf("%.1f PUTs for 1,000 originals at 100 a second, expected 10 to 20", per1000)
	}
	if r.kept.total != r.originals {
		t.Errorf("%d of %d originals were acknowledged", r.kept.total, r.originals)
	}
}

// Whatever replicas hold, a limit is never exceeded, and nearly all of it can be used.
func TestLimiterHolds(t *testing.T) {
	for _, n := range []int{1, 4, 100} {
		for _, limit := range []float64{50, 5000} {
			r := simulateLimiter(n, limit, 3, granting, assumed, 10, 1)
			if float64(r.accepted) > r.allowed+math.Max(1, r.allowed/100) {
				t.Errorf("%d replicas, %g/s: %d accepted, allowed %.0f", n, limit, r.accepted, r.allowed)
			}
			if float64(r.accepted) < .97*r.allowed {
				t.Errorf("%d replicas, %g/s: only %d of %.0f accepted", n, limit, r.accepted, r.allowed)
			}
		}
	}
}

func TestQuantiles(t *testing.T) {
	var h histogram
	for i := range int64(10_000) {
		h.add((i + 1) * 1000)
	}
	for _, q := range []float64{.5, .99, .999} {
		if got, want := float64(h.quantile(q)), q*1e7; math.Abs(got/want-1) > .04 {
			t.Errorf("quantile %g: %.0f, expected about %.0f", q, got, want)
		}
	}
}

func TestCapacityIsPrinted(t *testing.T) {
	var b bytes.Buffer
	printCapacity(&b, measured, assumed, 1)
	for _, row := range dollarRows {
		if !bytes.Contains(b.Bytes(), []byte("| $ a month: "+row+" |")) {
			t.Errorf("no row for %s", row)
		}
	}
}
