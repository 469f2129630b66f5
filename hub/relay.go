package hub

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/slurp"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rpc"
)

// serveRPC takes one message for a named server.
func (h *Hub) serveRPC(w http.ResponseWriter, r *http.Request) {
	req, err := h.read(w, r)
	if err == nil {
		err = h.relay(w, r, req)
	}
	if err != nil {
		refuse(w, r, req.ID, err)
	}
}

// read takes the message off the wire and parses it, once and for all.
func (h *Hub) read(w http.ResponseWriter, r *http.Request) (rpc.Request, error) {
	body, err := slurp.Claimed(r.Body, r.ContentLength, int64(h.http.MaxRequestBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, slurp.ErrTooLarge), errors.As(err, &tooLarge):
		return rpc.Request{}, fault.Wrap(fault.TooLarge, "the request is too large", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return rpc.Request{}, fault.Wrap(fault.Stalled, "the request did not arrive in time", err)
	case err != nil:
		return rpc.Request{}, fault.Wrap(fault.Canceled, "the request did not arrive whole", err)
	}
	front.BodyRead(w)
	req, err := rpc.ParseRequest(body, h.cfg.MaxDepth)
	front.Remember(r.Context(), req.ID)
	return req, err
}

// relay carries one message to its server and its reply back. This is the path the gateway
// exists for; read it first.
func (h *Hub) relay(w http.ResponseWriter, r *http.Request, req rpc.Request) error {
	ctx := r.Context()
	who, err := auth.From(ctx)
	if err != nil {
		return err
	}
	id := r.PathValue("server")
	server, ok := h.servers[id]
	if !ok {
		return fault.New(fault.NotFound, "unknown server "+strconv.Quote(clip(id)))
	}
	front.Note(ctx, slog.String("server", id), slog.String("rpc", clip(req.Method)))
	if req.IsNotification() {
		err := h.timed(id, func() error { return server.Notify(ctx, req.Body) })
		if err != nil { // a notification has no reply to put this into
			slog.WarnContext(ctx, "a notification was not delivered", "server", id, "error", err)
		}
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	policy := h.rules.find(id, req)
	var reply rpc.Reply
	err = h.timed(id, func() (err error) {
		reply, err = h.call(r, server, req, policy)
		return err
	})
	if err != nil {
		return err
	}
	cut := h.recall.Shrink(ctx, recall.Doc{
		Tenant: who.Tenant(), From: recall.Origin{Server: id, Tool: clip(req.Name)}, Body: reply.Body, Strings: reply.Strings,
	}, policy)
	edits := restoreID(reply, req, cut.Edits)
	h.count(ctx, id, reply, edits, cut)
	h.send(w, r, reply.Body, edits)
	return nil
}

// timed counts a call while it runs. One that panics counts as an internal error.
func (h *Hub) timed(server string, call func() error) error {
	done := h.meter.Begin(server)
	result := fault.Internal.String()
	defer func() { done(result) }()
	err := call()
	result = outcome(err)
	return err
}

// clip bounds a text that somebody else chose, for logs, answers and what is kept beside an
// original.
func clip(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// call asks the server and checks that what it answers is a reply to this request.
func (h *Hub) call(r *http.Request, server caller, req rpc.Request, policy recall.Policy) (rpc.Reply, error) {
	body, err := server.Call(r.Context(), req.Body)
	if err != nil {
		return rpc.Reply{}, err
	}
	reply, err := rpc.ParseReply(body, h.cfg.MaxDepth, policy.MaxChars)
	if err != nil {
		return rpc.Reply{}, err
	}
	// A server that could not read the request answers with an error and no id.
	anonymous := reply.IsError && string(reply.MessageID().Raw()) == "null"
	if !anonymous && !reply.MessageID().Is(req.ID) {
		return rpc.Reply{}, fault.New(fault.BadReply, "the server answered another request")
	}
	return reply, nil
}

// restoreID puts the id back as the client wrote it, where the server spelled it differently.
// The edits stay in the order of the body.
func restoreID(reply rpc.Reply, req rpc.Request, edits []jsonscan.Edit) []jsonscan.Edit {
	if bytes.Equal(reply.ID.Of(reply.Body), req.ID.Raw()) {
		return edits
	}
	id := jsonscan.Edit{Span: reply.ID, Text: req.ID.Raw()}
	at := 0
	for at < len(edits) && edits[at].Start < id.Start {
		at++
	}
	return append(edits[:at:at], append([]jsonscan.Edit{id}, edits[at:]...)...)
}

// count says what became of a reply, in the metrics and in the log.
func (h *Hub) count(ctx context.Context, server string, reply rpc.Reply, edits []jsonscan.Edit, cut recall.Shrunk) {
	h.meter.Count(server, meter.Reply{
		BytesIn: int64(len(reply.Body)), BytesOut: int64(jsonscan.SplicedLen(reply.Body, edits)),
		CharsCut: cut.Chars, Kept: cut.Kept, Whole: cut.Whole, Lost: cut.Lost,
	})
	if cut.Chars > 0 {
		front.Note(ctx, slog.Int64("chars_cut", cut.Chars))
	}
	if cut.Err != nil {
		slog.WarnContext(ctx, "text was sent whole: its original could not be kept", "server", server, "error", cut.Err)
	}
}

func (h *Hub) send(w http.ResponseWriter, r *http.Request, body []byte, edits []jsonscan.Edit) {
	size := int64(jsonscan.SplicedLen(body, edits))
	front.BeginReply(w, h.http, size)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	if err := jsonscan.Splice(w, body, edits); err != nil {
		slog.DebugContext(r.Context(), "the client did not take the reply", "error", err)
	}
}

// outcome is a call's metric label.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return fault.KindOf(err).String()
}
