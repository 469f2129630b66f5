package llmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// dialogue is the growing body of an agent's requests. What was said once is never written anew.
type dialogue struct {
	player Player
	head   string   // all before the list of messages
	said   []string // messages or items
	users  []int    // which of said may carry a breakpoint
	marked map[int]string
}

const (
	mark     = `,"cache_control":{"type":"ephemeral"}`
	hourMark = `,"cache_control":{"type":"ephemeral","ttl":"1h"}`
)

func newDialogue(p Player, t Trajectory) *dialogue {
	d := &dialogue{player: p, marked: map[int]string{}}
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
	case Messages:
		d.head = fmt.Sprintf(`{"model":%s,"max_tokens":8192%s%s,"tools":%s,"system":[{"type":"text","text":%s%s}],"messages":[`,
			model, stream, thinking(t), list, system, d.markIf(p.Marks != Unmarked))
		d.user(fmt.Sprintf(`{"type":"text","text":%s`, task))
	case Responses:
		d.head = fmt.Sprintf(`{"model":%s%s,"store":false,"instructions":%s,"tools":%s,"input":[`, model, stream, system, list)
		d.say(`{"type":"message","role":"user","content":[{"type":"input_text","text":%s}]}`, task)
	default:
		if p.Stream {
			stream += `,"stream_options":{"include_usage":true}`
		}
		d.head = fmt.Sprintf(`{"model":%s%s,"tools":%s,"messages":[`, model, stream, list)
		d.say(`{"role":"system","content":%s}`, system)
		d.say(`{"role":"user","content":%s}`, task)
	}
	return d
}

func quote(s string) string { return string(encode(s)) }

func (d *dialogue) markIf(yes bool) string {
	switch {
	case yes && d.player.Marks == Hourly:
		return hourMark
	case yes:
		return mark
	}
	return ""
}

// thinking is the setting that a trajectory needs whose model thinks.
func thinking(t Trajectory) string {
	if len(t.Turns) > 0 && t.Turns[0].Think != "" {
		return `,"thinking":{"type":"enabled","budget_tokens":2048}`
	}
	return ""
}

func toolJSON(s Shape, t Tool) string {
	name, about := quote(t.Name), quote(t.Description)
	switch s {
	case Messages:
		return fmt.Sprintf(`{"name":%s,"description":%s,"input_schema":%s}`, name, about, t.Schema)
	case Responses:
		return fmt.Sprintf(`{"type":"function","name":%s,"description":%s,"parameters":%s,"strict":false}`, name, about, t.Schema)
	}
	return fmt.Sprintf(`{"type":"function","function":{"name":%s,"description":%s,"parameters":%s}}`, name, about, t.Schema)
}

func (d *dialogue) say(format string, args ...any) {
	d.said = append(d.said, fmt.Sprintf(format, args...))
}

// user says a message of the user in the shape of messages; its last block is still open, so that a
// breakpoint may be put there.
func (d *dialogue) user(blocks ...string) {
	open := `{"role":"user","content":[` + strings.Join(blocks, "},")
	d.users = append(d.users, len(d.said))
	d.marked[len(d.said)] = open + d.markIf(true) + "}]}"
	d.said = append(d.said, open+"}]}")
}

// body is the request for the next turn.
func (d *dialogue) body() []byte {
	size := len(d.head) + 2
	for _, s := range d.said {
		size += len(s) + len(hourMark) + 1
	}
	b := bytes.NewBuffer(make([]byte, 0, size))
	b.WriteString(d.head)
	from := len(d.said)
	if n := len(d.users); n > 0 && (d.player.Marks == Rolling || d.player.Marks == Hourly) {
		from = d.users[max(n-2, 0)]
	}
	for i, s := range d.said {
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

// add goes on by one turn: what the model said, what the tools answered, what the user said.
func (d *dialogue) add(t Turn) {
	switch d.player.Shape {
	case Messages:
		d.addMessages(t)
	case Responses:
		d.addResponses(t)
	default:
		d.addChat(t)
	}
}

func (d *dialogue) addChat(t Turn) {
	content := "null"
	if t.Say != "" {
		content = quote(t.Say)
	}
	var calls []string
	for _, u := range t.Uses {
		calls = append(calls, fmt.Sprintf(`{"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}`, quote(u.ID), quote(u.Name), quote(u.Args)))
	}
	d.say(`{"role":"assistant","content":%s,"tool_calls":[%s]}`, content, strings.Join(calls, ","))
	for _, u := range t.Uses {
		d.say(`{"role":"tool","tool_call_id":%s,"content":%s}`, quote(u.ID), quote(u.Result))
	}
	if t.User != "" {
		d.say(`{"role":"user","content":%s}`, quote(t.User))
	}
}

func (d *dialogue) addMessages(t Turn) {
	var blocks, results []string
	if t.Think != "" {
		blocks = append(blocks, fmt.Sprintf(`{"type":"thinking","thinking":%s,"signature":%s}`, quote(t.Think), quote(signature(t.Think))))
	}
	if t.Say != "" {
		blocks = append(blocks, fmt.Sprintf(`{"type":"text","text":%s}`, quote(t.Say)))
	}
	for _, u := range t.Uses {
		blocks = append(blocks, fmt.Sprintf(`{"type":"tool_use","id":%s,"name":%s,"input":%s}`, quote(u.ID), quote(u.Name), json.RawMessage(u.Args)))
		failed := ""
		if u.Failed {
			failed = `,"is_error":true`
		}
		results = append(results, fmt.Sprintf(`{"type":"tool_result","tool_use_id":%s,"content":%s%s`, quote(u.ID), quote(u.Result), failed))
	}
	if t.User != "" {
		results = append(results, fmt.Sprintf(`{"type":"text","text":%s`, quote(t.User)))
	}
	d.say(`{"role":"assistant","content":[%s]}`, strings.Join(blocks, ","))
	d.user(results...)
}

func (d *dialogue) addResponses(t Turn) {
	n := len(d.said)
	if t.Think != "" {
		d.say(`{"type":"reasoning","id":"rs_%06d","summary":[{"type":"summary_text","text":%s}]}`, n, quote(t.Think))
	}
	if t.Say != "" {
		d.say(`{"type":"message","id":"msg_%06d","status":"completed","role":"assistant","content":[{"type":"output_text","text":%s,"annotations":[]}]}`, n, quote(t.Say))
	}
	for _, u := range t.Uses {
		d.say(`{"type":"function_call","call_id":%s,"name":%s,"arguments":%s}`, quote(u.ID), quote(u.Name), quote(u.Args))
	}
	for _, u := range t.Uses {
		d.say(`{"type":"function_call_output","call_id":%s,"output":%s}`, quote(u.ID), quote(u.Result))
	}
	if t.User != "" {
		d.say(`{"type":"message","role":"user","content":[{"type":"input_text","text":%s}]}`, quote(t.User))
	}
}
