package history

import (
	"errors"
)

var (
	errNoMessages = errors.New("it holds no list of messages")
	errNoObject   = errors.New("it is no object")
)

// chat reads one message of OpenAI's chat completions (H1). Content of a tool that is no string
// is left alone (H7).
func (r *reader) chat(at int) (int, error) {
	var role []byte
	var content, calls, id value
	extra, cached := 0, false
	span, err := r.object(at, messageKeys, func(key []byte, v value) {
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
	if err != nil || r.body[at] != '{' {
		return span.End, errors.Join(err, r.mustBeObject(at))
	}
	text, edge, err := r.content(content, false)
	if err != nil {
		return span.End, err
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
	return span.End, err
}

// toolCalls begins a turn when a call has a string for an id.
func (r *reader) toolCalls(calls value) error {
	begun := false
	return r.list(calls.Span, func(at int) (int, error) {
		var id, function value
		span, err := r.object(at, callKeys, func(key []byte, v value) {
			switch string(key) {
			case "id":
				id = v
			case "function", "custom":
				function = v
			}
		})
		if err != nil || !id.isStr {
			return span.End, err
		}
		if !begun {
			begun = true
			r.begin()
		}
		name, err := r.functionName(function)
		r.called(id, name)
		return span.End, err
	})
}

func (r *reader) functionName(function value) (name value, err error) {
	if function.Len() == 0 {
		return name, nil
	}
	_, err = r.object(function.Start, functionKeys, func(key []byte, v value) {
		if string(key) == "name" {
			name = v
		}
	})
	return name, err
}

func (r *reader) mustBeObject(at int) error {
	if r.body[at] == '{' {
		return nil
	}
	return errNoObject
}

// answers says whether the message that is being read holds results.
func (r *reader) answers() bool {
	n := len(r.d.Results)
	return n > 0 && r.d.Results[n-1].Message == len(r.d.Messages)
}
