package hub

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// call carries one request to its server and the reply back. This is the path that the gateway exists
// for; read it first.
func (h *Hub) call(ctx context.Context, req *Request) (out Reply, err error) {
	req.takeAuthorizeState()
	if req.Method == mcp.ToolsCall && req.Name == recoverTool && !req.Plan.builtins[req.Server].hasTool(recoverTool) {
		return h.recoverText(ctx, req)
	}
	to, err := h.route(ctx, req)
	if err != nil {
		return Reply{}, err
	}
	if err := h.authorize(ctx, req, &to); err != nil {
		return Reply{}, err
	}
	defer func() { to.endPass(out, err) }()
	if !h.tasks.mayUseTask(req, to.server()) {
		return Reply{}, errUnknownTask
	}
	if to.hold != nil {
		return Reply{}, to.hold.Err()
	}
	if out, resumed, err := h.legacy.Resume(ctx, req); resumed {
		return out, err
	}
	front.AddLogAttrs(ctx, slog.String("server", to.server()), slog.String("name", fault.Clip(to.name)))
	if to.builtin != nil {
		return h.callBuiltin(ctx, req, to)
	}
	if req.Session != nil {
		req.Session.NoteUse(to.server())
	}
	goal, changes := h.takeGoal(ctx, req, to.server(), to.name)
	to.goal = goal
	to.changes = append(to.changes, changes...)
	caller := req.UpstreamCaller()
	caller.Operation = req.Method + " " + to.name
	began := time.Now()
	conn, release, err := h.acquireFor(ctx, req, to, caller)
	if err != nil {
		return h.failCall(req, to, began, err)
	}
	if req.Session != nil && conn.IsOfSession() {
		req.Session.NoteState(ctx)
	}
	if h.isAuthorizeTool(req, to) {
		defer release()
		return h.answerAuthorize(ctx, req, to, conn)
	}
	if out, made, err := h.legacy.Call(ctx, req, to, conn, release); made {
		if err != nil {
			return h.failCall(req, to, began, err)
		}
		return out, nil
	}
	defer release()
	m, err := h.CallUpstream(ctx, req, to, conn)
	if err != nil {
		return h.failCall(req, to, began, err)
	}
	return h.FinishCall(ctx, req, to, m)
}

// errUnknownTask is the answer for tasks that are not the caller's, whether they exist or not.
var errUnknownTask error = InvalidParams("there is no such task")

// CallUpstream makes the upstream call of a request, with its params changed as the target says, and further.
func (h *Hub) CallUpstream(ctx context.Context, req *Request, to Target, conn *upstream.ManagedConn, further ...jsonscan.Change) (m rpc.Message, err error) {
	_, progress := req.Params.Meta(mcp.MetaProgressToken)
	call := &upstream.Call{
		Method: req.Method, Params: req.Params, Changes: slices.Concat(to.changes, []jsonscan.Change{{Key: "proxy"}}, further),
		Client: req.Client, ClientKey: req.UpstreamCaller().ClientKey(), WantsProgress: progress, LogLevel: req.LogLevel,
	}
	if req.Peer != nil { // a nil *CallPeer would be a Peer that is not nil
		call.Peer = req.Peer
	}
	err = h.measureCall(to.remote.ID(), func() (err error) {
		m, err = conn.Call(ctx, call)
		return err
	})
	return m, err
}

