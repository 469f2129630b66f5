package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

// runBills is the provider's bill for each run.
type runBills map[replayRun]fakeprovider.Bill

// replayAll replays everything that the tables need, in parallel.
func replayAll(ctx context.Context, sheets ...reportTable) (runBills, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type job struct {
		replayRun
		trajectories.Trajectory
	}
	jobs := make(chan job)
	out := runBills{}
	var mu sync.Mutex
	var busy sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		busy.Go(func() {
			for j := range jobs {
				bill, err := j.replay(ctx, j.Trajectory)
				if err != nil {
					cancel(err)
				}
				mu.Lock()
				out[j.replayRun] = bill
				mu.Unlock()
			}
		})
	}
	begun := map[replayRun]bool{}
	for _, s := range sheets {
		runs, talks := s.runs()
		for _, r := range runs {
			if !begun[r] && ctx.Err() == nil {
				begun[r] = true
				jobs <- job{r, talks[r.trajectory]}
			}
		}
	}
	close(jobs)
	busy.Wait()
	return out, context.Cause(ctx)
}

// replay replays one conversation and returns the provider's bill.
func (r replayRun) replay(ctx context.Context, talk trajectories.Trajectory) (fakeprovider.Bill, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, err := openSetup(r)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	w.provider.ScriptFunc(talk.Answer)
	player := trajectories.Replayer{URL: w.url, Shape: r.wire.shape, CacheMarks: r.wire.cacheMarks, Model: r.model, BeforeTurn: func(turn int) {
		if turn == len(talk.Turns)/2 {
			w.provider.Advance(r.pause)
		}
	}}
	if _, err := player.Run(ctx, talk); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	bill := w.provider.Bill()
	if len(bill) != len(talk.Turns)+1 {
		return nil, errors.New("the bill does not have one entry per request")
	}
	return bill, nil
}
