package llm

import (
	"bytes"
	"math"
	"strconv"

	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// StreamMerger merges the event streams of several rounds into one reply. It decides what the client sees of
// each event.
type StreamMerger interface {
	NextRound()               // starts another round
	AddEvent(e *sse.RawEvent) // reads an event and passes, changes, drops or holds it
	EndEvent(e *sse.RawEvent) // passes a held event at the end of the reply
	Said() *Round             // the round, if its calls can be answered
}

// DocumentMerger merges the replies of several rounds that are not streamed.
type DocumentMerger interface {
	// ReadRound reads a reply; hidesCall says that the model called recover_text in it.
	ReadRound(body []byte) (r *Round, hidesCall bool)
	// NextRound records what the client sees of the reply that was read last.
	NextRound()
	// Compose returns one reply for all rounds; nil if the last one is not a reply.
	Compose() []byte
}

// maxNumbered limits the calls, blocks or items of a round. No model comes near.
const maxNumbered = 4096

// EventBuffer buffers the events of a reply for the client.
type EventBuffer struct {
	Out   []byte // for the client
	Round int    // the number of rounds before this one

	HidesCall bool // a call was hidden in this round
	Ended     bool // the finish reason was received
	Lost      bool // something was not understood or failed: no further round is requested
	Overflow  bool // the held events exceed the limit

	limit     int
	held      [][]byte // events that end the round, unless another follows
	heldBytes int
	saidBytes int // bytes buffered of the model's output
	last      disposition
}

// disposition is what was done with the last event.
type disposition uint8

const (
	passed disposition = iota
	dropped
	held
)

// NewEventBuffer returns a buffer that holds back at most limit bytes of events, and keeps at most limit bytes
// of the model's output in a round.
func NewEventBuffer(limit int) *EventBuffer { return &EventBuffer{limit: limit} }

// NextRound starts another round.
func (b *EventBuffer) NextRound() {
	b.Round++
	b.HidesCall, b.Ended = false, false
	b.held, b.heldBytes, b.saidBytes = nil, 0, 0
}

// TakeHeld returns and clears the held events.
func (b *EventBuffer) TakeHeld() [][]byte {
	out := b.held
	b.held = nil
	return out
}

// PassOrHold passes an event unchanged, or holds it if it belongs to the end of a round with hidden calls.
func (b *EventBuffer) PassOrHold(e *sse.RawEvent) {
	if b.HidesCall && b.Ended {
		b.Hold(e)
		return
	}
	b.Pass(e)
}

// Pass forwards an event to the client unchanged.
func (b *EventBuffer) Pass(e *sse.RawEvent) {
	b.last = passed
	b.Out = append(b.Out, e.Raw...)
}

// PassWith forwards an event to the client with other data.
func (b *EventBuffer) PassWith(e *sse.RawEvent, data []byte) {
	b.last = passed
	b.Out = e.AppendWith(b.Out, data)
}

// Drop drops an event.
func (b *EventBuffer) Drop() { b.last = dropped }

// Hold holds an event until it is known whether another round follows.
func (b *EventBuffer) Hold(e *sse.RawEvent) {
	b.last = held
	if b.heldBytes += len(e.Raw); b.heldBytes > b.limit {
		b.Overflow = true
		return
	}
	b.held = append(b.held, bytes.Clone(e.Raw))
}

// LateLF adds the LF that belongs to the end of the last event.
func (b *EventBuffer) LateLF() {
	switch {
	case b.last == passed:
		b.Out = append(b.Out, '\n')
	case b.last == held && len(b.held) > 0:
		at := len(b.held) - 1
		b.held[at] = append(b.held[at], '\n')
	}
}

// CheckCount refuses a round with too many calls, blocks or items; before is the number so far.
func (b *EventBuffer) CheckCount(before int) {
	if before >= maxNumbered {
		b.Lost, b.Overflow = true, true
	}
}

// Keep appends output of the model to a buffer, within the limit.
func (b *EventBuffer) Keep(dst, said []byte) []byte {
	if b.saidBytes += len(said); b.saidBytes > b.limit {
		b.Lost = true
		return dst
	}
	return append(dst, said...)
}

// Member is a member of the model's output that grows with the deltas of a stream.
type Member struct {
	Key   string
	Kind  byte // first byte of its raw value
	value []byte
}

// AddDelta adds a delta to its member: texts and lists grow, other values are replaced.
func (b *EventBuffer) AddDelta(to []Member, key, delta []byte) []Member {
	if !rawjson.IsSet(delta) {
		return to
	}
	at := 0
	for at < len(to) && to[at].Key != string(key) {
		at++
	}
	if at == len(to) {
		to = append(to, Member{Key: string(key), Kind: delta[0]})
	}
	m := &to[at]
	if delta[0] != m.Kind || m.Kind != '"' && m.Kind != '[' {
		m.Kind, m.value = delta[0], m.value[:0]
	}
	switch m.Kind {
	case '"':
		m.value = b.Keep(m.value, rawjson.Unwrap(delta))
	case '[':
		more := bytes.TrimSpace(rawjson.Unwrap(delta))
		if len(more) > 0 && len(m.value) > 0 {
			m.value = append(m.value, ',')
		}
		m.value = b.Keep(m.value, more)
	default:
		m.value = b.Keep(m.value, delta)
	}
	return to
}

// Raw is the member's value.
func (m *Member) Raw() []byte {
	switch m.Kind {
	case '"':
		return Quote(m.value)
	case '[':
		return rawjson.Array(m.value)
	}
	return m.value
}

// Quote puts raw text between quotes.
func Quote(raw []byte) []byte { return append(append([]byte{'"'}, raw...), '"') }

// SumUsage adds the usage of two rounds: numbers at any depth add up, lists are joined, and of anything else
// the later value counts. Either may be missing.
func SumUsage(a, b []byte) []byte { return mergeValues(a, b, sumValues) }

// UpdateUsage replaces earlier values of a round's usage by later ones.
func UpdateUsage(a, b []byte) []byte {
	return mergeValues(a, b, func(_, later []byte) []byte { return later })
}

// mergeValues merges two values member by member; values that are not objects are merged by leaf.
func mergeValues(a, b []byte, leaf func(a, b []byte) []byte) []byte {
	switch {
	case !rawjson.IsSet(b) && a != nil:
		return a
	case !rawjson.IsSet(a):
		return b
	case a[0] != '{' || b[0] != '{':
		return leaf(a, b)
	}
	var changes []jsonscan.Change
	rawjson.EachMember(b, rawjson.All(b), func(key []byte, value jsonscan.Span) {
		name := string(key)
		changes = append(changes, jsonscan.Change{Key: name, Value: mergeValues(rawjson.Member(a, name), value.Of(b), leaf)})
	})
	return rawjson.With(a, changes...)
}

func sumValues(a, b []byte) []byte {
	x, errX := strconv.ParseInt(string(a), 10, 64)
	y, errY := strconv.ParseInt(string(b), 10, 64)
	if errX == nil && errY == nil {
		total := x + y
		switch { // clients cannot read larger integers
		case x > 0 && y > 0 && total < 0:
			total = math.MaxInt64
		case x < 0 && y < 0 && total >= 0:
			total = math.MinInt64
		}
		return strconv.AppendInt(nil, total, 10)
	}
	if a[0] == '[' && b[0] == '[' {
		return rawjson.Array(append(rawjson.Elements(a), rawjson.Elements(b)...)...)
	}
	f, errF := strconv.ParseFloat(string(a), 64)
	g, errG := strconv.ParseFloat(string(b), 64)
	if errF != nil || errG != nil || math.IsInf(f+g, 0) {
		return b
	}
	return strconv.AppendFloat(nil, f+g, 'g', -1, 64)
}
