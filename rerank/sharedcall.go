package rerank

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// sharedCall is a query in flight and the calls that wait for it. It has the deadline of the call that
// started it and is cancelled when no call waits any more; one cancelled call does not affect the others.
type sharedCall struct {
	cancel      context.CancelFunc
	waiters     int
	lastRefusal atomic.Pointer[statusError] // the error status after which the request is being retried
	done        chan struct{}               // closed when the fields below are set

	scores  []float64
	status  int
	latency time.Duration
	err     error
}

// scoreShared returns a cached result, or joins a call with the same query, or starts one.
func (c *Client) scoreShared(ctx context.Context, q scoreQuery) (Result, error) {
	key := c.digest(q)
	for {
		if ctx.Err() != nil {
			return Result{}, contextError(ctx, nil)
		}
		c.mu.Lock()
		if k, ok := c.cache.getScores(key); ok {
			c.mu.Unlock()
			return Result{Scores: k.scores, Status: k.status, Cached: true}, nil
		}
		f, began := c.joinOrStart(ctx, key, q)
		c.mu.Unlock()

		select {
		case <-f.done:
		case <-ctx.Done():
			c.leaveCall(key, f)
			return Result{}, contextError(ctx, f.lastRefusal.Load())
		}
		if began || !isTimeout(f.err) {
			return Result{Scores: f.scores, Status: f.status, Latency: f.latency}, f.err
		}
		// The deadline was that of another call. This one may have time left.
	}
}

func isTimeout(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// joinOrStart joins the call in flight for a query, or starts it. The lock is held.
func (c *Client) joinOrStart(ctx context.Context, key digest, q scoreQuery) (f *sharedCall, began bool) {
	if f, ok := c.calls[key]; ok {
		f.waiters++
		return f, false
	}
	end, _ := ctx.Deadline() // Score sets one
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	f = &sharedCall{cancel: cancel, waiters: 1, done: make(chan struct{})}
	c.calls[key] = f
	go c.runCall(ctx, key, f, q)
	return f, true
}

func (c *Client) runCall(ctx context.Context, key digest, f *sharedCall, q scoreQuery) {
	defer f.cancel()
	start := time.Now()
	scores, status, err := c.requestScores(ctx, q, &f.lastRefusal)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.cache.putScores(key, scores, status)
	}
	f.scores, f.status, f.latency, f.err = scores, status, time.Since(start), err
	c.removeCall(key, f)
	close(f.done)
}

// leaveCall cancels a shared call when its last waiter leaves.
func (c *Client) leaveCall(key digest, f *sharedCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.waiters--; f.waiters == 0 {
		c.removeCall(key, f)
		f.cancel()
	}
}

func (c *Client) removeCall(key digest, f *sharedCall) {
	if c.calls[key] == f {
		delete(c.calls, key)
	}
}
