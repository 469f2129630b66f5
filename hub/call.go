package hub

import (
	"context"
	"errors"
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

// maxRounds is how often a server may ask for input before it answers one request.
const maxRounds = 32

// call carries one request to its server and the reply back. This is the path the gateway exists
// for; read it first.
func (h *Hub) call(ctx context.Context, req *request) (reply, error) {
	if req.Method == mcp.ToolsCall && req.Name == recoverTool && !req.plan.own[req.only].offers(recoverTool) {
		return h.recoverText(ctx, req)
	}
	if _, ok := req.params.Get("requestState"); ok && h.ownState(req) {
		return h.resume(ctx, req)
	}
	to, err := h.route(ctx, req)
	if err != nil {
		return reply{}, err
	}
	front.Note(ctx, slog.String("server", to.server()), slog.String("name", clip(to.name)))
	if to.own != nil {
		return h.callOwn(ctx, req, to)
	}
	if req.held != nil {
		h.sessions.use(req.held, to.server())
	}
	var mine []jsonscan.Change
	to.goal, mine = h.takeFocus(ctx, req, to.server(), to.name)
	to.changes = append(to.changes, mine...)
	lane, release, err := to.remote.Pick(ctx, req.from())
	if err != nil {
		return reply{}, err
	}
	if req.stray(lane) {
		release()
		return reply{}, errState
	}
	if req.parks(lane) {
		return h.park(ctx, req, to, lane, release)
	}
	defer release()
	m, err := h.far(ctx, req, to, lane)
	if err != nil {
		return reply{}, err
	}
	return h.finish(ctx, req, to, m)
}

// far makes the far call, and answers a server of the newer era that asks for input on behalf of
// a client of the older one.
func (h *Hub) far(ctx context.Context, req *request, to target, lane *upstream.Lane) (rpc.Message, error) {
	call := req.outgoing(to)
	for range maxRounds {
		var m rpc.Message
		err := h.timed(to.remote.ID(), func() (err error) {
			m, err = lane.Call(ctx, call)
			return err
		})
		if err != nil || req.era == mcp.EraModern {
			return m, err
		}
		answers, state, needed, err := h.answers(ctx, req, to.remote.ID(), m)
		if err != nil || !needed {
			return m, err
		}
		again := *call
		again.Changes = append(slices.Clone(req.outgoing(to).Changes),
			jsonscan.Change{Key: "inputResponses", Value: answers}, jsonscan.Change{Key: "requestState", Value: state})
		call = &again
	}
	return rpc.Message{}, fault.New(fault.BadReply, "the server asks for input without end")
}

// outgoing is the request as the far side gets it.
func (r *request) outgoing(to target) *upstream.Call {
	_, progress := r.params.Meta(mcp.KeyProgress)
	changes := append(slices.Clone(to.changes), jsonscan.Change{Key: "proxy"})
	call := &upstream.Call{
		Method: r.Method, Params: r.params, Changes: changes, Client: r.client, Progress: progress, LogLevel: r.level,
	}
	if r.peer != nil { // a nil *waiter would be a Peer that is not nil
		call.Peer = r.peer
	}
	return call
}

// answers puts a server's requests for input to the client of an older era, one after the other.
func (h *Hub) answers(ctx context.Context, req *request, server string, m rpc.Message) (raw, state []byte, needed bool, err error) {
	res, err := mcp.ReadResult(m)
	if err != nil {
		return nil, nil, false, fault.Wrap(fault.BadReply, "the server's answer cannot be read", err)
	}
	if !res.NeedsInput() {
		return nil, nil, false, nil
	}
	inputs, err := res.Inputs()
	if err != nil {
		return nil, nil, false, fault.Wrap(fault.BadReply, "the server's request for input cannot be read", err)
	}
	raw = []byte{'{'}
	for i, in := range inputs {
		if i > 0 {
			raw = append(raw, ',')
		}
		one, err := h.answer(ctx, req, server, in)
		if err != nil {
			return nil, nil, false, err
		}
		raw = append(append(jsonscan.AppendString(raw, in.Key), ':'), one...)
	}
	state, _ = res.Get("requestState")
	return append(raw, '}'), state, true, nil
}

func (h *Hub) answer(ctx context.Context, req *request, server string, in mcp.Input) ([]byte, error) {
	body := append([]byte(`{"jsonrpc":"2.0","id":0,"method":`), mcp.Quote(in.Method)...)
	if len(in.Params) > 0 {
		body = append(append(body, `,"params":`...), in.Params...)
	}
	question, err := rpc.ParseMessage(append(body, '}'), 0, 0)
	if err != nil || req.peer == nil || !mcp.Asks(in.Method) {
		return nil, fault.New(fault.BadReply, "the server asks for what no client gives")
	}
	began := time.Now()
	got, err := req.peer.Ask(ctx, server, question)
	upstream.LogRequest(server, in.Method, time.Since(began), upstream.AnswerCode(got, err), err)
	switch {
	case errors.Is(err, errCannotAsk):
		return nil, fault.Wrap(fault.BadReply, "the server asks for what the client does not offer", err)
	case err != nil:
		return nil, err
	case got.IsError:
		return nil, fault.New(fault.BadReply, "the client refused what the server asked for")
	}
	return got.Result.Of(got.Body), nil
}

// finish makes the reply fit the client's context and era.
func (h *Hub) finish(ctx context.Context, req *request, to target, m rpc.Message) (reply, error) {
	res, err := mcp.ReadResult(m)
	if err != nil {
		return reply{}, fault.Wrap(fault.BadReply, "the server's answer cannot be read", err)
	}
	edits := []jsonscan.Edit{{Span: m.ID, Text: req.ID.Raw()}}
	if res.NeedsInput() { // for the client alone to read and give back
		noteInputs(ctx, res)
		return reply{body: m.Body, edits: edits}, nil
	}
	content, err := mcp.ReadContent(m)
	if err != nil {
		return reply{}, fault.Wrap(fault.BadReply, "the server's answer cannot be read", err)
	}
	cut := h.shrink(ctx, req, to, m, content)
	edits = jsonscan.Merge(edits, cut, renames(m, to, content), res.Dress(req.era, req.Method), mcp.DressError(m, req.era, req.Method))
	return reply{body: m.Body, edits: edits, status: mcp.Status(m, req.era), code: upstream.ErrorCode(m.Reply)}, nil
}

// noteInputs says in the call's log line what its server asks of the client.
func noteInputs(ctx context.Context, res mcp.Result) {
	inputs, _ := res.Inputs()
	asks := make([]string, 0, len(inputs))
	for _, in := range inputs {
		asks = append(asks, clip(in.Method))
	}
	front.Note(ctx, slog.Any("asks", asks))
}

// shrink cuts what is too long, and keeps it first. Binary data and addresses are no text: half of
// one is nothing.
func (h *Hub) shrink(ctx context.Context, req *request, to target, m rpc.Message, content mcp.Content) []jsonscan.Edit {
	whole := slices.Concat(content.Binary, content.URIs)
	strings := m.Strings
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
	how := req.plan.rules.find(server, tool)
	cut := h.recall.Shrink(ctx, recall.Doc{
		Tenant: req.who.Tenant(), From: recall.Origin{Server: server, Tool: clip(tool)}, Body: m.Body, Strings: strings,
		Focus: how.focus(to.goal),
	}, how.Policy)
	h.count(ctx, server, m.Reply, cut.Edits, cut)
	return cut.Edits
}

// renames gives the resources that a result names the names they have here.
func renames(m rpc.Message, to target, content mcp.Content) []jsonscan.Edit {
	if to.rename == nil {
		return nil
	}
	var out []jsonscan.Edit
	for _, at := range content.URIs {
		own := jsonscan.TextOf(at.Of(m.Body))
		if shown := to.rename(own); shown != own {
			out = append(out, jsonscan.Edit{Span: at, Text: mcp.Quote(shown)})
		}
	}
	return out
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

// outcome is a call's metric label.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return fault.KindOf(err).String()
}

// count says what became of a reply, in the metrics and in the log.
func (h *Hub) count(ctx context.Context, server string, r rpc.Reply, edits []jsonscan.Edit, cut recall.Shrunk) {
	h.meter.Count(server, meter.Reply{
		BytesIn: int64(len(r.Body)), BytesOut: int64(jsonscan.SplicedLen(r.Body, edits)),
		CharsCut: cut.Chars, Kept: cut.Kept, Whole: cut.Whole, Lost: cut.Lost,
	})
	if cut.Chars > 0 {
		front.Note(ctx, slog.Int64("chars_cut", cut.Chars))
	}
	if cut.Err != nil {
		slog.WarnContext(ctx, "text was sent whole: its original could not be kept", "server", server, "error", cut.Err)
	}
}

var errCannotAsk = fault.New(fault.NoMethod, "the client does not answer this")
