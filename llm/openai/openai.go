// Package openai holds what the wire shapes of OpenAI's API share: errors, keys and model lists.
package openai

import (
	"net/http"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// Vendor is OpenAI's API, which many other providers serve too.
type Vendor struct{}

// Kind implements [llm.Vendor].
func (Vendor) Kind() string { return "openai" }

// Claims implements [llm.Vendor]. Requests carry no sign of this API: it is the default.
func (Vendor) Claims(*http.Request) bool { return false }

// Version implements [llm.Vendor].
func (Vendor) Version() string { return "v1" }

// KeyParam implements [llm.Vendor].
func (Vendor) KeyParam() string { return "" }

// SetKey implements [llm.Vendor].
func (Vendor) SetKey(h http.Header, key string) { h.Set("Authorization", "Bearer "+key) }

// AppendError implements [llm.Vendor].
func (Vendor) AppendError(dst []byte, f llm.Failure) []byte {
	name, code := errorType(f.Kind)
	dst = jsonscan.AppendQuoted(append(dst, `{"error":{"message":`...), f.Text)
	dst = append(append(dst, `,"type":"`...), name...)
	dst = append(append(append(dst, `","param":null,"code":"`...), code...), '"')
	if !f.Renews.IsZero() { // Codex shows it, and does not try again
		dst = strconv.AppendInt(append(dst, `,"resets_at":`...), f.Renews.Unix(), 10)
	}
	return append(dst, `}}`...)
}

func errorType(k fault.Kind) (name, code string) {
	switch k {
	case fault.Unauthorized:
		return "invalid_request_error", "invalid_api_key"
	case fault.UnknownHandle:
		return "invalid_request_error", "model_not_found"
	case fault.OverBudget:
		return "usage_limit_reached", "insufficient_quota"
	case fault.RateLimited:
		return "requests", "rate_limit_exceeded"
	case fault.Syntax, fault.InvalidRequest, fault.BadParams, fault.NoMethod, fault.Forbidden, fault.NotFound, fault.TooLarge, fault.Stalled:
		return "invalid_request_error", k.String()
	case fault.Internal, fault.Unavailable, fault.Timeout, fault.BadReply, fault.Full, fault.Canceled:
	}
	return "server_error", k.String()
}

// PrepareModelList implements [llm.Vendor].
func (Vendor) PrepareModelList(*http.Request) {}

// ReadModelList implements [llm.Vendor].
func (Vendor) ReadModelList(body []byte) ([]llm.Model, error) {
	return llm.ReadModels(body, "data", "id")
}

// AppendModel implements [llm.Vendor].
func (Vendor) AppendModel(dst []byte, id, provider string) []byte {
	dst = jsonscan.AppendQuoted(append(dst, `{"id":`...), id)
	return append(jsonscan.AppendQuoted(append(dst, `,"object":"model","created":0,"owned_by":`...), provider), '}')
}

// AppendModelList implements [llm.Vendor].
func (Vendor) AppendModelList(dst []byte, models []llm.Model) []byte {
	return append(llm.AppendModels(append(dst, `{"object":"list","data":`...), models), '}')
}
