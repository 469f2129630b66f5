package rerank

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/slurp"
)

const (
	maxReply   = 4 << 20                // bytes; vLLM repeats the documents, and may escape all of them
	firstPause = 200 * time.Millisecond // doubled with every try, and jittered
	busyTries  = 4                      // how often a server is asked that answers that it is busy
	lostTries  = 2                      // and one that cannot be reached: it may just not be there
)

// ask puts the whole question, one request after the other: a reranker that has enough to do with
// one is not helped by two. While it is being asked again, why says what it said.
func (c *Client) ask(ctx context.Context, q question, why *atomic.Pointer[refusal]) (scores []float64, status int, err error) {
	for _, r := range c.requests(q) {
		var body []byte
		if body, status, err = c.send(ctx, c.shape.body(nil, r), why); err != nil {
			return nil, status, err
		}
		part, err := readReply(body, len(r.docs), c.shape.partial)
		if err != nil {
			return nil, status, unreadable(status, err)
		}
		scores = append(scores, part...)
	}
	scale(scores)
	return scores, status, nil
}

// send posts a body until there is an answer, no hope, or no time.
func (c *Client) send(ctx context.Context, body []byte, why *atomic.Pointer[refusal]) ([]byte, int, error) {
	pause := firstPause
	for try := 1; ; try++ {
		reply, status, err := c.post(ctx, body)
		if err == nil {
			why.Store(nil)
			return reply, status, nil
		}
		var no *refusal
		if errors.As(err, &no) {
			why.Store(no)
		}
		wait, more := again(err, try, pause)
		if !more || !sleep(ctx, wait) {
			return nil, status, c.failure(ctx, err, why.Load())
		}
		pause *= 2
	}
}

// again says whether another try is worth it, and when.
func again(err error, try int, pause time.Duration) (time.Duration, bool) {
	wait := pause/2 + rand.N(pause/2)
	var no *refusal
	var done *Error
	switch {
	case errors.As(err, &done):
		return 0, false
	case errors.As(err, &no):
		return max(wait, no.after), no.passing() && try < busyTries
	}
	return wait, !lasting(err) && try < lostTries
}

// lasting says that a connection would fail in the same way again.
func lasting(err error) bool {
	var certificate *tls.CertificateVerificationError
	var name *net.DNSError
	return errors.As(err, &certificate) || errors.As(err, &name) && name.IsNotFound
}

// sleep waits, if there will be time left after that.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// failure is the Error of the last try.
func (c *Client) failure(ctx context.Context, err error, why *refusal) error {
	var no *refusal
	var done *Error
	switch {
	case errors.As(err, &done):
		return done
	case errors.As(err, &no):
		return &Error{Kind: KindHTTP, Status: no.status, Err: no}
	case ctx.Err() != nil:
		return left(ctx, why)
	}
	return &Error{Kind: KindHTTP, Err: c.broken(err)}
}

// post makes one request. It fails with a *refusal, with the *Error of a reply that cannot be
// used, or with whatever the connection did.
func (c *Client) post(ctx context.Context, body []byte) (reply []byte, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		// What else it says is not read, for it could take all the time that is left.
		return nil, resp.StatusCode, &refusal{resp.StatusCode, retryAfter(resp.Header.Get("Retry-After"))}
	}
	reply, err = readAll(ctx, resp)
	return reply, resp.StatusCode, err
}

func readAll(ctx context.Context, resp *http.Response) ([]byte, error) {
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return nil, unreadable(resp.StatusCode, errors.New("it has an encoding that was not asked for"))
	}
	body, err := slurp.Claimed(resp.Body, resp.ContentLength, maxReply, membudget.From(ctx))
	if errors.Is(err, slurp.ErrTooLarge) {
		return nil, unreadable(resp.StatusCode, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return body, nil
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(s string) time.Duration {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
