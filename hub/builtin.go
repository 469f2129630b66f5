package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// Builtin is a server that is part of the gateway: it has no transport and is always up. Every endpoint serves it like
// any other server, and its names always carry its id, so that they collide with no other. A configured server of the
// same id replaces it. Its results are not shortened.
type Builtin struct {
	// ID is its id.
	ID string

	// Tools returns its tools as tools/list has them, each as raw JSON. A reload calls it again.
	Tools func() [][]byte

	// Call calls a tool for a tenant and returns the raw result of tools/call. The arguments are a
	// raw value, {} where there are none. A failure that the client gets as it is, is a [*RPCError].
	Call func(ctx context.Context, tenant, name string, args []byte) (result []byte, err error)
}

// RPCError is an error as JSON-RPC has it.
type RPCError struct {
	Code    int
	Message string
	Data    []byte // raw JSON; nil for none
}

func (f *RPCError) Error() string { return f.Message }

// builtin is a Builtin and its tools under one plan.
type builtin struct {
	Builtin
	tools []catalog.Item
}

// addBuiltins adds the builtins to a plan, but for those that a configured server replaces.
func (p *Plan) addBuiltins(d Deps) {
	for _, one := range d.Builtins {
		if p.isUpstream(one.ID) {
			continue
		}
		b := &builtin{Builtin: one}
		for _, raw := range one.Tools() {
			if fields, err := jsonscan.FieldsOf(raw); err == nil {
				b.tools = append(b.tools, catalog.Item{Name: fields.Text("name"), Raw: raw})
			}
		}
		d.Meter.AddServer(one.ID)
		d.Meter.SetServerUp(one.ID, true)
		p.Builtins = append(p.Builtins, catalog.Builtin{ID: one.ID, Tools: b.tools})
		p.builtins[one.ID] = b
	}
}

// hasTool reports whether it has a tool of this name. A nil builtin has none.
func (b *builtin) hasTool(name string) bool {
	return b != nil && slices.ContainsFunc(b.tools, func(it catalog.Item) bool { return it.Name == name })
}

// callBuiltin is the end of a call to a builtin.
func (h *Hub) callBuiltin(ctx context.Context, req *Request, to Target) (Reply, error) {
	m, err := h.callBuiltinTool(ctx, req, to.builtin, to.name)
	if err == nil {
		m, err = req.redactMessage(ctx, m)
	}
	var failed *RPCError
	switch {
	case errors.As(err, &failed):
		return Reply{}, &protocolError{code: failed.Code, text: failed.Message, data: failed.Data, status: http.StatusOK}
	case err != nil:
		return Reply{}, err
	}
	res, err := mcp.ParseResult(m)
	return Reply{Body: m.Body, Edits: res.Translate(req.Protocol, req.Method)}, err
}

// callBuiltinTool calls a tool. An RPCError counts as an answer in the metrics.
func (h *Hub) callBuiltinTool(ctx context.Context, req *Request, b *builtin, tool string) (m rpc.Message, err error) {
	args, ok := req.Params.Get("arguments")
	if !ok {
		args = []byte("{}")
	}
	var failed *RPCError
	err = h.measureCall(b.ID, func() error {
		result, err := b.Call(ctx, req.Caller.Tenant(), tool, args)
		if err == nil {
			m, err = rpc.ParseMessage(rpc.AppendResult(nil, req.ID, result), 0, int(^uint(0)>>1))
		}
		if errors.As(err, &failed) {
			return nil
		}
		return err
	})
	switch {
	case failed != nil:
		return m, failed
	case err != nil:
		return m, fmt.Errorf("%s of the builtin server %s: %w", fault.Clip(tool), b.ID, err)
	}
	h.recordReply(ctx, b.ID, m.Reply, nil, recall.ShrinkResult{})
	return m, nil
}

// relayToBuiltin relays one message to a builtin (P1). Errors are answers, too.
func (h *Hub) relayToBuiltin(w http.ResponseWriter, r *http.Request, req *Request, b *builtin) error {
	if req.IsNotification() {
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	to, err := h.authorizeRelayed(r.Context(), req, Target{builtin: b})
	if err != nil {
		return err
	}
	var body []byte
	defer func() { to.endPass(Reply{Body: body}, err) }()
	body, err = h.answerForBuiltin(r.Context(), req, b)
	var failed *RPCError
	switch {
	case errors.As(err, &failed):
		h.writeRPC(w, r, rpc.AppendErrorData(nil, req.ID, failed.Code, failed.Message, failed.Data), nil)
	case err != nil:
		writeGatewayError(w, r, req.ID, err)
	default:
		h.writeRPC(w, r, body, nil)
	}
	return nil
}

// answerForBuiltin returns the reply of a builtin to one message.
func (h *Hub) answerForBuiltin(ctx context.Context, req *Request, b *builtin) ([]byte, error) {
	const health = "health" // which the documents also have as a method
	if k, ok := catalog.KindOf(req.Method); ok {
		dst := []byte(`{"` + k.Member() + `":[`)
		first := true
		for _, it := range b.tools {
			if k != catalog.Tools || !req.Plan.Gate.MayList(req.Caller, listTarget(k, b.ID, it.Name, it.Raw)) {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			dst, first = append(dst, it.Raw...), false
		}
		return rpc.AppendResult(nil, req.ID, append(dst, `]}`...)), nil
	}
	switch {
	case req.Method == mcp.Ping:
		return rpc.AppendResult(nil, req.ID, []byte("{}")), nil
	case req.Method == mcp.Initialize:
		info := append(append([]byte(`{"name":`), mcp.Quote(b.ID)...), `,"version":`...)
		hello := upstream.Handshake{
			Version:      mcp.Negotiate(req.Params.Text("protocolVersion")),
			Capabilities: []byte(`{"tools":{}}`),
			Info:         append(append(info, mcp.Quote(h.deps.Version)...), '}'),
		}
		return rpc.AppendResult(nil, req.ID, initializeResult(hello, b.ID)), nil
	case req.Method == mcp.ToolsCall && req.Name != "":
		m, err := h.callBuiltinTool(ctx, req, b, req.Name)
		return m.Body, err
	case req.Method == mcp.ToolsCall:
		return nil, &RPCError{Code: mcp.CodeInvalidParams, Message: "params.name is missing"}
	case req.Method == health && b.hasTool(health):
		m, err := h.callBuiltinTool(ctx, req, b, health)
		if err != nil {
			return nil, err
		}
		res, err := mcp.ParseResult(m)
		if raw, ok := res.Get("structuredContent"); ok && err == nil {
			return rpc.AppendResult(nil, req.ID, raw), nil
		}
		return m.Body, err
	}
	return nil, &RPCError{Code: mcp.CodeMethodNotFound, Message: "Method not found"}
}
