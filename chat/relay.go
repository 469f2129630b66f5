package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
)

// errBegun is wrapped by failures of a reply of which the client has a part.
var errBegun = errors.New("the reply broke off")

// resultOf is the label of a reply that broke off.
func resultOf(err error) string {
	if k := fault.KindOf(err); k != fault.Unavailable && k != fault.Internal {
		return k.String()
	}
	return "cut"
}

// withheld are headers of a reply that speak of the provider's site, not of the reply.
var withheld = map[string]bool{"Content-Length": true, "Set-Cookie": true, "Strict-Transport-Security": true, "Alt-Svc": true}

// relay passes the reply on as it comes: a piece is written and flushed before the next is read.
func (d *Door) relay(ctx context.Context, w http.ResponseWriter, c *call, rep *reply, watch *observer) error {
	d.head(ctx, w, rep)
	out := &outlet{w: w, control: http.NewResponseController(w), cfg: c.plan.HTTP}
	for {
		piece, err := rep.next()
		if len(piece) > 0 {
			if err := out.write(piece); err != nil {
				return fmt.Errorf("%w: %w", errBegun, fault.Wrap(fault.Canceled, "the client does not read", err))
			}
			watch.write(piece)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", errBegun, err)
		}
	}
}

// head passes on the status and the headers that are the client's business.
func (d *Door) head(ctx context.Context, w http.ResponseWriter, rep *reply) {
	h := w.Header()
	for name, values := range endToEnd(rep.Header) {
		if !withheld[name] && !strings.HasPrefix(name, "Access-Control-") {
			h[name] = values
		}
	}
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // or net/http would guess one
	}
	if rep.ContentLength >= 0 {
		h.Set("Content-Length", strconv.FormatInt(rep.ContentLength, 10))
	}
	if isEvents(rep.Header) {
		h.Set("X-Accel-Buffering", "no") // or nginx would collect the events
	}
	for _, name := range []string{"X-Request-Id", "Request-Id"} {
		if id := rep.Header.Get(name); id != "" {
			front.Note(ctx, slog.String("provider_request", clip(id)))
			break
		}
	}
	w.WriteHeader(rep.StatusCode)
}

// outlet is the client's end.
type outlet struct {
	w       http.ResponseWriter
	control *http.ResponseController
	cfg     front.HTTP
}

// write gives a piece to the client, who has the configured time to take it. Between pieces there is
// no deadline: the provider may think for longer.
func (o *outlet) write(piece []byte) error {
	front.BeginReply(o.w, o.cfg, int64(len(piece)))
	if _, err := o.w.Write(piece); err != nil {
		return err
	}
	if err := o.control.Flush(); err != nil {
		return err
	}
	_ = o.control.SetWriteDeadline(time.Time{}) // a connection without deadlines, as in a test, has none to end
	return nil
}

func isEvents(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}
