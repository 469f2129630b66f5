// Command scalesim simulates 100 and 1,000 replicas of the gateway event by event, with the costs of this repository's code:
//
//	go run ./tools/scalesim           latency, segments, limits, disk caches, a region's loss, and the capacity model
//	go run ./tools/scalesim -measure  measures the costs again and prints them beside those in use
//
// Path through the files: costs.go has what was measured (measure.go and storework.go measure it, costs_test.go compares),
// assumptions.go what was not; workload.go makes requests of agents' conversations; fleet.go simulates replicas, Redis and the
// bucket with events.go; limiter.go, diskcache.go and report.go the rest; capacity.go works out what numbers of agents need and cost.
//
// A seed makes a run repeatable. Nothing is fitted: results follow from costs and assumptions.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of the random numbers")
	measure := flag.Bool("measure", false, "measure the costs again")
	flag.Parse()
	if *measure {
		c, err := measureCosts(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for _, row := range compareCosts(c) {
			fmt.Printf("%-14s in use %12s   measured %12s   × %.2f\n", row.name, row.inUse, row.measured, row.ratio)
		}
		return
	}
	printReport(os.Stdout, measured, assumed, *seed)
}
