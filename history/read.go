package history

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Read reads a request. It refuses what is not strict JSON nested at most maxDepth deep, a key
// that comes twice or in other letters in any object it looks into, and messages that are none.
func Read(shape Shape, body []byte, maxDepth int) (*Dialogue, error) {
	r := reader{d: &Dialogue{Shape: shape, Breakpoint: -1, body: body}, body: body, ids: map[string]int{}}
	list, err := r.request(maxDepth)
	if err != nil {
		return nil, fmt.Errorf("reading a %s request: %w", shape, err)
	}
	if err := r.list(list, r.shaped()); err != nil {
		return nil, fmt.Errorf("reading a %s request: message %d: %w", shape, len(r.d.Messages), err)
	}
	r.finish()
	return r.d, nil
}

func (r *reader) shaped() func(at int) (end int, err error) {
	switch r.d.Shape {
	case Messages:
		return r.messages
	case Responses:
		return r.item
	default:
		return r.chat
	}
}

// The keys that are read. One in other letters is refused: another parser may take it for these.
var (
	requestKeys  = []string{"model", "stream", "messages", "input", "tools", "system", "instructions", "cache_control", "prompt_cache_retention"}
	messageKeys  = []string{"role", "content", "tool_calls", "tool_call_id", "type", "call_id", "name", "output", "cache_control"}
	callKeys     = []string{"id", "function", "custom"}
	functionKeys = []string{"name"}
	blockKeys    = []string{"type", "text", "id", "name", "tool_use_id", "content", "is_error", "cache_control"}
)

type reader struct {
	d    *Dialogue
	body []byte

	ids   map[string]int // numbers of call ids
	calls []call         // by number
	total int            // what the messages so far weigh
	open  bool           // only results have come since the last turn began

	trails bool // the request as a whole has a cache_control
}

// call is what is known of a call's id.
type call struct {
	id   string
	name string
	turn int // the last one that names it, -1 for none yet
}

// value is a member that is read later: a string, or the span of something else.
type value struct {
	jsonscan.Span
	str   jsonscan.Str
	isStr bool
}

func (v value) list(body []byte) bool { return v.Len() > 0 && body[v.Start] == '[' }

// request reads the top: where the messages are, and what is around them.
func (r *reader) request(maxDepth int) (list jsonscan.Span, err error) {
	s := jsonscan.New(r.body, maxDepth)
	found := false
	err = s.Object(requestKeys, func(key []byte) error {
		kind := s.Kind()
		v, err := r.value(s, 0)
		if err != nil {
			return err
		}
		switch string(key) {
		case "model":
			r.d.Model = string(r.text(v))
		case "stream":
			r.d.Stream = kind == 't'
		case "tools", "system", "instructions":
			r.d.base += v.Len()
			r.d.front = append(r.d.front, v.Span)
			if string(key) == "tools" && v.list(r.body) {
				r.d.tools = v.Span
			}
			r.d.lasting(v.Of(r.body))
		case "cache_control": // on the last block, wherever that is
			r.trails = r.d.Shape == Messages && kind == '{'
			r.d.lasting(v.Of(r.body))
		case "prompt_cache_retention":
			if string(r.text(v)) == "24h" {
				r.d.Lasts = max(r.d.Lasts, 24*time.Hour)
			}
		case "messages", "input":
			if (string(key) == "input") == (r.d.Shape == Responses) {
				list = v.Span
				found = v.list(r.body) || v.isStr && r.d.Shape == Responses
			}
		}
		return nil
	})
	if err == nil {
		err = s.End()
	}
	if err == nil && !found {
		err = errNoMessages
	}
	return list, err
}

// value passes the value before s, which reads the body from offset at.
func (r *reader) value(s *jsonscan.Scanner, at int) (v value, err error) {
	if s.Kind() == '"' {
		start := s.Pos() + at
		v.str, err = s.Str()
		v.str.Start += at
		v.str.End += at
		v.isStr = true
		v.Span = jsonscan.Span{Start: start, End: s.Pos() + at}
		return v, err
	}
	v.Span, err = s.Skip()
	v.Start += at
	v.End += at
	return v, err
}

// text is a string's text, and nothing of any other value.
func (r *reader) text(v value) []byte {
	raw := v.str.Of(r.body)
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return jsonscan.AppendText(nil, raw)
}

// list walks an array that has been scanned: each reads the element at an offset and says where
// it ends. What is no array has no elements.
func (r *reader) list(span jsonscan.Span, each func(at int) (end int, err error)) error {
	if span.Len() == 0 || r.body[span.Start] != '[' {
		return nil
	}
	for at := r.space(span.Start + 1); r.body[at] != ']'; {
		end, err := each(at)
		if err != nil {
			return err
		}
		if at = r.space(end); r.body[at] == ',' {
			at = r.space(at + 1)
		}
	}
	return nil
}

func (r *reader) space(at int) int {
	for r.body[at] <= ' ' {
		at++
	}
	return at
}

// object reads the object at an offset: member gets each key and value.
func (r *reader) object(at int, protocol []string, member func(key []byte, v value)) (jsonscan.Span, error) {
	s := jsonscan.New(r.body[at:], 0)
	if s.Kind() != '{' {
		_, err := s.Skip()
		return jsonscan.Span{Start: at, End: at + s.Pos()}, err
	}
	err := s.Object(protocol, func(key []byte) error {
		v, err := r.value(s, at)
		if err == nil {
			member(key, v)
		}
		return err
	})
	return jsonscan.Span{Start: at, End: at + s.Pos()}, err
}

