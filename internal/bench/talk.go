package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

const talkTurns = 133 // of one message with two calls and two results each: 400 messages with the first

// talk is an agent's conversation in one wire shape. An agent sends all of it at every turn, so a
// request is its beginning up to some turn.
type talk struct {
	path string
	data []byte
	ends []int  // where each turn ends in data
	tail string // what closes a request
}

// request is the body up to a turn, counted from one, in two pieces.
func (t *talk) request(turn int) (body, tail []byte) { return t.data[:t.ends[turn-1]], []byte(t.tail) }

// dress is how a shape writes a conversation. Strings come quoted.
type dress struct {
	path, head, tail string
	user             string // text
	calls            string // id, path, id, path
	results          string // id, text, id, text
}

// The shapes whose requests are measured, by the name of their API.
var dresses = map[string]dress{
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

// newTalk writes a conversation of about size bytes in all. What its tools answer is cut from text;
// the stamp is in every id and every answer, so that no two conversations share one.
func newTalk(shape, text string, size int, stamp string) (*talk, error) {
	d, ok := dresses[shape]
	if !ok {
		return nil, fmt.Errorf("there is no shape %s", shape)
	}
	t := &talk{path: d.path, tail: d.tail}
	t.data = fmt.Appendf([]byte(d.head), d.user, quote("Find out why replies are cut, and mend it."))
	each := max(64, (size/talkTurns-len(d.calls)-len(d.results)-120)/2)
	for turn := range talkTurns {
		var calls, results []any
		for n := range 2 {
			id := fmt.Sprintf("call_%s_%d_%d", stamp, turn, n)
			args := quote(map[string]string{"path": fmt.Sprintf("internal/part%d/file%d.go", turn, n)})
			if shape != "messages" {
				args = quote(args) // there it is an object, else its text
			}
			at := (2*turn + n) * 1000 % (len(text) - each)
			// Escapes make a text longer than it is: it is cut again to what it may be.
			calls = append(calls, quote(id), args)
			results = append(results, quote(id), fit(stamp+" "+text[at:at+each], each))
		}
		t.data = fmt.Appendf(fmt.Appendf(t.data, d.calls, calls...), d.results, results...)
		t.ends = append(t.ends, len(t.data))
	}
	return t, nil
}

// fit is a text quoted, and cut so that this takes about size bytes.
func fit(text string, size int) string {
	q := quote(text)
	for len(q) > size+size/50+8 {
		text = strings.ToValidUTF8(text[:len(text)*size/len(q)], "")
		q = quote(text)
	}
	return q
}

// quote is a value in JSON.
func quote[T string | map[string]string](v T) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // a string has a form
	}
	return strings.TrimSuffix(b.String(), "\n")
}
