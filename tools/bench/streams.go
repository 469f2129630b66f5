package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	streams     = 100
	streamPause = 20 * time.Millisecond
)

// epoch is the origin of the times inside streams: provider and agents are one process with one monotonic clock.
var epoch = time.Now()

// stream sends the number of events given in the query at an even pace, each with its send time.
func stream(w http.ResponseWriter, r *http.Request) {
	count, _ := strconv.Atoi(r.URL.Query().Get("stream"))
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // or nginx would buffer them
	tick := time.NewTicker(streamPause)
	defer tick.Stop()
	for range count {
		fmt.Fprintf(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"at\":%d,\"choices\":[{\"index\":0,\"delta\":{\"content\":\"some words \"}}]}\n\n", time.Since(epoch).Nanoseconds())
		if control.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// readStream requests a stream and returns the latency of each event.
func (a *agent) readStream(t *conversation, count int) ([]time.Duration, error) {
	body, tail := t.request(1)
	if err := a.writeRequest(t.path+"?stream="+strconv.Itoa(count), body, tail); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(a.read, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var took []time.Duration
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		_, after, found := strings.Cut(lines.Text(), `"at":`)
		if !found {
			continue
		}
		now := time.Since(epoch)
		digits, _, _ := strings.Cut(after, ",")
		at, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return nil, err
		}
		took = append(took, now-time.Duration(at))
	}
	if err := lines.Err(); err != nil || len(took) != count {
		return nil, fmt.Errorf("%s: %d events of %d: %w", resp.Status, len(took), count, err)
	}
	return took, nil
}

// streamThrough opens many streams through a proxy, started evenly over one pause, and returns the latency of
// their events without the first of each stream. A broken stream is an error for ctxgate and counted for
// other proxies.
func streamThrough(ctx context.Context, d *proxy, t *conversation, count int) (latencies, error) {
	times := make([][]time.Duration, streams)
	failures := make([]error, streams)
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			time.Sleep(streamPause * time.Duration(i) / streams)
			a, err := dial(ctx, d.addr)
			if err != nil {
				failures[i] = err
				return
			}
			defer func() { _ = a.conn.Close() }()
			times[i], failures[i] = a.readStream(t, count)
		})
	}
	wg.Wait()
	out := latencies{broken: streams}
	var all []time.Duration
	for i, took := range times {
		if failures[i] == nil {
			out.broken--
			all = append(all, took[min(len(took)-1, 10):]...)
		}
	}
	if out.broken > 0 && (d.isGateway || len(all) == 0) {
		return out, fmt.Errorf("streams through %s: %w", d.name, errors.Join(failures...))
	}
	slices.Sort(all)
	out.p50, out.p99 = all[len(all)/2], all[len(all)*99/100]
	return out, nil
}

// latencies summarizes the events of many streams; broken is the number of streams that broke.
type latencies struct {
	p50, p99 time.Duration
	broken   int
}