// number is the number of a call's id.
func (r *reader) number(id []byte) int {
	if n, ok := r.ids[string(id)]; ok {
		return n
	}
	c := call{id: string(id), turn: -1}
	r.ids[c.id] = len(r.calls)
	r.calls = append(r.calls, c)
	return len(r.calls) - 1
}

// message ends a message: it weighs so much, and is said by the model or the user, or not.
func (r *reader) message(span jsonscan.Span, weight int, spoken bool) {
	r.d.Messages = append(r.d.Messages, Message{Span: span, Bytes: weight, spoken: spoken})
	r.total += weight
}

// begin starts a turn with the message that is being read.
func (r *reader) begin() {
	at := len(r.d.Messages)
	r.d.Turns = append(r.d.Turns, Turn{Message: at, End: at + 1})
	r.open = true
}

// extend makes the message that is being read part of the last turn, if that is still open.
func (r *reader) extend() {
	if r.open {
		r.d.Turns[len(r.d.Turns)-1].End = len(r.d.Messages) + 1
	}
}

// called notes a call of the last turn.
func (r *reader) called(id, name value) {
	c := &r.calls[r.number(r.text(id))]
	c.turn = len(r.d.Turns) - 1
	if text := r.text(name); len(text) > 0 && string(text) != c.name {
		c.name = string(text)
	}
}

// answered notes a result that begins so many bytes into the message that is being read.
func (r *reader) answered(id value, content texts, inside int) {
	res := Result{
		Message: len(r.d.Messages), Turn: -1, Name: Unknown, call: -1,
		Chars: content.chars, Texts: content.spans, Maskable: content.plain && len(content.spans) > 0,
		bytes: content.weight, before: r.total + inside, since: len(r.d.Turns) - 1,
	}
	if !r.open {
		res.since++ // it came late, and is surely there only when the next turn is
	}
	if text := r.text(id); len(text) > 0 {
		res.call = r.number(text)
		c := r.calls[res.call]
		res.CallID, res.Turn = c.id, c.turn
		if c.name != "" {
			res.Name = c.name
		}
	}
	if content.failed {
		res.failed = isError
	}
	r.d.Results = append(r.d.Results, res)
	r.extend()
}

// texts is the content of a result.
type texts struct {
	spans  []jsonscan.Span
	chars  int
	weight int
	plain  bool // nothing but text
	failed bool // it says so itself
}

// content reads what a result holds: a string, or a list of blocks of which some may be text.
// It says where the last of those blocks ends that carries a cache_control.
func (r *reader) content(v value, lists bool) (c texts, edge int, err error) {
	if v.isStr {
		return texts{spans: []jsonscan.Span{v.str.Span}, chars: v.str.Chars, weight: v.str.Len(), plain: true}, 0, nil
	}
	if !v.list(r.body) {
		return texts{weight: v.Len()}, 0, nil
	}
	c.plain = lists
	err = r.list(v.Span, func(at int) (int, error) {
		b, err := r.block(at)
		if b.cached {
			edge = b.End
		}
		c.weight += b.weight()
		if !b.isText() {
			c.plain = false
			return b.End, err
		}
		c.spans = append(c.spans, b.text.str.Span)
		c.chars += b.text.str.Chars
		return b.End, err
	})
	return c, edge, err
}

// block is one block of a list of content.
type block struct {
	jsonscan.Span
	kind    []byte
	text    value
	id      value
	name    value
	of      value // tool_use_id
	content value
	failed  bool // is_error
	cached  bool
	extra   int // bytes of cache_control
}

func (r *reader) block(at int) (b block, err error) {
	b.Span, err = r.object(at, blockKeys, func(key []byte, v value) {
		switch string(key) {
		case "type":
			b.kind = r.text(v)
		case "text":
			b.text = v
		case "id":
			b.id = v
		case "name":
			b.name = v
		case "tool_use_id":
			b.of = v
		case "content":
			b.content = v
		case "is_error":
			b.failed = r.body[v.Start] == 't'
		case "cache_control":
			b.cached = r.body[v.Start] != 'n'
			r.d.lasting(v.Of(r.body))
			b.extra = len(`,"cache_control":`) + v.Len()
		}
	})
	return b, err
}

func (b block) isText() bool {
	switch string(b.kind) {
	case "text", "input_text", "output_text":
		return b.text.isStr
	}
	return false
}

// weight is a block's text, as if it stood alone: clients make a list of a string, and back,
// when they move a cache_control. They drop old thinking when they please, so it weighs nothing.
func (b block) weight() int {
	switch {
	case b.isText():
		return b.text.str.Len()
	case string(b.kind) == "thinking" || string(b.kind) == "redacted_thinking":
		return 0
	}
	return b.Len() - b.extra
}

// finish fills in what only the whole conversation knows.
func (r *reader) finish() {
	if last := len(r.d.Messages) - 1; r.trails && last >= 0 {
		r.d.Breakpoint, r.d.edge = last, r.d.Messages[last].End
	}
	for i := range r.d.Results {
		res := &r.d.Results[i]
		res.last, res.label = -1, Unknown
		if res.call < 0 {
			continue
		}
		c := r.calls[res.call]
		res.last = c.turn
		if c.name != "" {
			res.label = c.name
		}
	}
}

// breakAt notes a cache_control in the message that is being read, on what ends at edge.
func (r *reader) breakAt(edge int) {
	if edge > 0 {
		r.d.Breakpoint, r.d.edge = len(r.d.Messages), edge
	}
}
