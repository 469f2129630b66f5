package hub

import (
	"context"
	"errors"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rpc"
)

// recoverTool is the one tool of the gateway itself. It is always offered, so that lists do not
// change with what happens to be cut.
const recoverTool = "recover_text"

var recoverItem = []byte(`{"name":"` + recoverTool + `","title":"Read back text that was cut",` +
	`"description":"Gives back text that was cut from a tool result. Where a result says [recover: prune_id=prn_… chars=…], call this ` +
	`with that prune_id and those chars. Where it says ⟦PRUNÉ: prune_id=prn_… lignes A-B (N) …⟧, N lines were left out: call this with ` +
	`that prune_id and ranges from start_line A to end_line B. Without ranges, pattern or chars it gives the whole original; prefer a ` +
	`part of it. An answer that is too long ends with a line in brackets that says how to ask for the rest.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"prune_id":{"type":"string","description":"The id in the recover line or the marker."},` +
	`"ranges":{"type":"array","description":"Lines to read, counted from 1, both ends included, in the order asked. A line that is asked for twice is given once.","items":{"type":"object","properties":{` +
	`"start_line":{"type":"integer","minimum":1},"end_line":{"type":"integer","minimum":1}},` +
	`"required":["start_line","end_line"],"additionalProperties":false}},` +
	`"pattern":{"type":"string","description":"Only lines that match this regular expression (RE2)."},` +
	`"chars":{"type":"string","description":"Characters to read, as first-last counted from 1, as the recover line has them."},` +
	`"include_line_numbers":{"type":"boolean","description":"Put the number before each line."}},` +
	`"required":["prune_id"],"additionalProperties":false},` +
	`"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}`)

// mayRead says which originals a request may read back: of what its caller may call today. At the
// door of one server that is what this server's results made, and nothing else.
func (h *Hub) mayRead(req *request) recall.Access {
	return func(o recall.Origin) bool {
		switch {
		case req.only != "":
			return o.Server == req.plan.origin(req.only) && req.plan.calls(o)
		case h.deps.MayRead != nil:
			return h.deps.MayRead(req.who, o)
		}
		return req.plan.calls(o)
	}
}

// origin is the Server of what a server's results made.
func (p *plan) origin(server string) string {
	if p.own[server] != nil {
		return recall.OwnOrigin(server)
	}
	return server
}

// calls says whether what an origin names can be called under the plan.
func (p *plan) calls(o recall.Origin) bool {
	for id := range p.own {
		if o.Server == recall.OwnOrigin(id) {
			return true
		}
	}
	return p.knows(o.Server)
}

// Calls says whether a caller may call, today, what an origin names: a server that is there.
func (h *Hub) Calls(_ auth.Caller, o recall.Origin) bool { return h.plan.Load().calls(o) }

// recoverText reads an original back, for the tenant that it was kept for.
func (h *Hub) recoverText(ctx context.Context, req *request) (reply, error) {
	args, _ := req.params.Get("arguments")
	wish, err := recall.ReadWish(args)
	if err != nil {
		return reply{}, unanswered(err)
	}
	part, err := h.recall.Answer(ctx, req.who.Tenant(), wish, h.mayRead(req), 0)
	if err != nil {
		return reply{}, unanswered(err)
	}
	size := jsonscan.RawLen(part) + 256
	if err := membudget.From(ctx).Take(int64(len(part) + 2*size)); err != nil { // a copy of the text, the result and the reply
		return reply{}, err
	}
	dst := append(make([]byte, 0, size), `{"content":[{"type":"text","text":`...)
	dst = jsonscan.AppendString(dst, string(part))
	dst = append(dst, `}],"isError":false`...)
	if req.era == mcp.EraModern {
		dst = append(dst, `,"resultType":"complete"`...)
	}
	return reply{body: rpc.AppendResult(nil, req.ID, append(dst, '}'))}, nil
}

// unanswered gives the refusals of P6 their codes.
func unanswered(err error) error {
	switch {
	case errors.Is(err, recall.ErrRange):
		return &protocolError{
			code: -32005, text: "invalid_range: " + fault.PublicOf(err), data: []byte(`{"code":"invalid_range"}`), status: 200,
		}
	case fault.KindOf(err) == fault.Unknown:
		return &protocolError{
			code: -32004, text: "prune_id_not_found: " + fault.PublicOf(err), data: []byte(`{"code":"prune_id_not_found"}`), status: 200,
		}
	}
	return err
}
