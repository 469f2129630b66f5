package chat

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

const (
	firstPause  = 250 * time.Millisecond
	longestWait = 8 * time.Second // that a provider may ask for; a client can wait longer better than we can
)

// overloaded are the answers that say nothing of the request: it may fare better the next time, or
// elsewhere.
func overloaded(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout, 529: // Anthropic: overloaded
		return true
	}
	return false
}

// ask asks the first of the call's providers, again while that may help, then the others. Where
// nobody has a better answer, the last one there was is the reply.
func (d *Door) ask(ctx context.Context, c *call) (*reply, error) {
	var held *reply
	var err error
	last := len(c.chain) - 1
	for i, p := range c.chain {
		if i > 0 {
			d.deps.Meter.Fallback(c.asked.Name)
		}
		var rep *reply
		rep, err = d.insist(ctx, c, p, p == c.routed)
		if err == nil && !overloaded(rep.StatusCode) || i == last && rep != nil {
			return rep, nil
		}
		if fault.KindOf(err) == fault.Canceled && err != nil {
			return nil, err
		}
		if rep != nil {
			if kept := rep.hold(); kept != nil {
				held = kept
			}
		}
	}
	if held != nil {
		return held, nil
	}
	return nil, err
}

// insist asks one provider until it answers, or asking again makes no sense.
func (d *Door) insist(ctx context.Context, c *call, p *provider, own bool) (*reply, error) {
	c.asked = p
	p.budget.asked(time.Now())
	var held *reply
	for n := 0; ; n++ {
		c.tries++
		rep, err := p.try(ctx, c, own)
		wait, again := p.again(n, rep, err, c.repeatable())
		switch {
		case err == nil && !again:
			return rep, nil
		case !again && held != nil && fault.KindOf(err) != fault.Canceled:
			return held, nil
		case !again:
			return nil, err
		}
		if rep != nil {
			held = rep.hold()
		}
		d.deps.Meter.Retry(p.Name)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, failure(ctx, ctx.Err())
		}
	}
}

// repeatable says whether the client allows its request to be executed twice.
func (c *call) repeatable() bool {
	return c.head.Get("Idempotency-Key") != "" || c.head.Get("X-Idempotency-Key") != ""
}

// again says whether to make a request again after n retries, and when. A request that the provider had
// as a whole and did not answer is only made again where the client allows it: it may have been executed.
func (p *provider) again(n int, rep *reply, err error, repeatable bool) (time.Duration, bool) {
	wait := pause(n)
	switch {
	case err != nil && fault.KindOf(err) != fault.Unavailable: // it had its time, or the client left
		return 0, false
	case errors.Is(err, errUnanswered) && !repeatable:
		return 0, false
	case err == nil && !overloaded(rep.StatusCode):
		return 0, false
	case err == nil:
		if rep.Header.Get("X-Should-Retry") == "false" {
			return 0, false
		}
		wait = max(wait, retryAfter(rep.Header))
	}
	if n >= p.Retries || wait > longestWait {
		return 0, false
	}
	return wait, p.budget.take(time.Now())
}

// pause grows with each try, and is never the same for two that failed together.
func pause(n int) time.Duration {
	most := min(firstPause<<n, longestWait)
	return most/2 + rand.N(most/2)
}

// retryAfter is how long a provider asks to be left alone.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseUint(h.Get("Retry-After-Ms"), 10, 31); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	s := h.Get("Retry-After")
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return time.Until(at)
	}
	return 0
}

// budget bounds how much of a provider's load is made of retries, so that one in trouble is not
// kept in it: a share of the requests of the last seconds, and always a few.
type budget struct {
	mu    sync.Mutex
	share float64
	slots [budgetSeconds]struct {
		second         int64
		asked, retried int
	}
}

const (
	budgetSeconds = 10
	budgetLeast   = 3
)

func (b *budget) allow(share float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.share = share
}

// asked counts a request.
func (b *budget) asked(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slots[b.slot(now)].asked++
}

// take counts a retry, where there is room for one.
func (b *budget) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.slot(now)
	asked, retried := 0, 0
	for _, s := range b.slots {
		if now.Unix()-s.second < budgetSeconds {
			asked += s.asked
			retried += s.retried
		}
	}
	if float64(retried+1) > max(budgetLeast, b.share*float64(asked)) {
		return false
	}
	b.slots[at].retried++
	return true
}

func (b *budget) slot(now time.Time) int {
	second := now.Unix()
	at := int(second % budgetSeconds)
	if s := &b.slots[at]; s.second != second {
		s.second, s.asked, s.retried = second, 0, 0
	}
	return at
}
