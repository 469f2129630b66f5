package wire

import (
	"bytes"
	"context"
	"net/http"
	"reflect"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// handleRefusal decides what a status of 4xx or 5xx means for the request: a JSON-RPC reply like any
// other, a session that the server has forgotten, or a failure.
func (x *exchange) handleRefusal(ctx context.Context, p protocolState, refused *statusError) error {
	m, isReply, err := x.req.ParseReply(refused.body)
	switch {
	case x.noteForgotten(p, refused, isReply):
		return sessionForgotten()
	case isReply && x.fixHeaders(ctx, p, m):
		return x.perform(ctx)
	case isReply:
		x.endRead()
		x.deliver(refused.body, x.req)
		return nil
	}
	if x.req.Method() == mcp.Initialize && err != nil {
		x.refusedLikeSSE.Store(refused.status == http.StatusBadRequest || refused.status == http.StatusNotFound || refused.status == http.StatusMethodNotAllowed)
	}
	switch refused.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return x.unreachable(refused.callError())
	}
	return refused.callError()
}

// noteForgotten reports whether a refusal means that the server has forgotten the session, and ends the
// connection then. The specification demands 404; some servers send 400, and some a JSON-RPC reply with
// it (isReply).
func (s *StreamableHTTP) noteForgotten(p protocolState, refused *statusError, isReply bool) bool {
	forgotten := false
	switch {
	case p.session == "":
	case refused.status == http.StatusNotFound && !isReply:
		forgotten = true
	case refused.status == http.StatusNotFound || refused.status == http.StatusBadRequest && !isReply:
		forgotten = isSessionError(refused.body)
	}
	if forgotten && !s.sessionGone.Swap(true) {
		go s.Receiver.ExpireSession(refused)
	}
	return forgotten
}

// isSessionError reports whether an error is about the MCP session, and not about what was called: a tool
// may have sessions of its own.
func isSessionError(body []byte) bool {
	text := body
	if fields, err := jsonscan.FieldsOf(body); err == nil {
		if e, ok := fields.Field("error"); ok {
			inner, _ := jsonscan.ReadFields(body, e.Value)
			code, _ := inner.Get("code")
			switch string(code) {
			case "-32000", "-32001", "-32600":
			default:
				return false
			}
			text = []byte(inner.Text("message"))
		}
	}
	return bytes.Contains(bytes.ToLower(text[:min(len(text), 1<<10)]), []byte("session"))
}

// fixHeaders reports whether a request that was refused for its headers would have other headers now. The
// server may have changed the tool, so its tools are listed again, once (Custom Headers, Client Behavior).
func (x *exchange) fixHeaders(ctx context.Context, p protocolState, m rpc.Message) bool {
	if x.headersRetried || !p.modern || x.req.Method() != mcp.ToolsCall || m.ErrorCode() != mcp.CodeHeaderMismatch {
		return false
	}
	x.headersRetried = true
	before := x.requestHeaders(p, x.req)
	x.req.RefreshTools(ctx)
	return !reflect.DeepEqual(before, x.requestHeaders(p, x.req))
}
