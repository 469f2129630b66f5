package fakeprovider

import (
	"net/http"
	"strconv"
	"time"

	"github.com/ctxgate/ctxgate/internal/sse"
)

// statusOverloaded is Anthropic's status for an overloaded service.
const statusOverloaded = 529

// openAIError is the body of an error in OpenAI's shapes.
type openAIError struct {
	Error openAIErrorBody `json:"error"`
}

type openAIErrorBody struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// anthropicError is the body of an error in the messages shape.
type anthropicError struct {
	Type      string             `json:"type"`
	Error     anthropicErrorBody `json:"error"`
	RequestID string             `json:"request_id,omitempty"`
}

type anthropicErrorBody struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// responsesErrorEvent is an error event in a responses stream.
type responsesErrorEvent struct {
	Type           string  `json:"type"`
	Code           *string `json:"code"`
	Message        string  `json:"message"`
	Param          *string `json:"param"`
	SequenceNumber int     `json:"sequence_number"`
}

func nilIfEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// body encodes the error for a shape.
func (f *apiError) body(s Shape, requestID string) []byte {
	if s == Messages {
		return encodeJSON(anthropicError{"error", anthropicErrorBody{f.kind, f.message}, requestID})
	}
	if s == Gemini {
		return geminiErrorOf(f)
	}
	return encodeJSON(openAIError{openAIErrorBody{f.message, f.kind, nilIfEmpty(f.param), nilIfEmpty(f.code)}})
}

// event encodes the error as event number n of a stream.
func (f *apiError) event(s Shape, n int) sse.Event {
	switch s {
	case Messages:
		return sse.Event{Name: "error", Data: f.body(s, "")}
	case Responses:
		return sse.Event{Name: "error", Data: encodeJSON(responsesErrorEvent{"error", nilIfEmpty(f.code), f.message, nilIfEmpty(f.param), n})}
	}
	return sse.Event{Data: f.body(s, "")}
}

// sendError sends the error and returns its status.
func (p *Provider) sendError(w http.ResponseWriter, s Shape, f *apiError) int {
	id := p.newID("req_")
	if f.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((f.retry+time.Second-1)/time.Second)))
		if s != Messages {
			w.Header().Set("Retry-After-Ms", strconv.Itoa(int(f.retry/time.Millisecond)))
		}
	}
	setRequestID(w.Header(), s, id)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_, _ = w.Write(f.body(s, id))
	return f.status
}

// setRequestID sets the header in which each provider sends the request id.
func setRequestID(h http.Header, s Shape, id string) {
	if s == Messages {
		h.Set("Request-Id", id)
		return
	}
	h.Set("X-Request-Id", id)
	h.Set("Openai-Version", "2020-10-01")
}

// apiError fills in the shape's defaults.
func (f Failure) apiError(s Shape, model string) *apiError {
	r := defaultError(s, f.Status, model)
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

func defaultError(s Shape, status int, model string) *apiError {
	if s == Messages {
		return defaultAnthropicError(status, model)
	}
	return defaultOpenAIError(status, model)
}

func defaultOpenAIError(status int, model string) *apiError {
	switch status {
	case http.StatusUnauthorized:
		return &apiError{kind: "invalid_request_error", code: "invalid_api_key",
			message: "Incorrect API key provided. You can find your API key at https://platform.openai.com/account/api-keys."}
	case http.StatusForbidden:
		return &apiError{kind: "invalid_request_error", code: "unsupported_country_region_territory",
			message: "Country, region, or territory not supported"}
	case http.StatusNotFound:
		return &apiError{kind: "invalid_request_error", code: "model_not_found",
			message: "The model `" + model + "` does not exist or you do not have access to it."}
	case http.StatusTooManyRequests:
		return &apiError{kind: "tokens", code: "rate_limit_exceeded",
			message: "Rate limit reached for " + model + " in organization org-fakeprovider on tokens per min (TPM): Limit 30000, Used 30000, Requested 1000. Please try again in 1s. Visit https://platform.openai.com/account/rate-limits to learn more."}
	case http.StatusServiceUnavailable, statusOverloaded:
		return &apiError{kind: "service_unavailable_error", code: "server_is_overloaded",
			message: "Our servers are currently overloaded. Please try again later."}
	}
	if status >= http.StatusInternalServerError {
		return &apiError{kind: "server_error",
			message: "The server had an error while processing your request. Sorry about that!"}
	}
	return &apiError{kind: "invalid_request_error", message: "Invalid request."}
}

func defaultAnthropicError(status int, model string) *apiError {
	switch status {
	case http.StatusUnauthorized:
		return &apiError{kind: "authentication_error", message: "invalid x-api-key"}
	case http.StatusForbidden:
		return &apiError{kind: "permission_error", message: "Your API key does not have permission to use the specified resource."}
	case http.StatusNotFound:
		return &apiError{kind: "not_found_error", message: "model: " + model}
	case http.StatusRequestEntityTooLarge:
		return &apiError{kind: "request_too_large", message: "Request exceeds the maximum size"}
	case http.StatusTooManyRequests:
		return &apiError{kind: "rate_limit_error", message: "This request would exceed your account's rate limit. Please try again later."}
	case statusOverloaded:
		return &apiError{kind: "overloaded_error", message: "Overloaded"}
	}
	if status >= http.StatusInternalServerError {
		return &apiError{kind: "api_error", message: "Internal server error"}
	}
	return &apiError{kind: "invalid_request_error", message: "Invalid request."}
}
