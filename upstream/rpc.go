package upstream

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// RPC is a server that takes one JSON-RPC message a POST.
type RPC struct {
	url     string
	headers http.Header
	client  *http.Client
	timeout time.Duration
	limit   int64
}

// NewTransport is the connection pool that servers share. Nothing of a reply is unpacked or
// followed: what a server sends is what is read.
func NewTransport() *http.Transport {
	return &http.Transport{
		DialContext:           dialer{net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}}.dial,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		DisableCompression:    true, // a bomb that is not unpacked does not go off
		ForceAttemptHTTP2:     true,
	}
}

// NewRPC makes a server of a valid entry with resolved headers.
func NewRPC(s Server, cfg Config, transport http.RoundTripper) *RPC {
	headers := http.Header{}
	for name, value := range s.Headers {
		headers.Set(name, value.Reveal())
	}
	headers.Set("Content-Type", "application/json")
	headers.Set("Accept", "application/json")
	return &RPC{
		url:     strings.TrimRight(s.RPC.Reveal(), "/") + "/rpc",
		headers: headers,
		timeout: cfg.ResponseTimeout.D(),
		limit:   int64(cfg.MaxReplyBytes),
		client:  newClient(transport),
	}
}

// Call sends a request and returns the reply's body, whatever its HTTP status: a server may
// put a JSON-RPC error into any. The body is charged to the context's memory scope.
func (u *RPC) Call(ctx context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	resp, err := u.post(ctx, body)
	if err != nil {
		return nil, failure(ctx, err)
	}
	defer resp.Body.Close()
	return bodyOf(ctx, resp, u.limit, membudget.From(ctx))
}

// Notify sends a notification. What the server answers is not read.
func (u *RPC) Notify(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	resp, err := u.post(ctx, body)
	if err != nil {
		return failure(ctx, err)
	}
	drain(resp.Body)
	return resp.Body.Close()
}

func (u *RPC) post(ctx context.Context, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url, bytes.NewReader(body))
	if err != nil {
		return nil, secret.Bare(err)
	}
	req.Header = u.headers.Clone()
	resp, err := u.client.Do(req)
	return resp, secret.Bare(err)
}

// failure classifies what went wrong on the way. The client's own leaving is told from the
// server's silence.
func failure(ctx context.Context, err error) error {
	var netErr net.Error
	var told *fault.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fault.Wrap(fault.Canceled, "the client left", err)
	case ctx.Err() != nil, errors.As(err, &netErr) && netErr.Timeout():
		return fault.Wrap(fault.Timeout, "the server did not answer in time", err)
	case errors.As(err, &told): // of a permission that is missing
		return told
	}
	return fault.Wrap(fault.Unavailable, "the server is not available", err)
}
