package wire

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
)

// RPCClient calls a server that takes one JSON-RPC message per POST.
type RPCClient struct {
	url      string
	headers  http.Header
	client   *http.Client
	timeout  time.Duration
	maxReply int64
}

// NewRPCClient returns a client that POSTs to <base>/rpc with these headers.
func NewRPCClient(base string, headers http.Header, transport http.RoundTripper, timeout time.Duration, maxReply int64) *RPCClient {
	headers = headers.Clone()
	headers.Set("Content-Type", "application/json")
	headers.Set("Accept", "application/json")
	return &RPCClient{
		url: strings.TrimRight(base, "/") + "/rpc", headers: headers, client: newClient(transport), timeout: timeout, maxReply: maxReply,
	}
}

// Call sends a request and returns the response body, whatever the HTTP status: a server may send a
// JSON-RPC error with any. The body is charged to the context's memory scope.
func (c *RPCClient) Call(ctx context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := c.post(ctx, body)
	if err != nil {
		return nil, CallError(ctx, err)
	}
	defer resp.Body.Close()
	return readReply(ctx, resp, c.maxReply, membudget.FromContext(ctx))
}

// Notify sends a notification. The response is not read.
func (c *RPCClient) Notify(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := c.post(ctx, body)
	if err != nil {
		return CallError(ctx, err)
	}
	drain(resp.Body)
	return resp.Body.Close()
}

func (c *RPCClient) post(ctx context.Context, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, secret.WithoutURL(err)
	}
	req.Header = c.headers.Clone()
	resp, err := c.client.Do(req)
	return resp, secret.WithoutURL(err)
}

// PlainRPC is the wire to a server that takes one message per POST and answers it there.
type PlainRPC struct {
	Options
	client             *RPCClient
	ctx                context.Context // the wire's lifetime
	cancel             context.CancelFunc
	answeredInitialize atomic.Bool
}

// NewPlainRPC returns a wire over client.
func NewPlainRPC(o Options, client *RPCClient) *PlainRPC {
	w := &PlainRPC{Options: o, client: client}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// AnsweredInitialize reports whether the server sent a JSON-RPC reply to initialize, be it an error.
func (w *PlainRPC) AnsweredInitialize() bool { return w.answeredInitialize.Load() }

// Send starts the POST of a request and does not wait for its reply.
func (w *PlainRPC) Send(req Request, msg []byte) error {
	if req == nil {
		return w.client.Notify(w.ctx, msg)
	}
	ctx, cancel := context.WithCancel(membudget.NewContext(w.ctx, req.Memory()))
	req.OnFinish(cancel)
	go func() {
		defer w.recoverPanic(req)
		defer cancel()
		body, err := w.client.Call(ctx, msg)
		if err == nil {
			if req.Method() == mcp.Initialize {
				_, isReply, _ := req.ParseReply(body)
				w.answeredInitialize.Store(isReply)
			}
			req.Deliver(body)
			err = fault.New(fault.BadReply, "the server's answer is not a JSON-RPC reply")
		}
		if !req.IsFinished() {
			req.Fail(err)
		}
	}()
	return nil
}

// Cancel does nothing: ending the POST is all that a server can notice.
func (w *PlainRPC) Cancel(Request, string) {}

// Close ends every POST.
func (w *PlainRPC) Close() { w.cancel() }
