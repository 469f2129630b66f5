package trajectories

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// requestBuilder encodes an agent's requests. Each message is encoded once.
type requestBuilder struct {
	replayer Replayer
	head     string         // everything before the list of messages
	messages []string       // or items
	users    []int          // indices of the messages that may carry a cache breakpoint
	marked   map[int]string // those messages with their breakpoint
}

const (
	mark     = `,"cache_control":{"type":"ephemeral"}`
	hourMark = `,"cache_control":{"type":"ephemeral","ttl":"1h"}`
)

func newRequestBuilder(p Replayer, t Trajectory) *requestBuilder {
	d := &requestBuilder{replayer: p, marked: map[int]string{}}
	stream := ""
	if p.Stream {
		stream = `,"stream":true`
	}
	var tools []string
	for _, tool := range t.Tools {
		tools = append(tools, toolJSON(p.Shape, tool))
	}
	list := "[" + strings.Join(tools, ",") + "]"
	system, task, model := quote(t.System), quote(t.Task), quote(p.Model)
	switch p.Shape {
	case fakeprovider.Messages:
		d.head = fmt.Sprintf(`{"model":%s,"max_tokens":8192%s%s,"tools":%s,"system":[%s{"type":"text","text":%s%s}],"messages":[`,
			model, stream, thinking(t), list, d.firstSystemBlock(), system, d.markIf(p.CacheMarks != MarkNone))
		d.addUser(fmt.Sprintf(`{"type":"text","text":%s`, task))
	case fakeprovider.Responses:
		d.head = fmt.Sprintf(`{"model":%s%s,"store":false,"instructions":%s,"tools":%s,"input":[`, model, stream, system, list)
		d.addMessage(`{"type":"message","role":"user","content":[{"type":"input_text","text":%s}]}`, task)
	case fakeprovider.Gemini:
		d.head = fmt.Sprintf(`{"systemInstruction":{"parts":[{"text":%s}]},"tools":[{"functionDeclarations":%s}],"contents":[`, system, list)
		d.addMessage(`{"role":"user","parts":[{"text":%s}]}`, task)
	default:
		if p.Stream {
			stream += `,"stream_options":{"include_usage":true}`
		}
		d.head = fmt.Sprintf(`{"model":%s%s,"tools":%s,"messages":[`, model, stream, list)
		d.addMessage(`{"role":"system","content":%s}`, system)
		d.addMessage(`{"role":"user","content":%s}`, task)
	}
	return d
}

func quote(s string) string {
	b, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		panic(err) // only valid UTF-8 comes here
	}
	return string(b)
}

func (d *requestBuilder) markIf(isMarked bool) string {
	switch {
	case isMarked && d.replayer.CacheMarks == MarkRolling1h:
		return hourMark
	case isMarked:
		return mark
	}
	return ""
}

// thinking is the request setting for a trajectory with thinking.
func thinking(t Trajectory) string {
	if len(t.Turns) > 0 && t.Turns[0].Thinking != "" {
		return `,"thinking":{"type":"enabled","budget_tokens":2048}`
	}
	return ""
}

func toolJSON(s fakeprovider.Shape, t Tool) string {
	name, about := quote(t.Name), quote(t.Description)
	switch s {
	case fakeprovider.Messages:
		return fmt.Sprintf(`{"name":%s,"description":%s,"input_schema":%s}`, name, about, t.Schema)
	case fakeprovider.Responses:
		return fmt.Sprintf(`{"type":"function","name":%s,"description":%s,"parameters":%s,"strict":false}`, name, about, t.Schema)
	case fakeprovider.Gemini:
		return fmt.Sprintf(`{"name":%s,"description":%s,"parametersJsonSchema":%s}`, name, about, t.Schema)
	}
	return fmt.Sprintf(`{"type":"function","function":{"name":%s,"description":%s,"parameters":%s}}`, name, about, t.Schema)
}

func (d *requestBuilder) addMessage(format string, args ...any) {
	d.messages = append(d.messages, fmt.Sprintf(format, args...))
}

// addUser adds a user message in the messages shape. Its last block comes without its closing brace, so
// that a breakpoint can be appended.
func (d *requestBuilder) addUser(blocks ...string) {
	open := `{"role":"user","content":[` + strings.Join(blocks, "},")
	d.users = append(d.users, len(d.messages))
	d.marked[len(d.messages)] = open + d.markIf(true) + "}]}"
	d.messages = append(d.messages, open+"}]}")
}

// firstSystemBlock is the marked line that Claude Code puts before its system prompt.
func (d *requestBuilder) firstSystemBlock() string {
	if m := d.replayer.CacheMarks; m != MarkLast && m != MarkFour {
		return ""
	}
	return `{"type":"text","text":"You are an agent that works in a terminal."` + mark + `},`
}

// rollingMarks is how many of the last user messages are marked.
func (d *requestBuilder) rollingMarks() int {
	switch d.replayer.CacheMarks {
	case MarkRolling, MarkRolling1h, MarkFour:
		return 2
	case MarkLast:
		return 1
	}
	return 0
}

