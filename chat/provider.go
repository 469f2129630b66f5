package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/jsonscan"
)

const (
	pieceBytes = 16 << 10  // what is read of a reply at once
	heldBytes  = 256 << 10 // the largest failed answer that is kept while another try is made
	heldTime   = 5 * time.Second
)

// provider is one LLM API, as a configuration has it.
type provider struct {
	Provider
	root      string      // its base URL, version included
	spare     []*provider // its fallbacks
	budget    *budget
	transport http.RoundTripper
	shelf     shelf // the models it lists
}

func (d *Door) newProvider(entry Provider, limits Limits, old *plan) *provider {
	p := &provider{Provider: entry, root: rootOf(entry.BaseURL.Reveal()), budget: &budget{}, transport: d.deps.Transport}
	if before := old.named(entry.Name); before != nil {
		p.budget = before.budget // a reload is no reason to ask more often
	}
	p.budget.allow(limits.RetryBudget)
	return p
}

var version = regexp.MustCompile(`^v[0-9]+([a-z]+[0-9]*)?$`)

// rootOf is where an API's paths begin. Some APIs have their version in the middle of the path, and
// not all are at v1; only where there is none at all, v1 is meant.
func rootOf(base string) string {
	base = strings.TrimRight(base, "/")
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if version.MatchString(segment) {
			return base
		}
	}
	return base + "/v1"
}

// reply is a provider's answer whose first byte has come, or that has none.
type reply struct {
	*http.Response
	from    *provider
	buf     []byte
	first   []byte // what came with the first byte
	ended   error  // what the last read ended with
	silence *time.Timer
	cancel  context.CancelCauseFunc
	ctx     context.Context
}

var (
	errLate   = errors.New("no byte within timeout_first_byte")
	errSilent = errors.New("no byte within timeout_idle")

	// errUnanswered is in the error of a call whose connection ended after the provider had the whole
	// request: it may have been executed, and billed.
	errUnanswered = errors.New("the request was delivered, and not answered")
)

// try makes one far call. The provider that the client meant (own) gets the client's headers, query
// and credentials; a fallback, which the client knows nothing of, gets what fallbackHeaders names. It
// returns when the first byte of the reply's body is there: what fails before can be tried elsewhere. An
// error says whether the provider had the whole request (errUnanswered).
func (p *provider) try(ctx context.Context, c *call, own bool) (*reply, error) {
	sent := &delivery{}
	rep, err := p.tryOnce(sent.watch(ctx), c, sent, own)
	if err != nil && fault.KindOf(err) == fault.Unavailable && sent.whole() {
		err = fault.Wrap(fault.Unavailable, "the provider had the request and gave no answer: it may have been executed", fmt.Errorf("%w: %w", errUnanswered, err))
	}
	return rep, err
}

func (p *provider) tryOnce(ctx context.Context, c *call, sent *delivery, own bool) (*reply, error) {
	target := p.root + c.path
	if own && c.query != "" {
		target += "?" + c.query
	}
	return p.send(ctx, p.FirstByte.D(), func(ctx context.Context) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, http.NoBody)
		if err != nil {
			return nil, err
		}
		req.ContentLength = int64(jsonscan.SplicedLen(c.body, c.edits))
		req.GetBody = func() (io.ReadCloser, error) { return c.send(sent), nil } // while the call waits for its answer
		req.Body = c.send(sent)
		if own {
			req.Header = c.head.Clone()
			p.dress(req.Header, c.own)
		} else {
			req.Header = forFallback(c.head)
			p.dress(req.Header, nil)
		}
		return req, nil
	})
}

// send makes a far call and waits for the first byte.
func (p *provider) send(ctx context.Context, limit time.Duration, build func(context.Context) (*http.Request, error)) (*reply, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	rep := &reply{from: p, ctx: ctx, cancel: cancel, silence: time.AfterFunc(limit, func() { cancel(errLate) })}
	req, err := build(ctx)
	err = secret.Bare(err)
	if err == nil {
		// No http.Client: it would follow redirects, and put the query into its errors.
		rep.Response, err = p.transport.RoundTrip(req) //nolint:bodyclose // end closes it
	}
	if err == nil {
		rep.buf = make([]byte, pieceFor(rep.ContentLength))
		rep.first, rep.ended = rep.read()
		if rep.ended != nil && !errors.Is(rep.ended, io.EOF) && len(rep.first) == 0 {
			err = rep.ended
		}
	}
	rep.silence.Stop()
	if err != nil {
		err = failure(ctx, err)
		rep.end()
		return nil, err
	}
	rep.silence = time.AfterFunc(p.Idle.D(), func() { cancel(errSilent) })
	rep.silence.Stop() // it runs only while we wait for the provider, not for the client
	return rep, nil
}

// pieceFor is how much is read at once of a reply that is so long: of a short one all of it, and
// that it ends.
func pieceFor(size int64) int64 {
	if size >= 0 && size < pieceBytes {
		return size + 1
	}
	return pieceBytes
}

// dress puts the credentials on a request: the configured key or, where there is none, the
// client's own.
func (p *provider) dress(head, own http.Header) {
	key := p.APIKey.Reveal()
	switch {
	case key == "":
		for name, values := range own {
			head[name] = values
		}
	case p.Kind == anthropic:
		head.Set("X-Api-Key", key)
	default:
		head.Set("Authorization", "Bearer "+key)
	}
	for name, value := range p.Headers {
		head.Set(name, value.Reveal())
	}
}

// read takes what has come, and waits where nothing has.
func (r *reply) read() ([]byte, error) {
	for range 100 { // a reader that brings nothing that often never will
		if n, err := r.Body.Read(r.buf); n > 0 || err != nil {
			return r.buf[:n], err
		}
	}
	return nil, io.ErrNoProgress
}

// next is the next piece of the body, valid until the next call. At the end, and only there, the
// error is io.EOF; a piece may come with it.
func (r *reply) next() ([]byte, error) {
	if piece := r.first; piece != nil {
		r.first = nil
		return piece, r.ended
	}
	if r.ended != nil {
		return nil, r.ended
	}
	r.silence.Reset(r.from.Idle.D())
	piece, err := r.read()
	r.silence.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = failure(r.ctx, err)
	}
	r.ended = err
	return piece, err
}

// end gives the connection back.
func (r *reply) end() {
	r.silence.Stop()
	r.cancel(nil)
	if r.Response != nil {
		_ = r.Body.Close()
	}
}

// hold reads a failed answer to its end, so that it can be passed on if nothing better comes. It is
// nil where that cannot be had quickly.
func (r *reply) hold() *reply {
	defer r.end()
	quick := time.AfterFunc(heldTime, func() { r.cancel(errSilent) })
	defer quick.Stop()
	var body []byte
	for {
		piece, err := r.next()
		body = append(body, piece...)
		switch {
		case errors.Is(err, io.EOF):
			kept := *r
			kept.first, kept.ended = body, io.EOF
			return &kept
		case err != nil, len(body) > heldBytes:
			return nil
		}
	}
}

// failure says what went wrong on the way to a provider. The client's own leaving is told from the
// provider's silence.
func failure(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errLate), errors.Is(cause, errSilent):
		return fault.Wrap(fault.Timeout, "the provider did not answer in time", cause)
	case cause != nil:
		return fault.Wrap(fault.Canceled, "the client left", err)
	}
	return fault.Wrap(fault.Unavailable, "the provider is not available", err)
}
