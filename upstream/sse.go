package upstream

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

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/mcp"
)

// feed is the wire of HTTP+SSE (2024-11-05): one stream of events with everything the server
// says, and a POST for each message to it.
type feed struct {
	web
	conn   *Conn
	life   context.Context
	stop   context.CancelFunc
	target string      // where messages are POSTed
	gone   atomic.Bool // the server does not know the session any more
}

// dialSSE opens the stream and greets the server.
func (r *Remote) dialSSE(ctx context.Context, c *Conn, l *Lane) (*Conn, error) {
	w := &feed{web: r.web(), conn: c}
	w.life, w.stop = context.WithCancel(context.Background())
	c.wire = w
	err := w.open(ctx, r.entry.URL.Reveal())
	if err == nil {
		err = c.initialize(ctx, l.client)
	}
	if err != nil {
		c.end(err)
		return nil, err
	}
	return c, nil
}

// open waits for the stream's first event, which says where messages go.
func (w *feed) open(ctx context.Context, base string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	inTime := context.AfterFunc(ctx, w.stop) // the stream itself outlives ctx
	body, err := w.get(w.life, base, nil)
	var a *answer
	switch {
	case errors.As(err, &a):
		return a.fault()
	case err != nil:
		return failure(ctx, err)
	}
	events := sse.NewReader(body, w.limit)
	events.Charge(w.conn.memory)
	if w.target, err = endpoint(ctx, events, base); err == nil && !inTime() {
		err = failure(ctx, ctx.Err())
	}
	if err != nil {
		body.Close()
		return err
	}
	go w.read(body, events)
	return nil
}

// endpoint reads the event of that name.
func endpoint(ctx context.Context, events *sse.Reader, base string) (string, error) {
	for {
		e, err := events.Next()
		if err != nil {
			return "", failure(ctx, fmt.Errorf("waiting for the endpoint: %w", err))
		}
		if e.Name == "endpoint" {
			target, err := resolve(base, strings.TrimSpace(string(e.Data)))
			if err != nil {
				return "", fault.Wrap(fault.BadReply, "the server's endpoint is not its own", err)
			}
			return target, nil
		}
	}
}

// resolve is where a server wants its messages. It must be at the same origin: what is sent there
// has the server's credentials.
func resolve(base, ref string) (string, error) {
	from, err := url.Parse(base)
	if err != nil {
		return "", secret.Bare(err)
	}
	to, err := from.Parse(ref)
	if err != nil {
		return "", secret.Bare(err)
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

// read takes what the server says until it says no more.
func (w *feed) read(body io.Closer, events *sse.Reader) {
	defer w.conn.guard(nil)
	defer body.Close()
	for {
		e, err := events.Next()
		switch {
		case errors.Is(err, sse.ErrTooLarge):
			w.conn.end(tooLarge(err))
			return
		case fault.KindOf(err) == fault.Full:
			w.conn.end(err)
			return
		case err != nil:
			w.conn.end(fault.Wrap(fault.Unavailable, "the server went away during the call", fmt.Errorf("the stream ended: %w", err)))
			return
		case len(e.Data) > 0 && (e.Name == "" || e.Name == "message"):
			w.conn.takeShared(e.Data, events.Charged())
		}
	}
}

// send begins the POST of a call, and does not wait for it. A message of any other kind is sent
// when send returns.
func (w *feed) send(f *flight, msg []byte) error {
	if f == nil {
		ctx, cancel := context.WithTimeout(w.life, tellTime)
		defer cancel()
		return w.put(ctx, msg)
	}
	ctx, cancel := leash(w.life, f)
	go func() {
		defer cancel()
		if err := w.put(ctx, msg); err != nil {
			f.fail(err)
		}
	}()
	return nil
}

// put sends a message. The stream and the session are one: a server that has forgotten the
// session will not answer on the stream either.
func (w *feed) put(ctx context.Context, msg []byte) error {
	resp, err := w.post(ctx, w.target, msg, w.headers.Clone())
	if err != nil {
		return failure(ctx, err)
	}
	defer resp.Body.Close()
	if isOK(resp) {
		drain(resp.Body)
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, drainBytes))
	a := newAnswer(resp, body)
	if a.status == http.StatusNotFound || a.status == http.StatusBadRequest && aboutSession(body) {
		if !w.gone.Swap(true) {
			go w.conn.retire(a)
		}
		return forgotten()
	}
	return a.fault()
}

func (w *feed) cancel(f *flight, reason string) {
	if f.call.Method != mcp.Initialize {
		go func() {
			if err := w.send(nil, cancellation(f.id, reason)); err != nil {
				slog.Debug("a cancellation did not reach its server", "server", w.conn.server, "error", err)
			}
		}()
	}
	f.stop()
}

func (w *feed) close() { w.stop() }
