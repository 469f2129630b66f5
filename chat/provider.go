package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

const (
	maxPiece      = 16 << 10  // read of a reply at once
	maxBuffered   = 256 << 10 // the largest failed answer that is buffered while another attempt is made
	bufferTimeout = 5 * time.Second
)

// provider is one configured LLM API.
type provider struct {
	Provider
	vendor    llm.Vendor
	root      string // base URL with version
	bareRoot  string // base URL, if it has no version; otherwise ""
	host      string // base URL without path
	fallbacks []*provider
	budget    *retryBudget
	prices    priceList
	transport http.RoundTripper
	models    modelCache // of its list of models
}

func (px *Proxy) newProvider(entry Provider, c Config, old *activeConfig) *provider {
	base := entry.BaseURL.Reveal()
	p := &provider{Provider: entry, vendor: px.wires.vendor(string(entry.Kind)), host: apiHost(base), budget: &retryBudget{}, prices: c.newPriceList(entry, base), transport: px.deps.Transport}
	p.root, p.bareRoot = apiRoot(base, p.vendor.Version())
	if before := old.providerNamed(entry.Name); before != nil {
		p.budget = before.budget // a reload does not reset it
	}
	p.budget.setShare(c.LLM.RetryBudget)
	return p
}

var versionSegment = regexp.MustCompile(`^v[0-9]+([a-z]+[0-9]*)?$`)

// apiRoot is where an API's paths begin. It appends the version only if no segment of the base URL is one: some
// APIs have it in the middle of the path, and not all are at v1. bare is the base URL if it had none.
func apiRoot(base, version string) (root, bare string) {
	base = strings.TrimRight(base, "/")
	u, err := url.Parse(base)
	if err != nil {
		return base, ""
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if versionSegment.MatchString(segment) {
			return base, ""
		}
	}
	return base + "/" + version, base
}

// rootFor is where the paths of a version of the API begin; "" is the vendor's version. The version in the base
// URL wins.
func (p *provider) rootFor(version string) string {
	if version == "" || p.bareRoot == "" {
		return p.root
	}
	return p.bareRoot + "/" + version
}

// apiHost is a base URL without its path.
func apiHost(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	return u.Scheme + "://" + u.Host
}

// reply is a provider's answer after its first byte, or at its end if it is empty.
type reply struct {
	*http.Response
	provider   *provider
	buf        []byte
	firstPiece []byte // received with the first byte
	readErr    error  // of the last read
	idleTimer  *time.Timer
	cancel     context.CancelCauseFunc
	ctx        context.Context
}

var (
	errFirstByteTimeout = errors.New("no byte within timeout_first_byte")
	errIdleTimeout      = errors.New("no byte within timeout_idle")

	// errUnanswered is in the error of a call whose connection ended after the whole request was delivered:
	// the provider may have executed and billed it.
	errUnanswered = errors.New("the request was delivered, and not answered")
)

// callProvider makes one provider call, and returns when the first byte of the reply's body has arrived: what
// fails before can be tried elsewhere. The provider of the client's model (own) gets the client's headers,
// query and credentials; a fallback gets only fallbackHeaders. If the whole request was delivered, the error
// wraps errUnanswered.
func (p *provider) callProvider(ctx context.Context, c *call, own bool) (*reply, error) {
	sent := &sendProgress{}
	rep, err := p.callOnce(sent.traceWrites(ctx), c, sent, own)
	if err != nil {
		if failed := c.upload.fault(); failed != nil {
			return nil, failed
		}
	}
	if err != nil && fault.KindOf(err) == fault.Unavailable && sent.mayBeDelivered() {
		err = fault.Wrap(fault.Unavailable, "the provider had the request and gave no answer: it may have been executed", fmt.Errorf("%w: %w", errUnanswered, err))
	}
	return rep, err
}

func (p *provider) callOnce(ctx context.Context, c *call, sent *sendProgress, own bool) (*reply, error) {
	target := p.rootFor(c.Version) + c.UpstreamPath
	if own && c.hostPath != "" {
		target = p.host + c.hostPath
	}
	query := c.query
	if !own {
		query = c.eventsParam()
	}
	if query != "" {
		target += "?" + query
	}
	return p.roundTrip(ctx, p.FirstByteTimeout.D(), func(ctx context.Context) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, c.method, target, http.NoBody)
		if err != nil {
			return nil, err
		}
		switch {
		case c.upload != nil:
			req.ContentLength, req.Body, req.GetBody = c.upload.size, io.NopCloser(c.upload), nil
		case len(c.body) > 0:
			req.ContentLength = int64(jsonscan.SplicedLen(c.body, c.edits))
			req.GetBody = func() (io.ReadCloser, error) { return c.sentBody(sent), nil } // called only while the call waits for its answer
			req.Body = c.sentBody(sent)
		}
		if own {
			req.Header = c.header.Clone()
			p.setCredentials(req.Header, c.clientKeys)
		} else {
			req.Header = headersForFallback(c.header)
			p.setCredentials(req.Header, nil)
		}
		return req, nil
	})
}

