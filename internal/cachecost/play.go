package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/ctxgate/ctxgate/internal/llmtest"
)

// bills is what the provider charged for each run, by request.
type bills map[run]llmtest.Ledger

// play plays all that the sheets need, as many at a time as there are processors.
func play(ctx context.Context, sheets []sheet) (bills, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type job struct {
		run
		llmtest.Trajectory
	}
	jobs := make(chan job)
	out := bills{}
	var mu sync.Mutex
	var busy sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		busy.Go(func() {
			for j := range jobs {
				bill, err := j.play(ctx, j.Trajectory)
				if err != nil {
					cancel(err)
				}
				mu.Lock()
				out[j.run] = bill
				mu.Unlock()
			}
		})
	}
	begun := map[run]bool{}
	for _, s := range sheets {
		runs, talks := s.runs()
		for _, r := range runs {
			if !begun[r] && ctx.Err() == nil {
				begun[r] = true
				jobs <- job{r, talks[r.talk]}
			}
		}
	}
	close(jobs)
	busy.Wait()
	return out, context.Cause(ctx)
}

// play plays one conversation and is what the provider charged.
func (r run) play(ctx context.Context, talk llmtest.Trajectory) (llmtest.Ledger, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, err := open(r)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	w.provider.ScriptFunc(talk.Answer)
	player := llmtest.Player{URL: w.url, Shape: r.wire.shape, Marks: r.wire.marks, Before: func(turn int) {
		if turn == len(talk.Turns)/2 {
			w.provider.Advance(r.rest)
		}
	}}
	if _, err := player.Play(ctx, talk); err != nil {
		return nil, fmt.Errorf("play: %w", err)
	}
	bill := w.provider.Bill()
	if len(bill) != len(talk.Turns)+1 {
		return nil, errors.New("the provider did not charge for every request once")
	}
	return bill, nil
}
