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
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// serveRPC relays one message to a named server and its reply back: the gateway of the clauses G.
func (h *Hub) serveRPC(w http.ResponseWriter, r *http.Request) {
	req := &Request{}
	now := h.plan.Load()
	body, err := front.ReadBodyWithToken(w, r, int64(now.HTTP.MaxRequestBytes), now.Gate)
	if err == nil {
		plan, release := h.acquirePlan()
		defer release()
		req.Plan = plan
		err = h.readRPC(w, r, req, body)
	}
	if err == nil {
		err = h.relayMessage(w, r, req)
	}
	if err != nil {
		writeGatewayError(w, r, req.ID, withAddress(err))
	}
}

// readRPC parses the message and authenticates its sender.
func (h *Hub) readRPC(w http.ResponseWriter, r *http.Request, req *Request, body []byte) (err error) {
	req.Request, err = rpc.ParseRequest(body, req.Plan.Hub.MaxDepth)
	front.SetErrorContext(r.Context(), req.ID)
	invalid := err
	if invalid == nil {
		if req.Params, err = mcp.ParseParams(req.Request.Params); err != nil {
			return fault.Wrap(fault.InvalidRequest, "invalid request", err)
		}
	}
	if req.Caller, err = h.Authenticate(w, r, req.Plan, req.Params); err != nil {
		req.ID = rpc.ID{} // a caller that is not authenticated learns nothing
		return err
	}
	return invalid
}

