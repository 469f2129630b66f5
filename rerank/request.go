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
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/readbody"
	"github.com/ctxgate/ctxgate/internal/retryafter"
)

const (
	maxReply   = 4 << 20                // bytes; vLLM repeats the documents, possibly escaped
	firstPause = 200 * time.Millisecond // doubled with every attempt, with jitter
	busyTries  = 4                      // attempts if the server is busy
	lostTries  = 2                      // attempts if it cannot be reached
)

// requestScores sends the query in as many requests as needed, one after the other, so as not to overload
// the reranker. While a request is retried, why holds the last error status.
func (c *Client) requestScores(ctx context.Context, q scoreQuery, why *atomic.Pointer[statusError]) (scores []float64, status int, err error) {
	for _, r := range c.splitRequests(q) {
		var body []byte
		if body, status, err = c.postWithRetry(ctx, c.shape.appendBody(nil, r), why); err != nil {
			return nil, status, err
		}
		part, err := parseReply(body, len(r.docs), c.shape.mayOmitDocs)
		if err != nil {
			return nil, status, parseError(status, err)
		}
		scores = append(scores, part...)
	}
	normalize(scores)
	return scores, status, nil
}

// postWithRetry posts a body until it gets a reply, a permanent error, or runs out of time or attempts.
func (c *Client) postWithRetry(ctx context.Context, body []byte, why *atomic.Pointer[statusError]) ([]byte, int, error) {
	pause := firstPause
	for try := 1; ; try++ {
		reply, status, err := c.postOnce(ctx, body)
		if err == nil {
			why.Store(nil)
			return reply, status, nil
		}
		var no *statusError
		if errors.As(err, &no) {
			why.Store(no)
		}
		wait, more := retryDelay(err, try, pause)
		if !more || !sleepIfTime(ctx, wait) {
			return nil, status, c.failureOf(ctx, err, why.Load())
		}
		pause *= 2
	}
}

// retryDelay returns whether to try again, and after how long.
func retryDelay(err error, try int, pause time.Duration) (time.Duration, bool) {
	wait := pause/2 + rand.N(pause/2)
	var no *statusError
	var done *Error
	switch {
	case errors.As(err, &done):
		return 0, false
	case errors.As(err, &no):
		return max(wait, no.retryAfter), no.isTransient() && try < busyTries
	}
	return wait, !isPermanent(err) && try < lostTries
}

// isPermanent reports whether a connection would fail in the same way again.
func isPermanent(err error) bool {
	var certificate *tls.CertificateVerificationError
	var name *net.DNSError
	return errors.As(err, &certificate) || errors.As(err, &name) && name.IsNotFound
}

// sleepIfTime waits, unless the deadline is sooner; false if so, or if ctx ends.
func sleepIfTime(ctx context.Context, d time.Duration) bool {
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

// failureOf returns the Error for the last attempt.
func (c *Client) failureOf(ctx context.Context, err error, why *statusError) error {
	var no *statusError
	var done *Error
	switch {
	case errors.As(err, &done):
		return done
	case errors.As(err, &no):
		return &Error{Kind: KindHTTP, Status: no.status, Err: no}
	case ctx.Err() != nil:
		return contextError(ctx, why)
	}
	return &Error{Kind: KindHTTP, Err: c.withoutSecrets(err)}
}

// postOnce makes one request. It fails with a *statusError, with the *Error of a reply that cannot be
// used, or with the error of the connection.
func (c *Client) postOnce(ctx context.Context, body []byte) (reply []byte, status int, err error) {
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
		// The body is not read: that could take all the time that is left.
		return nil, resp.StatusCode, &statusError{resp.StatusCode, retryafter.Parse(resp.Header, time.Now())}
	}
	reply, err = readReplyBody(ctx, resp)
	return reply, resp.StatusCode, err
}

func readReplyBody(ctx context.Context, resp *http.Response) ([]byte, error) {
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return nil, parseError(resp.StatusCode, errors.New("it has an encoding that was not asked for"))
	}
	body, err := readbody.ReadUntrusted(resp.Body, resp.ContentLength, maxReply, membudget.FromContext(ctx))
	if errors.Is(err, readbody.ErrTooLarge) {
		return nil, parseError(resp.StatusCode, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the reply: %w", err)
	}
	return body, nil
}
