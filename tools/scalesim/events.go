package main

import (
	"math"
	"time"
)

// event is something that happens at a time, in ns.
type event struct {
	at      int64
	kind    eventKind
	replica int32
	number  int32
	began   int64
}

type eventKind uint8

const (
	arrival    eventKind = iota // a request reaches a replica
	keep                        // a replica has prepared an original of a request
	flushTimer                  // a segment is due
	uploaded                    // a segment is in the bucket
)

// eventQueue is a binary heap. Events of the same time come in the order of their numbers and replicas, so that a run can be
// repeated.
type eventQueue []event

func (q eventQueue) before(i, j int) bool {
	a, b := &q[i], &q[j]
	if a.at != b.at {
		return a.at < b.at
	}
	if a.replica != b.replica {
		return a.replica < b.replica
	}
	return a.number < b.number
}

func (q *eventQueue) push(e event) {
	*q = append(*q, e)
	for i := len(*q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.before(i, up) {
			break
		}
		(*q)[i], (*q)[up] = (*q)[up], (*q)[i]
		i = up
	}
}

func (q *eventQueue) pop() event {
	old := *q
	first, last := old[0], len(old)-1
	old[0] = old[last]
	*q = old[:last]
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && q.before(down, least) {
				least = down
			}
		}
		if least == i {
			return first
		}
		(*q)[i], (*q)[least] = (*q)[least], (*q)[i]
		i = least
	}
}

// histogram counts durations in steps of a sixteenth of each power of two, from a microsecond on.
type histogram struct {
	counts [512]int64
	total  int64
}

const histogramFirst = 10 * 16 // of 1,024 ns

func (h *histogram) add(ns int64) {
	at := int(math.Float64bits(float64(max(1024, ns)))>>48) - 1023*16 - histogramFirst
	h.counts[min(at, len(h.counts)-1)]++
	h.total++
}

// quantile is the duration that a share of all do not exceed.
func (h *histogram) quantile(share float64) time.Duration {
	seen := int64(0)
	for i, n := range h.counts {
		if seen += n; n > 0 && float64(seen) >= share*float64(h.total) {
			return time.Duration(math.Float64frombits(uint64(i+1023*16+histogramFirst)<<48 | 1<<47))
		}
	}
	return 0
}
