package llmtest

import (
	"slices"
	"time"
)

// Step is what the provider does with one request: it answers (thinking, then text, then calls of
// tools), it fails, or it misbehaves.
type Step struct {
	// Think is what the model thinks first. Messages carry it as a signed thinking block, responses
	// as the summary of a reasoning item, chat completions as reasoning_content, which OpenAI does
	// not send and Kimi, DeepSeek and others do.
	Think string
	// Text is what it says.
	Text string
	// Calls are the tools it calls; more than one are parallel calls.
	Calls []Call
	// Short says that the answer was cut off by the limit on its tokens.
	Short bool

	// Fail answers with an error. After the first At events of a stream it is an error in the stream.
	Fail *Failure
	// Cut breaks the connection: after At events of a stream, in the middle of a body that is not
	// streamed, and before anything is sent when At is 0.
	Cut bool
	// Garbage is sent as it is: before event number At of a stream, which then goes on, or, when it
	// is not streamed, instead of the body.
	Garbage string
	// At is the number of events of a stream that go well before what was asked for happens.
	At int

	// Delay is waited before anything is sent, Pace before each event of a stream, in real time.
	Delay, Pace time.Duration
	// Chunk is the most bytes of text in an event; 24 when 0.
	Chunk int
}

// Call is a call of a tool. Args is a JSON object. An empty ID gets one.
type Call struct{ ID, Name, Args string }

// Failure is an error of the provider. What is empty is filled in as the shape has it for that
// status: 400, 401, 403, 404, 413, 429, 500, 503 or 529.
type Failure struct {
	Status  int
	Type    string
	Code    string
	Message string
	// RetryAfter is sent with the failure; a 429 without one says one second.
	RetryAfter time.Duration
}

// Say is a step that answers with text.
func Say(text string) Step { return Step{Text: text} }

// Use is a step that calls tools.
func Use(calls ...Call) Step { return Step{Calls: calls} }

// Fail is a step that fails.
func Fail(status int) Step { return Step{Fail: &Failure{Status: status}} }

// Cut is a step that breaks the connection after at events.
func Cut(text string, at int) Step { return Step{Text: text, Cut: true, At: at} }

// output is what the answer costs.
func (s Step) output() int {
	n := Tokens(s.Think) + Tokens(s.Text)
	for _, c := range s.Calls {
		n += Tokens(c.Name) + Tokens(c.Args)
	}
	return max(n, 1)
}

// finished has every call's id and arguments, and the lengths of its pieces.
func (s Step) finished(p *Provider, prefix string) Step {
	s.Calls = slices.Clone(s.Calls)
	for i := range s.Calls {
		if s.Calls[i].ID == "" {
			s.Calls[i].ID = p.id(prefix)
		}
		if s.Calls[i].Args == "" {
			s.Calls[i].Args = "{}"
		}
	}
	if s.Chunk <= 0 {
		s.Chunk = 24
	}
	return s
}

// pieces cuts a text into deltas, never inside a character.
func (s Step) pieces(text string) []string {
	var out []string
	for text != "" {
		n := min(s.Chunk, len(text))
		for n < len(text) && text[n]&0xC0 == 0x80 {
			n++
		}
		out, text = append(out, text[:n]), text[n:]
	}
	return out
}
