// Package llm defines what the wire shapes of LLM APIs have in common: the vendor-neutral parts of a
// request and of a reply, and the [Codec] that finds them in the bytes of one shape.
//
// Path through the files: llm.go defines the Codec; message.go reads one message of a request; usage.go
// reads the token usage from a reply while it is forwarded. readback.go defines what a shape must add for its
// models to read back masked originals, and merge.go what the shapes' mergers share. The shapes are in
// llm/openaichat, llm/responses, llm/anthropic and llm/gemini; llm/openai holds what OpenAI's two shapes share.
// llm/wires lists them all.
//
// To add a wire shape: write a package with a Codec (and a Vendor, unless it shares one), and list it in
// llm/wires. That is enough for its requests to be routed, masked and accounted, and for its kind to be
// allowed in the configuration. To let its models read back masked originals, implement ReadbackCodec too.
//
// Invariants: a codec never decodes a document into a tree. It reports spans of the bytes, and changes
// are edits of them, so that whatever is not changed is forwarded byte for byte. Codecs have no state.
package llm

import (
	"net/http"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Codec reads the requests of one wire shape. It is a comparable value without state.
type Codec interface {
	// Wire describes the shape.
	Wire() *Wire

	// ReadMessage reads the message before s, which is an object, into m, which is empty.
	ReadMessage(r *Reader, s *jsonscan.Scanner, m *Message) error

	// CallArguments finds a tool call in a message and returns its arguments, as JSON or as free text.
	// found says whether the message makes the call; arguments longer than limit are nil.
	CallArguments(body []byte, message jsonscan.Span, callID string, limit int) (args []byte, found bool)

	// DigestMessage writes to d the parts of a message that do not change when a client sends it again.
	// spoken is [Message.Spoken].
	DigestMessage(d Digest, body []byte, message jsonscan.Span, spoken bool)

	// ToolName is the name of an element of the request's tools, "" if it has none.
	ToolName(body []byte, tool jsonscan.Span) string
}

// Wire describes a wire shape.
type Wire struct {
	Name      string // in error messages and keys
	Vendor    Vendor
	Endpoints []Endpoint

	MessagesKey string   // the member of a request that holds the conversation
	TextInput   bool     // that member may be a string: the user's message
	RequestKeys []string // members of a request that are read; in other case they are refused
	PromptKeys  []string // those of them that precede the conversation in the prompt

	ReplyIsItems bool // one reply of the model may be several messages

	// SyntaxBytes is about how many bytes of a message are only JSON syntax, less the few tokens that the provider
	// puts in their place. The ledger compares what the provider counts with the rest.
	SyntaxBytes int

	// LastEvents are the types of the events that end a streamed reply, beside [DONE] and Usage.Finish. A
	// client may disconnect after one.
	LastEvents []string

	// ToolLists are the members of an element of the request's tools that list tools; nil: the elements are
	// the tools.
	ToolLists []string

	// ResultsByName says that calls and results may have no id: a result then belongs to the first call of
	// the last tool turn that has its name and no result yet.
	ResultsByName bool

	// OfferFirst says that the proxy puts its own tool first. A cache_control on a tool covers all tools
	// before it, so the first one is in whatever the client caches.
	OfferFirst bool

	// MarkedCacheOnly says that the provider caches only what a cache_control marks. One on the request
	// itself marks its last block.
	MarkedCacheOnly bool

	Usage UsageKeys
}

// Endpoint is a path that clients POST to. With {model} in it, a part of the path names the model, and the body
// does not.
type Endpoint struct {
	Path         string // at the gateway
	UpstreamPath string // at the provider, after the version
	Version      string // of the API at the provider, unless its base URL has one; "": the vendor's
	Conversation bool   // the request may be masked, and its reply reports usage

	// EventsParam is the parameter of the query, such as "alt=sse", without which the reply is a stream of
	// another form: then the model cannot read back. A fallback gets it too. "": the form is in the body.
	EventsParam string
}

// ModelInPath is the part of an endpoint's path that names the model.
const ModelInPath = "{model}"

// Digest receives the parts of a message by which it is recognized.
type Digest interface {
	Part(label string, text []byte)
	Value(label string, raw []byte) // a raw JSON value
}

// Failure is an error response.
type Failure struct {
	Status int // of HTTP
	Kind   fault.Kind
	Text   string
	Renews time.Time // when a budget renews that is used up; zero for other failures
}

// Vendor is the API family of a wire shape: keys, errors and model lists.
type Vendor interface {
	// Kind is the family's name in a provider's configuration.
	Kind() string
	// Claims says whether a request to an unknown path comes from a client of this API.
	Claims(r *http.Request) bool
	// Version is the first segment of the API's paths.
	Version() string
	// SetKey sets the API key of a request to the provider.
	SetKey(h http.Header, key string)
	// KeyParam is the parameter of the query that may hold an API key instead of a header; "": none.
	KeyParam() string
	// AppendError appends the body of an error response.
	AppendError(dst []byte, f Failure) []byte

	// PrepareModelList completes a request for the provider's model list.
	PrepareModelList(r *http.Request)
	// ReadModelList reads the provider's model list, which is valid JSON.
	ReadModelList(body []byte) ([]Model, error)
	// AppendModel appends the entry of a configured model.
	AppendModel(dst []byte, id, provider string) []byte
	// AppendModelList appends a model list response.
	AppendModelList(dst []byte, models []Model) []byte
}

// Model is an entry of a model list: its id, and its bytes as the provider wrote them.
type Model struct {
	ID  string
	Raw []byte
}

// AppendModels appends the entries of a model list as a JSON array.
func AppendModels(dst []byte, models []Model) []byte {
	dst = append(dst, '[')
	for i, m := range models {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m.Raw...)
	}
	return append(dst, ']')
}

// ReadModels reads the entries of a model list: the elements of the member list whose member id is a text.
func ReadModels(body []byte, list, id string) ([]Model, error) {
	top, err := jsonscan.FieldsOf(body)
	if err != nil {
		return nil, err
	}
	data, _ := top.Field(list)
	var out []Model
	err = jsonscan.EachElement(body, data.Value, func(at jsonscan.Span) error {
		fields, err := jsonscan.ReadFields(body, at)
		if name := fields.Text(id); name != "" {
			out = append(out, Model{ID: name, Raw: at.Of(body)})
		}
		return err
	})
	return out, err
}
