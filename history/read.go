package history

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Read reads a request. It refuses what is not strict JSON nested at most maxDepth deep, a key
// that comes twice or in other letters in any object it looks into, and messages that are none.
func Read(shape Shape, body []byte, maxDepth int) (*Dialogue, error) {
	return newReader(shape, body).read(maxDepth)
}

func newReader(shape Shape, body []byte) *reader {
	return &reader{d: &Dialogue{Shape: shape, Breakpoint: -1, body: body}, body: body, ids: map[string]int{}}
}

func (r *reader) read(maxDepth int) (*Dialogue, error) {
	s := jsonscan.New(r.body, maxDepth)
	return r.end(s, s.Object(requestKeys, r.member(s)))
}

// end is the conversation, if the request ends as it should.
func (r *reader) end(s *jsonscan.Scanner, err error) (*Dialogue, error) {
	if err == nil {
		err = s.End()
	}
	if err == nil && !r.found {
		err = errNoMessages
	}
	switch {
	case err != nil && r.inside:
		return nil, fmt.Errorf("reading a %s request: message %d: %w", r.d.Shape, len(r.d.Messages), err)
	case err != nil:
		return nil, fmt.Errorf("reading a %s request: %w", r.d.Shape, err)
	}
	r.finish()
	return r.d, nil
}

// The keys that are read. One in other letters is refused: another parser may take it for these.
var (
	requestKeys  = []string{"model", "stream", "messages", "input", "tools", "system", "instructions", "cache_control", "prompt_cache_retention"}
	messageKeys  = []string{"role", "content", "tool_calls", "tool_call_id", "type", "call_id", "name", "output", "cache_control"}
	callKeys     = []string{"id", "function", "custom"}
	functionKeys = []string{"name"}
	cacheKeys    = []string{"type", "ttl"}
	blockKeys    = []string{"type", "text", "id", "name", "tool_use_id", "content", "is_error", "cache_control"}
)

type reader struct {
	d    *Dialogue
	body []byte

	ids    map[string]int // numbers of call ids
	calls  []call         // by number
	log    []naming       // every time one was named
	total  int            // what the messages so far weigh
	bare   int            // bytes of them that weigh nothing
	open   bool           // only results have come since the last turn began
	mark   mark           // of the message that is being read
	shared int            // turns that are an earlier request's too
	old    int            // results that are an earlier request's too
	done   int            // results whose call is known; 0 when one may have been named again since

	keys     []string      // of the request so far
	found    bool          // there are messages
	inside   bool          // they are being read
	trails   bool          // the request as a whole has a cache_control
	lasted   time.Duration // Lasts before the first message
	trailing time.Duration // what the cache_control of the whole asks

	stands *standing // nil where nobody remembers it

	memory  *membudget.Scope // what is found in the request is charged to it
	charged int              // parts that are
}

const (
	maxParts     = 50_000  // messages, calls and results that a request may have
	partBytes    = 1 << 10 // about what one of them takes in memory
	partsAtATime = 512
)

// bounded is asked before each part of a request is read. A request of many small ones would take
// many times its bytes.
func (r *reader) bounded() error {
	parts := len(r.d.Messages) + len(r.d.Results) + len(r.log) + len(r.keys)
	if parts > maxParts {
		return errTooMany
	}
	if parts < r.charged+partsAtATime {
		return nil
	}
	r.charged = parts
	return r.memory.Take(partsAtATime * partBytes)
}

// call is what is known of a call's id.
type call struct {
	id   string
	name string
	turn int // the last one that names it, -1 for none yet
}

// naming is a call of a message.
type naming struct {
	message, number int
	name            string // "" where it has none
	turn            int
}

func (n naming) apply(c *call) {
	if c.turn = n.turn; n.name != "" {
		c.name = n.name
	}
}

// value is a member that is read later: a string, or the span of something else.
type value struct {
	jsonscan.Span
	str   jsonscan.Str
	isStr bool
}

func (v value) list(body []byte) bool { return v.Len() > 0 && body[v.Start] == '[' }