// roundTrip sends a request and waits for the first byte of the reply.
func (p *provider) roundTrip(ctx context.Context, limit time.Duration, build func(context.Context) (*http.Request, error)) (*reply, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	rep := &reply{provider: p, ctx: ctx, cancel: cancel, idleTimer: time.AfterFunc(limit, func() { cancel(errFirstByteTimeout) })}
	req, err := build(ctx)
	err = secret.WithoutURL(err)
	if err == nil {
		// No http.Client: it would follow redirects, and put the query into its errors.
		rep.Response, err = p.transport.RoundTrip(req) //nolint:bodyclose // end closes it
	}
	if err == nil {
		rep.buf = make([]byte, pieceSize(rep.ContentLength))
		rep.firstPiece, rep.readErr = rep.readPiece()
		if rep.readErr != nil && !errors.Is(rep.readErr, io.EOF) && len(rep.firstPiece) == 0 {
			err = rep.readErr
		}
	}
	rep.idleTimer.Stop()
	if err != nil {
		err = providerFault(ctx, err)
		rep.close()
		return nil, err
	}
	rep.idleTimer = time.AfterFunc(p.IdleTimeout.D(), func() { cancel(errIdleTimeout) })
	rep.idleTimer.Stop() // it runs only while we wait for the provider, not for the client
	return rep, nil
}

// pieceSize is the buffer for a reply of this size: a short one is read at once, with its end.
func pieceSize(size int64) int64 {
	if size >= 0 && size < maxPiece {
		return size + 1
	}
	return maxPiece
}

// setCredentials adds the configured key or, without one, the client's own credentials, and the configured
// headers.
func (p *provider) setCredentials(head, own http.Header) {
	key := p.APIKey.Reveal()
	if key == "" {
		for name, values := range own {
			head[name] = values
		}
	} else {
		p.vendor.SetKey(head, key)
	}
	for name, value := range p.Headers {
		head.Set(name, value.Reveal())
	}
}

// readPiece reads what has arrived, or waits for it.
func (r *reply) readPiece() ([]byte, error) {
	for range 100 { // a reader that returns nothing so often never returns anything
		if n, err := r.Body.Read(r.buf); n > 0 || err != nil {
			return r.buf[:n], err
		}
	}
	return nil, io.ErrNoProgress
}

// nextPiece returns the next piece of the body, valid until the next call. At the end the error is io.EOF; a
// piece may come with it.
func (r *reply) nextPiece() ([]byte, error) {
	if piece := r.firstPiece; piece != nil {
		r.firstPiece = nil
		return piece, r.readErr
	}
	if r.readErr != nil {
		return nil, r.readErr
	}
	r.idleTimer.Reset(r.provider.IdleTimeout.D())
	piece, err := r.readPiece()
	r.idleTimer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = providerFault(r.ctx, err)
	}
	r.readErr = err
	return piece, err
}

// close releases the connection.
func (r *reply) close() {
	r.idleTimer.Stop()
	r.cancel(nil)
	if r.Response != nil {
		_ = r.Body.Close()
	}
}

// buffered reads a failed answer to its end, so that it can be relayed if no other attempt succeeds. It
// returns nil if that takes too long or the answer is too large.
func (r *reply) buffered() *reply {
	defer r.close()
	quick := time.AfterFunc(bufferTimeout, func() { r.cancel(errIdleTimeout) })
	defer quick.Stop()
	var body []byte
	for {
		piece, err := r.nextPiece()
		body = append(body, piece...)
		switch {
		case errors.Is(err, io.EOF):
			kept := *r
			kept.firstPiece, kept.readErr = body, io.EOF
			return &kept
		case err != nil, len(body) > maxBuffered:
			return nil
		}
	}
}

// providerFault classifies the error of a provider call: a timeout, a client that left, or a provider that is
// not available.
func providerFault(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errFirstByteTimeout), errors.Is(cause, errIdleTimeout):
		return fault.Wrap(fault.Timeout, "the provider did not answer in time", cause)
	case cause != nil:
		return fault.Wrap(fault.Canceled, "the client left", err)
	}
	return fault.Wrap(fault.Unavailable, "the provider is not available", err)
}

// sendProgress is how much of a request was sent. A provider can execute a request only if all of it arrived:
// the body is one JSON document.
type sendProgress struct {
	bodyTaken atomic.Bool  // the transport has read the whole body
	written   atomic.Int32 // one of the constants below
}

// What the transport reports about writing a request.
const (
	writtenUnknown int32 = iota // nothing yet
	writtenWhole
	writtenPart // it failed before the end
)

// traceWrites makes the transport report to d.
func (d *sendProgress) traceWrites(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		if info.Err != nil {
			d.written.CompareAndSwap(writtenUnknown, writtenPart)
			return
		}
		d.written.Store(writtenWhole)
	}})
}

// mayBeDelivered says whether the provider may have the whole request.
func (d *sendProgress) mayBeDelivered() bool {
	switch d.written.Load() {
	case writtenWhole:
		return true
	case writtenPart:
		return false
	}
	return d.bodyTaken.Load() // the transport has not reported
}

// sentBody is a request's body on its way to a provider. The transport may close it while it reads, and
// reads nothing after that.
type sentBody struct {
	text   *jsonscan.SpliceReader
	unread int // bytes
	closed atomic.Bool
	sent   *sendProgress
}

// sentBody returns the body as it goes out, with its edits made.
func (c *call) sentBody(sent *sendProgress) io.ReadCloser {
	return &sentBody{text: jsonscan.NewSpliceReader(c.body, c.edits), unread: jsonscan.SplicedLen(c.body, c.edits), sent: sent}
}

func (b *sentBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, io.ErrClosedPipe
	}
	n, err := b.text.Read(p)
	if b.unread -= n; b.unread <= 0 {
		b.sent.bodyTaken.Store(true)
	}
	return n, err
}

func (b *sentBody) Close() error {
	b.closed.Store(true)
	return nil
}
