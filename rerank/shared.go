package rerank

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// flight is a question under way, and the calls that wait for its answer. It has the deadline of
// the call that began it, but it ends only when nobody waits any more: a call that is cancelled
// takes nothing from the others.
type flight struct {
	cancel  context.CancelFunc
	waiting int
	why     atomic.Pointer[refusal] // it is being asked again
	done    chan struct{}           // closed when the rest is there to be read

	scores []float64
	status int
	took   time.Duration
	err    error
}

// share answers from what is known, or joins whoever asks the same, or asks.
func (c *Client) share(ctx context.Context, q question) (Answer, error) {
	key := c.digest(q)
	for {
		if ctx.Err() != nil {
			return Answer{}, left(ctx, nil)
		}
		c.mu.Lock()
		if k, ok := c.kept.get(key); ok {
			c.mu.Unlock()
			return Answer{Scores: k.scores, Status: k.status, Cached: true}, nil
		}
		f, began := c.board(ctx, key, q)
		c.mu.Unlock()

		select {
		case <-f.done:
		case <-ctx.Done():
			c.leave(key, f)
			return Answer{}, left(ctx, f.why.Load())
		}
		if began || !outOfTime(f.err) {
			return Answer{Scores: f.scores, Status: f.status, Latency: f.took}, f.err
		}
		// The time of another call ran out. This one may have some left.
	}
}

func outOfTime(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// board joins the flight of a question, or begins it. The lock is held.
func (c *Client) board(ctx context.Context, key digest, q question) (f *flight, began bool) {
	if f, ok := c.flights[key]; ok {
		f.waiting++
		return f, false
	}
	end, _ := ctx.Deadline() // Score sets one
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	f = &flight{cancel: cancel, waiting: 1, done: make(chan struct{})}
	c.flights[key] = f
	go c.fly(ctx, key, f, q)
	return f, true
}

func (c *Client) fly(ctx context.Context, key digest, f *flight, q question) {
	defer f.cancel()
	start := time.Now()
	scores, status, err := c.ask(ctx, q, &f.why)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.kept.put(key, scores, status)
	}
	f.scores, f.status, f.took, f.err = scores, status, time.Since(start), err
	c.forget(key, f)
	close(f.done)
}

// leave ends a flight when the last call leaves it.
func (c *Client) leave(key digest, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		c.forget(key, f)
		f.cancel()
	}
}

func (c *Client) forget(key digest, f *flight) {
	if c.flights[key] == f {
		delete(c.flights, key)
	}
}