// member reads what is at the top: the messages, and what is around them.
func (r *reader) member(s *jsonscan.Scanner) func(key []byte) error {
	return func(key []byte) error {
		if err := r.bounded(); err != nil {
			return err
		}
		r.keys = append(r.keys, string(key))
		if list := string(key) == "input"; (list || string(key) == "messages") && list == (r.d.Shape == Responses) {
			return r.list(s)
		}
		kind := s.Kind()
		v, err := r.value(s)
		if err != nil {
			return err
		}
		switch string(key) {
		case "model":
			if !v.isStr && kind != 'n' {
				return errNoModel
			}
			r.d.Model = string(r.text(v))
		case "stream":
			r.d.Stream = kind == 't'
		case "tools", "system", "instructions":
			r.d.base += v.Len()
			r.d.front = append(r.d.front, v.Span)
			if string(key) == "tools" && v.list(r.body) {
				r.d.tools = v.Span
			}
			r.d.Lasts = max(r.d.Lasts, lasting(v.Of(r.body)))
		case "cache_control": // on the last block, wherever that is
			if err := r.distinct(v, cacheKeys); err != nil {
				return err
			}
			r.trails = r.d.Shape == Messages && kind == '{'
			r.trailing = lasting(v.Of(r.body))
			r.d.Lasts = max(r.d.Lasts, r.trailing)
		case "prompt_cache_retention":
			if string(r.text(v)) == "24h" {
				r.d.Lasts = max(r.d.Lasts, 24*time.Hour)
			}
		default:
			r.d.others = append(r.d.others, jsonscan.Field{Key: string(key), Value: v.Span})
		}
		return nil
	}
}

// list reads the messages. An input may be a string: then there are none.
func (r *reader) list(s *jsonscan.Scanner) error {
	if s.Kind() != '[' {
		r.found = s.Kind() == '"' && r.d.Shape == Responses
		return nil
	}
	r.found, r.inside, r.lasted = true, true, r.d.Lasts
	if err := s.Array(r.element(s)); err != nil {
		return err
	}
	r.listed()
	return nil
}

// listed is called where the messages end, before what stands behind them is read.
func (r *reader) listed() {
	r.inside = false
	r.stand()
}

// element reads one message.
func (r *reader) element(s *jsonscan.Scanner) func() error {
	read := r.chat
	switch r.d.Shape {
	case Messages:
		read = r.messages
	case Responses:
		read = r.item
	}
	return func() error {
		if err := r.bounded(); err != nil {
			return err
		}
		if s.Kind() != '{' {
			if _, err := s.Skip(); err != nil {
				return err
			}
			return errNoObject
		}
		return read(s)
	}
}

// value passes the value before s.
func (r *reader) value(s *jsonscan.Scanner) (v value, err error) {
	if s.Kind() == '"' {
		start := s.Pos()
		v.str, err = s.Str()
		v.isStr = true
		v.Span = jsonscan.Span{Start: start, End: s.Pos()}
		return v, err
	}
	v.Span, err = s.Skip()
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

// each has a second look at a list: at every element that is there. What is no list has none.
func (r *reader) each(span jsonscan.Span, look func(s *jsonscan.Scanner) error) error {
	if span.Len() == 0 || r.body[span.Start] != '[' {
		return nil
	}
	s := jsonscan.Inside(r.body, span.Start, 0, 0)
	return s.Array(func() error {
		if err := r.bounded(); err != nil {
			return err
		}
		return look(s)
	})
}

// object reads the object before s: member gets each key and value. What is no object has none.
func (r *reader) object(s *jsonscan.Scanner, protocol []string, member func(key []byte, v value)) (jsonscan.Span, error) {
	if s.Kind() != '{' {
		return s.Skip()
	}
	start := s.Pos()
	err := s.Object(protocol, func(key []byte) error {
		v, err := r.value(s)
		if err == nil && string(key) == "cache_control" {
			err = r.distinct(v, cacheKeys)
		}
		if err == nil {
			member(key, v)
		}
		return err
	})
	return jsonscan.Span{Start: start, End: s.Pos()}, err
}

// distinct refuses an object in which a key comes twice, or one of those in other letters. What is inside
// of its values is not looked at: one look for each level of a deep object would be quadratic.
func (r *reader) distinct(v value, protocol []string) error {
	s := jsonscan.Inside(r.body, v.Start, 0, 0)
	if s.Kind() != '{' {
		return nil
	}
	return s.Object(protocol, func([]byte) error { return nil })
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
	if r.mark.edge > 0 {
		r.d.Breakpoint, r.d.edge = len(r.d.Messages), r.mark.edge
	}
	r.d.Lasts = max(r.d.Lasts, r.mark.lasts)
	r.total += weight
	r.bare += span.Len() - weight
	r.d.Messages = append(r.d.Messages, Message{Span: span, Bytes: weight, total: r.total, bare: r.bare, spoken: spoken, open: r.open, mark: r.mark})
	r.mark = mark{}
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
		if len(r.d.Turns) <= r.shared {
			r.ownTurns()
		}
		r.d.Turns[len(r.d.Turns)-1].End = len(r.d.Messages) + 1
	}
}

