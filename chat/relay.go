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

// errReplyStarted is in the errors of a reply that the client already has a part of.
var errReplyStarted = errors.New("the reply broke off")

// brokenResultLabel is the metric label of a reply that broke off.
func brokenResultLabel(err error) string {
	if k := fault.KindOf(err); k != fault.Unavailable && k != fault.Internal {
		return k.String()
	}
	return "cut"
}

// droppedHeaders of a reply are about the provider's site, not about the reply.
var droppedHeaders = map[string]bool{"Content-Length": true, "Set-Cookie": true, "Strict-Transport-Security": true, "Alt-Svc": true}

// relayReply forwards the reply: each piece is written and flushed before the next is read. A connection that
// ends after the last event of a stream is no failure: clients disconnect then.
func (px *Proxy) relayReply(ctx context.Context, w http.ResponseWriter, c *call, rep *reply, watch *observer) error {
	px.writeReplyHeader(ctx, w, rep)
	out := &clientWriter{w: w, control: http.NewResponseController(w), cfg: c.plan.HTTP}
	for {
		piece, err := rep.nextPiece()
		c.spending.countReply(piece)
		if len(piece) > 0 {
			if err := out.writePiece(piece); err != nil {
				if watch.hasEnded() {
					return nil
				}
				return fmt.Errorf("%w: %w", errReplyStarted, fault.Wrap(fault.Canceled, "the client does not read", err))
			}
			watch.write(piece)
		}
		switch {
		case errors.Is(err, io.EOF), err != nil && watch.hasEnded():
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", errReplyStarted, err)
		}
	}
}

// writeReplyHeader forwards the status and the end-to-end headers.
func (px *Proxy) writeReplyHeader(ctx context.Context, w http.ResponseWriter, rep *reply) {
	h := w.Header()
	for name, values := range endToEndHeaders(rep.Header) {
		if !droppedHeaders[name] && !strings.HasPrefix(name, "Access-Control-") {
			h[name] = values
		}
	}
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // or net/http would guess one
	}
	if rep.ContentLength >= 0 {
		h.Set("Content-Length", strconv.FormatInt(rep.ContentLength, 10))
	}
	if isEventStream(rep.Header) {
		h.Set("X-Accel-Buffering", "no") // or nginx would buffer the events
	}
	for _, name := range []string{"X-Request-Id", "Request-Id"} {
		if id := rep.Header.Get(name); id != "" {
			front.AddLogAttrs(ctx, slog.String("provider_request", fault.Clip(id)))
			break
		}
	}
	w.WriteHeader(rep.StatusCode)
}

// clientWriter writes a reply to the client.
type clientWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	cfg     front.HTTP
}

// writePiece writes and flushes a piece within the configured time. Between pieces there is no deadline: the
// provider may think for longer.
func (o *clientWriter) writePiece(piece []byte) error {
	front.SetReplyDeadline(o.w, o.cfg, int64(len(piece)))
	if _, err := o.w.Write(piece); err != nil {
		return err
	}
	if err := o.control.Flush(); err != nil {
		return err
	}
	_ = o.control.SetWriteDeadline(time.Time{}) // connections in tests may not support deadlines
	return nil
}

func isEventStream(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}
