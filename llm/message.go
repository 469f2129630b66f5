package llm

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Message is one message of a conversation, or one item of a responses input.
type Message struct {
	jsonscan.Span
	Weight int  // its bytes without the parts that clients add and remove between turns
	Spoken bool // by the model or the user, not by a tool
	ByUser bool
	// Prompt is the last text of a user message, as a JSON string. The texts before it are reminders and
	// files that clients add.
	Prompt jsonscan.Span

	Calls   []Call // the model's tool calls
	Results []Result

	ClosesTurn bool // results after it do not belong to the tool turn before it
	JoinsTurn  bool // its calls belong to the tool turn before it if that has no results yet

	Mark CacheMark
}

// Call is a tool call.
type Call struct{ ID, Name Value }

// Result is the result of a tool call.
type Result struct {
	CallID Value
	Name   Value // of the tool; only in shapes with [Wire.ResultsByName]
	Content
	Failed bool // it is marked as an error
	Offset int  // the weight of the message before it
}

// UnnamedCallID is the id of a call that has none: call number index, from 0, of message number message, from 0, of
// tool turn number turn, from 1. No two calls of a conversation have the same.
func UnnamedCallID(name []byte, turn, message, index int) []byte {
	id := append(append([]byte{}, name...), '-')
	id = strconv.AppendInt(id, int64(turn), 10)
	if message > 0 {
		id = strconv.AppendInt(append(id, '.'), int64(message), 10)
	}
	return strconv.AppendInt(append(id, '-'), int64(index), 10)
}

// UnnamedCallIndex is the index of a call in its message, if id may be its [UnnamedCallID].
func UnnamedCallIndex(id string) (int, bool) {
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
	return n, err == nil && n >= 0
}

// CacheMark is the last cache_control of a message.
type CacheMark struct {
	End int // the end of its block; 0: none
	TTL time.Duration
}

// Set records a cache_control on the block that ends at end; 0 is none.
func (m *CacheMark) Set(end int) {
	if end > 0 {
		m.End = end
	}
}

// CacheTTL is the longest TTL that a cache_control, or a value that contains some, asks for; 0: the default.
func CacheTTL(raw []byte) time.Duration {
	if bytes.Contains(raw, []byte(`"1h"`)) {
		return time.Hour
	}
	return 0
}

// Value is a member that is read later: a string, or the span of another value.
type Value struct {
	jsonscan.Span
	Str      jsonscan.Str
	IsString bool
}

// IsList says whether the value is an array.
func (v Value) IsList(body []byte) bool { return v.Len() > 0 && body[v.Start] == '[' }

// The keys that are read. A key that differs from them only by case is refused, because another parser may
// accept it as one of them.
var (
	RequestKeys = []string{"model", "stream", "messages", "input", "tools", "system", "instructions", "cache_control", "prompt_cache_retention"}
	PromptKeys  = []string{"tools", "system", "instructions"}
	MessageKeys = []string{"role", "content", "tool_calls", "tool_call_id", "type", "call_id", "name", "output", "cache_control"}

	cacheKeys = []string{"type", "ttl"}
	blockKeys = []string{"type", "text", "id", "name", "tool_use_id", "content", "is_error", "cache_control"}
)

// Reader reads the values of one request's body.
type Reader struct {
	Body []byte
	// CheckLimit is called before each element of a list is read: many small elements would take many times
	// their bytes.
	CheckLimit func() error
}

// ReadValue reads the value before s.
func ReadValue(s *jsonscan.Scanner) (v Value, err error) {
	if s.Kind() == '"' {
		start := s.Pos()
		v.Str, err = s.Str()
		v.IsString = true
		v.Span = jsonscan.Span{Start: start, End: s.Pos()}
		return v, err
	}
	v.Span, err = s.Skip()
	return v, err
}

// Text is the decoded text of a string; nil for any other value.
func (r *Reader) Text(v Value) []byte {
	raw := v.Str.Of(r.Body)
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return jsonscan.AppendDecoded(nil, raw)
}

