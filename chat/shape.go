package chat

import "github.com/ctxgate/ctxgate/history"

// Shape is the wire form of a request: which API it was written for.
type Shape = history.Shape

// The shapes.
const (
	Completions = history.Chat      // OpenAI chat completions
	Messages    = history.Messages  // Anthropic messages
	Responses   = history.Responses // OpenAI responses
)

// kindOf is the kind of provider that speaks a shape.
func kindOf(s Shape) string {
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
