package history

import (
	"errors"

	"github.com/ctxgate/ctxgate/jsonscan"
)

var (
	errNoMessages = errors.New("it holds no list of messages")
	errNoModel    = errors.New("its model is no name")
	errNoObject   = errors.New("it is no object")
	errTooMany    = errors.New("it has too many messages, calls and results")
)

// chat reads one message of OpenAI's chat completions (H1). Content of a tool that is no string
// is left alone (H7).
func (r *reader) chat(s *jsonscan.Scanner) error {
	var role []byte
	var content, calls, id value
	extra, cached := 0, false
	span, err := r.object(s, messageKeys, func(key []byte, v value) {
		switch string(key) {
		case "role":
			role = r.text(v)
		case "content":
			content = v
		case "tool_calls":
			calls = v
		case "tool_call_id":
			id = v
		case "cache_control":
			cached = r.body[v.Start] != 'n'
			extra = len(`,"cache_control":`) + v.Len()
		}
	})
	if err != nil {
		return err
	}
	text, edge, err := r.content(content, false)
	if err != nil {
		return err
	}
	if cached {
		edge = span.End
	}
	r.breakAt(edge)
	switch string(role) {
	case "tool":
		r.answered(id, text, 0)
	case "assistant":
		r.open = false
		err = r.toolCalls(calls)
	default:
		r.open = false
	}
	spoken := string(role) == "assistant" || string(role) == "user"
	r.message(span, span.Len()-extra-content.Len()+text.weight, spoken)
	return err
}

// toolCalls begins a turn when a call has a string for an id.
func (r *reader) toolCalls(calls value) error {
	begun := false
	return r.each(calls.Span, func(s *jsonscan.Scanner) error {
		var id, function value
		_, err := r.object(s, callKeys, func(key []byte, v value) {
			switch string(key) {
			case "id":
				id = v
			case "function", "custom":
				function = v
			}
		})
		if err != nil || !id.isStr {
			return err
		}
		if !begun {
			begun = true
			r.begin()
		}
		name, err := r.functionName(function)
		r.called(id, name)
		return err
	})
}

func (r *reader) functionName(function value) (name value, err error) {
	if function.Len() == 0 {
		return name, nil
	}
	_, err = r.object(jsonscan.Inside(r.body, function.Start, 0, 0), functionKeys, func(key []byte, v value) {
		if string(key) == "name" {
			name = v
		}
	})
	return name, err
}

// answers says whether the message that is being read holds results.
func (r *reader) answers() bool {
	n := len(r.d.Results)
	return n > 0 && r.d.Results[n-1].Message == len(r.d.Messages)
}
