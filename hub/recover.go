package hub

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/reduce"
	"github.com/ctxgate/ctxgate/rpc"
)

// recoverTool is the tool of the gateway itself. It is always offered, so that lists do not
// change when something is cut.
const recoverTool = recovertool.Name

var recoverItem = []byte(`{"name":"` + recoverTool + `","title":"Read back text that was cut",` +
	`"description":"Gives back text that was cut from a tool result. Where a result says [recover: prune_id=prn_… chars=…], call this ` +
	`with that prune_id and those chars. Where it says ⟦PRUNÉ: prune_id=prn_… lignes A-B (N) …⟧, N lines were left out: call this with ` +
	`that prune_id and ranges from start_line A to end_line B. Without ranges, pattern or chars it gives the whole original; prefer a ` +
	`part of it. An answer that is too long ends with a line in brackets that says how to ask for the rest.",` +
	`"inputSchema":` + recovertool.Schema(recovertool.Descriptions{
	PruneID: "The id in the recover line or the marker.",
	Ranges:  "Lines to read, counted from 1, both ends included, in the order asked. A line that is asked for twice is given once.",
	Chars:   "Characters to read, as first-last counted from 1, as the recover line has them.",
}) +
	`,"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}`)

// plainRecoverItem is the tool where markers are plain. The entry in _meta asks clients that load tools on demand
// (Claude Code with tool search) to load this one at once: a marker names it in the middle of a task.
var plainRecoverItem = []byte(`{"name":"` + recoverTool + `","title":"Read back text that was left out",` +
	`"description":"Reads back text that was left out of a tool result or a tool description to save room; nothing is lost. Where a text says ` +
	`[… N characters left out; call recover_text with prune_id=prn_… chars=A-B], call this with that prune_id and those chars. Where it says ` +
	`[lines A-B left out; call recover_text with prune_id=prn_…], call this with that prune_id and ranges from start_line A to end_line B. ` +
	`Prefer a part: pattern gives only the lines that match. Without ranges, pattern or chars it gives the whole original. An answer that is ` +
	`too long ends with a line in brackets that says how to ask for the rest.",` +
	`"inputSchema":` + recovertool.Schema(recovertool.Descriptions{
	PruneID: "The id that the marker names.",
	Ranges:  "Lines to read, counted from 1, both ends included, in the order asked. A line that is asked for twice is given once.",
	Chars:   "Characters to read, as first-last counted from 1, as the marker has them.",
}) +
	`,"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false},"_meta":{"anthropic/alwaysLoad":true}}`)

// recoverItemFor is the tool as it is listed beside markers of a wording.
func recoverItemFor(m reduce.Markers) []byte {
	if m == reduce.PlainMarkers {
		return plainRecoverItem
	}
	return recoverItem
}

// mayRead returns which originals a request may read back: those of what its caller may call today. At the
// endpoint of one server that is only originals of this server's results.
func (h *Hub) mayRead(req *Request) recall.Access {
	origin := req.Server
	if req.Plan.builtins[req.Server] != nil {
		origin = recall.BuiltinOrigin(req.Server)
	}
	return func(o recall.Origin) bool {
		switch {
		case req.Server != "":
			return o.Server == origin && h.canRead(req.Plan, req.Caller, o)
		case h.deps.MayRead != nil:
			return h.deps.MayRead(req.Caller, o)
		}
		return h.canRead(req.Plan, req.Caller, o)
	}
}

// CanRead reports whether a caller may read back what came from an origin: whether it could get it by a call today.
func (h *Hub) CanRead(c auth.Caller, o recall.Origin) bool { return h.canRead(h.plan.Load(), c, o) }

// recoverText reads an original back, for the tenant that it was stored for: as much of it as the client passes on.
func (h *Hub) recoverText(ctx context.Context, req *Request) (Reply, error) {
	args, _ := req.Params.Get("arguments")
	read, err := recall.ParseReadRequest(args)
	if err != nil {
		return Reply{}, recoverError(err)
	}
	part, err := h.recoverFitting(ctx, req, read)
	req.Plan.Gate.RecordRead(ctx, req.Caller, read.KnownID(), utf8.RuneCount(part), err)
	if err != nil {
		return Reply{}, recoverError(err)
	}
	h.meter.CountReadBack(utf8.RuneCount(part))
	size := jsonscan.EscapedLen(part) + 256
	if err := membudget.FromContext(ctx).Reserve(int64(len(part) + 2*size)); err != nil { // a copy of the text, the result and the reply
		return Reply{}, err
	}
	dst := append(make([]byte, 0, size), `{"content":[{"type":"text","text":`...)
	dst = jsonscan.AppendQuoted(dst, string(part))
	dst = append(dst, `}],"isError":false`...)
	if req.Protocol == mcp.Modern {
		dst = append(dst, `,"resultType":"complete"`...)
	}
	return Reply{Body: rpc.AppendResult(nil, req.ID, append(dst, '}'))}, nil
}

// recoverError gives the failures of P6 their codes.
func recoverError(err error) error {
	switch {
	case errors.Is(err, recall.ErrRange):
		return &protocolError{
			code: -32005, text: "invalid_range: " + fault.PublicOf(err), data: []byte(`{"code":"invalid_range"}`), status: 200,
		}
	case fault.KindOf(err) == fault.UnknownHandle:
		return &protocolError{
			code: -32004, text: "prune_id_not_found: " + fault.PublicOf(err), data: []byte(`{"code":"prune_id_not_found"}`), status: 200,
		}
	}
	return err
}
