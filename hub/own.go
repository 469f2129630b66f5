package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// Own is a server that is part of the gateway: there is no wire to it, and it is always up. It is
// at every door like any other, and its names always carry its id, so that they are nobody
// else's. A configured server of the same id takes its place. What it answers is not cut.
type Own struct {
	// ID is its id.
	ID string

	// Tools are its tools as tools/list has them, each as raw JSON. A reload asks again.
	Tools func() [][]byte

	// Call calls a tool for a tenant and gives the raw result of tools/call. The arguments are a
	// raw value, {} where there are none. A failure that the client is to be told as it is, is a
	// [*Failure].
	Call func(ctx context.Context, tenant, name string, args []byte) (result []byte, err error)
}

// Failure is an error in the words of JSON-RPC.
type Failure struct {
	Code    int
	Message string
	Data    []byte // raw JSON; nil for none
}

func (f *Failure) Error() string { return f.Message }

// own is one of them as a plan has it.
type own struct {
	Own
	items [][]byte
	offer offer
}

// addOwn gives a plan the servers that are part of the gateway, but for those whose place another
// takes.
func (p *plan) addOwn(d Deps) {
	p.own = map[string]*own{}
	for _, one := range d.Own {
		if p.knows(one.ID) {
			continue
		}
		o := &own{Own: one, items: one.Tools(), offer: offer{server: one.ID, own: true, prefix: "always", ttl: time.Hour, known: true}}
		for _, raw := range o.items {
			if fields, err := jsonscan.FieldsOf(raw); err == nil {
				o.offer.items[tools] = append(o.offer.items[tools], item{fields.Text("name"), raw})
			}
		}
		d.Meter.Server(one.ID)
		d.Meter.Up(one.ID, true)
		p.owns = append(p.owns, o)
		p.own[one.ID] = o
	}
}

// offers says whether it has a tool of this name. Nobody has none.
func (o *own) offers(name string) bool {
	return o != nil && slices.ContainsFunc(o.offer.items[tools], func(it item) bool { return it.key == name })
}

// callOwn is the end of a call to a server that is part of the gateway.
func (h *Hub) callOwn(ctx context.Context, req *request, to target) (reply, error) {
	m, err := h.askOwn(ctx, req, to.own, to.name)
	var failed *Failure
	switch {
	case errors.As(err, &failed):
		return reply{}, &protocolError{code: failed.Code, text: failed.Message, data: failed.Data, status: http.StatusOK}
	case err != nil:
		return reply{}, err
	}
	res, err := mcp.ReadResult(m)
	return reply{body: m.Body, edits: res.Dress(req.era, req.Method)}, err
}

// askOwn makes the call. A failure that is an answer counts as one.
func (h *Hub) askOwn(ctx context.Context, req *request, o *own, tool string) (m rpc.Message, err error) {
	args, ok := req.params.Get("arguments")
	if !ok {
		args = []byte("{}")
	}
	var failed *Failure
	err = h.timed(o.ID, func() error {
		result, err := o.Call(ctx, req.who.Tenant(), tool, args)
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
		return m, fmt.Errorf("%s of the gateway's own %s: %w", clip(tool), o.ID, err)
	}
	h.count(ctx, o.ID, m.Reply, nil, recall.Shrunk{})
	return m, nil
}

// relayOwn is the gateway of one message, to a server that is part of it (P1). Whatever it says
// is its answer, errors too.
func (h *Hub) relayOwn(w http.ResponseWriter, r *http.Request, req *request, o *own) {
	if req.IsNotification() {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	body, err := h.answerOwn(r.Context(), req, o)
	var failed *Failure
	switch {
	case errors.As(err, &failed):
		h.sendRPC(w, r, rpc.AppendErrorData(nil, req.ID, failed.Code, failed.Message, failed.Data), nil)
	case err != nil:
		refuse(w, r, req.ID, err)
	default:
		h.sendRPC(w, r, body, nil)
	}
}

// answerOwn is the reply to one message.
func (h *Hub) answerOwn(ctx context.Context, req *request, o *own) ([]byte, error) {
	const health = "health" // which the documents also have as a method
	if k, ok := kindOf(req.Method); ok {
		var items [][]byte
		if k == tools {
			items = o.items
		}
		return rpc.AppendResult(nil, req.ID, appendList(nil, k, items)), nil
	}
	switch {
	case req.Method == mcp.Ping:
		return rpc.AppendResult(nil, req.ID, []byte("{}")), nil
	case req.Method == mcp.Initialize:
		info := append(append([]byte(`{"name":`), mcp.Quote(o.ID)...), `,"version":`...)
		hello := upstream.Hello{
			Version:      mcp.Negotiate(req.params.Text("protocolVersion")),
			Capabilities: []byte(`{"tools":{}}`),
			Info:         append(append(info, mcp.Quote(h.deps.Version)...), '}'),
		}
		return rpc.AppendResult(nil, req.ID, greetingOf(hello, o.ID)), nil
	case req.Method == mcp.ToolsCall && req.Name != "":
		m, err := h.askOwn(ctx, req, o, req.Name)
		return m.Body, err
	case req.Method == mcp.ToolsCall:
		return nil, &Failure{Code: mcp.CodeInvalidParams, Message: "params.name is missing"}
	case req.Method == health && o.offers(health):
		m, err := h.askOwn(ctx, req, o, health)
		if err != nil {
			return nil, err
		}
		res, err := mcp.ReadResult(m)
		if raw, ok := res.Get("structuredContent"); ok && err == nil {
			return rpc.AppendResult(nil, req.ID, raw), nil
		}
		return m.Body, err
	}
	return nil, &Failure{Code: mcp.CodeMethodNotFound, Message: "Method not found"}
}

// appendList appends a list of things of a kind, all of it.
func appendList(dst []byte, k kind, items [][]byte) []byte {
	dst = append(append(append(dst, `{"`...), listing[k].member...), `":[`...)
	for i, raw := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, raw...)
	}
	return append(dst, `]}`...)
}
