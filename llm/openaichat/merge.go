package openaichat

import (
	"bytes"
	"slices"

	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// streamMerger merges the chunks of chat completions. It merges only the first choice, because the tool is not
// offered when a client asks for several.
type streamMerger struct {
	*llm.EventBuffer
	head   [3][]byte    // id, time and model of the first chunk, repeated in all chunks
	spent  []byte       // usage of the earlier rounds
	used   []byte       // usage of the current round
	parts  []llm.Member // the model's output by member of its deltas
	calls  []*call
	count  int    // calls shown to the client in all rounds
	reason string // why the round ended
}

// call is a tool call, collected from its chunks.
type call struct {
	index  int
	id     string
	hidden bool
	shown  int    // its index as the client sees it
	start  []byte // its first entry, without the later arguments
	args   []byte // raw
}

func (c *streamMerger) NextRound() {
	c.spent = llm.SumUsage(c.spent, c.used)
	c.used, c.parts, c.calls, c.reason = nil, nil, nil, ""
}

var (
	headKeys          = []string{"id", "created", "model"}
	chunkKeys         = append(headKeys[:3:3], "choices", "usage", "error")
	choiceKeys        = []string{"index", "delta", "finish_reason"}
	deltaCallKeys     = []string{"index", "id", "function"}
	deltaFunctionKeys = []string{"name", "arguments"}
)

// chunk is one chunk and its changes.
type chunk struct {
	data   []byte
	usage  []byte // raw; nil if there is none
	choice jsonscan.Span
	delta  jsonscan.Span
	reason []byte // raw
	role   bool   // the delta has a role
	calls  [][]byte
	edited bool // the calls were changed
}

func (c *streamMerger) AddEvent(e *sse.RawEvent) {
	if !rawjson.IsObject(e.Data) {
		if done := string(e.Data) == "[DONE]"; done {
			c.Ended = true
		} else if e.Data != nil {
			c.Lost = true
		}
		c.PassOrHold(e)
		return
	}
	k := c.readChunk(e.Data)
	ending := rawjson.IsSet(k.reason)
	if ending && !c.Ended {
		c.Ended, c.reason = true, jsonscan.DecodeString(k.reason)
		if c.HidesCall {
			c.splitLast(e, &k)
			return
		}
	}
	if c.HidesCall && c.Ended {
		c.Hold(e)
		return
	}
	c.passChunk(e, &k)
}

// readChunk reads a chunk.
func (c *streamMerger) readChunk(data []byte) chunk {
	k, at := findChoice(data)
	if len(c.head[0]) == 0 && !rawjson.IsEmpty(at[0].Of(data)) { // Azure starts with a chunk without an id
		for i := range c.head {
			c.head[i] = bytes.Clone(at[i].Of(data))
		}
	}
	if k.usage != nil {
		c.used = bytes.Clone(k.usage)
	}
	if rawjson.IsSet(at[5].Of(data)) {
		c.Lost = true
	}
	if !c.Ended {
		c.readDelta(&k)
	}
	return k
}

// findChoice finds the first choice of a chunk, and the members beside it.
func findChoice(data []byte) (k chunk, at [6]jsonscan.Span) {
	rawjson.FindMembers(data, rawjson.All(data), chunkKeys, at[:])
	k.data = data
	if usage := at[4].Of(data); rawjson.IsSet(usage) {
		k.usage = usage
	}
	_ = jsonscan.EachElement(data, at[3], func(choice jsonscan.Span) error {
		var in [3]jsonscan.Span
		rawjson.FindMembers(data, choice, choiceKeys, in[:])
		if n, _ := rawjson.Int(in[0].Of(data)); n == 0 {
			k.choice, k.delta, k.reason = choice, in[1], in[2].Of(data)
		}
		return nil
	})
	return k, at
}

// readDelta adds a delta to the model's output.
func (c *streamMerger) readDelta(k *chunk) {
	rawjson.EachMember(k.data, k.delta, func(key []byte, value jsonscan.Span) {
		switch string(key) {
		case "role":
			k.role = true
		case "tool_calls":
			_ = jsonscan.EachElement(k.data, value, func(at jsonscan.Span) error {
				c.readCall(k, at)
				return nil
			})
		default:
			c.parts = c.AddDelta(c.parts, key, value.Of(k.data))
		}
	})
}

// readCall reads an entry of a delta's calls, and removes it from the chunk if it is hidden from the client.
func (c *streamMerger) readCall(k *chunk, at jsonscan.Span) {
	var in [3]jsonscan.Span
	var fn [2]jsonscan.Span
	rawjson.FindMembers(k.data, at, deltaCallKeys, in[:])
	rawjson.FindMembers(k.data, in[2], deltaFunctionKeys, fn[:])
	id, name := jsonscan.DecodeString(in[1].Of(k.data)), fn[0].Of(k.data)
	one := c.findCall(in[0].Of(k.data), id, !rawjson.IsEmpty(name))
	if one.start == nil {
		one.id, one.hidden = id, rawjson.IsString(name, recovertool.Name)
		one.start = c.Keep([]byte{}, at.Of(k.data))
		c.assignIndex(one)
	}
	if args := fn[1].Of(k.data); len(args) > 1 && args[0] == '"' {
		one.args = c.Keep(one.args, rawjson.Unwrap(args))
	}
	switch raw := at.Of(k.data); {
	case one.hidden:
		k.edited = true
	case in[0].Len() > 0 && one.shown != one.index:
		k.edited = true
		k.calls = append(k.calls, rawjson.With(raw, jsonscan.Change{Key: "index", Value: rawjson.FromInt(one.shown)}))
	default:
		k.calls = append(k.calls, raw)
	}
}

// findCall returns the call of an entry. Some providers give all calls the same index, or none; then a new call
// is recognized by its id.
func (c *streamMerger) findCall(index []byte, id string, named bool) *call {
	n, ok := rawjson.Int(index)
	for i := len(c.calls) - 1; i >= 0; i-- {
		old := c.calls[i]
		if ok && old.index != n {
			continue
		}
		if fresh := named && id != "" && id != old.id; fresh {
			break
		}
		return old
	}
	c.CheckCount(len(c.calls))
	one := &call{index: n}
	c.calls = append(c.calls, one)
	return one
}

// assignIndex sets the call's index for the client: the original one until a call was hidden.
func (c *streamMerger) assignIndex(one *call) {
	switch {
	case one.hidden:
		c.HidesCall = true
	case c.Round == 0 && !c.HidesCall:
		one.shown = one.index
		c.count = max(c.count, one.index+1)
	default:
		one.shown = c.count
		c.count++
	}
}

// passChunk forwards a chunk that does not end a round with hidden calls.
func (c *streamMerger) passChunk(e *sse.RawEvent, k *chunk) {
	if c.Round == 0 && !k.edited {
		c.Pass(e)
		return
	}
	delta := c.shownDelta(k)
	if emptied := k.edited || k.role; emptied && !hasContent(delta) && !rawjson.IsSet(k.reason) && k.usage == nil {
		c.Drop()
		return
	}
	c.rewrite(e, k, c.totalUsage(k), jsonscan.Change{Key: "delta", Value: delta})
}

// splitLast passes the content of the last chunk of a round with hidden calls, and holds its finish reason.
func (c *streamMerger) splitLast(e *sse.RawEvent, k *chunk) {
	null := []byte("null")
	if delta := c.shownDelta(k); hasContent(delta) {
		var silent []jsonscan.Change
		if k.usage != nil {
			silent = append(silent, jsonscan.Change{Key: "usage", Value: null})
		}
		c.rewrite(e, k, silent, jsonscan.Change{Key: "delta", Value: delta}, jsonscan.Change{Key: "finish_reason", Value: null})
	}
	c.Hold(e)
}

func (c *streamMerger) EndEvent(e *sse.RawEvent) {
	if !rawjson.IsObject(e.Data) {
		c.Pass(e)
		return
	}
	k, _ := findChoice(e.Data)
	var end []jsonscan.Change
	if rawjson.IsSet(k.reason) {
		end = append(end, jsonscan.Change{Key: "delta", Value: []byte("{}")})
		if rawjson.IsString(k.reason, "tool_calls") && !c.hasClientCalls() {
			end = append(end, jsonscan.Change{Key: "finish_reason", Value: []byte(`"stop"`)})
		}
	}
	c.rewrite(e, &k, c.totalUsage(&k), end...)
}

// totalUsage replaces the usage of a chunk by that of all rounds.
func (c *streamMerger) totalUsage(k *chunk) []jsonscan.Change {
	if k.usage == nil || c.spent == nil {
		return nil
	}
	return []jsonscan.Change{{Key: "usage", Value: llm.SumUsage(c.spent, k.usage)}}
}

// shownDelta is the part of the chunk's delta that the client sees.
func (c *streamMerger) shownDelta(k *chunk) []byte {
	var changes []jsonscan.Change
	if k.edited {
		var calls []byte
		if len(k.calls) > 0 {
			calls = rawjson.Array(k.calls...)
		}
		changes = append(changes, jsonscan.Change{Key: "tool_calls", Value: calls})
	}
	if k.role && c.Round > 0 {
		changes = append(changes, jsonscan.Change{Key: "role"})
	}
	return rawjson.With(k.delta.Of(k.data), changes...)
}

// hasContent says whether a delta has a member that is not empty.
func hasContent(delta []byte) bool {
	found := false
	rawjson.EachMember(delta, rawjson.All(delta), func(_ []byte, value jsonscan.Span) { found = found || !rawjson.IsEmpty(value.Of(delta)) })
	return found
}

// rewrite forwards a chunk with changes of the chunk and of its choice. A chunk of a later round gets the id,
// time and model of the first.
func (c *streamMerger) rewrite(e *sse.RawEvent, k *chunk, own []jsonscan.Change, choice ...jsonscan.Change) {
	f, err := jsonscan.FieldsOf(k.data)
	if err != nil {
		c.Pass(e)
		return
	}
	for i, key := range headKeys {
		if _, has := f.Field(key); has && c.Round > 0 && len(c.head[i]) > 0 {
			own = append(own, jsonscan.Change{Key: key, Value: c.head[i]})
		}
	}
	edits := f.Edits(own...)
	if k.choice.Len() > 0 && k.delta.Len() > 0 {
		text := rawjson.With(k.choice.Of(k.data), choice...)
		edits = jsonscan.MergeEdits(edits, []jsonscan.Edit{{Span: k.choice, Text: text}})
	}
	c.PassWith(e, jsonscan.AppendSpliced(nil, k.data, edits))
}

// hasClientCalls says whether the round has calls for the client to answer.
func (c *streamMerger) hasClientCalls() bool {
	return slices.ContainsFunc(c.calls, func(one *call) bool { return !one.hidden })
}

func (c *streamMerger) Said() *llm.Round {
	message := []byte(`{"role":"assistant","content":null}`)
	changes, r := c.members()
	var calls [][]byte
	for _, one := range c.calls {
		calls = append(calls, one.rawCall())
	}
	message = rawjson.With(message, append(changes, jsonscan.Change{Key: "tool_calls", Value: rawjson.Array(calls...)})...)
	r.Said = message
	return newRound(r, calls, c.reason)
}

// members returns the model's output other than its calls.
func (c *streamMerger) members() ([]jsonscan.Change, llm.Round) {
	var r llm.Round
	var changes []jsonscan.Change
	for _, part := range c.parts {
		raw := part.Raw()
		if part.Key == "content" {
			r.Text = jsonscan.DecodeString(raw)
		}
		if !rawjson.IsEmpty(raw) && !notRepeated[part.Key] {
			changes = append(changes, jsonscan.Change{Key: part.Key, Value: raw})
		}
	}
	return changes, r
}

// rawCall is the call as a request repeats it.
func (one *call) rawCall() []byte {
	fn := rawjson.With(rawjson.Member(one.start, "function"), jsonscan.Change{Key: "arguments", Value: llm.Quote(one.args)})
	return rawjson.With(one.start,
		jsonscan.Change{Key: "index"},
		jsonscan.Change{Key: "type", Value: []byte(`"function"`)},
		jsonscan.Change{Key: "function", Value: fn})
}

// notRepeated are members of a reply that a request must not repeat.
var notRepeated = map[string]bool{"annotations": true, "function_call": true}

// newRound makes a round of the calls; nil if they cannot be answered.
func newRound(r llm.Round, calls [][]byte, reason string) *llm.Round {
	if reason == "length" || reason == "content_filter" {
		return nil // the last call is truncated or not intended
	}
	r.Shown = len(r.Text)
	for _, raw := range calls {
		fn := rawjson.Member(raw, "function")
		id := jsonscan.DecodeString(rawjson.Member(raw, "id"))
		if !rawjson.IsString(rawjson.Member(fn, "name"), recovertool.Name) {
			r.Others = append(r.Others, id)
			continue
		}
		r.Calls = append(r.Calls, llm.RecoverCall{ID: id, Args: llm.ArgsOf(jsonscan.DecodeString(rawjson.Member(fn, "arguments")))})
	}
	return r.IfAnswerable()
}

// documentMerger merges chat completions that are not streamed.
type documentMerger struct {
	body    []byte
	choice  jsonscan.Span
	message []byte // the part of it that the client sees
	calls   int    // number of calls of the client's tools
	head    [3][]byte
	before  []byte // the part of the earlier rounds that the client sees, as a message
	spent   []byte
}

func (p *documentMerger) ReadRound(body []byte) (*llm.Round, bool) {
	p.body, p.choice, p.message, p.calls = body, jsonscan.Span{}, nil, 0
	var reason string
	_ = jsonscan.EachElement(body, rawjson.MemberSpan(body, "choices"), func(at jsonscan.Span) error {
		if n, _ := rawjson.Int(rawjson.Member(at.Of(body), "index")); n == 0 && p.choice.Len() == 0 {
			p.choice = at
			p.message = rawjson.Member(at.Of(body), "message")
			reason = jsonscan.DecodeString(rawjson.Member(at.Of(body), "finish_reason"))
		}
		return nil
	})
	said := p.message
	all, left := rawjson.Elements(rawjson.Member(said, "tool_calls")), [][]byte(nil)
	for _, call := range all {
		if !rawjson.IsString(rawjson.Member(rawjson.Member(call, "function"), "name"), recovertool.Name) {
			left = append(left, call)
		}
	}
	p.calls = len(left)
	if len(left) == len(all) {
		return nil, false
	}
	var shown []byte
	if len(left) > 0 {
		shown = rawjson.Array(left...)
	}
	p.message = rawjson.With(said, jsonscan.Change{Key: "tool_calls", Value: shown})
	r := llm.Round{Said: repeatable(said), Text: jsonscan.DecodeString(rawjson.Member(said, "content"))}
	return newRound(r, all, reason), true
}

// repeatable is a reply's message in the form in which a request may repeat it.
func repeatable(message []byte) []byte {
	var changes []jsonscan.Change
	rawjson.EachMember(message, rawjson.All(message), func(key []byte, value jsonscan.Span) {
		name := string(key)
		if notRepeated[name] || name != "content" && rawjson.IsEmpty(value.Of(message)) {
			changes = append(changes, jsonscan.Change{Key: name})
		}
	})
	return rawjson.With(message, changes...)
}

func (p *documentMerger) NextRound() {
	if p.head[0] == nil {
		for i, key := range headKeys {
			p.head[i] = append([]byte{}, rawjson.Member(p.body, key)...)
		}
	}
	p.before = joinMessages(p.before, rawjson.With(p.message, jsonscan.Change{Key: "role"}))
	p.spent = llm.SumUsage(p.spent, rawjson.Member(p.body, "usage"))
}

func (p *documentMerger) Compose() []byte {
	f, err := jsonscan.FieldsOf(p.body)
	if err != nil || len(p.message) == 0 {
		return nil
	}
	changes := []jsonscan.Change{}
	for i, key := range headKeys {
		if len(p.head[i]) > 0 {
			changes = append(changes, jsonscan.Change{Key: key, Value: p.head[i]})
		}
	}
	if used, has := f.Get("usage"); has {
		changes = append(changes, jsonscan.Change{Key: "usage", Value: llm.SumUsage(p.spent, used)})
	}
	choice := []jsonscan.Change{{Key: "message", Value: joinMessages(p.before, p.message)}}
	if rawjson.IsString(rawjson.Member(p.choice.Of(p.body), "finish_reason"), "tool_calls") && p.calls == 0 {
		choice = append(choice, jsonscan.Change{Key: "finish_reason", Value: []byte(`"stop"`)})
	}
	edit := jsonscan.Edit{Span: p.choice, Text: rawjson.With(p.choice.Of(p.body), choice...)}
	return jsonscan.AppendSpliced(nil, p.body, jsonscan.MergeEdits(f.Edits(changes...), []jsonscan.Edit{edit}))
}

// joinMessages joins two messages: texts and lists grow, and of anything else the later value counts.
func joinMessages(before, message []byte) []byte {
	if len(before) == 0 {
		return bytes.Clone(message)
	}
	var changes []jsonscan.Change
	rawjson.EachMember(before, rawjson.All(before), func(key []byte, value jsonscan.Span) {
		name, a := string(key), value.Of(before)
		b := rawjson.Member(message, name)
		var both []byte
		switch {
		case !rawjson.IsSet(b):
			both = a
		case !rawjson.IsSet(a) || a[0] != b[0]:
			return
		case a[0] == '"':
			both = append(append([]byte{}, a[:len(a)-1]...), b[1:]...)
		case a[0] == '[':
			both = rawjson.Array(append(rawjson.Elements(a), rawjson.Elements(b)...)...)
		default:
			return
		}
		changes = append(changes, jsonscan.Change{Key: name, Value: both})
	})
	return rawjson.With(message, changes...)
}