// Each calls read for every element of an array. Another value has none.
func (r *Reader) Each(span jsonscan.Span, read func(s *jsonscan.Scanner) error) error {
	if span.Len() == 0 || r.Body[span.Start] != '[' {
		return nil
	}
	s := jsonscan.NewAt(r.Body, span.Start, 0, 0)
	return s.Array(func() error {
		if err := r.CheckLimit(); err != nil {
			return err
		}
		return read(s)
	})
}

// Object reads the object before s and calls member for each key and value. Another value has none.
func (r *Reader) Object(s *jsonscan.Scanner, protocol []string, member func(key []byte, v Value)) (jsonscan.Span, error) {
	if s.Kind() != '{' {
		return s.Skip()
	}
	start := s.Pos()
	err := s.Object(protocol, func(key []byte) error {
		v, err := ReadValue(s)
		if err == nil && string(key) == "cache_control" {
			err = r.CheckCacheControl(v)
		}
		if err == nil {
			member(key, v)
		}
		return err
	})
	return jsonscan.Span{Start: start, End: s.Pos()}, err
}

// CheckCacheControl refuses a cache_control with a duplicate key or a key in other case. It does not check
// nested values: one pass for each level of a deep object would be quadratic.
func (r *Reader) CheckCacheControl(v Value) error {
	s := jsonscan.NewAt(r.Body, v.Start, 0, 0)
	if s.Kind() != '{' {
		return nil
	}
	return s.Object(cacheKeys, func([]byte) error { return nil })
}

// Content is the content of a message or of a tool result.
type Content struct {
	Texts    []jsonscan.Span // raw
	Chars    int             // code points of the texts
	Weight   int
	TextOnly bool
	TextList bool          // a list of only texts, whether or not that is TextOnly
	Last     jsonscan.Span // the last text, as a JSON string
}

// ReadContent reads a content: a string, or a list of blocks. lists says whether a list of only texts is
// TextOnly. end is the end of the last block with a cache_control.
func (r *Reader) ReadContent(v Value, lists bool, mark *CacheMark) (c Content, end int, err error) {
	if v.IsString {
		return Content{Texts: []jsonscan.Span{v.Str.Span}, Chars: v.Str.Chars, Weight: v.Str.Len(), TextOnly: true, Last: v.Span}, 0, nil
	}
	if !v.IsList(r.Body) {
		return Content{Weight: v.Len()}, 0, nil
	}
	c.TextOnly, c.TextList = lists, true
	err = r.Each(v.Span, func(s *jsonscan.Scanner) error {
		b, err := r.ReadBlock(s, mark)
		if b.Cached {
			end = b.End
		}
		c.Weight += b.Weight()
		if b.Body.IsString {
			c.Last = b.Body.Span
		}
		if !b.IsText() {
			c.TextOnly, c.TextList = false, false
			return err
		}
		c.Texts = append(c.Texts, b.Body.Str.Span)
		c.Chars += b.Body.Str.Chars
		return err
	})
	return c, end, err
}

// Block is one block of a list of content.
type Block struct {
	jsonscan.Span
	Type       []byte
	Body       Value // text
	ID         Value
	Name       Value
	ToolUseID  Value
	Content    Value
	Failed     bool // is_error
	Cached     bool
	CacheBytes int // of its cache_control
}

// ReadBlock reads the block before s. The TTL of its cache_control goes to mark.
func (r *Reader) ReadBlock(s *jsonscan.Scanner, mark *CacheMark) (b Block, err error) {
	b.Span, err = r.Object(s, blockKeys, func(key []byte, v Value) {
		switch string(key) {
		case "type":
			b.Type = r.Text(v)
		case "text":
			b.Body = v
		case "id":
			b.ID = v
		case "name":
			b.Name = v
		case "tool_use_id":
			b.ToolUseID = v
		case "content":
			b.Content = v
		case "is_error":
			b.Failed = r.Body[v.Start] == 't'
		case "cache_control":
			b.Cached = r.Body[v.Start] != 'n'
			mark.TTL = max(mark.TTL, CacheTTL(v.Of(r.Body)))
			b.CacheBytes = CacheControlLen(v)
		}
	})
	return b, err
}

// CacheControlLen is the length in bytes of a member cache_control.
func CacheControlLen(v Value) int { return len(`,"cache_control":`) + v.Len() }

