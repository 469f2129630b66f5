package gemini

import (
	"bytes"

	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// headKeys are the members of a reply that are the same in all its events.
var headKeys = [2]string{"responseId", "modelVersion"}

// streamMerger merges the events of a reply: each is a reply with the next parts. It merges only the first
// candidate, because the tool is not offered when a client asks for several.
type streamMerger struct {
	*llm.EventBuffer
	head   [2][]byte
	spent  []byte // usage of the earlier rounds
	used   []byte // usage of the current round
	said   said   // the round's output
	reason string // why the round ended
}

func (m *streamMerger) NextRound() {
	m.spent = llm.SumUsage(m.spent, m.used)
	m.used, m.said, m.reason = nil, said{}, ""
}

// chunk is the first candidate of an event.
type chunk struct {
	data      []byte
	candidate jsonscan.Span
	content   []byte
	usage     []byte
	reason    []byte
	shown     [][]byte // the parts that the client sees
	hides     bool     // there were others
}

var (
	chunkKeys     = []string{"candidates", "usageMetadata", "error"}
	candidateKeys = []string{"content", "finishReason", "index"}
)

func (m *streamMerger) AddEvent(e *sse.RawEvent) {
	if !rawjson.IsObject(e.Data) {
		m.Lost = m.Lost || e.Data != nil
		m.PassOrHold(e)
		return
	}
	k, failed := findCandidate(e.Data)
	m.Lost = m.Lost || failed
	if m.head[0] == nil {
		for i, key := range headKeys {
			m.head[i] = bytes.Clone(rawjson.Member(e.Data, key))
		}
	}
	if k.usage != nil {
		m.used = llm.UpdateUsage(m.used, bytes.Clone(k.usage))
	}
	if !m.Ended {
		m.readParts(&k)
	}
	if rawjson.IsSet(k.reason) && !m.Ended {
		m.Ended, m.reason = true, jsonscan.DecodeString(k.reason)
		if m.HidesCall {
			m.splitLast(e, &k)
			return
		}
	}
	if m.HidesCall && m.Ended {
		m.Hold(e)
		return
	}
	m.passChunk(e, &k)
}

// findCandidate finds the first candidate of an event. failed says that the event is an error.
func findCandidate(data []byte) (k chunk, failed bool) {
	var at [3]jsonscan.Span
	rawjson.FindMembers(data, rawjson.All(data), chunkKeys, at[:])
	k.data = data
	if usage := at[1].Of(data); rawjson.IsSet(usage) {
		k.usage = usage
	}
	_ = jsonscan.EachElement(data, at[0], func(candidate jsonscan.Span) error {
		var in [3]jsonscan.Span
		rawjson.FindMembers(data, candidate, candidateKeys, in[:])
		if n, _ := rawjson.Int(in[2].Of(data)); n == 0 && k.candidate.Len() == 0 {
			k.candidate, k.content, k.reason = candidate, in[0].Of(data), in[1].Of(data)
		}
		return nil
	})
	return k, rawjson.IsSet(at[2].Of(data))
}

// readParts adds the parts of an event to the model's output, and finds those that the client sees.
func (m *streamMerger) readParts(k *chunk) {
	for _, raw := range rawjson.Elements(rawjson.Member(k.content, "parts")) {
		m.CheckCount(len(m.said.parts))
		if kept := m.Keep(nil, raw); kept != nil {
			m.said.add(kept)
		}
		if p := readOutput(raw); p.isRecoverCall() {
			m.HidesCall, k.hides = true, true
			continue
		}
		k.shown = append(k.shown, raw)
	}
}

// passChunk forwards an event that does not end a round with hidden calls.
func (m *streamMerger) passChunk(e *sse.RawEvent, k *chunk) {
	switch {
	case m.Round == 0 && !k.hides:
		m.Pass(e)
	case k.hides && len(k.shown) == 0:
		m.Drop()
	default:
		m.rewrite(e, k, m.totalUsage(k), k.contentChange(k.shown))
	}
}

// splitLast passes the parts of the last event of a round with hidden calls, and holds the reason of its end.
func (m *streamMerger) splitLast(e *sse.RawEvent, k *chunk) {
	if len(k.shown) > 0 {
		m.rewrite(e, k, m.totalUsage(k), k.contentChange(k.shown), jsonscan.Change{Key: "finishReason"})
	}
	m.Hold(e)
}

func (m *streamMerger) EndEvent(e *sse.RawEvent) {
	if !rawjson.IsObject(e.Data) {
		m.Pass(e)
		return
	}
	k, _ := findCandidate(e.Data)
	m.rewrite(e, &k, m.totalUsage(&k), k.contentChange(nil))
}

var emptyPart = []byte(`{"text":""}`) // as providers write a last event without output

// contentChange changes the parts of an event.
func (k *chunk) contentChange(parts [][]byte) jsonscan.Change {
	if len(parts) == 0 {
		parts = [][]byte{emptyPart}
	}
	content := k.content
	if !rawjson.IsSet(content) {
		content = []byte(`{"role":"model"}`)
	}
	return jsonscan.Change{Key: "content", Value: rawjson.With(content, jsonscan.Change{Key: "parts", Value: rawjson.Array(parts...)})}
}

// totalUsage replaces the usage of an event by that of all rounds.
func (m *streamMerger) totalUsage(k *chunk) []jsonscan.Change {
	if k.usage == nil || m.spent == nil {
		return nil
	}
	return []jsonscan.Change{{Key: "usageMetadata", Value: llm.SumUsage(m.spent, k.usage)}}
}

// rewrite forwards an event with changes of the event and of its candidate. An event of a later round gets the id
// and model of the first.
func (m *streamMerger) rewrite(e *sse.RawEvent, k *chunk, own []jsonscan.Change, candidate ...jsonscan.Change) {
	f, err := jsonscan.FieldsOf(k.data)
	if err != nil {
		m.Pass(e)
		return
	}
	for i, key := range headKeys {
		if _, has := f.Field(key); has && m.Round > 0 && len(m.head[i]) > 0 {
			own = append(own, jsonscan.Change{Key: key, Value: m.head[i]})
		}
	}
	edits := f.Edits(own...)
	if k.candidate.Len() > 0 {
		text := rawjson.With(k.candidate.Of(k.data), candidate...)
		edits = jsonscan.MergeEdits(edits, []jsonscan.Edit{{Span: k.candidate, Text: text}})
	}
	m.PassWith(e, jsonscan.AppendSpliced(nil, k.data, edits))
}

func (m *streamMerger) Said() *llm.Round { return m.said.newRound(m.reason) }

// documentMerger merges replies that are not streamed.
type documentMerger struct {
	chunk
	before [][]byte // parts of the earlier rounds
	head   [2][]byte
	spent  []byte
}

func (p *documentMerger) ReadRound(body []byte) (*llm.Round, bool) {
	p.chunk, _ = findCandidate(body)
	var all said
	for _, raw := range rawjson.Elements(rawjson.Member(p.content, "parts")) {
		all.add(raw)
		if one := readOutput(raw); one.isRecoverCall() {
			p.hides = true
			continue
		}
		p.shown = append(p.shown, raw)
	}
	if !p.hides {
		return nil, false
	}
	return all.newRound(jsonscan.DecodeString(p.reason)), true
}

func (p *documentMerger) NextRound() {
	if p.head[0] == nil {
		for i, key := range headKeys {
			p.head[i] = append([]byte{}, rawjson.Member(p.data, key)...)
		}
	}
	p.before = append(p.before, p.shown...)
	p.spent = llm.SumUsage(p.spent, p.usage)
}

func (p *documentMerger) Compose() []byte {
	f, err := jsonscan.FieldsOf(p.data)
	if err != nil || p.candidate.Len() == 0 {
		return nil
	}
	var changes []jsonscan.Change
	for i, key := range headKeys {
		if len(p.head[i]) > 0 {
			changes = append(changes, jsonscan.Change{Key: key, Value: p.head[i]})
		}
	}
	if p.usage != nil {
		changes = append(changes, jsonscan.Change{Key: "usageMetadata", Value: llm.SumUsage(p.spent, p.usage)})
	}
	edit := jsonscan.Edit{Span: p.candidate, Text: rawjson.With(p.candidate.Of(p.data), p.contentChange(append(p.before, p.shown...)))}
	return jsonscan.AppendSpliced(nil, p.data, jsonscan.MergeEdits(f.Edits(changes...), []jsonscan.Edit{edit}))
}