// relayMessage carries one message to its server and its reply back.
func (h *Hub) relayMessage(w http.ResponseWriter, r *http.Request, req *Request) (err error) {
	ctx := r.Context()
	id := r.PathValue("server")
	remote := req.Plan.ByID[id]
	if !req.Plan.Serves(id) || !req.mayUse(id) {
		return fault.New(fault.NotFound, "unknown server "+strconv.Quote(fault.Clip(id)))
	}
	if err := h.Admit(req); err != nil {
		return err
	}
	front.AddLogAttrs(ctx, slog.String("server", id), slog.String("rpc", fault.Clip(req.Method)))
	if remote == nil {
		return h.relayToBuiltin(w, r, req, req.Plan.builtins[id])
	}
	if req.IsNotification() {
		err := h.measureCall(id, func() error { return h.notifyRaw(ctx, req, remote) })
		if err != nil { // a notification has no reply to put this into
			slog.WarnContext(ctx, "a notification was not delivered", "server", id, "error", err)
		}
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	tool := ""
	if req.Method == mcp.ToolsCall {
		if tool = req.Name; !remote.Config().OffersTool(tool) || !isItemName(tool) {
			return unknownRelayed("tool", tool)
		}
	}
	to, err := h.authorizeRelayed(ctx, req, req.Plan.targetOf(id, ""))
	if err != nil {
		return err
	}
	var sent Reply
	defer func() { to.endPass(sent, err) }()
	if !h.tasks.mayUseTask(req, id) {
		return unknownRelayed("task", req.Params.Text("taskId"))
	}
	if tool != "" {
		call := catalog.Call{Kind: catalog.Tools, At: id, Server: id, Name: tool}
		if hold := h.catalog.Refusal(ctx, upstream.Caller{}, &req.Plan.Layout, call); hold != nil {
			return hold.Err()
		}
	}
	policy := req.Plan.rules.policyFor(id, tool)
	goal, changes := h.takeGoal(ctx, req, id, tool)
	var got rpc.Reply
	err = h.measureCall(id, func() (err error) {
		got, err = h.callRaw(ctx, req, remote, policy, changes)
		return err
	})
	if err == nil {
		got, err = h.checkRawReply(ctx, req, id, got, policy)
	}
	if err == nil {
		got, err = hideItems(req, id, got, policy)
	}
	if err == nil {
		var m rpc.Message
		m, err = req.redactMessage(ctx, rpc.Message{Reply: got})
		got = m.Reply
	}
	if err != nil {
		return req.redactError(err)
	}
	h.tasks.noteTask(req, id, got)
	policy.Goal = goal
	cut := h.recall.Shrink(ctx, recall.ShrinkRequest{
		Tenant: req.Caller.Tenant(), Origin: originFor(req.Method, to), CallID: req.Params.MetaText(mcp.MetaToolUseID),
		Body: got.Body, Strings: got.LongStrings,
	}, policy)
	edits := cut.Edits
	if !bytes.Equal(got.ID.Of(got.Body), req.ID.Raw()) { // the id goes back as the client wrote it
		edits = jsonscan.MergeEdits(edits, []jsonscan.Edit{{Span: got.ID, Text: req.ID.Raw()}})
	}
	front.AddLogAttrs(ctx, slog.Int("code", got.ErrorCode()))
	h.recordReply(ctx, id, got, edits, cut)
	to.pass.Cut(cut.CharsCut, cut.IDs)
	sent = Reply{Body: got.Body, Edits: edits, code: got.ErrorCode()}
	h.writeRPC(w, r, got.Body, edits)
	return nil
}

// notifyRaw forwards a notification. Where the gateway has an MCP connection to the server, notifications about that
// connection are not forwarded.
func (h *Hub) notifyRaw(ctx context.Context, req *Request, remote *upstream.Server) error {
	caller := req.UpstreamCaller()
	if raw, err := remote.RPCClientOf(ctx, caller); err != nil {
		return err
	} else if raw != nil {
		return raw.Notify(ctx, req.withoutOurs(nil))
	}
	if strings.HasPrefix(req.Method, mcp.NotifyInitialized) || req.Method == mcp.NotifyCancelled {
		return nil
	}
	conn, release, err := remote.AcquireShared(ctx, caller)
	if err != nil {
		return err
	}
	defer release()
	return conn.Notify(req.Method, req.Params.With([]jsonscan.Change{{Key: "proxy"}}, nil))
}

// withoutOurs returns the message as it came, without what is for the gateway alone: the token (A8), and what the
// changes remove.
func (r *Request) withoutOurs(changes []jsonscan.Change) []byte {
	if _, ok := r.Params.Get("proxy"); ok {
		changes = append(changes, jsonscan.Change{Key: "proxy"})
	}
	top, err := jsonscan.FieldsOf(r.Body)
	if len(changes) == 0 || err != nil {
		return r.Body
	}
	return top.With(jsonscan.Change{Key: "params", Value: r.Params.With(changes, nil)})
}

// callRaw calls the server and checks that it replies to this request.
func (h *Hub) callRaw(
	ctx context.Context, req *Request, remote *upstream.Server, policy recall.Policy, changes []jsonscan.Change,
) (rpc.Reply, error) {
	raw, err := remote.RPCClientOf(ctx, req.UpstreamCaller())
	if err != nil {
		return rpc.Reply{}, err
	}
	if raw == nil {
		return h.callConnected(ctx, req, remote, changes)
	}
	body, err := raw.Call(ctx, req.withoutOurs(changes))
	if err != nil {
		return rpc.Reply{}, err
	}
	got, err := rpc.ParseReply(body, req.Plan.Hub.MaxDepth, policy.MaxChars)
	if err != nil {
		return rpc.Reply{}, err
	}
	// A server that could not read the request answers with an error and no id.
	anonymous := got.IsError && string(got.MessageID().Raw()) == "null"
	if !anonymous && !got.MessageID().Equal(req.ID) {
		return rpc.Reply{}, fault.New(fault.BadReply, "the server answered another request")
	}
	return got, nil
}

// callConnected makes the call over the server's MCP connection, which is initialized already.
func (h *Hub) callConnected(
	ctx context.Context, req *Request, remote *upstream.Server, changes []jsonscan.Change,
) (rpc.Reply, error) {
	conn, release, err := remote.AcquireShared(ctx, req.UpstreamCaller())
	if err != nil {
		return rpc.Reply{}, err
	}
	defer release()
	switch req.Method {
	case mcp.Ping:
		return gatewayReply(req, []byte("{}")), nil
	case mcp.Initialize:
		conn, err := conn.AwaitConn(ctx)
		if err != nil {
			return rpc.Reply{}, err
		}
		return gatewayReply(req, initializeResult(conn.Handshake(), remote.ID())), nil
	}
	m, err := conn.Call(ctx, &upstream.Call{
		Method: req.Method, Params: req.Params, Changes: append(changes, jsonscan.Change{Key: "proxy"}),
	})
	return m.Reply, err
}

// gatewayReply is a reply of the gateway in the form of a server's.
func gatewayReply(req *Request, result []byte) rpc.Reply {
	got, _ := rpc.ParseReply(rpc.AppendResult(nil, req.ID, result), 0, int(^uint(0)>>1))
	return got
}

// initializeResult is the handshake of a server, as the result of initialize.
func initializeResult(h upstream.Handshake, id string) []byte {
	version, info, caps := h.Version, h.Info, h.Capabilities
	if h.Protocol == mcp.Modern {
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
		dst = jsonscan.AppendQuoted(append(dst, `,"instructions":`...), h.Instructions)
	}
	return append(dst, '}')
}

func (h *Hub) writeRPC(w http.ResponseWriter, r *http.Request, body []byte, edits []jsonscan.Edit) {
	size := int64(jsonscan.SplicedLen(body, edits))
	front.SetReplyDeadline(w, h.plan.Load().HTTP, size)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	if err := jsonscan.Splice(w, body, edits); err != nil {
		slog.DebugContext(r.Context(), "the client did not read the reply", "error", err)
	}
}
