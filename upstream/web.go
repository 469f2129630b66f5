package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/grant"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/slurp"
)

const (
	eventStream = "text/event-stream"
	linger      = 500 * time.Millisecond // how long an answered POST may take to end
	tellTime    = 10 * time.Second       // the longest a message without a reply may take
	drainBytes  = 64 << 10               // what is read of an answer nobody needs, to keep its connection
	longestWait = time.Hour              // what a server may ask to be left alone for
)

// web is how a server is reached over HTTP.
type web struct {
	headers http.Header // what its entry wants to be sent, and nothing else
	client  *http.Client
	limit   int64         // the largest reply
	server  *grant.Server // whose permission may be needed; nil where none is asked for
}

func (r *Remote) web() web {
	headers := http.Header{}
	for name, value := range r.entry.Headers {
		headers.Set(name, value.Reveal())
	}
	w := web{headers: headers, client: newClient(r.deps.Transport), limit: int64(r.cfg.MaxReplyBytes)}
	if !r.entry.OAuth.Off && headers.Get("Authorization") == "" {
		w.server = grant.For(r.entry.ID, r.entry.URL.Reveal(), r.entry.OAuth)
	}
	return w
}

// newClient follows no redirects and keeps no cookies: the entry says where a server is, and its
// credentials go nowhere else.
func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// get opens a stream of events. Anything else that is answered is an *answer.
func (w web) get(ctx context.Context, url string, extra http.Header) (io.ReadCloser, error) {
	head := w.headers.Clone()
	for name, values := range extra {
		head[name] = values
	}
	head.Set("Accept", eventStream)
	resp, err := w.do(ctx, http.MethodGet, url, nil, head)
	if err != nil {
		return nil, err
	}
	if isOK(resp) && isEvents(resp) && unpacked(resp) == nil {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return nil, newAnswer(resp, body)
}

// post sends a message. The headers are the caller's to change.
func (w web) post(ctx context.Context, url string, body []byte, head http.Header) (*http.Response, error) {
	head.Set("Content-Type", "application/json")
	head.Set("Accept", "application/json, "+eventStream)
	return w.do(ctx, http.MethodPost, url, body, head)
}

func (w web) do(ctx context.Context, method, url string, body []byte, head http.Header) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	if w.server != nil {
		ctx = grant.With(ctx, w.server)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		return nil, secret.Bare(err)
	}
	req.Header = head
	resp, err := w.client.Do(req)
	return resp, secret.Bare(err)
}

// leash is the context of what a call has under way on the network. It ends at once when nobody
// waits for the call any more, and a moment after the answer: then the connection can be used
// again, while a server that never ends its stream does not keep it.
func leash(life context.Context, f *flight) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(life)
	f.stop = func() {
		switch {
		case !f.over.Load():
			cancel()
		case ctx.Err() == nil:
			time.AfterFunc(linger, cancel)
		}
	}
	return ctx, cancel
}

func isOK(resp *http.Response) bool { return resp.StatusCode/100 == 2 }

func isEvents(resp *http.Response) bool {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), eventStream)
}

// unpacked refuses a body that would have to be unpacked first: it was not asked for.
func unpacked(resp *http.Response) error {
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return fault.Wrap(fault.BadReply, "the server's answer cannot be read", fmt.Errorf("unasked Content-Encoding %q", enc))
	}
	return nil
}

// bodyOf reads all of a reply, and charges it to a scope.
func bodyOf(ctx context.Context, resp *http.Response, limit int64, memory *membudget.Scope) ([]byte, error) {
	if err := unpacked(resp); err != nil {
		return nil, err
	}
	body, err := slurp.Sized(resp.Body, resp.ContentLength, limit, memory)
	switch {
	case errors.Is(err, slurp.ErrTooLarge):
		return nil, tooLarge(err)
	case err != nil:
		return nil, failure(ctx, err)
	}
	return body, nil
}

func tooLarge(err error) error {
	return fault.Wrap(fault.BadReply, "the server's answer is too large", err)
}

// drain reads what little is left of an answer, so that its connection can be used again.
func drain(r io.Reader) { _, _ = io.CopyN(io.Discard, r, drainBytes) }

// answer is an HTTP status that was not hoped for.
type answer struct {
	status int
	after  time.Duration // when to come back, where it says so
	body   []byte
}

func newAnswer(resp *http.Response, body []byte) *answer {
	return &answer{resp.StatusCode, retryAfter(resp.Header.Get("Retry-After")), body}
}

func (a *answer) Error() string { return fmt.Sprintf("HTTP status %d: %.80q", a.status, a.body) }

// fault is what a call gets that was answered so.
func (a *answer) fault() error {
	switch {
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden:
		return fault.Wrap(fault.Unavailable, "the server refuses the gateway's credentials", a)
	case a.status == http.StatusTooManyRequests, a.status >= 500:
		f := fault.Wrap(fault.Unavailable, "the server is not available", a)
		f.RetryAfter = a.after
		return f
	case a.status/100 == 3:
		return fault.Wrap(fault.BadReply, "the server redirects, which is not followed", a)
	}
	return fault.Wrap(fault.BadReply, "the server's answer is not a JSON-RPC reply", a)
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(s string) time.Duration {
	d := time.Duration(0)
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		d = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(s); err == nil {
		d = time.Until(at)
	}
	return min(max(d, 0), longestWait)
}

// lost is what a call gets that was begun, and whose reply cannot be had any more.
func (a *answer) lost() error {
	return fault.Wrap(fault.Unavailable, "the server went away during the call", a)
}
