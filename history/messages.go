package history

import "github.com/ctxgate/ctxgate/jsonscan"

// messages reads one message of Anthropic's. Results are blocks in messages of the user. Their
// content is a string or a list of blocks; a list of nothing but text can be masked: its first
// block gets the placeholder, further ones a mark each, for no block may go and none be empty.
func (r *reader) messages(s *jsonscan.Scanner) error {
	var role []byte
	var content value
	span, err := r.object(s, messageKeys, func(key []byte, v value) {
		switch string(key) {
		case "role":
			role = r.text(v)
		case "content":
			content = v
		}
	})
	if err != nil {
		return err
	}
	weight := content.str.Len()
	begun := false
	if !content.isStr {
		err = r.each(content.Span, func(s *jsonscan.Scanner) error {
			b, err := r.block(s)
			if err != nil {
				return err
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
				return err
			}
			weight += b.weight()
			return nil
		})
	}
	if !begun && !r.answers() {
		r.open = false
	}
	r.message(span, span.Len()-content.Len()+weight, !r.answers())
	return err
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
