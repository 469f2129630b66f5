package fakeprovider

import (
	"slices"
	"time"
)

// Step is the provider's behaviour for one request: it replies (thinking, text, tool calls), fails, or
// misbehaves.
type Step struct {
	// Thinking precedes the text: a signed thinking block in messages, a reasoning item's summary in
	// responses, reasoning_content in chat completions (not OpenAI's, but Kimi's, DeepSeek's and others').
	Thinking string
	Text     string
	// Calls are tool calls; more than one are parallel.
	Calls []Call
	// Truncated reports the token limit as the reason why the reply ended.
	Truncated bool

	// Fail replies with an error; in a stream, with an error event after AfterEvents events.
	Fail *Failure
	// Cut closes the connection: after AfterEvents events of a stream, in the middle of a body that is
	// not streamed, and before the headers if AfterEvents is 0.
	Cut bool
	// Garbage is sent verbatim: in a stream before event number AfterEvents, otherwise instead of the body.
	Garbage string
	// AfterEvents is the number of stream events before Fail, Cut or Garbage.
	AfterEvents int

	// Delay precedes the reply, EventDelay each event of a stream, in real time.
	Delay, EventDelay time.Duration
	// ChunkSize is the maximum number of text bytes in an event; 24 when 0.
	ChunkSize int
}

// Call is a tool call. Args is a JSON object. An empty ID is replaced by a new one. In responses a function of a
// namespace is named "namespace.function", and a call of the tool "tool_search", if offered, is a search.
type Call struct{ ID, Name, Args string }

// Failure is an error reply. Empty fields get the shape's default for the status: 400, 401, 403, 404, 413,
// 429, 500, 503 or 529.
type Failure struct {
	Status  int
	Type    string
	Code    string
	Message string
	// RetryAfter is the Retry-After header; a 429 defaults to one second.
	RetryAfter time.Duration
}

// ReplyText replies with text.
func ReplyText(text string) Step { return Step{Text: text} }

// CallTools replies with tool calls.
func CallTools(calls ...Call) Step { return Step{Calls: calls} }

// FailWith replies with an error.
func FailWith(status int) Step { return Step{Fail: &Failure{Status: status}} }

// CutAfter closes the connection after the given number of events.
func CutAfter(text string, events int) Step { return Step{Text: text, Cut: true, AfterEvents: events} }

// outputTokens is the number of output tokens charged.
func (s Step) outputTokens() int {
	n := Tokens(s.Thinking) + Tokens(s.Text)
	for _, c := range s.Calls {
		n += Tokens(c.Name) + Tokens(c.Args)
	}
	return max(n, 1)
}

// withDefaults fills in call ids, arguments and the chunk size.
func (s Step) withDefaults(p *Provider, prefix string) Step {
	s.Calls = slices.Clone(s.Calls)
	for i := range s.Calls {
		if s.Calls[i].ID == "" {
			s.Calls[i].ID = p.newID(prefix)
		}
		if s.Calls[i].Args == "" {
			s.Calls[i].Args = "{}"
		}
	}
	if s.ChunkSize <= 0 {
		s.ChunkSize = 24
	}
	return s
}

// chunks splits a text into deltas, never inside a character.
func (s Step) chunks(text string) []string {
	var out []string
	for text != "" {
		n := min(s.ChunkSize, len(text))
		for n < len(text) && text[n]&0xC0 == 0x80 {
			n++
		}
		out, text = append(out, text[:n]), text[n:]
	}
	return out
}
