package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/retryafter"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/rpc"
)

// gatewayCode is the JSON-RPC code of a failure at the gateway for single messages. The documents fix those of G5 and P6; the others are
// outside the range that JSON-RPC and MCP reserve, and end in their HTTP status.
func gatewayCode(k fault.Kind) int {
	switch k {
	case fault.Internal:
		return -32603
	case fault.Syntax:
		return -32700
	case fault.InvalidRequest:
		return -32600
	case fault.BadParams:
		return mcp.CodeInvalidParams
	case fault.NoMethod:
		return mcp.CodeMethodNotFound
	case fault.NotFound:
		return -32001
	case fault.Unavailable, fault.Timeout, fault.Canceled:
		return -32002
	case fault.BadReply:
		return -32003
	case fault.UnknownHandle:
		return -32004
	case fault.Unauthorized:
		return -31401
	case fault.Forbidden:
		return -31403
	case fault.Stalled:
		return -31408
	case fault.TooLarge:
		return -31413
	case fault.RateLimited, fault.OverBudget:
		return -31429
	case fault.Full:
		return -31503
	}
	return -32603
}

// WriteError answers a request that the middleware or an endpoint refused, with the id of its message where
// there is one.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	id, _ := front.ErrorContext(r.Context()).(rpc.ID)
	writeGatewayError(w, r, id, err)
}

// writeGatewayError answers a failure at the gateway for single messages.
func writeGatewayError(w http.ResponseWriter, r *http.Request, id rpc.ID, err error) {
	kind := fault.KindOf(err)
	front.AddLogAttrs(r.Context(), slog.Int("code", gatewayCode(kind)), slog.String("fault", kind.String()), slog.String("error", logText(err)))
	writeErrorBody(w, front.HTTPStatus(kind), id, err)
}

func writeErrorBody(w http.ResponseWriter, status int, id rpc.ID, err error) {
	kind := fault.KindOf(err)
	body := rpc.AppendError(nil, id, gatewayCode(kind), fault.PublicOf(err), kind.String())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	retryafter.Set(w.Header(), fault.RetryAfterOf(err))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func refuseMethod(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", http.MethodPost)
	front.AddLogAttrs(r.Context(), slog.String("fault", fault.InvalidRequest.String()))
	writeErrorBody(w, http.StatusMethodNotAllowed, rpc.ID{}, fault.New(fault.InvalidRequest, "only POST is served here"))
}

// WriteHTTPError answers a failure at the MCP endpoint. A status of 0 is the failure's own.
func (h *Hub) WriteHTTPError(w http.ResponseWriter, r *http.Request, protocol mcp.Protocol, status int, id rpc.ID, err error) {
	if status == 0 {
		status = mcpStatus(protocol, err)
	}
	noteFault(r.Context(), err)
	retryafter.Set(w.Header(), fault.RetryAfterOf(err))
	NewStream(w, r, h.plan.Load().HTTP).Finish(status, Reply{Body: AppendFailure(nil, id, err)})
}

// noteFault adds a failure to the request's log line.
func noteFault(ctx context.Context, err error) {
	var p *protocolError
	code := mcpCode(fault.KindOf(err))
	if errors.As(err, &p) {
		code = p.code
	}
	front.AddLogAttrs(ctx, slog.Int("code", code), slog.String("fault", fault.KindOf(err).String()), slog.String("error", fault.Clip(logText(err))))
}

// mcpCode is the JSON-RPC code of a failure at the MCP endpoint. There -32001 to -32003 have other meanings; a server
// that fails is an internal error whose reason says more.
func mcpCode(k fault.Kind) int {
	switch k {
	case fault.NotFound:
		return mcp.CodeInvalidParams
	case fault.UnknownHandle, fault.Unavailable, fault.Timeout, fault.Canceled, fault.BadReply:
		return -32603
	case fault.Internal, fault.Syntax, fault.InvalidRequest, fault.BadParams, fault.NoMethod, fault.Unauthorized,
		fault.Forbidden, fault.Stalled, fault.TooLarge, fault.RateLimited, fault.OverBudget, fault.Full:
	}
	return gatewayCode(k)
}

// isRetryable reports whether the same request may succeed later.
func isRetryable(k fault.Kind) bool {
	return k == fault.Unavailable || k == fault.Timeout || k == fault.Full || k == fault.RateLimited || k == fault.Stalled
}

// protocolError is a failure that the protocol itself has a code and data for.
type protocolError struct {
	code int
	text string
	data []byte // raw; nil for none

	status int // of HTTP
}

func (e *protocolError) Error() string { return e.text }

// AppendFailure appends the error reply of a failure at the MCP endpoint.
func AppendFailure(dst []byte, id rpc.ID, err error) []byte {
	var p *protocolError
	if errors.As(err, &p) {
		return rpc.AppendErrorData(dst, id, p.code, p.text, p.data)
	}
	kind := fault.KindOf(err)
	data := append([]byte(`{"reason":"`), kind.String()...)
	data = append(append(data, `","retryable":`...), strconv.FormatBool(isRetryable(kind) && !errors.Is(err, pins.ErrHeld))...)
	return rpc.AppendErrorData(dst, id, mcpCode(kind), fault.PublicOf(err), append(data, '}'))
}

// mcpStatus is the HTTP status of a failure at the MCP endpoint. What is wrong with a single request is in the
// reply, not in the status: clients take that for the transport's.
func mcpStatus(protocol mcp.Protocol, err error) int {
	var p *protocolError
	if errors.As(err, &p) {
		return p.status
	}
	switch kind := fault.KindOf(err); kind {
	case fault.Syntax, fault.InvalidRequest, fault.Unauthorized, fault.Forbidden, fault.TooLarge, fault.Stalled, fault.RateLimited,
		fault.OverBudget, fault.Canceled:
		return front.HTTPStatus(kind)
	case fault.NoMethod:
		if protocol == mcp.Modern {
			return http.StatusNotFound
		}
	case fault.Internal, fault.BadParams, fault.NotFound, fault.UnknownHandle, fault.Unavailable, fault.Timeout, fault.BadReply, fault.Full:
	}
	return http.StatusOK
}

// Contain runs do and turns a panic into an internal error, so that a request in a goroutine of its own ends no
// other.
func Contain(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("a request panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "internal error")
		}
	}()
	return do()
}

// InvalidParams returns the failure of a request whose params are wrong.
func InvalidParams(text string) error { return fault.New(fault.BadParams, text) }
