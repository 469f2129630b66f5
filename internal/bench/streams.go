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

// epoch is where the times inside streams begin: provider and agents are one process, with one
// clock that nobody sets.
var epoch = time.Now()

// stream sends so many events as the query says, each with the time at which it was sent, at an
// even pace.
func stream(w http.ResponseWriter, r *http.Request) {
	count, _ := strconv.Atoi(r.URL.Query().Get("stream"))
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would collect them
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

// listen asks for a stream of so many events and says how long each was on its way.
func (a *agent) listen(t *talk, count int) ([]time.Duration, error) {
	body, tail := t.request(1)
	if err := a.send(t.path+"?stream="+strconv.Itoa(count), body, tail); err != nil {
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

// listenThrough opens many streams through a door, spread over one pause as streams of strangers
// are, and says what their events took. The first of each stream are not counted. A stream that
// breaks off is a failure of ctxgate's doors; other doors are told how many did.
func listenThrough(ctx context.Context, d *door, t *talk, count int) (spread, error) {
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
			times[i], failures[i] = a.listen(t, count)
		})
	}
	wg.Wait()
	out := spread{broken: streams}
	var all []time.Duration
	for i, took := range times {
		if failures[i] == nil {
			out.broken--
			all = append(all, took[min(len(took)-1, 10):]...)
		}
	}
	if out.broken > 0 && (d.own || len(all) == 0) {
		return out, fmt.Errorf("streams through %s: %w", d.name, errors.Join(failures...))
	}
	slices.Sort(all)
	out.p50, out.p99 = all[len(all)/2], all[len(all)*99/100]
	return out, nil
}

// spread is how long events were on their way, and how many streams broke off.
type spread struct {
	p50, p99 time.Duration
	broken   int
}
