package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/mcp"
)

// SSE is the wire of HTTP+SSE (2024-11-05): one event stream with everything that the server sends, and a
// POST for each message to it.
type SSE struct {
	endpoint
	ctx         context.Context // the wire's lifetime
	cancelAll   context.CancelFunc
	postURL     string
	sessionGone atomic.Bool // the server has forgotten the session
}

// NewSSE returns a wire that is not open yet.
func NewSSE(o Options, h HTTPOptions) *SSE {
	w := &SSE{endpoint: newEndpoint(o, h)}
	w.ctx, w.cancelAll = context.WithCancel(context.Background())
	return w
}

// Open opens the event stream and waits for its first event, which says where messages are POSTed.
func (w *SSE) Open(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stopAbort := context.AfterFunc(ctx, w.cancelAll) // the stream outlives ctx, so it has the wire's context
	body, err := w.getEvents(w.ctx, nil)
	var refused *statusError
	switch {
	case errors.As(err, &refused):
		return refused.callError()
	case err != nil:
		return CallError(ctx, err)
	}
	events := sse.NewReader(body, w.MaxReply)
	events.Charge(w.Memory)
	if w.postURL, err = readPostURL(ctx, events, w.url); err == nil && !stopAbort() {
		err = CallError(ctx, ctx.Err())
	}
	if err != nil {
		body.Close()
		return err
	}
	go w.readEvents(body, events)
	return nil
}

// readPostURL reads events up to the one named "endpoint".
func readPostURL(ctx context.Context, events *sse.Reader, base string) (string, error) {
	for {
		e, err := events.Next()
		if err != nil {
			return "", CallError(ctx, fmt.Errorf("waiting for the endpoint: %w", err))
		}
		if e.Name == "endpoint" {
			target, err := resolveSameOrigin(base, strings.TrimSpace(string(e.Data)))
			if err != nil {
				return "", fault.Wrap(fault.BadReply, "the server's endpoint is not its own", err)
			}
			return target, nil
		}
	}
}

// resolveSameOrigin resolves ref against base. Both must have the same origin: the requests carry the
// server's credentials.
func resolveSameOrigin(base, ref string) (string, error) {
	from, err := url.Parse(base)
	if err != nil {
		return "", secret.WithoutURL(err)
	}
	to, err := from.Parse(ref)
	if err != nil {
		return "", secret.WithoutURL(err)
	}
	if to.Scheme != from.Scheme || !strings.EqualFold(to.Hostname(), from.Hostname()) || portOf(to) != portOf(from) || to.User != nil {
		return "", fmt.Errorf("an endpoint at %.200q is not at the origin of %s", to.Scheme+"://"+to.Host, secret.URL(base))
	}
	return to.String(), nil
}

func portOf(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// readEvents reads the stream until it ends, and then ends the connection.
func (w *SSE) readEvents(body io.Closer, events *sse.Reader) {
	defer w.recoverPanic(nil)
	defer body.Close()
	for {
		e, err := events.Next()
		switch {
		case errors.Is(err, sse.ErrTooLarge):
			w.Receiver.End(tooLarge(err))
			return
		case fault.KindOf(err) == fault.Full:
			w.Receiver.End(err)
			return
		case err != nil:
			w.Receiver.End(fault.Wrap(fault.Unavailable, "the server went away during the call", fmt.Errorf("the stream ended: %w", err)))
			return
		case len(e.Data) > 0 && (e.Name == "" || e.Name == "message"):
			w.Receiver.Receive(e.Data, events.Charged())
		}
	}
}

// Send starts the POST of a request and does not wait for it. Any other message is sent when Send returns.
func (w *SSE) Send(req Request, msg []byte) error {
	if req == nil {
		ctx, cancel := context.WithTimeout(w.ctx, oneWayTimeout)
		defer cancel()
		return w.postMessage(ctx, msg)
	}
	ctx, cancel := requestContext(w.ctx, req)
	go func() {
		defer cancel()
		if err := w.postMessage(ctx, msg); err != nil {
			req.Fail(err)
		}
	}()
	return nil
}

// postMessage sends a message. The stream and the session are one: a server that has forgotten the session
// will not answer on the stream either.
func (w *SSE) postMessage(ctx context.Context, msg []byte) error {
	resp, err := w.post(ctx, w.postURL, msg, w.headers.Clone())
	if err != nil {
		return CallError(ctx, err)
	}
	defer resp.Body.Close()
	if isOK(resp) {
		drain(resp.Body)
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, drainBytes))
	refused := newStatusError(resp, body)
	if refused.status == http.StatusNotFound || refused.status == http.StatusBadRequest && isSessionError(body) {
		if !w.sessionGone.Swap(true) {
			go w.Receiver.ExpireSession(refused)
		}
		return sessionForgotten()
	}
	return refused.callError()
}

// Cancel sends a cancellation and does not wait for it.
func (w *SSE) Cancel(req Request, reason string) {
	if req.Method() == mcp.Initialize {
		return
	}
	go func() {
		if err := w.Send(nil, cancelNotification(req.ID(), reason)); err != nil {
			slog.Debug("cancellation not delivered", "server", w.Server, "error", err)
		}
	}()
}

// Close ends the stream and every POST.
func (w *SSE) Close() { w.cancelAll() }
