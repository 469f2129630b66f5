package history

import "errors"

// messages reads one message of Anthropic's. Results are blocks in messages of the user. Their
// content is a string or a list of blocks; a list of nothing but text can be masked: its first
// block gets the placeholder, further ones a mark each, for no block may go and none be empty.
func (r *reader) messages(at int) (int, error) {
	var role []byte
	var content value
	span, err := r.object(at, messageKeys, func(key []byte, v value) {
		switch string(key) {
		case "role":
			role = r.text(v)
		case "content":
			content = v
		}
	})
	if err != nil || r.body[at] != '{' {
		return span.End, errors.Join(err, r.mustBeObject(at))
	}
	weight := content.str.Len()
	begun := false
	if !content.isStr {
		err = r.list(content.Span, func(at int) (int, error) {
			b, err := r.block(at)
			if err != nil {
				return b.End, err
			}
			if b.cached {
				r.breakAt(b.End)
			}
			switch {
			case string(b.kind) == "tool_use" && string(role) == "assistant" && b.id.isStr:
				if !begun {
					begun = true
					r.begin()
				}
				r.called(b.id, b.name)
			case string(b.kind) == "tool_result" && string(role) == "user":
				w, err := r.toolResult(b, weight)
				weight += w
				return b.End, err
			}
			weight += b.weight()
			return b.End, nil
		})
	}
	if !begun && !r.answers() {
		r.open = false
	}
	r.message(span, span.Len()-content.Len()+weight, !r.answers())
	return span.End, err
}

// toolResult notes a result, and says what it weighs.
func (r *reader) toolResult(b block, inside int) (int, error) {
	text, edge, err := r.content(b.content, true)
	r.breakAt(edge)
	if b.cached {
		r.breakAt(b.End)
	}
	text.failed = b.failed
	r.answered(b.of, text, inside)
	return b.Len() - b.extra - b.content.Len() + text.weight, err
}