// ownTurns makes the turns the reader's own, so that one of them can be changed.
func (r *reader) ownTurns() { r.d.Turns, r.shared = slices.Clone(r.d.Turns), 0 }

// called notes a call of the last turn.
func (r *reader) called(id, name value) {
	known := len(r.calls)
	n := naming{message: len(r.d.Messages), number: r.number(r.text(id)), turn: len(r.d.Turns) - 1}
	if n.number < known {
		r.done = 0
	}
	c := &r.calls[n.number]
	if text := r.text(name); string(text) == c.name {
		n.name = c.name
	} else {
		n.name = string(text)
	}
	n.apply(c)
	r.log = append(r.log, n)
}

// answered notes a result that begins so many bytes into the message that is being read.
func (r *reader) answered(id value, content texts, inside int) {
	res := Result{
		Message: len(r.d.Messages), Turn: -1, Name: Unknown, call: -1,
		Chars: content.chars + max(0, len(content.spans)-1), Texts: content.spans, Maskable: content.plain && len(content.spans) > 0,
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
	if res.marked = content.failed; res.marked {
		res.failed = verdicts{isError, isError}
	}
	r.d.reads = r.d.reads || ReadsBack(res.Name)
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
	err = r.each(v.Span, func(s *jsonscan.Scanner) error {
		b, err := r.block(s)
		if b.cached {
			edge = b.End
		}
		c.weight += b.weight()
		if !b.isText() {
			c.plain = false
			return err
		}
		c.spans = append(c.spans, b.text.str.Span)
		c.chars += b.text.str.Chars
		return err
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

func (r *reader) block(s *jsonscan.Scanner) (b block, err error) {
	b.Span, err = r.object(s, blockKeys, func(key []byte, v value) {
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
			r.mark.lasts = max(r.mark.lasts, lasting(v.Of(r.body)))
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

// finish fills in what only the whole conversation knows: of each result, who named its call last.
func (r *reader) finish() {
	r.d.MarkLasts = 0
	if last := len(r.d.Messages) - 1; r.trails && last >= 0 {
		r.d.Breakpoint, r.d.edge, r.d.MarkLasts = last, r.d.Messages[last].End, r.trailing
	} else if r.d.Breakpoint >= 0 {
		r.d.MarkLasts = r.d.Messages[r.d.Breakpoint].mark.lasts
	}
	for i := r.done; i < len(r.d.Results); i++ {
		res := &r.d.Results[i]
		last, label := -1, Unknown
		if res.call >= 0 {
			c := r.calls[res.call]
			if last = c.turn; c.name != "" {
				label = c.name
			}
		}
		r.d.renamed = r.d.renamed || i < r.old && (res.last != last || res.label != label)
		res.last, res.label = last, label
	}
}

// breakAt notes a cache_control in the message that is being read, on what ends at edge.
func (r *reader) breakAt(edge int) {
	if edge > 0 {
		r.mark.edge = edge
	}
}
