package front

import (
	"net/http"

	"github.com/ctxgate/ctxgate/fault"
)

// Status is the HTTP status of a failure. The contract asks for 502 where the fault is ours or
// the server's behind us (G5).
func Status(k fault.Kind) int {
	switch k {
	case fault.Syntax, fault.Invalid, fault.BadParams:
		return http.StatusBadRequest
	case fault.Unauthorized:
		return http.StatusUnauthorized
	case fault.Forbidden:
		return http.StatusForbidden
	case fault.NotFound, fault.Unknown, fault.NoMethod:
		return http.StatusNotFound
	case fault.TooLarge:
		return http.StatusRequestEntityTooLarge
	case fault.Stalled:
		return http.StatusRequestTimeout
	case fault.RateLimited:
		return http.StatusTooManyRequests
	case fault.Full:
		return http.StatusServiceUnavailable
	case fault.Canceled:
		return 499 // nobody reads it but the log
	case fault.Internal, fault.Unavailable, fault.Timeout, fault.BadReply:
		return http.StatusBadGateway
	}
	return http.StatusBadGateway
}
