package chat

import (
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// status is the HTTP status of a failure of ours, as SDKs of the providers expect it.
func status(k fault.Kind) int {
	switch k {
	case fault.Internal:
		return http.StatusInternalServerError
	case fault.Timeout:
		return http.StatusGatewayTimeout
	case fault.Syntax, fault.Invalid, fault.BadParams, fault.NoMethod, fault.Unauthorized, fault.Forbidden, fault.NotFound,
		fault.Unknown, fault.TooLarge, fault.Stalled, fault.RateLimited, fault.Unavailable, fault.BadReply, fault.Full, fault.Canceled:
	}
	return front.Status(k)
}

// openAIType is what OpenAI calls a failure, and the code beside it.
func openAIType(k fault.Kind) (kind, code string) {
	switch k {
	case fault.Unauthorized:
		return "invalid_request_error", "invalid_api_key"
	case fault.Unknown:
		return "invalid_request_error", "model_not_found"
	case fault.RateLimited:
		return "requests", "rate_limit_exceeded"
	case fault.Syntax, fault.Invalid, fault.BadParams, fault.NoMethod, fault.Forbidden, fault.NotFound, fault.TooLarge, fault.Stalled:
		return "invalid_request_error", k.String()
	case fault.Internal, fault.Unavailable, fault.Timeout, fault.BadReply, fault.Full, fault.Canceled:
	}
	return "server_error", k.String()
}

// anthropicType is what Anthropic calls a failure.
func anthropicType(k fault.Kind) string {
	switch k {
	case fault.Syntax, fault.Invalid, fault.BadParams, fault.NoMethod, fault.Stalled:
		return "invalid_request_error"
	case fault.Unauthorized:
		return "authentication_error"
	case fault.Forbidden:
		return "permission_error"
	case fault.NotFound, fault.Unknown:
		return "not_found_error"
	case fault.TooLarge:
		return "request_too_large"
	case fault.RateLimited:
		return "rate_limit_error"
	case fault.Full:
		return "overloaded_error"
	case fault.Timeout:
		return "timeout_error"
	case fault.Internal, fault.Unavailable, fault.BadReply, fault.Canceled:
	}
	return "api_error"
}

// Refuse answers a request that got no reply of a provider, in the form of the API it was
// written for.
func Refuse(w http.ResponseWriter, r *http.Request, err error) {
	code := status(fault.KindOf(err))
	if errors.Is(err, errCoding) {
		code = http.StatusUnsupportedMediaType
		w.Header().Set("Accept-Encoding", accepted)
	}
	refuse(w, r, code, err)
}

func refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	kind := fault.KindOf(err)
	front.Note(r.Context(), slog.String("fault", kind.String()), slog.String("error", clip(err.Error())))
	body := appendError(nil, isAnthropic(r), kind, fault.PublicOf(err))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if wait := fault.RetryAfterOf(err); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func appendError(dst []byte, anthropic bool, kind fault.Kind, text string) []byte {
	if anthropic {
		dst = append(append(dst, `{"type":"error","error":{"type":"`...), anthropicType(kind)...)
		return append(jsonscan.AppendString(append(dst, `","message":`...), text), `}}`...)
	}
	name, code := openAIType(kind)
	dst = jsonscan.AppendString(append(dst, `{"error":{"message":`...), text)
	dst = append(append(dst, `,"type":"`...), name...)
	return append(append(append(dst, `","param":null,"code":"`...), code...), `"}}`...)
}

// isAnthropic says which of the two forms of errors a client reads: the path tells, and where
// both APIs have the path, the version that only Anthropic's clients send.
func isAnthropic(r *http.Request) bool {
	if e, ok := endpoints[r.URL.Path]; ok {
		return e.shape == Messages
	}
	return strings.HasPrefix(r.URL.Path, "/v1/messages") || r.Header.Get("Anthropic-Version") != ""
}

// clip bounds a text that somebody else chose, for logs and answers.
func clip(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
