package gemini

import (
	"net/http"
	"strconv"
	"strings"

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
func (Vendor) AppendError(dst []byte, status int, kind fault.Kind, text string) []byte {
	dst = strconv.AppendInt(append(dst, `{"error":{"code":`...), int64(status), 10)
	dst = jsonscan.AppendQuoted(append(dst, `,"message":`...), text)
	return append(append(append(dst, `,"status":"`...), statusName(kind)...), `"}}`...)
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
	case fault.RateLimited:
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
