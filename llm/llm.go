// Package llm defines what the wire shapes of LLM APIs have in common: the vendor-neutral parts of a
// request and of a reply, and the [Codec] that finds them in the bytes of one shape.
//
// Path through the files: llm.go defines the Codec; message.go reads one message of a request; usage.go
// reads the token usage from a reply while it is forwarded. readback.go defines what a shape must add for its
// models to read back masked originals, and merge.go what the shapes' mergers share. The shapes are in
// llm/openaichat, llm/responses and llm/anthropic; llm/openai holds what OpenAI's two shapes share. llm/wires
// lists them all.
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

	// OfferFirst says that the proxy puts its own tool first. A cache_control on a tool covers all tools
	// before it, so the first one is in whatever the client caches.
	OfferFirst bool

	// MarkedCacheOnly says that the provider caches only what a cache_control marks. One on the request
	// itself marks its last block.
	MarkedCacheOnly bool

	Usage UsageKeys
}

// Endpoint is a path that clients POST to.
type Endpoint struct {
	Path         string // at the gateway
	UpstreamPath string // at the provider, after the version
	Conversation bool   // the request may be masked, and its reply reports usage
}

// Digest receives the parts of a message by which it is recognized.
type Digest interface {
	Part(label string, text []byte)
	Value(label string, raw []byte) // a raw JSON value
}

// Vendor is the API family of a wire shape: keys, errors and model lists.
type Vendor interface {
	// Kind is the family's name in a provider's configuration.
	Kind() string
	// Claims says whether a request to an unknown path comes from a client of this API.
	Claims(r *http.Request) bool
	// SetKey sets the API key of a request to the provider.
	SetKey(h http.Header, key string)
	// AppendError appends the body of an error response.
	AppendError(dst []byte, kind fault.Kind, text string) []byte

	// PrepareModelList completes a request for the provider's model list.
	PrepareModelList(r *http.Request)
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

// AppendModelData appends the member data, which all model lists have.
func AppendModelData(dst []byte, models []Model) []byte {
	dst = append(dst, `"data":[`...)
	for i, m := range models {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m.Raw...)
	}
	return append(dst, ']')
}
