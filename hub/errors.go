package hub

import (
	"log/slog"
	"math"
	"net/http"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
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
	front.Note(r.Context(), slog.String("fault", kind.String()), slog.String("error", err.Error()))
	answer(w, front.Status(kind), id, err)
}

func answer(w http.ResponseWriter, status int, id rpc.ID, err error) {
	kind := fault.KindOf(err)
	body := rpc.AppendError(nil, id, code(kind), fault.PublicOf(err), kind.String())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if wait := fault.RetryAfterOf(err); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func notPOST(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", http.MethodPost)
	err := fault.New(fault.Invalid, "only POST is served here")
	front.Note(r.Context(), slog.String("fault", fault.Invalid.String()))
	answer(w, http.StatusMethodNotAllowed, rpc.ID{}, err)
}
