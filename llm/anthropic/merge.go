package anthropic

import (
	"bytes"
	"strings"

	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// streamMerger merges the event streams of messages.
type streamMerger struct {
	*llm.EventBuffer
	spent  []byte // usage of the earlier rounds
	used   []byte // usage of the current round
	blocks []*block
	count  int    // blocks shown to the client in all rounds
	reason string // why the round ended
}

// block is a content block, collected from its events.
type block struct {
	index  int
	hidden bool
	shown  int    // its index as the client sees it
	start  []byte // from its start event
	parts  []llm.Member
}

func (m *streamMerger) NextRound() {
	m.spent = llm.SumUsage(m.spent, m.used)
	m.used, m.blocks, m.reason = nil, nil, ""
}

var (
	eventKeys = []string{"type", "index", "content_block", "delta", "usage", "message"}
	blockKeys = []string{"type", "name"}
)

func (m *streamMerger) AddEvent(e *sse.RawEvent) {
	if !rawjson.IsObject(e.Data) {
		m.Lost = m.Lost || e.Data != nil
		m.PassOrHold(e)
		return
	}
	var at [6]jsonscan.Span
	rawjson.FindMembers(e.Data, rawjson.All(e.Data), eventKeys, at[:])
	value := func(i int) []byte { return at[i].Of(e.Data) }
	switch kind := jsonscan.DecodeString(value(0)); kind {
	case "message_start":
		m.startMessage(e, value(5))
	case "content_block_start", "content_block_delta", "content_block_stop":
		m.addBlockEvent(e, kind, at[:])
	case "message_delta":
		m.endMessage(e, value(3), value(4))
	case "error":
		m.Lost = true
		m.PassOrHold(e)
	default:
		m.PassOrHold(e)
	}
}

func (m *streamMerger) startMessage(e *sse.RawEvent, message []byte) {
	m.used = bytes.Clone(rawjson.Member(message, "usage"))
	if m.Round > 0 {
		m.Drop()
		return
	}
	m.Pass(e)
}

// addBlockEvent adds an event to its block, and passes it unless the block is hidden.
func (m *streamMerger) addBlockEvent(e *sse.RawEvent, kind string, at []jsonscan.Span) {
	index, ok := rawjson.Int(at[1].Of(e.Data))
	if !ok || m.Ended {
		m.Lost = true
		m.PassOrHold(e)
		return
	}
	b := m.findBlock(index, kind == "content_block_start")
	switch kind {
	case "content_block_start":
		m.startBlock(b, at[2].Of(e.Data))
	case "content_block_delta":
		m.addDelta(b, e.Data, at[3])
	}
	switch {
	case b.hidden:
		m.Drop()
	case b.shown == b.index:
		m.Pass(e)
	default:
		edits := []jsonscan.Edit{{Span: at[1], Text: rawjson.FromInt(b.shown)}}
		m.PassWith(e, jsonscan.AppendSpliced(nil, e.Data, edits))
	}
}

// findBlock returns the block of an index; one without a start event is empty.
func (m *streamMerger) findBlock(index int, starts bool) *block {
	for i := len(m.blocks) - 1; i >= 0 && !starts; i-- {
		if m.blocks[i].index == index {
			return m.blocks[i]
		}
	}
	m.CheckCount(len(m.blocks))
	b := &block{index: index}
	m.blocks = append(m.blocks, b)
	if !starts {
		m.Lost = true
		m.assignIndex(b)
	}
	return b
}

func (m *streamMerger) startBlock(b *block, start []byte) {
	m.Lost = m.Lost || len(start) == 0 || start[0] != '{'
	var at [2]jsonscan.Span
	rawjson.FindMembers(start, rawjson.All(start), blockKeys, at[:])
	b.hidden = rawjson.IsString(at[0].Of(start), "tool_use") && rawjson.IsString(at[1].Of(start), recovertool.Name)
	b.start = m.Keep([]byte{}, start)
	m.assignIndex(b)
}

// assignIndex sets the block's index for the client: the original one until a block was hidden.
func (m *streamMerger) assignIndex(b *block) {
	switch {
	case b.hidden:
		m.HidesCall = true
	case m.Round == 0 && !m.HidesCall:
		b.shown = b.index
		m.count = max(m.count, b.index+1)
	default:
		b.shown = m.count
		m.count++
	}
}

// addDelta adds a delta to its block. A delta of an unknown type extends the members that it names, as all
// types but citations do.
func (m *streamMerger) addDelta(b *block, data []byte, delta jsonscan.Span) {
	rawjson.EachMember(data, delta, func(key []byte, value jsonscan.Span) {
		switch raw := value.Of(data); string(key) {
		case "type":
		case "citation":
			b.parts = m.AddDelta(b.parts, []byte("citations"), rawjson.Array(raw))
		default:
			b.parts = m.AddDelta(b.parts, key, raw)
		}
	})
}

// endMessage reads the event with the stop reason and the usage.
func (m *streamMerger) endMessage(e *sse.RawEvent, delta, usage []byte) {
	m.used = llm.UpdateUsage(m.used, bytes.Clone(usage))
	m.Ended = true
	if reason := rawjson.Member(delta, "stop_reason"); rawjson.IsSet(reason) {
		m.reason = jsonscan.DecodeString(reason)
	}
	switch {
	case m.HidesCall:
		m.Hold(e)
	case m.Round > 0:
		m.PassWith(e, m.totalEnd(e.Data))
	default:
		m.Pass(e)
	}
}

// totalEnd is the end of the message with the usage of all rounds.
func (m *streamMerger) totalEnd(data []byte) []byte {
	var changes []jsonscan.Change
	if delta := rawjson.Member(data, "delta"); m.reason == "tool_use" && !m.hasClientCalls() && rawjson.IsString(rawjson.Member(delta, "stop_reason"), m.reason) {
		changes = append(changes, jsonscan.Change{Key: "delta", Value: rawjson.With(delta, endTurn)})
	}
	if usage := rawjson.Member(data, "usage"); rawjson.IsSet(usage) && m.spent != nil {
		changes = append(changes, jsonscan.Change{Key: "usage", Value: totalUsage(usage, llm.SumUsage(m.spent, m.used))})
	}
	return rawjson.With(data, changes...)
}

var endTurn = jsonscan.Change{Key: "stop_reason", Value: []byte(`"end_turn"`)}

// totalUsage is the usage of all rounds for the end of the message. The start of the message only has the first
// round's input, so the end must include the input, even if a single round's end does not.
func totalUsage(usage, total []byte) []byte {
	var changes []jsonscan.Change
	rawjson.EachMember(total, rawjson.All(total), func(key []byte, value jsonscan.Span) {
		name := string(key)
		if rawjson.Member(usage, name) != nil || strings.HasSuffix(name, "input_tokens") {
			changes = append(changes, jsonscan.Change{Key: name, Value: value.Of(total)})
		}
	})
	return rawjson.With(usage, changes...)
}

func (m *streamMerger) EndEvent(e *sse.RawEvent) {
	if rawjson.IsObject(e.Data) && rawjson.IsString(rawjson.Member(e.Data, "type"), "message_delta") {
		m.PassWith(e, m.totalEnd(e.Data))
		return
	}
	m.Pass(e)
}

// hasClientCalls says whether the round has calls for the client to answer.
func (m *streamMerger) hasClientCalls() bool {
	for _, b := range m.blocks {
		if !b.hidden && rawjson.IsString(rawjson.Member(b.start, "type"), "tool_use") {
			return true
		}
	}
	return false
}

func (m *streamMerger) Said() *llm.Round {
	var blocks [][]byte
	for _, b := range m.blocks {
		blocks = append(blocks, b.rawBlock())
	}
	return newRound(blocks, m.reason)
}

// rawBlock is the block as a request repeats it.
func (b *block) rawBlock() []byte {
	var changes []jsonscan.Change
	for _, part := range b.parts {
		value := part.Raw()
		switch before := rawjson.Member(b.start, part.Key); {
		case part.Key == "partial_json":
			part.Key, value = "input", inputOf(jsonscan.DecodeString(value))
		case len(before) > 1 && before[0] == '"' && part.Kind == '"':
			value = append(append([]byte{}, before[:len(before)-1]...), value[1:]...)
		}
		changes = append(changes, jsonscan.Change{Key: part.Key, Value: value})
	}
	return rawjson.With(b.start, changes...)
}

// inputOf is the input collected from deltas. One that is not an object is wrapped into one, as the provider
// requires.
func inputOf(text string) []byte {
	args := llm.ArgsOf(text)
	if rawjson.IsObject(args) {
		return args
	}
	return append(jsonscan.AppendQuoted([]byte(`{"INVALID_JSON":`), text), '}')
}

// newRound makes a round of these blocks; nil if its calls cannot be answered.
func newRound(blocks [][]byte, reason string) *llm.Round {
	if reason != "tool_use" {
		return nil // the last call is truncated or not intended
	}
	var r llm.Round
	var said [][]byte
	for _, b := range blocks {
		if isBlank(b) {
			continue
		}
		said = append(said, b)
		id := jsonscan.DecodeString(rawjson.Member(b, "id"))
		switch {
		case isRecoverCall(b):
			r.Calls = append(r.Calls, llm.RecoverCall{ID: id, Args: llm.ArgsOf(string(rawjson.Member(b, "input")))})
			continue
		case rawjson.IsString(rawjson.Member(b, "type"), "tool_use"):
			r.Others = append(r.Others, id)
		}
		r.Shown++
	}
	r.Said = rawjson.Array(said...)
	return r.IfAnswerable()
}

// isRecoverCall says whether a block is a call of recover_text.
func isRecoverCall(b []byte) bool {
	return rawjson.IsString(rawjson.Member(b, "type"), "tool_use") && rawjson.IsString(rawjson.Member(b, "name"), recovertool.Name)
}

// isBlank says whether a block is text of only white space.
func isBlank(b []byte) bool {
	return rawjson.IsString(rawjson.Member(b, "type"), "text") && strings.TrimSpace(jsonscan.DecodeString(rawjson.Member(b, "text"))) == ""
}

// documentMerger merges messages that are not streamed.
type documentMerger struct {
	body   []byte
	shown  [][]byte // blocks of this round
	before [][]byte // blocks of the earlier rounds
	head   [2][]byte
	spent  []byte
	calls  bool // the round calls tools of the client
}

var headKeys = [2]string{"id", "model"}

func (p *documentMerger) ReadRound(body []byte) (*llm.Round, bool) {
	p.body, p.shown, p.calls = body, nil, false
	blocks := rawjson.Elements(rawjson.Member(body, "content"))
	for _, b := range blocks {
		if !isRecoverCall(b) {
			p.shown = append(p.shown, b)
			p.calls = p.calls || rawjson.IsString(rawjson.Member(b, "type"), "tool_use")
		}
	}
	if len(p.shown) == len(blocks) {
		return nil, false
	}
	return newRound(blocks, jsonscan.DecodeString(rawjson.Member(body, "stop_reason"))), true
}

func (p *documentMerger) NextRound() {
	if p.head[0] == nil {
		for i, key := range headKeys {
			p.head[i] = append([]byte{}, rawjson.Member(p.body, key)...)
		}
	}
	p.before = append(p.before, p.shown...)
	p.spent = llm.SumUsage(p.spent, rawjson.Member(p.body, "usage"))
}

func (p *documentMerger) Compose() []byte {
	if rawjson.Member(p.body, "content") == nil {
		return nil
	}
	changes := []jsonscan.Change{{Key: "content", Value: rawjson.Array(append(p.before, p.shown...)...)}}
	for i, key := range headKeys {
		if len(p.head[i]) > 0 {
			changes = append(changes, jsonscan.Change{Key: key, Value: p.head[i]})
		}
	}
	if usage := rawjson.Member(p.body, "usage"); usage != nil {
		changes = append(changes, jsonscan.Change{Key: "usage", Value: llm.SumUsage(p.spent, usage)})
	}
	if rawjson.IsString(rawjson.Member(p.body, "stop_reason"), "tool_use") && !p.calls {
		changes = append(changes, endTurn)
	}
	return rawjson.With(p.body, changes...)
}
