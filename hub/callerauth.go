package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/oauth"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// A server may need the authorization of the caller itself (credentials = "caller"). The address to open is told to that caller
// alone, in the reply to its call: as an elicitation by URL to a client that supports those, and else as the text of the error.
// Before the caller has authorized the gateway, the server's lists cannot be read; a tool in their place leads there.

// authorizeState is the request state of a question for an authorization. It is no secret: the call is made again either way.
const authorizeState = "ctxgate authorize"

// maxCompletions bounds the clients that wait to be told that an authorization has ended.
const maxCompletions = 1024

// completions are the authorizations whose end is told to a client, by address.
type completions struct {
	mu  sync.Mutex
	all map[string]bool
}

// failCall is the reply to a call that failed.
func (h *Hub) failCall(req *Request, to Target, began time.Time, err error) (Reply, error) {
	missing, ok := errors.AsType[*oauth.NotAuthorizedError](err)
	if !ok || missing.Address == "" {
		return Reply{}, req.redactError(explainFailure(to.remote, began, err))
	}
	id := elicitationID(missing.Address)
	name := "server " + strconv.Quote(to.server())
	text := name + " needs your authorization"
	params := append(append([]byte(`{"mode":"url","elicitationId":"`), id...), `","url":`...)
	params = append(append(params, mcp.Quote(missing.Address)...), `,"message":`...)
	params = append(append(params, mcp.Quote("Authorize the gateway to use "+name+" with your account.")...), '}')
	canOpen := req.Client.SupportsPart(mcp.ElicitationCreate, "url") && missing.IsWaiting()
	switch {
	case canOpen && req.Protocol == mcp.Modern && !req.hasAuthorizeState && mcp.CanRequireInput(req.Method):
		return ResultReply(req, mcp.AppendInputRequired(nil, []mcp.InputRequest{{Key: "authorize", Method: mcp.ElicitationCreate, Params: params}}, authorizeState)), nil
	case canOpen && req.Protocol == mcp.Legacy && req.Client.Version == mcp.V20251125 && req.Session != nil:
		h.tellCompletion(req, to.server(), id, missing)
		return Reply{}, &protocolError{code: mcp.CodeURLElicitationRequired, text: text, data: append(append([]byte(`{"elicitations":[`), params...), `]}`...), status: 200}
	}
	return Reply{}, withAddress(err)
}

// withAddress is a failure for lack of the caller's authorization with the address in its text; any other failure stays as it is.
func withAddress(err error) error {
	missing, ok := errors.AsType[*oauth.NotAuthorizedError](err)
	if !ok || missing.Address == "" {
		return err
	}
	return fault.Wrap(fault.KindOf(err), fault.PublicOf(err)+": open "+missing.Address+" in a browser, then call again", err)
}

// logText is the text of a failure for the log, which has no address that is for a caller alone.
func logText(err error) string {
	if missing, ok := errors.AsType[*oauth.NotAuthorizedError](err); ok && missing.Address != "" {
		return missing.Error()
	}
	return err.Error()
}

func elicitationID(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:16])
}

// tellCompletion tells a legacy client when the authorization has ended: it makes its call again then.
func (h *Hub) tellCompletion(req *Request, server, id string, missing *oauth.NotAuthorizedError) {
	c := &h.completions
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]bool{}
	}
	key := req.Session.Name() + "\x00" + id
	if c.all[key] || len(c.all) >= maxCompletions {
		return
	}
	c.all[key] = true
	owner := req.Session.Owner()
	go func() {
		select {
		case <-missing.Retry:
			note, err := rpc.ParseMessage([]byte(`{"jsonrpc":"2.0","method":"`+mcp.NotifyElicitationComplete+`","params":{"elicitationId":"`+id+`"}}`), 8, 1<<20)
			if err == nil && owner != nil {
				owner.Notify(server, note)
			}
		case <-h.closing:
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, key)
	}()
}

// takeAuthorizeState removes the answer to a question for an authorization from a request that is made again.
func (r *Request) takeAuthorizeState() {
	if r.Params.Text("requestState") != authorizeState {
		return
	}
	if params, err := mcp.ParseParams(r.Params.With([]jsonscan.Change{{Key: "requestState"}, {Key: "inputResponses"}}, nil)); err == nil {
		r.Params, r.hasAuthorizeState = params, true
	}
}

// authorizeWait is how long a call that is made again waits for the user to authorize the gateway.
const authorizeWait = 20 * time.Second

// acquireFor acquires the connection of a call. One that is made again after the client was asked to open an address waits for the
// user, who may still be about it.
func (h *Hub) acquireFor(ctx context.Context, req *Request, to Target, caller upstream.Caller) (*upstream.ManagedConn, func(), error) {
	conn, release, err := to.remote.Acquire(ctx, caller)
	if !req.hasAuthorizeState {
		return conn, release, err
	}
	failed := err
	if err == nil {
		_, failed = conn.AwaitConn(ctx)
	}
	missing, ok := errors.AsType[*oauth.NotAuthorizedError](failed)
	if !ok || !missing.IsWaiting() {
		return conn, release, err // a connection that is not up fails the call
	}
	if err == nil {
		release()
	}
	timeout := time.NewTimer(authorizeWait)
	defer timeout.Stop()
	select {
	case <-missing.Retry:
	case <-timeout.C:
	case <-ctx.Done():
	}
	return to.remote.Acquire(ctx, caller)
}

// isAuthorizeTool reports whether a call is for the tool that stands in for the lists of a server which the caller has not
// authorized yet.
func (h *Hub) isAuthorizeTool(req *Request, to Target) bool {
	if req.Method != mcp.ToolsCall || to.name != catalog.AuthorizeTool || to.remote == nil || !to.remote.IsPerCaller() {
		return false
	}
	class := h.catalog.ClassOf(req.UpstreamCaller())
	e, ok := h.catalog.Current(class, to.server()).Find(catalog.Tools, catalog.AuthorizeTool)
	return !ok || e.IsAuthorize()
}

// answerAuthorize answers that tool once the server is authorized.
func (h *Hub) answerAuthorize(ctx context.Context, req *Request, to Target, conn *upstream.ManagedConn) (Reply, error) {
	began := time.Now()
	if _, err := conn.AwaitConn(ctx); err != nil {
		return h.failCall(req, to, began, err)
	}
	result := append([]byte(`{"content":[{"type":"text","text":`), mcp.Quote("Server "+strconv.Quote(to.server())+" is authorized: its tools can be used now.")...)
	result = append(result, `}]`...)
	if req.Protocol == mcp.Modern {
		result = append(result, `,"resultType":"complete"`...)
	}
	return ResultReply(req, append(result, '}')), nil
}
