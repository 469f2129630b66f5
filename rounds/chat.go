package rounds

import (
	"bytes"
	"slices"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// chatStream is the chunks of chat completions. Only the first choice is joined; nobody is offered
// the tool who asks for more.
type chatStream struct {
	*tape
	head   [3][]byte // id, time and model of the first chunk, which all have
	spent  []byte    // what the rounds before used
	used   []byte    // what this one says that it used
	parts  []strand  // what the model says, by member of its deltas
	calls  []*chatCall
	count  int    // calls that the client was shown, in all rounds
	reason string // why the round ended
}

// chatCall is a call as its chunks tell it.
type chatCall struct {
	index  int
	id     string
	hidden bool
	shown  int    // its index at the client
	start  []byte // its first entry, with everything but all of its arguments
	args   []byte // raw
}

func (c *chatStream) next() {
	c.spent = sum(c.spent, c.used)
	c.used, c.parts, c.calls, c.reason = nil, nil, nil, ""
}

var (
	chatHead   = []string{"id", "created", "model"}
	chunkKeys  = append(chatHead[:3:3], "choices", "usage", "error")
	choiceKeys = []string{"index", "delta", "finish_reason"}
	callKeys   = []string{"index", "id", "function"}
	nameKeys   = []string{"name", "arguments"}
)

// chunk is one chunk, with what is to be changed in it.
type chunk struct {
	data   []byte
	usage  []byte // raw, nil when there is none
	choice jsonscan.Span
	delta  jsonscan.Span
	reason []byte // raw
	role   bool   // the delta has one
	calls  [][]byte
	edited bool // calls are not those that came
}

func (c *chatStream) take(e *event) {
	if !isObject(e.data) {
		if done := string(e.data) == "[DONE]"; done {
			c.over = true
		} else if e.data != nil {
			c.lost = true
		}
		c.pass(e)
		return
	}
	k := c.read(e.data)
	ending := given(k.reason)
	if ending && !c.over {
		c.over, c.reason = true, jsonscan.TextOf(k.reason)
		if c.hid {
			c.split(e, &k)
			return
		}
	}
	if c.hid && c.over {
		c.hold(e)
		return
	}
	c.relay(e, &k)
}

// read notes what a chunk says.
func (c *chatStream) read(data []byte) chunk {
	k, at := lookAt(data)
	if len(c.head[0]) == 0 && says(at[0].Of(data)) { // Azure begins with a chunk without
		for i := range c.head {
			c.head[i] = bytes.Clone(at[i].Of(data))
		}
	}
	if k.usage != nil {
		c.used = bytes.Clone(k.usage)
	}
	if given(at[5].Of(data)) {
		c.lost = true
	}
	if !c.over {
		c.listen(&k)
	}
	return k
}

// lookAt finds the first choice of a chunk, and what stands beside it.
func lookAt(data []byte) (k chunk, at [6]jsonscan.Span) {
	pick(data, all(data), chunkKeys, at[:])
	k.data = data
	if usage := at[4].Of(data); given(usage) {
		k.usage = usage
	}
	_ = jsonscan.Elements(data, at[3], func(choice jsonscan.Span) error {
		var in [3]jsonscan.Span
		pick(data, choice, choiceKeys, in[:])
		if n, _ := number(in[0].Of(data)); n == 0 {
			k.choice, k.delta, k.reason = choice, in[1], in[2].Of(data)
		}
		return nil
	})
	return k, at
}

// listen notes what the model says in a delta.
func (c *chatStream) listen(k *chunk) {
	each(k.data, k.delta, func(key []byte, value jsonscan.Span) {
		switch string(key) {
		case "role":
			k.role = true
		case "tool_calls":
			_ = jsonscan.Elements(k.data, value, func(at jsonscan.Span) error {
				c.call(k, at)
				return nil
			})
		default:
			c.parts = c.gather(c.parts, key, value.Of(k.data))
		}
	})
}

// call notes an entry of a delta's calls, and takes it from the chunk if it is not for the client.
func (c *chatStream) call(k *chunk, at jsonscan.Span) {
	var in [3]jsonscan.Span
	var fn [2]jsonscan.Span
	pick(k.data, at, callKeys, in[:])
	pick(k.data, in[2], nameKeys, fn[:])
	id, name := jsonscan.TextOf(in[1].Of(k.data)), fn[0].Of(k.data)
	one := c.find(in[0].Of(k.data), id, says(name))
	if one.start == nil {
		one.id, one.hidden = id, is(name, Tool)
		one.start = c.keep([]byte{}, at.Of(k.data))
		c.number(one)
	}
	if args := fn[1].Of(k.data); len(args) > 1 && args[0] == '"' {
		one.args = c.keep(one.args, within(args))
	}
	switch raw := at.Of(k.data); {
	case one.hidden:
		k.edited = true
	case in[0].Len() > 0 && one.shown != one.index:
		k.edited = true
		k.calls = append(k.calls, with(raw, jsonscan.Change{Key: "index", Value: digits(one.shown)}))
	default:
		k.calls = append(k.calls, raw)
	}
}

// find is the call of an entry. Some providers give all calls the same index, or none; then a new
// call is known by its id.
func (c *chatStream) find(index []byte, id string, named bool) *chatCall {
	n, ok := number(index)
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
	c.begin(len(c.calls))
	one := &chatCall{index: n}
	c.calls = append(c.calls, one)
	return one
}

// number gives a call its index at the client: its own, as long as nothing was taken away.
func (c *chatStream) number(one *chatCall) {
	switch {
	case one.hidden:
		c.hid = true
	case c.round == 0 && !c.hid:
		one.shown = one.index
		c.count = max(c.count, one.index+1)
	default:
		one.shown = c.count
		c.count++
	}
}

// relay gives a chunk to the client that does not end a round with hidden calls.
func (c *chatStream) relay(e *event, k *chunk) {
	if c.round == 0 && !k.edited {
		c.show(e)
		return
	}
	delta := c.delta(k)
	if emptied := k.edited || k.role; emptied && !worth(delta) && !given(k.reason) && k.usage == nil {
		c.drop()
		return
	}
	c.rewrite(e, k, c.bill(k), jsonscan.Change{Key: "delta", Value: delta})
}

// split shows what the last chunk of a round with hidden calls says, and holds back that it is the
// last.
func (c *chatStream) split(e *event, k *chunk) {
	null := []byte("null")
	if delta := c.delta(k); worth(delta) {
		var silent []jsonscan.Change
		if k.usage != nil {
			silent = append(silent, jsonscan.Change{Key: "usage", Value: null})
		}
		c.rewrite(e, k, silent, jsonscan.Change{Key: "delta", Value: delta}, jsonscan.Change{Key: "finish_reason", Value: null})
	}
	c.hold(e)
}

func (c *chatStream) last(e *event) {
	if !isObject(e.data) {
		c.show(e)
		return
	}
	k, _ := lookAt(e.data)
	var end []jsonscan.Change
	if given(k.reason) {
		end = append(end, jsonscan.Change{Key: "delta", Value: []byte("{}")})
		if is(k.reason, "tool_calls") && !c.mixed() {
			end = append(end, jsonscan.Change{Key: "finish_reason", Value: []byte(`"stop"`)})
		}
	}
	c.rewrite(e, &k, c.bill(&k), end...)
}

// bill makes the usage of a chunk that of all rounds.
func (c *chatStream) bill(k *chunk) []jsonscan.Change {
	if k.usage == nil || c.spent == nil {
		return nil
	}
	return []jsonscan.Change{{Key: "usage", Value: sum(c.spent, k.usage)}}
}

// delta is what is left of the chunk's delta for the client.
func (c *chatStream) delta(k *chunk) []byte {
	var changes []jsonscan.Change
	if k.edited {
		var calls []byte
		if len(k.calls) > 0 {
			calls = list(k.calls...)
		}
		changes = append(changes, jsonscan.Change{Key: "tool_calls", Value: calls})
	}
	if k.role && c.round > 0 {
		changes = append(changes, jsonscan.Change{Key: "role"})
	}
	return with(k.delta.Of(k.data), changes...)
}

// worth says that a delta says something.
func worth(delta []byte) bool {
	found := false
	each(delta, all(delta), func(_ []byte, value jsonscan.Span) { found = found || says(value.Of(delta)) })
	return found
}

// rewrite gives the chunk to the client with changes of its own and of its choice. A chunk of a
// later round becomes one of the first.
func (c *chatStream) rewrite(e *event, k *chunk, own []jsonscan.Change, choice ...jsonscan.Change) {
	f, err := jsonscan.FieldsOf(k.data)
	if err != nil {
		c.show(e)
		return
	}
	for i, key := range chatHead {
		if _, has := f.Field(key); has && c.round > 0 && len(c.head[i]) > 0 {
			own = append(own, jsonscan.Change{Key: key, Value: c.head[i]})
		}
	}
	edits := f.Edits(own...)
	if k.choice.Len() > 0 && k.delta.Len() > 0 {
		text := with(k.choice.Of(k.data), choice...)
		edits = jsonscan.Merge(edits, []jsonscan.Edit{{Span: k.choice, Text: text}})
	}
	c.change(e, jsonscan.AppendSpliced(nil, k.data, edits))
}

// mixed says that the client has calls of this round to answer.
func (c *chatStream) mixed() bool {
	return slices.ContainsFunc(c.calls, func(one *chatCall) bool { return !one.hidden })
}

func (c *chatStream) said() *Round {
	message := []byte(`{"role":"assistant","content":null}`)
	changes, r := c.speech()
	var calls [][]byte
	for _, one := range c.calls {
		calls = append(calls, one.whole())
	}
	message = with(message, append(changes, jsonscan.Change{Key: "tool_calls", Value: list(calls...)})...)
	r.Said = message
	return chatRound(r, calls, c.reason)
}

// speech is what the model said beside its calls.
func (c *chatStream) speech() ([]jsonscan.Change, Round) {
	var r Round
	var changes []jsonscan.Change
	for _, part := range c.parts {
		raw := part.raw()
		if part.key == "content" {
			r.Text = jsonscan.TextOf(raw)
		}
		if says(raw) && !notRepeated[part.key] {
			changes = append(changes, jsonscan.Change{Key: part.key, Value: raw})
		}
	}
	return changes, r
}

// whole is the call as a request repeats it.
func (one *chatCall) whole() []byte {
	fn := with(oneOf(one.start, "function"), jsonscan.Change{Key: "arguments", Value: (&strand{kind: '"', value: one.args}).raw()})
	return with(one.start,
		jsonscan.Change{Key: "index"},
		jsonscan.Change{Key: "type", Value: []byte(`"function"`)},
		jsonscan.Change{Key: "function", Value: fn})
}

// notRepeated are members of a reply that a request must not have.
var notRepeated = map[string]bool{"annotations": true, "function_call": true}

// chatRound tells the calls of the round apart, nil if they cannot be answered.
func chatRound(r Round, calls [][]byte, reason string) *Round {
	if reason == "length" || reason == "content_filter" {
		return nil // the last call is not whole, or not meant
	}
	r.Shown = len(r.Text)
	for _, raw := range calls {
		fn := oneOf(raw, "function")
		id := jsonscan.TextOf(oneOf(raw, "id"))
		if !is(oneOf(fn, "name"), Tool) {
			r.Others = append(r.Others, id)
			continue
		}
		r.Calls = append(r.Calls, Call{ID: id, Args: argsOf(jsonscan.TextOf(oneOf(fn, "arguments")))})
	}
	return r.checked()
}

// chatPage is a chat completion.
type chatPage struct {
	body    []byte
	choice  jsonscan.Span
	message []byte // what the client is shown of it
	calls   int    // that the client has to answer
	head    [3][]byte
	before  []byte // what the client is shown of the rounds before, as a message
	spent   []byte
}

func (p *chatPage) read(body []byte) (*Round, bool) {
	p.body, p.choice, p.message, p.calls = body, jsonscan.Span{}, nil, 0
	var reason string
	_ = jsonscan.Elements(body, spanOf(body, "choices"), func(at jsonscan.Span) error {
		if n, _ := number(oneOf(at.Of(body), "index")); n == 0 && p.choice.Len() == 0 {
			p.choice = at
			p.message = oneOf(at.Of(body), "message")
			reason = jsonscan.TextOf(oneOf(at.Of(body), "finish_reason"))
		}
		return nil
	})
	said := p.message
	all, left := elements(oneOf(said, "tool_calls")), [][]byte(nil)
	for _, call := range all {
		if !is(oneOf(oneOf(call, "function"), "name"), Tool) {
			left = append(left, call)
		}
	}
	p.calls = len(left)
	if len(left) == len(all) {
		return nil, false
	}
	p.message = with(said, jsonscan.Change{Key: "tool_calls", Value: listOrNil(left)})
	r := Round{Said: repeatable(said), Text: jsonscan.TextOf(oneOf(said, "content"))}
	return chatRound(r, all, reason), true
}

// repeatable is a message of a reply as a request may have it.
func repeatable(message []byte) []byte {
	var changes []jsonscan.Change
	each(message, all(message), func(key []byte, value jsonscan.Span) {
		name := string(key)
		if notRepeated[name] || name != "content" && !says(value.Of(message)) {
			changes = append(changes, jsonscan.Change{Key: name})
		}
	})
	return with(message, changes...)
}

func (p *chatPage) next() {
	if p.head[0] == nil {
		for i, key := range chatHead {
			p.head[i] = append([]byte{}, oneOf(p.body, key)...)
		}
	}
	p.before = after(p.before, with(p.message, jsonscan.Change{Key: "role"}))
	p.spent = sum(p.spent, oneOf(p.body, "usage"))
}

func (p *chatPage) compose() []byte {
	f, err := jsonscan.FieldsOf(p.body)
	if err != nil || len(p.message) == 0 {
		return nil
	}
	changes := []jsonscan.Change{}
	for i, key := range chatHead {
		if len(p.head[i]) > 0 {
			changes = append(changes, jsonscan.Change{Key: key, Value: p.head[i]})
		}
	}
	if used, has := f.Get("usage"); has {
		changes = append(changes, jsonscan.Change{Key: "usage", Value: sum(p.spent, used)})
	}
	choice := []jsonscan.Change{{Key: "message", Value: after(p.before, p.message)}}
	if is(oneOf(p.choice.Of(p.body), "finish_reason"), "tool_calls") && p.calls == 0 {
		choice = append(choice, jsonscan.Change{Key: "finish_reason", Value: []byte(`"stop"`)})
	}
	edit := jsonscan.Edit{Span: p.choice, Text: with(p.choice.Of(p.body), choice...)}
	return jsonscan.AppendSpliced(nil, p.body, jsonscan.Merge(f.Edits(changes...), []jsonscan.Edit{edit}))
}

// after puts what a message says after what another said before it: texts and lists grow, and of
// anything else the later word counts.
func after(before, message []byte) []byte {
	if len(before) == 0 {
		return bytes.Clone(message)
	}
	var changes []jsonscan.Change
	each(before, all(before), func(key []byte, value jsonscan.Span) {
		name, a := string(key), value.Of(before)
		b := oneOf(message, name)
		var both []byte
		switch {
		case !given(b):
			both = a
		case !given(a) || a[0] != b[0]:
			return
		case a[0] == '"':
			both = append(append([]byte{}, a[:len(a)-1]...), b[1:]...)
		case a[0] == '[':
			both = list(append(elements(a), elements(b)...)...)
		default:
			return
		}
		changes = append(changes, jsonscan.Change{Key: name, Value: both})
	})
	return with(message, changes...)
}