// FinishCall makes the server's answer fit the client's context and revision.
func (h *Hub) FinishCall(ctx context.Context, req *Request, to Target, m rpc.Message) (Reply, error) {
	m, err := req.redactMessage(ctx, m)
	if err != nil {
		return Reply{}, err
	}
	h.tasks.noteTask(req, to.server(), m.Reply)
	res, err := mcp.ParseResult(m)
	if err != nil {
		return Reply{}, fault.Wrap(fault.BadReply, "the server's answer cannot be read", err)
	}
	edits := []jsonscan.Edit{{Span: m.ID, Text: req.ID.Raw()}}
	if res.NeedsInput() { // for the client alone to read and answer
		inputs, _ := res.InputRequests()
		asks := make([]string, 0, len(inputs))
		for _, in := range inputs {
			asks = append(asks, fault.Clip(in.Method))
		}
		front.AddLogAttrs(ctx, slog.Any("asks", asks))
		return Reply{Body: m.Body, Edits: edits}, nil
	}
	content, err := mcp.ParseContent(m)
	if err != nil {
		return Reply{}, fault.Wrap(fault.BadReply, "the server's answer cannot be read", err)
	}
	cut := h.shrinkResult(ctx, req, to, m, content)
	edits = jsonscan.MergeEdits(edits, cut, renameResources(m, to, content), res.Translate(req.Protocol, req.Method), mcp.TranslateError(m, req.Protocol, req.Method))
	return Reply{Body: m.Body, Edits: edits, status: mcp.HTTPStatus(m, req.Protocol), code: m.ErrorCode()}, nil
}

// shrinkResult shortens what is too long, and stores the original first. Binary data and URIs stay whole: half of
// one is useless.
func (h *Hub) shrinkResult(ctx context.Context, req *Request, to Target, m rpc.Message, content mcp.Content) []jsonscan.Edit {
	whole := slices.Concat(content.Binary, content.URIs)
	strings := m.LongStrings
	if len(whole) > 0 && len(strings) > 0 {
		strings = slices.DeleteFunc(slices.Clone(strings), func(s jsonscan.Str) bool {
			return slices.ContainsFunc(whole, func(b jsonscan.Span) bool { return b.Start < s.Start && s.End < b.End })
		})
	}
	server := to.remote.ID()
	tool := ""
	if req.Method == mcp.ToolsCall {
		tool = to.name
	}
	policy := req.Plan.rules.policyFor(server, tool)
	policy.Goal = to.goal
	cut := h.recall.Shrink(ctx, recall.ShrinkRequest{
		Tenant: req.Caller.Tenant(), Origin: originFor(req.Method, to), CallID: req.Params.MetaText(mcp.MetaToolUseID),
		Body: m.Body, Strings: strings, Limit: h.resultLimit(req, to), Whole: whole,
	}, policy)
	h.recordReply(ctx, server, m.Reply, cut.Edits, cut)
	to.pass.Cut(cut.CharsCut, cut.IDs)
	return cut.Edits
}

// renameResources gives the resources that a result names the names that clients see.
func renameResources(m rpc.Message, to Target, content mcp.Content) []jsonscan.Edit {
	if to.rename == nil {
		return nil
	}
	var out []jsonscan.Edit
	for _, at := range content.URIs {
		uri := jsonscan.DecodeString(at.Of(m.Body))
		if shown := to.rename(uri); shown != uri {
			out = append(out, jsonscan.Edit{Span: at, Text: mcp.Quote(shown)})
		}
	}
	return out
}

// measureCall measures a call for the metrics. One that panics counts as an internal error.
func (h *Hub) measureCall(server string, call func() error) error {
	done := h.meter.StartCall(server)
	result := fault.Internal.String()
	defer func() { done(result) }()
	err := call()
	if result = "ok"; err != nil {
		result = fault.KindOf(err).String()
	}
	return err
}

// recordReply records what became of a reply, in the metrics and in the log.
func (h *Hub) recordReply(ctx context.Context, server string, r rpc.Reply, edits []jsonscan.Edit, cut recall.ShrinkResult) {
	h.meter.CountReply(server, meter.ReplyStats{
		BytesIn: int64(len(r.Body)), BytesOut: int64(jsonscan.SplicedLen(r.Body, edits)),
		CharsCut: cut.CharsCut, Kept: cut.Recoverable, Whole: cut.PassedWhole, Lost: cut.Unrecoverable,
	})
	if cut.CharsCut > 0 {
		front.AddLogAttrs(ctx, slog.Int64("chars_cut", cut.CharsCut))
	}
	if cut.Err != nil {
		slog.WarnContext(ctx, "text was sent whole: its original could not be stored", "server", server, "error", cut.Err)
	}
}
