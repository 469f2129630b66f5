package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/readbody"
	"github.com/ctxgate/ctxgate/internal/retryafter"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/oauth"
)

const (
	eventStream     = "text/event-stream"
	lingerAfter     = 500 * time.Millisecond // how long the response to an answered POST may take to end
	oneWayTimeout   = 10 * time.Second       // for a message without a reply
	drainBytes      = 64 << 10               // what is read of an unneeded response, so that its connection can be reused
	maxRetryAfter   = time.Hour              // a longer Retry-After counts as this
	errorBodyBytes  = 1 << 10                // what is read of the response to a refused GET
	acceptedFormats = "application/json, " + eventStream
)

// HTTPOptions say how a server is reached over HTTP.
type HTTPOptions struct {
	URL       string
	Headers   http.Header // the configured headers, and no others
	Transport http.RoundTripper
	OAuth     *oauth.Server // whose authorization may be needed; nil to send requests without one
}

// endpoint is an HTTP endpoint of a server.
type endpoint struct {
	Options
	url     string
	headers http.Header
	client  *http.Client
	oauth   *oauth.Server
}

func newEndpoint(o Options, h HTTPOptions) endpoint {
	return endpoint{Options: o, url: h.URL, headers: h.Headers, client: newClient(h.Transport), oauth: h.OAuth}
}

// newClient follows no redirects and keeps no cookies: credentials go to the configured URL only.
func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// getEvents opens an event stream. Any other response is returned as a *statusError.
func (e endpoint) getEvents(ctx context.Context, extra http.Header) (io.ReadCloser, error) {
	header := e.headers.Clone()
	maps.Copy(header, extra)
	header.Set("Accept", eventStream)
	resp, err := e.do(ctx, http.MethodGet, e.url, nil, header)
	if err != nil {
		return nil, err
	}
	if isOK(resp) && isEventStream(resp) && checkEncoding(resp) == nil {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, errorBodyBytes))
	return nil, newStatusError(resp, body)
}

// post sends a message to url. It changes header.
func (e endpoint) post(ctx context.Context, url string, body []byte, header http.Header) (*http.Response, error) {
	header.Set("Content-Type", "application/json")
	header.Set("Accept", acceptedFormats)
	return e.do(ctx, http.MethodPost, url, body, header)
}

func (e endpoint) do(ctx context.Context, method, url string, body []byte, header http.Header) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	if e.oauth != nil {
		ctx = oauth.WithServer(ctx, e.oauth)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		return nil, secret.WithoutURL(err)
	}
	req.Header = header
	resp, err := e.client.Do(req)
	return resp, secret.WithoutURL(err)
}

// requestContext is the context of a request's HTTP exchange. It ends at once when no caller waits for the
// reply any more, and a moment after the reply: the connection can be reused by then, while a server that
// never ends its stream does not hold it.
func requestContext(parent context.Context, req Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	req.OnFinish(func() {
		switch {
		case !req.IsFinished():
			cancel()
		case ctx.Err() == nil:
			time.AfterFunc(lingerAfter, cancel)
		}
	})
	return ctx, cancel
}

func isOK(resp *http.Response) bool { return resp.StatusCode/100 == 2 }

func isEventStream(resp *http.Response) bool {
	mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(mediaType), eventStream)
}

// checkEncoding refuses a compressed body: the request did not ask for one.
func checkEncoding(resp *http.Response) error {
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return fault.Wrap(fault.BadReply, "the server's answer cannot be read", fmt.Errorf("unasked Content-Encoding %q", enc))
	}
	return nil
}

// readReply reads a response body and charges it to memory.
func readReply(ctx context.Context, resp *http.Response, limit int64, memory *membudget.Scope) ([]byte, error) {
	if err := checkEncoding(resp); err != nil {
		return nil, err
	}
	body, err := readbody.ReadSized(resp.Body, resp.ContentLength, limit, memory)
	switch {
	case errors.Is(err, readbody.ErrTooLarge):
		return nil, tooLarge(err)
	case err != nil:
		return nil, CallError(ctx, err)
	}
	return body, nil
}

// drain reads the rest of a small response, so that its connection can be reused.
func drain(r io.Reader) { _, _ = io.CopyN(io.Discard, r, drainBytes) }

// statusError is a response with an HTTP status other than the expected one.
type statusError struct {
	status     int
	retryAfter time.Duration
	body       []byte
}

func newStatusError(resp *http.Response, body []byte) *statusError {
	return &statusError{resp.StatusCode, min(retryafter.Parse(resp.Header, time.Now()), maxRetryAfter), body}
}

func (e *statusError) Error() string { return fmt.Sprintf("HTTP status %d: %.80q", e.status, e.body) }

// HTTPStatus is the status.
func (e *statusError) HTTPStatus() int { return e.status }

// callError is the failure of a request that got this response.
func (e *statusError) callError() error {
	switch {
	case e.status == http.StatusUnauthorized, e.status == http.StatusForbidden:
		return fault.Wrap(fault.Unavailable, "the server refuses the gateway's credentials", e)
	case e.status == http.StatusTooManyRequests, e.status >= 500:
		f := fault.Wrap(fault.Unavailable, "the server is not available", e)
		f.RetryAfter = e.retryAfter
		return f
	case e.status/100 == 3:
		return fault.Wrap(fault.BadReply, "the server redirects, which is not followed", e)
	}
	return fault.Wrap(fault.BadReply, "the server's answer is not a JSON-RPC reply", e)
}
