package hub

import (
	"bytes"
	"context"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// What is held back is decided where a server's lists are read (hub/catalog); here calls, instructions and the replies of
// single messages follow that.

// instructionsOf returns what a server says about itself, as it may be sent. Of a server that is down, it is what it said
// before.
func (h *Hub) instructionsOf(ctx context.Context, r *upstream.Server, conn *upstream.ManagedConn) string {
	text := conn.LastHandshake().Instructions // of a server that is down, what it said before
	if h.deps.Pins == nil || text == "" {
		return text
	}
	text, _ = h.deps.Pins.CheckInstructions(ctx, r.ID(), text)
	return text
}

// checkRawReply takes what is held back out of a reply that is relayed as it came: tools of a list, and instructions.
func (h *Hub) checkRawReply(ctx context.Context, req *Request, server string, got rpc.Reply, policy recall.Policy) (rpc.Reply, error) {
	var edits []jsonscan.Edit
	var err error
	switch {
	case h.deps.Pins == nil || got.IsError:
	case req.Method == mcp.ToolsList:
		edits, err = h.rawToolEdits(ctx, req, server, got)
	case req.Method == mcp.Initialize || req.Method == mcp.ServerDiscover:
		edits, err = h.rawInstructionEdits(ctx, server, got)
	}
	if err != nil {
		return got, fault.Wrap(fault.BadReply, "the server's answer cannot be read", err)
	}
	if len(edits) == 0 {
		return got, nil
	}
	return rpc.ParseReply(jsonscan.AppendSpliced(nil, got.Body, edits), req.Plan.Hub.MaxDepth, policy.MaxChars)
}

// rawToolEdits returns the edits that make a list of tools what may be served of it.
func (h *Hub) rawToolEdits(ctx context.Context, req *Request, server string, got rpc.Reply) ([]jsonscan.Edit, error) {
	result, err := jsonscan.ReadFields(got.Body, got.Result)
	list, ok := result.Field("tools")
	if err != nil || !ok {
		return nil, err
	}
	var tools []pins.Tool
	changed := false
	err = jsonscan.EachElement(got.Body, list.Value, func(at jsonscan.Span) error {
		fields, err := jsonscan.ReadFields(got.Body, at)
		tools = append(tools, pins.Tool{Name: fields.Text("name"), Raw: at.Of(got.Body)})
		return err
	})
	if err != nil {
		return nil, err
	}
	listed := h.catalog.Current(h.catalog.ClassOf(upstream.Caller{}), server)
	dst := []byte{'['}
	for i, c := range h.deps.Pins.Check(ctx, server, tools) {
		twin, _ := listed.Unserved(catalog.Tools, tools[i].Name)
		if c.Hold != nil || twin != nil && twin.Reason == pins.LooksAlike {
			changed = true
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(dst, c.Raw...)
		changed = changed || !bytes.Equal(c.Raw, tools[i].Raw)
	}
	if !changed {
		return nil, nil
	}
	return []jsonscan.Edit{{Span: list.Value, Text: append(dst, ']')}}, nil
}

// rawInstructionEdits returns the edits that make the instructions in a handshake what may be sent of them.
func (h *Hub) rawInstructionEdits(ctx context.Context, server string, got rpc.Reply) ([]jsonscan.Edit, error) {
	result, err := jsonscan.ReadFields(got.Body, got.Result)
	raw, ok := result.Get("instructions")
	if err != nil || !ok {
		return nil, err
	}
	text := jsonscan.DecodeString(raw)
	change := jsonscan.Change{Key: "instructions"}
	switch checked, hold := h.deps.Pins.CheckInstructions(ctx, server, text); {
	case hold != nil:
	case checked == text:
		return nil, nil
	default:
		change.Value = mcp.Quote(checked)
	}
	return result.Edits(change), nil
}

// PinReport says what the servers have, and what is held back of it.
func (h *Hub) PinReport(ctx context.Context) pins.Report {
	p := h.plan.Load()
	cfg := h.deps.Pins.Config()
	report := pins.Report{Mode: cfg.Mode, Servers: []pins.ServerReport{}}
	if cfg.Mode == pins.ModeLock {
		report.File = cfg.File
	}
	for _, r := range p.Servers {
		tools, listed := h.catalog.PinnedTools(r.ID())
		one := pins.ServerReport{ID: r.ID(), Listed: listed, Tools: tools}
		if one.Tools == nil {
			one.Tools = []pins.ItemReport{}
		}
		if conn := r.SharedConn(); conn != nil && listed {
			text := conn.LastHandshake().Instructions
			_, hold := h.deps.Pins.CheckInstructions(ctx, r.ID(), text)
			one.Instructions = pins.NewItem("", pins.TextDefinition(text), hold)
		}
		report.Servers = append(report.Servers, one)
	}
	return report
}

// ApprovePins approves definitions in mode "first-use". They are served when their servers have been read again.
func (h *Hub) ApprovePins(ctx context.Context, approvals []pins.Approval) error {
	err := h.deps.Pins.Approve(ctx, approvals)
	h.catalog.ReadAgain("")
	return err
}

// PinsChanged checks what the servers list again: another configuration or lock is in force.
func (h *Hub) PinsChanged() { h.catalog.ReadAgain("") }

// ExpectCapableClients makes servers list what they offer only to clients that can answer their requests. It is called
// before Start.
func (h *Hub) ExpectCapableClients() {
	for _, r := range h.plan.Load().Servers {
		r.NoteClient(mcp.Client{Capabilities: []byte(`{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}`)})
	}
}
