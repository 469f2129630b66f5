package hub

import (
	"context"
	"strconv"

	"github.com/ctxgate/ctxgate/clients"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rpc"
)

// metaMaxResult is the member of a tool's _meta by which Claude Code passes larger results of that tool on.
const metaMaxResult = "anthropic/maxResultSizeChars"

// clientID is the id of the client that sent a request: as its entry names it, else by what it calls itself; "" for
// one that is not known.
func (r *Request) clientID() string {
	if r.ClientID != "" {
		return r.ClientID
	}
	info, err := jsonscan.FieldsOf(r.Client.Info)
	if err != nil {
		return ""
	}
	c, _ := clients.ByInfoName(info.Text("name"))
	return c.ID
}

// clientLimits is what the client of a request would cut or refuse by itself, as far as the configuration says to
// care.
func (r *Request) clientLimits() clients.Limits {
	return r.Plan.Hub.limitsOf(r.clientID())
}

// limitsOf returns the limits of a client: those of the table with fit_clients, and what [clients] says.
func (c Config) limitsOf(id string) clients.Limits {
	var l clients.Limits
	if c.FitClients {
		l = clients.Unknown()
		if known, ok := clients.ByID(id); ok {
			l = known.Limits
		}
	}
	return c.Clients[id].Over(l)
}

// resultLimit is the largest result of a call that the client passes on. A tool may raise it in its _meta.
func (h *Hub) resultLimit(req *Request, to Target) clients.Result {
	if req.Method != mcp.ToolsCall {
		return clients.Result{}
	}
	l := req.clientLimits()
	if l.RaisesResult && l.Result.Chars > 0 {
		l.Result.Chars = max(l.Result.Chars, req.Plan.raisedResult(to.server(), to.name), h.declaredResult(req, to))
	}
	return l.Result
}

// raisedResult is the value of metaMaxResult with which a tool is listed because its policy lets long texts through;
// 0 for none.
func (p *Plan) raisedResult(server, tool string) int {
	if !p.Hub.FitClients {
		return 0
	}
	known, _ := clients.ByID("claude-code")
	if most := p.rules.policyFor(server, tool).MaxChars; most > known.Result.Chars {
		return min(most, clients.MaxRaisedChars)
	}
	return 0
}

// declaredResult is the value of metaMaxResult that a server gave its tool; 0 for none.
func (h *Hub) declaredResult(req *Request, to Target) int {
	e, ok := h.catalog.Current(h.catalog.ClassOf(req.UpstreamCaller()), to.server()).Find(catalog.Tools, to.name)
	if !ok {
		return 0
	}
	return min(declaredMaxResult(e.Raw), clients.MaxRaisedChars)
}

func declaredMaxResult(tool []byte) int {
	fields, err := jsonscan.FieldsOf(tool)
	if err != nil {
		return 0
	}
	raw, _ := fields.Get("_meta")
	meta, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return 0
	}
	value, _ := meta.Get(metaMaxResult)
	n, err := strconv.Atoi(string(value))
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// minReadBack is the fewest characters of an answer of recover_text, whatever its client's limit.
const minReadBack = 250

// recoverFitting reads an original back, as much of it as the client passes on. The answer's last line says how to
// read on.
func (h *Hub) recoverFitting(ctx context.Context, req *Request, read recall.ReadRequest) ([]byte, error) {
	limit := req.clientLimits().Result
	most := max(limit.Chars, 0)
	if most == 0 || limit.Bytes > 0 && limit.Bytes < most {
		most = limit.Bytes
	}
	for {
		part, err := h.recall.RecoverText(ctx, req.Caller.Tenant(), read, h.mayRead(req), most)
		if err != nil || limit.IsZero() {
			return part, err
		}
		reply := rpc.AppendResult(nil, req.ID, appendTextResult(nil, part))
		if recall.FitsClient(reply, limit) {
			return part, nil
		}
		// Escapes, wide characters and short lines count more than a character each.
		next := len(part) * 2 / 3
		if most > 0 {
			next = min(next, most*2/3)
		}
		if next < minReadBack {
			return part, nil
		}
		most = next
	}
}

// appendTextResult appends a tool result with one text, without its end.
func appendTextResult(dst, text []byte) []byte {
	dst = append(dst, `{"content":[{"type":"text","text":`...)
	dst = jsonscan.AppendQuoted(dst, string(text))
	return append(dst, `}],"isError":false}`...)
}
