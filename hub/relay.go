package hub

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// serveRPC takes one message for a named server and gives one back: the gateway of the clauses G.
func (h *Hub) serveRPC(w http.ResponseWriter, r *http.Request) {
	req := &request{}
	now := h.plan.Load()
	body, err := front.ReadMessage(w, r, int64(now.HTTP.MaxRequestBytes), now.gate)
	if err == nil {
		plan, leave := h.enter()
		defer leave()
		req.plan = plan
		err = h.readRPC(w, r, req, body)
	}
	if err == nil {
		err = h.relay(w, r, req)
	}
	if err != nil {
		refuse(w, r, req.ID, err)
	}
}

// readRPC parses the message, once and for all, and says who sent it.
func (h *Hub) readRPC(w http.ResponseWriter, r *http.Request, req *request, body []byte) (err error) {
	req.Request, err = rpc.ParseRequest(body, req.plan.Hub.MaxDepth)
	front.Remember(r.Context(), req.ID)
	bad := err
	if bad == nil {
		req.params, err = mcp.ReadParams(req.Params)
	}
	if err != nil && bad == nil {
		return fault.Wrap(fault.Invalid, "invalid request", err)
	}
	if req.who, err = h.identify(w, r, req.plan, req.params); err != nil {
		req.ID = rpc.ID{} // nothing is said to who is not let in
		return err
	}
	return bad
}

