package responses

import (
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/internal/rawjson"
	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// streamMerger merges the event streams of responses.
type streamMerger struct {
	*llm.EventBuffer
	spent  []byte   // usage of the earlier rounds
	before [][]byte // their output as shown to the client
	items  []*item
	count  int    // items shown to the client in all rounds
	number int    // sequence number of the next event
	final  []byte // the round's response from its last event
}

// item is an item of the output, collected from its events.
type item struct {
	index  int
	hidden bool
	shown  int    // its index as the client sees it
	done   []byte // from its done event
}

func (r *streamMerger) NextRound() {
	r.spent = llm.SumUsage(r.spent, rawjson.Member(r.final, "usage"))
	r.before = append(r.before, shownOf(r.final)...)
	r.items, r.final = nil, nil
}

var (
	eventKeys = []string{"type", "sequence_number", "output_index", "item", "response"}
	itemKeys  = []string{"type", "name"}
)

func (r *streamMerger) AddEvent(e *sse.RawEvent) {
	if !rawjson.IsObject(e.Data) {
		r.Lost = r.Lost || e.Data != nil && string(e.Data) != "[DONE]"
		r.PassOrHold(e)
		return
	}
	var at [5]jsonscan.Span
	rawjson.FindMembers(e.Data, rawjson.All(e.Data), eventKeys, at[:])
	switch kind := jsonscan.DecodeString(at[0].Of(e.Data)); kind {
	case "response.created", "response.queued", "response.in_progress":
		if r.Round > 0 {
			r.Drop()
			return
		}
		r.passEvent(e, &at)
	case "response.completed", "response.incomplete", "response.failed":
		r.endResponse(e, kind, &at)
	case "error":
		r.Lost = true
		r.passEvent(e, &at)
	default:
		r.addItemEvent(e, kind, &at)
	}
}

// addItemEvent reads an event of an item. Other events pass.
func (r *streamMerger) addItemEvent(e *sse.RawEvent, kind string, at *[5]jsonscan.Span) {
	index, ok := rawjson.Int(at[2].Of(e.Data))
	if !ok || r.Ended {
		r.passEvent(e, at)
		return
	}
	it := r.findItem(index, at[3].Of(e.Data))
	if kind == "response.output_item.done" {
		r.Lost = r.Lost || at[3].Len() == 0
		it.done = r.Keep([]byte{}, at[3].Of(e.Data))
	}
	if it.hidden {
		r.Drop()
		return
	}
	var moved []jsonscan.Edit
	if it.shown != it.index {
		moved = append(moved, jsonscan.Edit{Span: at[2], Text: rawjson.FromInt(it.shown)})
	}
	r.passEvent(e, at, moved...)
}

// findItem returns the item of an index, or a new one. Its index for the client is the original one until an
// item was hidden.
func (r *streamMerger) findItem(index int, raw []byte) *item {
	for _, old := range slices.Backward(r.items) {
		if old.index == index {
			return old
		}
	}
	r.CheckCount(len(r.items))
	it := &item{index: index, hidden: isRecoverCall(raw)}
	r.items = append(r.items, it)
	switch {
	case it.hidden:
		r.HidesCall = true
	case r.Round == 0 && !r.HidesCall:
		it.shown = index
		r.count = max(r.count, index+1)
	default:
		it.shown = r.count
		r.count++
	}
	return it
}

// isRecoverCall says whether an item is a call of recover_text.
func isRecoverCall(raw []byte) bool {
	var at [2]jsonscan.Span
	rawjson.FindMembers(raw, rawjson.All(raw), itemKeys, at[:])
	return rawjson.IsString(at[0].Of(raw), "function_call") && rawjson.IsString(at[1].Of(raw), recovertool.Name)
}

// passEvent forwards an event to the client with the next sequence number and other edits.
func (r *streamMerger) passEvent(e *sse.RawEvent, at *[5]jsonscan.Span, edits ...jsonscan.Edit) {
	if r.HidesCall && r.Ended {
		r.Hold(e)
		return
	}
	if n, ok := rawjson.Int(at[1].Of(e.Data)); ok {
		if r.Round == 0 && !r.HidesCall {
			r.number = n
		}
		if n != r.number {
			edits = jsonscan.MergeEdits(edits, []jsonscan.Edit{{Span: at[1], Text: rawjson.FromInt(r.number)}})
		}
		r.number++
	}
	if len(edits) == 0 {
		r.Pass(e)
		return
	}
	r.PassWith(e, jsonscan.AppendSpliced(nil, e.Data, edits))
}

// endResponse reads the event with the whole response.
func (r *streamMerger) endResponse(e *sse.RawEvent, kind string, at *[5]jsonscan.Span) {
	r.final = r.Keep([]byte{}, at[4].Of(e.Data))
	r.Ended = true
	r.Lost = r.Lost || kind == "response.failed"
	if r.HidesCall || r.Round == 0 {
		r.passEvent(e, at)
		return
	}
	r.passEvent(e, at, r.totalEdits(e.Data, at[4])...)
}

// totalEdits turn the last response into that of all rounds.
func (r *streamMerger) totalEdits(data []byte, response jsonscan.Span) []jsonscan.Edit {
	f, err := jsonscan.ReadFields(data, response)
	if err != nil {
		return nil
	}
	return f.Edits(totalChanges(response.Of(data), r.before, r.spent)...)
}

// totalChanges turn a response into that of all rounds. It keeps its own id, by which the provider finds the
// whole conversation if the client continues it.
func totalChanges(response []byte, before [][]byte, spent []byte) []jsonscan.Change {
	var changes []jsonscan.Change
	if rawjson.Member(response, "output") != nil {
		changes = append(changes, jsonscan.Change{Key: "output", Value: rawjson.Array(append(slices.Clip(before), shownOf(response)...)...)})
	}
	if usage := rawjson.Member(response, "usage"); usage != nil {
		changes = append(changes, jsonscan.Change{Key: "usage", Value: llm.SumUsage(spent, usage)})
	}
	return changes
}

// shownOf returns the items of a response's output that the client may see.
func shownOf(response []byte) [][]byte {
	return slices.DeleteFunc(rawjson.Elements(rawjson.Member(response, "output")), isRecoverCall)
}

func (r *streamMerger) EndEvent(e *sse.RawEvent) {
	if !rawjson.IsObject(e.Data) {
		r.Pass(e)
		return
	}
	var at [5]jsonscan.Span
	rawjson.FindMembers(e.Data, rawjson.All(e.Data), eventKeys, at[:])
	r.HidesCall = false // events are no longer held
	r.Round = max(r.Round, 1)
	r.passEvent(e, &at, r.totalEdits(e.Data, at[4])...)
}

func (r *streamMerger) Said() *llm.Round {
	items := make([][]byte, 0, len(r.items))
	for _, it := range r.items {
		if it.done == nil {
			return newRound(rawjson.Elements(rawjson.Member(r.final, "output")), r.final)
		}
		items = append(items, it.done)
	}
	return newRound(items, r.final)
}

// newRound makes a round of these items; nil if its calls cannot be answered.
func newRound(items [][]byte, response []byte) *llm.Round {
	if status := rawjson.Member(response, "status"); rawjson.IsSet(status) && !rawjson.IsString(status, "completed") {
		return nil // the last call is truncated
	}
	unstored := string(rawjson.Member(response, "store")) == "false"
	var r llm.Round
	var said [][]byte
	for _, raw := range items {
		if rawjson.IsString(rawjson.Member(raw, "type"), "reasoning") && unstored && rawjson.IsEmpty(rawjson.Member(raw, "encrypted_content")) {
			continue
		}
		said = append(said, raw)
		if addCall(&r, raw) {
			continue
		}
		r.Shown++
	}
	r.Said = rawjson.Array(said...)
	return r.IfAnswerable()
}

// addCall records whose call an item is, if it is one, and reports whether to hide it from the client. A call
// that the provider ran itself comes with its output.
func addCall(r *llm.Round, raw []byte) bool {
	id, kind := jsonscan.DecodeString(rawjson.Member(raw, "call_id")), jsonscan.DecodeString(rawjson.Member(raw, "type"))
	switch {
	case isRecoverCall(raw):
		r.Calls = append(r.Calls, llm.RecoverCall{ID: id, Args: llm.ArgsOf(jsonscan.DecodeString(rawjson.Member(raw, "arguments")))})
		return true
	case id != "" && strings.HasSuffix(kind, "_call"):
		r.Others = append(r.Others, id)
	case id != "":
		r.Others = slices.DeleteFunc(r.Others, func(old string) bool { return old == id })
	}
	return false
}

// documentMerger merges responses that are not streamed.
type documentMerger struct {
	body   []byte
	before [][]byte
	spent  []byte
}

func (p *documentMerger) ReadRound(body []byte) (*llm.Round, bool) {
	p.body = body
	items := rawjson.Elements(rawjson.Member(body, "output"))
	if !slices.ContainsFunc(items, isRecoverCall) {
		return nil, false
	}
	return newRound(items, body), true
}

func (p *documentMerger) NextRound() {
	p.before = append(p.before, shownOf(p.body)...)
	p.spent = llm.SumUsage(p.spent, rawjson.Member(p.body, "usage"))
}

func (p *documentMerger) Compose() []byte {
	return rawjson.With(p.body, totalChanges(p.body, p.before, p.spent)...)
}
