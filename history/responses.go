package history

import "github.com/ctxgate/ctxgate/jsonscan"

// item reads one item of an OpenAI responses input. A turn is what the model said in one go: the
// function calls since the client last spoke, with whatever reasoning is between them.
func (r *reader) item(s *jsonscan.Scanner) error {
	var kind, role []byte
	var id, name, output, content value
	cached := false
	span, err := r.object(s, messageKeys, func(key []byte, v value) {
		switch string(key) {
		case "type":
			kind = r.text(v)
		case "role":
			role = r.text(v)
		case "call_id":
			id = v
		case "name":
			name = v
		case "output":
			output = v
		case "content":
			content = v
		case "cache_control":
			cached = r.body[v.Start] != 'n'
		}
	})
	if err != nil {
		return err
	}
	if cached {
		r.breakAt(span.End)
	}
	weight, spoken := span.Len(), false
	switch string(kind) {
	case "function_call":
		spoken = true
		if id.isStr {
			r.functionCall(id, name)
		}
	case "function_call_output":
		text, edge, err := r.content(output, true)
		if err != nil {
			return err
		}
		r.breakAt(edge)
		r.answered(id, text, 0)
		weight += text.weight - output.Len()
	case "reasoning", "item_reference":
		weight = 0 // clients drop them when they please
	case "message", "":
		spoken = true
		text, edge, err := r.content(content, true)
		if err != nil {
			return err
		}
		r.breakAt(edge)
		weight += text.weight - content.Len()
		r.open = r.open && string(role) == "assistant"
	}
	r.message(span, weight, spoken)
	return nil
}

// functionCall begins a turn, or goes on with the one to which nobody has answered yet.
func (r *reader) functionCall(id, name value) {
	if n := len(r.d.Results); !r.open || n > 0 && r.d.Results[n-1].Message >= r.d.Turns[len(r.d.Turns)-1].Message {
		r.begin()
	}
	r.called(id, name)
	r.extend()
}
