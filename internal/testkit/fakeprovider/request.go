package fakeprovider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Shape is the wire shape of an API.
type Shape uint8

// The shapes. None is a request for something else, such as the model list.
const (
	None Shape = iota
	Chat
	Messages
	Responses
	Gemini // generateContent
)

// AllShapes returns the shapes whose path and credentials do not depend on the request. Gemini's do.
func AllShapes() []Shape { return []Shape{Chat, Messages, Responses} }

func (s Shape) String() string {
	switch s {
	case Chat:
		return "chat"
	case Messages:
		return "messages"
	case Responses:
		return "responses"
	case Gemini:
		return "gemini"
	}
	return "none"
}

// Path is the path of the shape's endpoint.
func (s Shape) Path() string {
	switch s {
	case Chat:
		return "/v1/chat/completions"
	case Messages:
		return "/v1/messages"
	case Responses:
		return "/v1/responses"
	case Gemini:
		return "/v1beta/models/{model}:generateContent"
	}
	return "/"
}

// PathOf is the path of a request for a model.
func (s Shape) PathOf(model string, stream bool) string {
	path := strings.Replace(s.Path(), "{model}", model, 1)
	if s == Gemini && stream {
		path = strings.Replace(path, ":g", ":streamG", 1) + "?alt=sse"
	}
	return path
}

// Request is a received request. The fields below At are parsed from it as far as it is valid.
type Request struct {
	Seq    int
	Method string
	Path   string
	Header http.Header
	Body   []byte
	At     time.Time // by the provider's clock

	Shape  Shape
	Model  string
	Stream bool
	// Tools are the names of the offered tools.
	Tools []string
	// ToolTurns counts the model's turns with tool calls.
	ToolTurns int
	// Results are the tool results in the order of the request.
	Results []Result
	// Tokens is the length of the prompt in tokens.
	Tokens int
	// Status is the reply's status; 0 until there is one.
	Status int
	// ClientGone reports that the client disconnected before the reply was complete.
	ClientGone bool
}

// Result is a tool result.
type Result struct{ ID, Text string }

// request is a valid request, independent of its wire shape.
type request struct {
	model        string
	stream       bool
	includeUsage bool // in the stream
	prompt       prompt
	tools        []string
	toolTurns    int
	results      []Result
	cacheTTL     time.Duration // of automatic cache entries, if the request sets it
	items        []item        // stored for previous_response_id
	store        bool
	noCallIDs    bool // in the reply
	asArray      bool // a stream is one JSON array
	// Repeated in a response.
	echoTools, echoInstructions json.RawMessage
}

// apiError is an error reply, independent of its wire shape.
type apiError struct {
	status  int
	kind    string
	code    string
	param   string
	message string
	retry   time.Duration
}

// invalid returns a 400.
func invalid(param, code, format string, args ...any) *apiError {
	return &apiError{
		status: http.StatusBadRequest, kind: "invalid_request_error",
		param: param, code: code, message: fmt.Sprintf(format, args...),
	}
}
