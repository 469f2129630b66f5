package llmtest

import (
	"net/http"
	"strconv"
	"time"

	"github.com/ctxgate/ctxgate/internal/sse"
)

// overloaded is Anthropic's status for "not now"; HTTP has no name for it.
const overloaded = 529

// fault is an error's body in OpenAI's shapes.
type fault struct {
	Error faultBody `json:"error"`
}

type faultBody struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// badness is an error's body in the shape of messages.
type badness struct {
	Type      string      `json:"type"`
	Error     badnessBody `json:"error"`
	RequestID string      `json:"request_id,omitempty"`
}

type badnessBody struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// flaw is the error event of a stream of responses.
type flaw struct {
	Type           string  `json:"type"`
	Code           *string `json:"code"`
	Message        string  `json:"message"`
	Param          *string `json:"param"`
	SequenceNumber int     `json:"sequence_number"`
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// body is the refusal in the dress of a shape.
func (f *refusal) body(s Shape, requestID string) []byte {
	if s == Messages {
		return encode(badness{"error", badnessBody{f.kind, f.message}, requestID})
	}
	return encode(fault{faultBody{f.message, f.kind, optional(f.param), optional(f.code)}})
}

// event is the refusal in the middle of a stream, as event number n.
func (f *refusal) event(s Shape, n int) sse.Event {
	switch s {
	case Messages:
		return sse.Event{Name: "error", Data: f.body(s, "")}
	case Responses:
		return sse.Event{Name: "error", Data: encode(flaw{"error", optional(f.code), f.message, optional(f.param), n})}
	}
	return sse.Event{Data: f.body(s, "")}
}

// refuse answers with the refusal and says which status that was.
func (p *Provider) refuse(w http.ResponseWriter, s Shape, f *refusal) int {
	id := p.id("req_")
	if f.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((f.retry+time.Second-1)/time.Second)))
		if s != Messages {
			w.Header().Set("Retry-After-Ms", strconv.Itoa(int(f.retry/time.Millisecond)))
		}
	}
	nameRequest(w.Header(), s, id)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_, _ = w.Write(f.body(s, id))
	return f.status
}

// nameRequest sends the request's id where each provider does.
func nameRequest(h http.Header, s Shape, id string) {
	if s == Messages {
		h.Set("Request-Id", id)
		return
	}
	h.Set("X-Request-Id", id)
	h.Set("Openai-Version", "2020-10-01")
}

// refusal is the failure as the shape has it.
func (f Failure) refusal(s Shape, model string) *refusal {
	r := usual(s, f.Status, model)
	r.status, r.retry = f.Status, f.RetryAfter
	if f.Status == http.StatusTooManyRequests && r.retry == 0 {
		r.retry = time.Second
	}
	if f.Type != "" {
		r.kind = f.Type
	}
	if f.Code != "" {
		r.code = f.Code
	}
	if f.Message != "" {
		r.message = f.Message
	}
	return r
}

func usual(s Shape, status int, model string) *refusal {
	if s == Messages {
		return usualMessages(status, model)
	}
	return usualOpenAI(status, model)
}

func usualOpenAI(status int, model string) *refusal {
	switch status {
	case http.StatusUnauthorized:
		return &refusal{kind: "invalid_request_error", code: "invalid_api_key",
			message: "Incorrect API key provided. You can find your API key at https://platform.openai.com/account/api-keys."}
	case http.StatusForbidden:
		return &refusal{kind: "invalid_request_error", code: "unsupported_country_region_territory",
			message: "Country, region, or territory not supported"}
	case http.StatusNotFound:
		return &refusal{kind: "invalid_request_error", code: "model_not_found",
			message: "The model `" + model + "` does not exist or you do not have access to it."}
	case http.StatusTooManyRequests:
		return &refusal{kind: "tokens", code: "rate_limit_exceeded",
			message: "Rate limit reached for " + model + " in organization org-llmtest on tokens per min (TPM): Limit 30000, Used 30000, Requested 1000. Please try again in 1s. Visit https://platform.openai.com/account/rate-limits to learn more."}
	case http.StatusServiceUnavailable, overloaded:
		return &refusal{kind: "service_unavailable_error", code: "server_is_overloaded",
			message: "Our servers are currently overloaded. Please try again later."}
	}
	if status >= http.StatusInternalServerError {
		return &refusal{kind: "server_error",
			message: "The server had an error while processing your request. Sorry about that!"}
	}
	return &refusal{kind: "invalid_request_error", message: "Invalid request."}
}

func usualMessages(status int, model string) *refusal {
	switch status {
	case http.StatusUnauthorized:
		return &refusal{kind: "authentication_error", message: "invalid x-api-key"}
	case http.StatusForbidden:
		return &refusal{kind: "permission_error", message: "Your API key does not have permission to use the specified resource."}
	case http.StatusNotFound:
		return &refusal{kind: "not_found_error", message: "model: " + model}
	case http.StatusRequestEntityTooLarge:
		return &refusal{kind: "request_too_large", message: "Request exceeds the maximum size"}
	case http.StatusTooManyRequests:
		return &refusal{kind: "rate_limit_error", message: "This request would exceed your account's rate limit. Please try again later."}
	case overloaded:
		return &refusal{kind: "overloaded_error", message: "Overloaded"}
	}
	if status >= http.StatusInternalServerError {
		return &refusal{kind: "api_error", message: "Internal server error"}
	}
	return &refusal{kind: "invalid_request_error", message: "Invalid request."}
}
