package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

const conversationTurns = 133 // of one message with two calls and two results each: 400 messages with the first

// conversation is an agent's conversation in one wire shape. Every request contains the whole conversation so
// far: it is a prefix of data.
type conversation struct {
	path string
	data []byte
	ends []int  // where each turn ends in data
	tail string // closes a request
}

// request returns the body up to a turn, counted from one, in two parts.
func (t *conversation) request(turn int) (body, tail []byte) {
	return t.data[:t.ends[turn-1]], []byte(t.tail)
}

// wireFormat holds a wire shape's templates; strings are inserted quoted.
type wireFormat struct {
	path, head, tail string
	user             string // text
	calls            string // id, path, id, path
	results          string // id, text, id, text
}

// wireFormats are the measured shapes.
var wireFormats = map[string]wireFormat{
	"chat": {
		path: "/v1/chat/completions", head: `{"model":"m-1","stream":false,"messages":[`, tail: "]}",
		user:    `{"role":"user","content":%s}`,
		calls:   `,{"role":"assistant","content":"Next, two files.","tool_calls":[{"id":%s,"type":"function","function":{"name":"read_file","arguments":%s}},{"id":%s,"type":"function","function":{"name":"search","arguments":%s}}]}`,
		results: `,{"role":"tool","tool_call_id":%s,"content":%s},{"role":"tool","tool_call_id":%s,"content":%s}`,
	},
	"messages": {
		path: "/v1/messages", head: `{"model":"m-1","max_tokens":999,"messages":[`, tail: "]}",
		user:    `{"role":"user","content":%s}`,
		calls:   `,{"role":"assistant","content":[{"type":"text","text":"Next, two files."},{"type":"tool_use","id":%s,"name":"read_file","input":%s},{"type":"tool_use","id":%s,"name":"search","input":%s}]}`,
		results: `,{"role":"user","content":[{"type":"tool_result","tool_use_id":%s,"content":%s},{"type":"tool_result","tool_use_id":%s,"content":%s}]},{"role":"user","content":"Go on."}`,
	},
	"responses": {
		path: "/v1/responses", head: `{"model":"m-1","input":[`, tail: "]}",
		user:    `{"role":"user","content":%s}`,
		calls:   `,{"type":"function_call","call_id":%s,"name":"read_file","arguments":%s},{"type":"function_call","call_id":%s,"name":"search","arguments":%s}`,
		results: `,{"type":"function_call_output","call_id":%s,"output":%s},{"type":"function_call_output","call_id":%s,"output":%s}`,
	},
}

// newConversation makes a conversation of about size bytes with tool results from text. The stamp is part of
// every id and result, so that no two conversations share one.
func newConversation(shape, text string, size int, stamp string) (*conversation, error) {
	d, ok := wireFormats[shape]
	if !ok {
		return nil, fmt.Errorf("unknown shape %s", shape)
	}
	t := &conversation{path: d.path, tail: d.tail}
	t.data = fmt.Appendf([]byte(d.head), d.user, quote("Find out why replies are cut, and mend it."))
	each := max(64, (size/conversationTurns-len(d.calls)-len(d.results)-120)/2)
	for turn := range conversationTurns {
		var calls, results []any
		for n := range 2 {
			id := fmt.Sprintf("call_%s_%d_%d", stamp, turn, n)
			args := quote(map[string]string{"path": fmt.Sprintf("internal/part%d/file%d.go", turn, n)})
			if shape != "messages" {
				args = quote(args) // an object in messages, elsewhere its JSON text
			}
			at := (2*turn + n) * 1000 % (len(text) - each)
			calls = append(calls, quote(id), args)
			results = append(results, quote(id), fit(stamp+" "+text[at:at+each], each))
		}
		t.data = fmt.Appendf(fmt.Appendf(t.data, d.calls, calls...), d.results, results...)
		t.ends = append(t.ends, len(t.data))
	}
	return t, nil
}

// fit quotes a text and cuts it so that the result has about size bytes: escapes make it longer.
func fit(text string, size int) string {
	q := quote(text)
	for len(q) > size+size/50+8 {
		text = strings.ToValidUTF8(text[:len(text)*size/len(q)], "")
		q = quote(text)
	}
	return q
}

// quote encodes a value as JSON.
func quote[T string | map[string]string](v T) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings can always be encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}
