package anthropic

import (
	"net/http"
	"strings"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// Vendor is Anthropic's API.
type Vendor struct{}

// Headers that only clients of this API send.
const (
	versionHeader = "Anthropic-Version"
	keyHeader     = "X-Api-Key"
)

// Kind implements [llm.Vendor].
func (Vendor) Kind() string { return "anthropic" }

// Claims implements [llm.Vendor].
func (Vendor) Claims(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/v1/messages") || r.Header.Get(versionHeader) != "" ||
		r.Header.Get(keyHeader) != "" && r.Header.Get("Authorization") == ""
}

// Version implements [llm.Vendor].
func (Vendor) Version() string { return "v1" }

// KeyParam implements [llm.Vendor].
func (Vendor) KeyParam() string { return "" }

// SetKey implements [llm.Vendor].
func (Vendor) SetKey(h http.Header, key string) { h.Set(keyHeader, key) }

// AppendError implements [llm.Vendor].
func (Vendor) AppendError(dst []byte, f llm.Failure) []byte {
	dst = append(append(dst, `{"type":"error","error":{"type":"`...), errorType(f.Kind)...)
	return append(jsonscan.AppendQuoted(append(dst, `","message":`...), f.Text), `}}`...)
}

func errorType(k fault.Kind) string {
	switch k {
	case fault.Syntax, fault.InvalidRequest, fault.BadParams, fault.NoMethod, fault.Stalled:
		return "invalid_request_error"
	case fault.Unauthorized:
		return "authentication_error"
	case fault.Forbidden:
		return "permission_error"
	case fault.NotFound, fault.UnknownHandle:
		return "not_found_error"
	case fault.TooLarge:
		return "request_too_large"
	case fault.RateLimited, fault.OverBudget:
		return "rate_limit_error"
	case fault.Full:
		return "overloaded_error"
	case fault.Timeout:
		return "timeout_error"
	case fault.Internal, fault.Unavailable, fault.BadReply, fault.Canceled:
	}
	return "api_error"
}

// PrepareModelList implements [llm.Vendor].
func (Vendor) PrepareModelList(r *http.Request) {
	r.URL.RawQuery = "limit=1000"
	r.Header.Set(versionHeader, "2023-06-01")
}

// ReadModelList implements [llm.Vendor].
func (Vendor) ReadModelList(body []byte) ([]llm.Model, error) {
	return llm.ReadModels(body, "data", "id")
}

// AppendModel implements [llm.Vendor].
func (Vendor) AppendModel(dst []byte, id, _ string) []byte {
	dst = jsonscan.AppendQuoted(append(dst, `{"id":`...), id)
	dst = jsonscan.AppendQuoted(append(dst, `,"type":"model","display_name":`...), id)
	return append(dst, `,"created_at":"1970-01-01T00:00:00Z"}`...)
}

// AppendModelList implements [llm.Vendor].
func (Vendor) AppendModelList(dst []byte, models []llm.Model) []byte {
	dst = append(llm.AppendModels(append(dst, `{"data":`...), models), `,"has_more":false,"first_id":`...)
	if len(models) == 0 {
		return append(dst, `null,"last_id":null}`...)
	}
	dst = jsonscan.AppendQuoted(dst, models[0].ID)
	return append(jsonscan.AppendQuoted(append(dst, `,"last_id":`...), models[len(models)-1].ID), '}')
}
