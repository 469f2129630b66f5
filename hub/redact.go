package hub

import (
	"context"
	"log/slog"
	"math"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/redact"
	"github.com/ctxgate/ctxgate/rpc"
)

// What the access rules take out of a call is taken out of its arguments before the server sees them, and of everything
// that the server says during the call before it is stored, shortened, counted or logged.

// redactArguments replaces the arguments of a request by what the server may see of them.
func (r *Request) redactArguments(ctx context.Context) error {
	raw, ok := r.Params.Get("arguments")
	if !ok || r.redaction == nil {
		return nil
	}
	edits, err := r.redaction.Arguments(ctx, raw)
	if err != nil || len(edits) == 0 {
		return err
	}
	// The arguments, the params and the message that holds them.
	if err := membudget.FromContext(ctx).Reserve(3 * int64(len(r.Body)+len(redact.Replacement)*len(edits))); err != nil {
		return err
	}
	params := r.Params.With([]jsonscan.Change{{Key: "arguments", Value: jsonscan.AppendSpliced(nil, raw, edits)}}, nil)
	top, err := jsonscan.FieldsOf(r.Body)
	if err != nil {
		return fault.Wrap(fault.InvalidRequest, "invalid request", err)
	}
	if r.Params, err = mcp.ParseParams(params); err != nil {
		return fault.Wrap(fault.InvalidRequest, "invalid request", err)
	}
	r.Request.Params, r.Body = params, top.With(jsonscan.Change{Key: "params", Value: params})
	return nil
}

// redactMessage returns a message of a server without what the caller may not see.
func (r *Request) redactMessage(ctx context.Context, m rpc.Message) (rpc.Message, error) {
	if r.redaction == nil {
		return m, nil
	}
	body, err := r.redaction.Reply(ctx, m.Body)
	if err != nil {
		return rpc.Message{}, err
	}
	return rpc.ParseMessage(body, 0, r.Plan.rules.minChars)
}

// redactError returns the failure of a call without what the caller may not see: it may quote the server.
func (r *Request) redactError(err error) error {
	if err == nil || r.redaction == nil {
		return err
	}
	public := fault.PublicOf(err)
	if left := r.redaction.Text(public); left != public {
		return fault.Wrap(fault.KindOf(err), left, err)
	}
	return err
}

// NoticeFor returns a server's notification that belongs to no call as a caller may see it; false if it may not.
func (h *Hub) NoticeFor(caller auth.Caller, server string, note rpc.Message) (rpc.Message, bool) {
	g := h.plan.Load().Gate
	if !g.FiltersLists() {
		return note, true
	}
	d := g.Decide(caller, access.Target{Method: note.Method, Server: server})
	if !d.IsAllowed() {
		return note, false
	}
	if d.Redact == nil {
		return note, true
	}
	body, err := d.Redact.Reply(context.Background(), note.Body)
	if err == nil {
		note, err = rpc.ParseMessage(body, 0, math.MaxInt)
	}
	if err != nil {
		slog.Debug("a notification was dropped: it cannot be redacted", "server", server, "error", err)
	}
	return note, err == nil
}
