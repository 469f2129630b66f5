package gemini

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// Vendor is Google's API.
type Vendor struct{}

const (
	keyHeader    = "X-Goog-Api-Key"
	clientHeader = "X-Goog-Api-Client" // sent by Google's SDKs
	modelPrefix  = "models/"           // of names in model lists
)

// Kind implements [llm.Vendor].
func (Vendor) Kind() string { return "gemini" }

// Version implements [llm.Vendor].
func (Vendor) Version() string { return "v1beta" }

// Claims implements [llm.Vendor].
func (Vendor) Claims(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/v1beta/") || strings.HasPrefix(r.URL.Path, "/v1alpha/") || r.Header.Get(keyHeader) != "" || r.Header.Get(clientHeader) != ""
}

// SetKey implements [llm.Vendor].
func (Vendor) SetKey(h http.Header, key string) { h.Set(keyHeader, key) }

// KeyParam implements [llm.Vendor].
func (Vendor) KeyParam() string { return "key" }

// AppendError implements [llm.Vendor].
func (Vendor) AppendError(dst []byte, f llm.Failure) []byte {
	dst = strconv.AppendInt(append(dst, `{"error":{"code":`...), int64(f.Status), 10)
	dst = jsonscan.AppendQuoted(append(dst, `,"message":`...), f.Text)
	dst = append(append(append(dst, `,"status":"`...), statusName(f.Kind)...), '"')
	if !f.Renews.IsZero() { // Gemini CLI does not try again if it would have to wait for more than five minutes
		wait := max(int64(time.Until(f.Renews)/time.Second), 1)
		dst = strconv.AppendInt(append(dst, `,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"`...), wait, 10)
		dst = append(dst, `s"}]`...)
	}
	return append(dst, `}}`...)
}

// statusName is the name of a failure, from the list that all of Google's APIs share.
func statusName(k fault.Kind) string {
	switch k {
	case fault.Syntax, fault.InvalidRequest, fault.BadParams, fault.NoMethod, fault.TooLarge, fault.Stalled:
		return "INVALID_ARGUMENT"
	case fault.Unauthorized:
		return "UNAUTHENTICATED"
	case fault.Forbidden:
		return "PERMISSION_DENIED"
	case fault.NotFound, fault.UnknownHandle:
		return "NOT_FOUND"
	case fault.RateLimited, fault.OverBudget:
		return "RESOURCE_EXHAUSTED"
	case fault.Timeout:
		return "DEADLINE_EXCEEDED"
	case fault.Canceled:
		return "CANCELLED"
	case fault.Full, fault.Unavailable:
		return "UNAVAILABLE"
	case fault.Internal, fault.BadReply:
	}
	return "INTERNAL"
}

// PrepareModelList implements [llm.Vendor].
func (Vendor) PrepareModelList(r *http.Request) { r.URL.RawQuery = "pageSize=1000" }

// ReadModelList implements [llm.Vendor].
func (Vendor) ReadModelList(body []byte) ([]llm.Model, error) {
	models, err := llm.ReadModels(body, "models", "name")
	for i := range models {
		models[i].ID = strings.TrimPrefix(models[i].ID, modelPrefix)
	}
	return models, err
}

// AppendModel implements [llm.Vendor].
func (Vendor) AppendModel(dst []byte, id, _ string) []byte {
	dst = jsonscan.AppendQuoted(append(dst, `{"name":`...), modelPrefix+id)
	dst = jsonscan.AppendQuoted(append(dst, `,"displayName":`...), id)
	return append(dst, `,"supportedGenerationMethods":["generateContent","countTokens"]}`...)
}

// AppendModelList implements [llm.Vendor].
func (Vendor) AppendModelList(dst []byte, models []llm.Model) []byte {
	return append(llm.AppendModels(append(dst, `{"models":`...), models), '}')
}
