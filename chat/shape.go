package chat

// Shape is the wire form of a request: which API it was written for.
type Shape uint8

// The shapes.
const (
	Completions Shape = iota // OpenAI chat completions
	Messages                 // Anthropic messages
	Responses                // OpenAI responses
)

var shapes = [...]string{Completions: "completions", Messages: "messages", Responses: "responses"}

func (s Shape) String() string { return shapes[s] }

// kind is the kind of provider that speaks the shape.
func (s Shape) kind() string {
	if s == Messages {
		return anthropic
	}
	return openAI
}

// endpoint is a path clients POST to.
type endpoint struct {
	shape Shape
	path  string // at the provider, after the version
	talk  bool   // a conversation: it may be shrunk, and its reply tells its usage
}

var endpoints = map[string]endpoint{
	"/v1/chat/completions":      {Completions, "/chat/completions", true},
	"/chat/completions":         {Completions, "/chat/completions", true},
	"/v1/responses":             {Responses, "/responses", true},
	"/v1/messages":              {Messages, "/messages", true},
	"/v1/messages/count_tokens": {Messages, "/messages/count_tokens", false},
}
