package llmtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Shape is one of the wires.
type Shape uint8

// The shapes. None is a request for something else, such as the list of models.
const (
	None Shape = iota
	Chat
	Messages
	Responses
)

// Shapes are all that can be spoken.
func Shapes() []Shape { return []Shape{Chat, Messages, Responses} }

func (s Shape) String() string {
	switch s {
	case Chat:
		return "chat"
	case Messages:
		return "messages"
	case Responses:
		return "responses"
	}
	return "none"
}

// Path is where the shape is spoken, below the root.
func (s Shape) Path() string {
	switch s {
	case Chat:
		return "/v1/chat/completions"
	case Messages:
		return "/v1/messages"
	case Responses:
		return "/v1/responses"
	}
	return "/"
}

// Request is one that came. What is below Body was read from it, as far as it was valid.
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
	// Tools are the names of the tools that were offered.
	Tools []string
	// ToolTurns counts the model's turns in which it called tools.
	ToolTurns int
	// Results are what the tools answered, in the order in which they stand there.
	Results []Result
	// Tokens is the length of the prompt.
	Tokens int
	// Status is what was answered: 0 while nothing was.
	Status int
	// Gone says that the client left before the answer was complete.
	Gone bool
}

// Result is a tool's result as the model reads it.
type Result struct{ ID, Text string }

// ask is a valid request in no shape's dress.
type ask struct {
	model   string
	stream  bool
	usage   bool // the stream shall tell the usage
	prompt  prompt
	tools   []string
	turns   int
	results []Result
	life    time.Duration // how long automatic entries live, when the request says so
	items   []item        // what a stored response is continued with
	store   bool
	// What a response repeats of its request.
	echoTools, echoInstructions json.RawMessage
}

// refusal is an error in no shape's dress.
type refusal struct {
	status  int
	kind    string
	code    string
	param   string
	message string
	retry   time.Duration
}

// invalid is a 400 of which the shape says where it is wrong.
func invalid(param, code, format string, args ...any) *refusal {
	return &refusal{
		status: http.StatusBadRequest, kind: "invalid_request_error",
		param: param, code: code, message: fmt.Sprintf(format, args...),
	}
}
