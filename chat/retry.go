package chat

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/retryafter"
)

const (
	firstBackoff = 250 * time.Millisecond
	maxRetryWait = 8 * time.Second // a longer wait is left to the client
)

// isRetryableStatus says whether an answer says nothing about the request itself, so that it may succeed the
// next time or elsewhere.
func isRetryableStatus(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout, 529: // Anthropic: overloaded
		return true
	}
	return false
}

// askProviders asks the candidates in order, each with retries, until one answers. If all fail, it returns the
// last failed answer, or the last error.
func (px *Proxy) askProviders(ctx context.Context, c *call) (*reply, error) {
	var held *reply
	var err error
	last := len(c.candidates) - 1
	for i, p := range c.candidates {
		if i > 0 {
			px.deps.Meter.CountFallback(c.lastAsked.Name)
		}
		var rep *reply
		rep, err = px.askWithRetries(ctx, c, p, p == c.routed)
		if err == nil && !isRetryableStatus(rep.StatusCode) || i == last && rep != nil {
			return rep, nil
		}
		if fault.KindOf(err) == fault.Canceled && err != nil {
			return nil, err
		}
		if rep != nil {
			if kept := rep.buffered(); kept != nil {
				held = kept
			}
		}
	}
	if held != nil {
		return held, nil
	}
	return nil, err
}

// askWithRetries asks one provider until it answers or retrying does not help.
func (px *Proxy) askWithRetries(ctx context.Context, c *call, p *provider, own bool) (*reply, error) {
	c.lastAsked = p
	p.budget.countRequest(time.Now())
	var held *reply
	for n := 0; ; n++ {
		c.attempts++
		rep, err := p.callProvider(ctx, c, own)
		wait, again := time.Duration(0), false
		if !c.upload.hasBegun() {
			wait, again = p.shouldRetry(n, rep, err, c.allowsRepeat())
		}
		switch {
		case err == nil && !again:
			return rep, nil
		case !again && held != nil && fault.KindOf(err) != fault.Canceled:
			return held, nil
		case !again:
			return nil, err
		}
		if rep != nil {
			held = rep.buffered()
		}
		px.deps.Meter.CountRetry(p.Name)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, providerFault(ctx, ctx.Err())
		}
	}
}

// allowsRepeat says whether a request may be executed twice: the client allows it, or it changes nothing.
func (c *call) allowsRepeat() bool {
	return c.method == http.MethodGet || c.method == http.MethodHead || c.header.Get("Idempotency-Key") != "" || c.header.Get("X-Idempotency-Key") != ""
}

// shouldRetry says whether to send a request again after n retries, and after which wait. A request that was
// delivered and not answered may have been executed: it is sent again only if the client allows it.
func (p *provider) shouldRetry(n int, rep *reply, err error, repeatable bool) (time.Duration, bool) {
	wait := backoff(n)
	switch {
	case err != nil && fault.KindOf(err) != fault.Unavailable: // it timed out, or the client left
		return 0, false
	case errors.Is(err, errUnanswered) && !repeatable:
		return 0, false
	case err == nil && !isRetryableStatus(rep.StatusCode):
		return 0, false
	case err == nil:
		if rep.Header.Get("X-Should-Retry") == "false" {
			return 0, false
		}
		wait = max(wait, retryafter.ParseMillis(rep.Header, time.Now()))
	}
	if n >= p.Retries || wait > maxRetryWait {
		return 0, false
	}
	return wait, p.budget.takeRetry(time.Now())
}

// backoff grows with each retry, with jitter.
func backoff(n int) time.Duration {
	most := min(firstBackoff<<n, maxRetryWait)
	return most/2 + rand.N(most/2)
}

// retryBudget limits retries to a share of a provider's requests of the last seconds, and always allows a
// few, so that retries do not keep an overloaded provider overloaded.
type retryBudget struct {
	mu    sync.Mutex
	share float64
	slots [budgetSeconds]struct {
		second         int64
		asked, retried int
	}
}

const (
	budgetSeconds = 10
	minRetries    = 3
)

func (b *retryBudget) setShare(share float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.share = share
}

func (b *retryBudget) countRequest(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slots[b.currentSlot(now)].asked++
}

// takeRetry counts a retry if the budget allows one.
func (b *retryBudget) takeRetry(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.currentSlot(now)
	asked, retried := 0, 0
	for _, s := range b.slots {
		if now.Unix()-s.second < budgetSeconds {
			asked += s.asked
			retried += s.retried
		}
	}
	if float64(retried+1) > max(minRetries, b.share*float64(asked)) {
		return false
	}
	b.slots[at].retried++
	return true
}

func (b *retryBudget) currentSlot(now time.Time) int {
	second := now.Unix()
	at := int(second % budgetSeconds)
	if s := &b.slots[at]; s.second != second {
		s.second, s.asked, s.retried = second, 0, 0
	}
	return at
}