// relay carries one message to its server and its reply back.
func (h *Hub) relay(w http.ResponseWriter, r *http.Request, req *request) error {
	ctx := r.Context()
	id := r.PathValue("server")
	remote := req.plan.remotes[id]
	if !req.plan.serves(id) {
		return fault.New(fault.NotFound, "unknown server "+strconv.Quote(clip(id)))
	}
	if err := h.admit(req.plan, req); err != nil {
		return err
	}
	front.Note(ctx, slog.String("server", id), slog.String("rpc", clip(req.Method)))
	if remote == nil {
		h.relayOwn(w, r, req, req.plan.own[id])
		return nil
	}
	if req.IsNotification() {
		err := h.timed(id, func() error { return h.notifyRaw(ctx, req, remote) })
		if err != nil { // a notification has no reply to put this into
			slog.WarnContext(ctx, "a notification was not delivered", "server", id, "error", err)
		}
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	tool := ""
	if req.Method == mcp.ToolsCall {
		tool = req.Name
	}
	how := req.plan.rules.find(id, tool)
	goal, changes := h.takeFocus(ctx, req, id, tool)
	var got rpc.Reply
	err := h.timed(id, func() (err error) {
		got, err = h.callRaw(ctx, req, remote, how.Policy, changes)
		return err
	})
	if err != nil {
		return err
	}
	cut := h.recall.Shrink(ctx, recall.Doc{
		Tenant: req.who.Tenant(), From: recall.Origin{Server: id, Tool: clip(tool)}, Body: got.Body, Strings: got.Strings,
		Focus: how.focus(goal),
	}, how.Policy)
	edits := restoreID(got, req.Request, cut.Edits)
	front.Note(ctx, slog.Int("code", upstream.ErrorCode(got)))
	h.count(ctx, id, got, edits, cut)
	h.sendRPC(w, r, got.Body, edits)
	return nil
}

// notifyRaw passes a notification on. Those that begin a session are the gateway's own affair
// where it keeps one.
func (h *Hub) notifyRaw(ctx context.Context, req *request, remote *upstream.Remote) error {
	if raw := req.plan.raw[remote.ID()]; raw != nil {
		return raw.Notify(ctx, req.bare(nil))
	}
	if strings.HasPrefix(req.Method, mcp.Initialized) || req.Method == mcp.Cancelled {
		return nil
	}
	return remote.Shared().Notify(req.Method, req.params.With([]jsonscan.Change{{Key: "proxy"}}, nil))
}

// bare is the message as it came or, where it holds what is ours alone, without that: a token (A8),
// and what the changes take away.
func (r *request) bare(changes []jsonscan.Change) []byte {
	if _, ok := r.params.Get("proxy"); ok {
		changes = append(changes, jsonscan.Change{Key: "proxy"})
	}
	top, err := jsonscan.FieldsOf(r.Body)
	if len(changes) == 0 || err != nil {
		return r.Body
	}
	return top.With(jsonscan.Change{Key: "params", Value: r.params.With(changes, nil)})
}

// callRaw asks the server and checks that what it answers is a reply to this request.
func (h *Hub) callRaw(
	ctx context.Context, req *request, remote *upstream.Remote, policy recall.Policy, changes []jsonscan.Change,
) (rpc.Reply, error) {
	raw := req.plan.raw[remote.ID()]
	if raw == nil {
		return h.callConnected(ctx, req, remote, changes)
	}
	body, err := raw.Call(ctx, req.bare(changes))
	if err != nil {
		return rpc.Reply{}, err
	}
	got, err := rpc.ParseReply(body, req.plan.Hub.MaxDepth, policy.MaxChars)
	if err != nil {
		return rpc.Reply{}, err
	}
	// A server that could not read the request answers with an error and no id.
	anonymous := got.IsError && string(got.MessageID().Raw()) == "null"
	if !anonymous && !got.MessageID().Is(req.ID) {
		return rpc.Reply{}, fault.New(fault.BadReply, "the server answered another request")
	}
	return got, nil
}

// callConnected makes the call over the server's MCP connection, whose greeting is done.
func (h *Hub) callConnected(
	ctx context.Context, req *request, remote *upstream.Remote, changes []jsonscan.Change,
) (rpc.Reply, error) {
	lane := remote.Shared()
	if lane == nil {
		return rpc.Reply{}, fault.New(fault.Unavailable, "the server is not started")
	}
	switch req.Method {
	case mcp.Ping:
		return ownReply(req, []byte("{}")), nil
	case mcp.Initialize:
		conn, err := lane.Conn(ctx)
		if err != nil {
			return rpc.Reply{}, err
		}
		return ownReply(req, greetingOf(conn.Hello(), remote.ID())), nil
	}
	m, err := lane.Call(ctx, &upstream.Call{
		Method: req.Method, Params: req.params, Changes: append(changes, jsonscan.Change{Key: "proxy"}),
	})
	return m.Reply, err
}

// ownReply is a reply of ours in the form of a server's.
func ownReply(req *request, result []byte) rpc.Reply {
	got, _ := rpc.ParseReply(rpc.AppendResult(nil, req.ID, result), 0, int(^uint(0)>>1))
	return got
}

// greetingOf is what a server said of itself, as it would say it in initialize.
func greetingOf(h upstream.Hello, id string) []byte {
	version, info, caps := h.Version, h.Info, h.Capabilities
	if h.Era == mcp.EraModern {
		version = mcp.V20251125
	}
	if info == nil {
		info = append(append([]byte(`{"name":`), mcp.Quote(id)...), `,"version":""}`...)
	}
	if caps == nil {
		caps = []byte("{}")
	}
	dst := append([]byte(`{"protocolVersion":`), mcp.Quote(version)...)
	dst = append(append(dst, `,"capabilities":`...), caps...)
	dst = append(append(dst, `,"serverInfo":`...), info...)
	if h.Instructions != "" {
		dst = jsonscan.AppendString(append(dst, `,"instructions":`...), h.Instructions)
	}
	return append(dst, '}')
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

func (h *Hub) sendRPC(w http.ResponseWriter, r *http.Request, body []byte, edits []jsonscan.Edit) {
	size := int64(jsonscan.SplicedLen(body, edits))
	front.BeginReply(w, h.plan.Load().HTTP, size)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	if err := jsonscan.Splice(w, body, edits); err != nil {
		slog.DebugContext(r.Context(), "the client did not take the reply", "error", err)
	}
}
