package hub

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// code is the JSON-RPC code of a failure. The documents fix those of G5 and P6; the others are
// outside the range that JSON-RPC and MCP reserve, and end in their HTTP status.
func code(k fault.Kind) int {
	switch k {
	case fault.Internal:
		return -32603
	case fault.Syntax:
		return -32700
	case fault.Invalid:
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
	case fault.Unknown:
		return -32004
	case fault.Unauthorized:
		return -31401
	case fault.Forbidden:
		return -31403
	case fault.Stalled:
		return -31408
	case fault.TooLarge:
		return -31413
	case fault.RateLimited:
		return -31429
	case fault.Full:
		return -31503
	}
	return -32603
}

// Refuse answers a request that did not get through its door, with the id of its message where
// there is one.
func Refuse(w http.ResponseWriter, r *http.Request, err error) {
	id, _ := front.Remembered(r.Context()).(rpc.ID)
	refuse(w, r, id, err)
}

func refuse(w http.ResponseWriter, r *http.Request, id rpc.ID, err error) {
	kind := fault.KindOf(err)
	front.Note(r.Context(), slog.Int("code", code(kind)), slog.String("fault", kind.String()), slog.String("error", err.Error()))
	answer(w, front.Status(kind), id, err)
}

func answer(w http.ResponseWriter, status int, id rpc.ID, err error) {
	kind := fault.KindOf(err)
	body := rpc.AppendError(nil, id, code(kind), fault.PublicOf(err), kind.String())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	retryAfter(w, err)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// retryAfter says when to come back, where the failure knows.
func retryAfter(w http.ResponseWriter, err error) {
	if wait := fault.RetryAfterOf(err); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
}

// mcpCode is the JSON-RPC code of a failure on the MCP doors. There -32001 to -32003 would mean
// other things; a server that fails is an internal error whose reason says more.
func mcpCode(k fault.Kind) int {
	switch k {
	case fault.NotFound:
		return mcp.CodeInvalidParams
	case fault.Unknown, fault.Unavailable, fault.Timeout, fault.Canceled, fault.BadReply:
		return -32603
	case fault.Internal, fault.Syntax, fault.Invalid, fault.BadParams, fault.NoMethod, fault.Unauthorized,
		fault.Forbidden, fault.Stalled, fault.TooLarge, fault.RateLimited, fault.Full:
	}
	return code(k)
}

// retryable says whether the same request may fare better later.
func retryable(k fault.Kind) bool {
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

// failureCode is the JSON-RPC code of a failure on the MCP doors.
func failureCode(err error) int {
	var p *protocolError
	if errors.As(err, &p) {
		return p.code
	}
	return mcpCode(fault.KindOf(err))
}

// appendFailure appends the error reply of a failure on the MCP doors.
func appendFailure(dst []byte, id rpc.ID, err error) []byte {
	var p *protocolError
	if errors.As(err, &p) {
		return rpc.AppendErrorData(dst, id, p.code, p.text, p.data)
	}
	kind := fault.KindOf(err)
	data := append([]byte(`{"reason":"`), kind.String()...)
	data = append(append(data, `","retryable":`...), strconv.FormatBool(retryable(kind))...)
	return rpc.AppendErrorData(dst, id, mcpCode(kind), fault.PublicOf(err), append(data, '}'))
}

// mcpStatus is the HTTP status of a failure on the MCP doors. What is wrong with one request of
// a client is said in the reply, not in the status, which clients take for the transport's.
func mcpStatus(era mcp.Era, err error) int {
	var p *protocolError
	if errors.As(err, &p) {
		return p.status
	}
	switch kind := fault.KindOf(err); kind {
	case fault.Syntax, fault.Invalid, fault.Unauthorized, fault.Forbidden, fault.TooLarge, fault.Stalled, fault.RateLimited,
		fault.Canceled:
		return front.Status(kind)
	case fault.NoMethod:
		if era == mcp.EraModern {
			return http.StatusNotFound
		}
	case fault.Internal, fault.BadParams, fault.NotFound, fault.Unknown, fault.Unavailable, fault.Timeout, fault.BadReply, fault.Full:
	}
	return http.StatusOK
}

// contained turns a panic into an internal error: one request in a goroutine of its own ends no
// other.
func contained(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("a request panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "internal error")
		}
	}()
	return do()
}

func notPOST(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", http.MethodPost)
	err := fault.New(fault.Invalid, "only POST is served here")
	front.Note(r.Context(), slog.String("fault", fault.Invalid.String()))
	answer(w, http.StatusMethodNotAllowed, rpc.ID{}, err)
}
