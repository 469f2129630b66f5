package rounds

import (
	"bytes"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// messagesStream is the events of messages.
type messagesStream struct {
	*tape
	spent  []byte // what the rounds before used
	begun  []byte // what this one used, as its start tells it
	blocks []*block
	count  int    // blocks that the client was shown, in all rounds
	reason string // why the round ended
}

// block is a content block as its events tell it.
type block struct {
	index  int
	hidden bool
	shown  int    // its index at the client
	start  []byte // as it began
	parts  []strand
}

func (m *messagesStream) next() {
	m.spent = sum(m.spent, m.begun)
	m.begun, m.blocks, m.reason = nil, nil, ""
}

var (
	messageKeys = []string{"type", "index", "content_block", "delta", "usage", "message"}
	blockKeys   = []string{"type", "name"}
)

func (m *messagesStream) take(e *event) {
	if !isObject(e.data) {
		m.lost = m.lost || e.data != nil
		m.pass(e)
		return
	}
	var at [6]jsonscan.Span
	pick(e.data, all(e.data), messageKeys, at[:])
	value := func(i int) []byte { return at[i].Of(e.data) }
	switch kind := jsonscan.TextOf(value(0)); kind {
	case "message_start":
		m.started(e, value(5))
	case "content_block_start", "content_block_delta", "content_block_stop":
		m.block(e, kind, at[:])
	case "message_delta":
		m.ending(e, value(3), value(4))
	case "error":
		m.lost = true
		m.pass(e)
	default:
		m.pass(e)
	}
}

func (m *messagesStream) started(e *event, message []byte) {
	m.begun = bytes.Clone(oneOf(message, "usage"))
	if m.round > 0 {
		m.drop()
		return
	}
	m.show(e)
}

// block notes what an event says of a block, and gives it to the client unless the block is hidden.
func (m *messagesStream) block(e *event, kind string, at []jsonscan.Span) {
	index, ok := number(at[1].Of(e.data))
	if !ok || m.over {
		m.lost = true
		m.pass(e)
		return
	}
	b := m.find(index, kind == "content_block_start")
	switch kind {
	case "content_block_start":
		m.open(b, at[2].Of(e.data))
	case "content_block_delta":
		m.grow(b, e.data, at[3])
	}
	switch {
	case b.hidden:
		m.drop()
	case b.shown == b.index:
		m.show(e)
	default:
		edits := []jsonscan.Edit{{Span: at[1], Text: digits(b.shown)}}
		m.change(e, jsonscan.AppendSpliced(nil, e.data, edits))
	}
}

// find is the block of an index; one that nobody began is an empty one.
func (m *messagesStream) find(index int, fresh bool) *block {
	for i := len(m.blocks) - 1; i >= 0 && !fresh; i-- {
		if m.blocks[i].index == index {
			return m.blocks[i]
		}
	}
	m.begin(len(m.blocks))
	b := &block{index: index}
	m.blocks = append(m.blocks, b)
	if !fresh {
		m.lost = true
		m.number(b)
	}
	return b
}

func (m *messagesStream) open(b *block, start []byte) {
	m.lost = m.lost || len(start) == 0 || start[0] != '{'
	var at [2]jsonscan.Span
	pick(start, all(start), blockKeys, at[:])
	b.hidden = is(at[0].Of(start), "tool_use") && is(at[1].Of(start), Tool)
	b.start = m.keep([]byte{}, start)
	m.number(b)
}

// number gives a block its index at the client: its own, as long as nothing was taken away.
func (m *messagesStream) number(b *block) {
	switch {
	case b.hidden:
		m.hid = true
	case m.round == 0 && !m.hid:
		b.shown = b.index
		m.count = max(m.count, b.index+1)
	default:
		b.shown = m.count
		m.count++
	}
}

// grow adds a delta to its block. A delta of a kind that is not known here is taken for one that
// adds to the members it names, as all do but those of citations.
func (m *messagesStream) grow(b *block, data []byte, delta jsonscan.Span) {
	each(data, delta, func(key []byte, value jsonscan.Span) {
		switch raw := value.Of(data); string(key) {
		case "type":
		case "citation":
			b.parts = m.gather(b.parts, []byte("citations"), list(raw))
		default:
			b.parts = m.gather(b.parts, key, raw)
		}
	})
}

// ending takes the event that says why the model stopped, and what it used.
func (m *messagesStream) ending(e *event, delta, usage []byte) {
	m.begun = update(m.begun, bytes.Clone(usage))
	m.over = true
	if reason := oneOf(delta, "stop_reason"); given(reason) {
		m.reason = jsonscan.TextOf(reason)
	}
	switch {
	case m.hid:
		m.hold(e)
	case m.round > 0:
		m.change(e, m.sealed(e.data))
	default:
		m.show(e)
	}
}

// sealed is the end of the message with what all rounds used.
func (m *messagesStream) sealed(data []byte) []byte {
	var changes []jsonscan.Change
	if delta := oneOf(data, "delta"); m.reason == "tool_use" && !m.mixed() && is(oneOf(delta, "stop_reason"), m.reason) {
		changes = append(changes, jsonscan.Change{Key: "delta", Value: with(delta, stopped)})
	}
	if usage := oneOf(data, "usage"); given(usage) && m.spent != nil {
		changes = append(changes, jsonscan.Change{Key: "usage", Value: totalled(usage, sum(m.spent, m.begun))})
	}
	return with(data, changes...)
}

var stopped = jsonscan.Change{Key: "stop_reason", Value: []byte(`"end_turn"`)}

// totalled is what an end says of the usage, summed up. The message began with the input of the
// first round alone, so that the end must tell the input too, even where it does not for one round.
func totalled(usage, total []byte) []byte {
	var changes []jsonscan.Change
	each(total, all(total), func(key []byte, value jsonscan.Span) {
		name := string(key)
		if oneOf(usage, name) != nil || strings.HasSuffix(name, "input_tokens") {
			changes = append(changes, jsonscan.Change{Key: name, Value: value.Of(total)})
		}
	})
	return with(usage, changes...)
}

func (m *messagesStream) last(e *event) {
	if isObject(e.data) && is(oneOf(e.data, "type"), "message_delta") {
		m.change(e, m.sealed(e.data))
		return
	}
	m.show(e)
}

// mixed says that the client has calls of this round to answer.
func (m *messagesStream) mixed() bool {
	for _, b := range m.blocks {
		if !b.hidden && is(oneOf(b.start, "type"), "tool_use") {
			return true
		}
	}
	return false
}

func (m *messagesStream) said() *Round {
	var blocks [][]byte
	for _, b := range m.blocks {
		blocks = append(blocks, b.whole())
	}
	return messagesRound(blocks, m.reason)
}

// whole is the block as a request repeats it.
func (b *block) whole() []byte {
	var changes []jsonscan.Change
	for _, part := range b.parts {
		value := part.raw()
		switch before := oneOf(b.start, part.key); {
		case part.key == "partial_json":
			part.key, value = "input", inputOf(jsonscan.TextOf(value))
		case len(before) > 1 && before[0] == '"' && part.kind == '"':
			value = append(append([]byte{}, before[:len(before)-1]...), value[1:]...)
		}
		changes = append(changes, jsonscan.Change{Key: part.key, Value: value})
	}
	return with(b.start, changes...)
}

// inputOf is the input that a model wrote piece by piece. One that is no object is wrapped into one,
// the way the provider asks for it.
func inputOf(text string) []byte {
	args := argsOf(text)
	if isObject(args) {
		return args
	}
	return append(jsonscan.AppendString([]byte(`{"INVALID_JSON":`), text), '}')
}

// messagesRound is what the model said in these blocks, nil if its calls cannot be answered.
func messagesRound(blocks [][]byte, reason string) *Round {
	if reason != "tool_use" {
		return nil // the last call is not whole, or not meant
	}
	var r Round
	var said [][]byte
	for _, b := range blocks {
		if isBlank(b) {
			continue
		}
		said = append(said, b)
		id := jsonscan.TextOf(oneOf(b, "id"))
		switch {
		case hides(b):
			r.Calls = append(r.Calls, Call{ID: id, Args: argsOf(string(oneOf(b, "input")))})
			continue
		case is(oneOf(b, "type"), "tool_use"):
			r.Others = append(r.Others, id)
		}
		r.Shown++
	}
	r.Said = list(said...)
	return r.checked()
}

// hides says that a block is a call of the tool that reads back.
func hides(b []byte) bool { return is(oneOf(b, "type"), "tool_use") && is(oneOf(b, "name"), Tool) }

// isBlank says that a block is text that says nothing.
func isBlank(b []byte) bool {
	return is(oneOf(b, "type"), "text") && strings.TrimSpace(jsonscan.TextOf(oneOf(b, "text"))) == ""
}

// messagesPage is a message that comes in one piece.
type messagesPage struct {
	body   []byte
	shown  [][]byte // blocks, of this round
	before [][]byte // blocks, of those before
	head   [2][]byte
	spent  []byte
	calls  bool // the client has some to answer
}

var messageHead = [2]string{"id", "model"}

func (p *messagesPage) read(body []byte) (*Round, bool) {
	p.body, p.shown, p.calls = body, nil, false
	blocks := elements(oneOf(body, "content"))
	for _, b := range blocks {
		if !hides(b) {
			p.shown = append(p.shown, b)
			p.calls = p.calls || is(oneOf(b, "type"), "tool_use")
		}
	}
	if len(p.shown) == len(blocks) {
		return nil, false
	}
	return messagesRound(blocks, jsonscan.TextOf(oneOf(body, "stop_reason"))), true
}

func (p *messagesPage) next() {
	if p.head[0] == nil {
		for i, key := range messageHead {
			p.head[i] = append([]byte{}, oneOf(p.body, key)...)
		}
	}
	p.before = append(p.before, p.shown...)
	p.spent = sum(p.spent, oneOf(p.body, "usage"))
}

func (p *messagesPage) compose() []byte {
	if oneOf(p.body, "content") == nil {
		return nil
	}
	changes := []jsonscan.Change{{Key: "content", Value: list(append(p.before, p.shown...)...)}}
	for i, key := range messageHead {
		if len(p.head[i]) > 0 {
			changes = append(changes, jsonscan.Change{Key: key, Value: p.head[i]})
		}
	}
	if usage := oneOf(p.body, "usage"); usage != nil {
		changes = append(changes, jsonscan.Change{Key: "usage", Value: sum(p.spent, usage)})
	}
	if is(oneOf(p.body, "stop_reason"), "tool_use") && !p.calls {
		changes = append(changes, stopped)
	}
	return with(p.body, changes...)
}