// body is the request for the next turn.
func (d *requestBuilder) body() []byte {
	size := len(d.head) + 2
	for _, s := range d.messages {
		size += len(s) + len(hourMark) + 1
	}
	b := bytes.NewBuffer(make([]byte, 0, size))
	b.WriteString(d.head)
	from := len(d.messages)
	if last, n := d.rollingMarks(), len(d.users); n > 0 && last > 0 {
		from = d.users[max(n-last, 0)]
	}
	for i, s := range d.messages {
		if i > 0 {
			b.WriteByte(',')
		}
		if m := d.marked[i]; m != "" && i >= from {
			s = m
		}
		b.WriteString(s)
	}
	b.WriteString("]}")
	return b.Bytes()
}

// addTurn adds the model's message, the tools' results and the user's message of a turn.
func (d *requestBuilder) addTurn(t Turn) {
	switch d.replayer.Shape {
	case fakeprovider.Messages:
		d.addMessages(t)
	case fakeprovider.Responses:
		d.addResponses(t)
	case fakeprovider.Gemini:
		d.addGemini(t)
	default:
		d.addChat(t)
	}
}

func (d *requestBuilder) addChat(t Turn) {
	content := "null"
	if t.Text != "" {
		content = quote(t.Text)
	}
	var calls []string
	for _, u := range t.ToolUses {
		calls = append(calls, fmt.Sprintf(`{"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}`, quote(u.ID), quote(u.Name), quote(u.Args)))
	}
	d.addMessage(`{"role":"assistant","content":%s,"tool_calls":[%s]}`, content, strings.Join(calls, ","))
	for _, u := range t.ToolUses {
		d.addMessage(`{"role":"tool","tool_call_id":%s,"content":%s}`, quote(u.ID), quote(u.Result))
	}
	if t.UserMessage != "" {
		d.addMessage(`{"role":"user","content":%s}`, quote(t.UserMessage))
	}
}

func (d *requestBuilder) addMessages(t Turn) {
	var blocks, results []string
	if t.Thinking != "" {
		blocks = append(blocks, fmt.Sprintf(`{"type":"thinking","thinking":%s,"signature":%s}`, quote(t.Thinking), quote(fakeprovider.SignThinking(t.Thinking))))
	}
	if t.Text != "" {
		blocks = append(blocks, fmt.Sprintf(`{"type":"text","text":%s}`, quote(t.Text)))
	}
	for _, u := range t.ToolUses {
		blocks = append(blocks, fmt.Sprintf(`{"type":"tool_use","id":%s,"name":%s,"input":%s}`, quote(u.ID), quote(u.Name), json.RawMessage(u.Args)))
		failed := ""
		if u.IsError {
			failed = `,"is_error":true`
		}
		results = append(results, fmt.Sprintf(`{"type":"tool_result","tool_use_id":%s,"content":%s%s`, quote(u.ID), quote(u.Result), failed))
	}
	if t.UserMessage != "" {
		results = append(results, fmt.Sprintf(`{"type":"text","text":%s`, quote(t.UserMessage)))
	}
	d.addMessage(`{"role":"assistant","content":[%s]}`, strings.Join(blocks, ","))
	d.addUser(results...)
}

func (d *requestBuilder) addResponses(t Turn) {
	n := len(d.messages)
	if t.Thinking != "" {
		d.addMessage(`{"type":"reasoning","id":"rs_%06d","summary":[{"type":"summary_text","text":%s}]}`, n, quote(t.Thinking))
	}
	if t.Text != "" {
		d.addMessage(`{"type":"message","id":"msg_%06d","status":"completed","role":"assistant","content":[{"type":"output_text","text":%s,"annotations":[]}]}`, n, quote(t.Text))
	}
	for _, u := range t.ToolUses {
		d.addMessage(`{"type":"function_call","call_id":%s,"name":%s,"arguments":%s}`, quote(u.ID), quote(u.Name), quote(u.Args))
	}
	for _, u := range t.ToolUses {
		d.addMessage(`{"type":"function_call_output","call_id":%s,"output":%s}`, quote(u.ID), quote(u.Result))
	}
	if t.UserMessage != "" {
		d.addMessage(`{"type":"message","role":"user","content":[{"type":"input_text","text":%s}]}`, quote(t.UserMessage))
	}
}

// addGemini writes calls and results, without ids as models before Gemini 3 do, or with them.
func (d *requestBuilder) addGemini(t Turn) {
	var parts, results []string
	if t.Text != "" {
		parts = append(parts, fmt.Sprintf(`{"text":%s}`, quote(t.Text)))
	}
	for _, u := range t.ToolUses {
		id := ""
		if d.replayer.CallIDs {
			id = `"id":` + quote(u.ID) + `,`
		}
		parts = append(parts, fmt.Sprintf(`{"functionCall":{%s"name":%s,"args":%s}}`, id, quote(u.Name), json.RawMessage(u.Args)))
		key := "output"
		if u.IsError {
			key = "error"
		}
		results = append(results, fmt.Sprintf(`{"functionResponse":{%s"name":%s,"response":{"%s":%s}}}`, id, quote(u.Name), key, quote(u.Result)))
	}
	if t.UserMessage != "" {
		results = append(results, fmt.Sprintf(`{"text":%s}`, quote(t.UserMessage)))
	}
	d.addMessage(`{"role":"model","parts":[%s]}`, strings.Join(parts, ","))
	d.addMessage(`{"role":"user","parts":[%s]}`, strings.Join(results, ","))
}