// IsText says whether the block is text.
func (b *Block) IsText() bool {
	switch string(b.Type) {
	case "text", "input_text", "output_text":
		return b.Body.IsString
	}
	return false
}

// Weight is the length of a block's text as if it were a plain string, because clients turn a string into a
// list and back when they move a cache_control. Thinking has no weight, because clients drop it at any time.
func (b *Block) Weight() int {
	switch {
	case b.IsText():
		return b.Body.Str.Len()
	case string(b.Type) == "thinking" || string(b.Type) == "redacted_thinking":
		return 0
	}
	return b.Len() - b.CacheBytes
}

var errFound = errors.New("found")

// FindArguments finds a call by its member id in the list under key in a message.
func FindArguments(body []byte, message jsonscan.Span, key, callID string, limit int) (args []byte, found bool) {
	fields, err := jsonscan.ReadFields(body, message)
	calls, ok := fields.Field(key)
	if err != nil || !ok || body[calls.Value.Start] != '[' {
		return nil, false
	}
	_ = jsonscan.EachElement(body, calls.Value, func(s jsonscan.Span) error {
		call, err := jsonscan.ReadFields(body, s)
		if err != nil || call.Text("id") != callID {
			return err
		}
		for _, inner := range []string{"function", "custom"} {
			if f, ok := call.Field(inner); ok {
				call, err = jsonscan.ReadFields(body, f.Value)
			}
		}
		args, found = ArgumentsOf(call, limit), true
		return errors.Join(err, errFound)
	})
	return args, found
}

// ArgumentsOf returns the arguments of a call; nil if they are longer than limit.
func ArgumentsOf(call jsonscan.Fields, limit int) []byte {
	for _, key := range []string{"arguments", "input"} {
		raw, ok := call.Get(key)
		switch {
		case !ok || len(raw) > limit:
		case raw[0] == '"':
			return jsonscan.AppendDecoded(nil, raw[1:len(raw)-1])
		default:
			return raw
		}
	}
	return nil
}

// NestedToolName is the name of a tool, in its member function if it has one.
func NestedToolName(body []byte, tool jsonscan.Span) string {
	fields, err := jsonscan.ReadFields(body, tool)
	if err != nil {
		return ""
	}
	if f, ok := fields.Field("function"); ok {
		if fields, err = jsonscan.ReadFields(body, f.Value); err != nil {
			return ""
		}
	}
	return fields.Text("name")
}

// DigestFields writes to d the members of a message that do not change when a client sends it again: not its
// cache_control, nor thinking. A string equals a list of one text. beside says that the message's own texts
// stand beside results; they are left out, because clients add and remove reminders there.
func DigestFields(d Digest, body []byte, message jsonscan.Span, beside bool) {
	fields, err := jsonscan.ReadFields(body, message)
	if err != nil || fields.Text("type") == "reasoning" {
		return
	}
	d.Part("message", nil)
	for _, f := range fields.All() {
		switch f.Key {
		case "role", "tool_calls", "tool_call_id", "type", "call_id", "name", "arguments":
			d.Value(f.Key, f.Value.Of(body))
		case "content", "output":
			digestContent(d, body, f.Value, beside)
		}
	}
}

func digestContent(d Digest, body []byte, span jsonscan.Span, beside bool) {
	if body[span.Start] != '[' {
		d.Value("text", span.Of(body))
		return
	}
	_ = jsonscan.EachElement(body, span, func(s jsonscan.Span) error {
		fields, err := jsonscan.ReadFields(body, s)
		if err != nil {
			return err
		}
		switch kind := fields.Text("type"); kind {
		case "thinking", "redacted_thinking":
			return nil
		case "text", "input_text", "output_text":
			if f, ok := fields.Field("text"); ok && !beside {
				d.Value("text", f.Value.Of(body))
			}
			return nil
		default:
			d.Part("block", []byte(kind))
		}
		for _, f := range fields.All() {
			switch f.Key {
			case "type", "cache_control":
			case "content":
				digestContent(d, body, f.Value, false)
			default:
				d.Value(f.Key, f.Value.Of(body))
			}
		}
		return nil
	})
}
