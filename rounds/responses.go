package rounds

import (
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// responsesStream is the events of responses.
type responsesStream struct {
	*tape
	spent  []byte   // what the rounds before used
	before [][]byte // what the client has of their output
	items  []*item
	count  int    // items that the client was shown, in all rounds
	number int    // of the next event
	final  []byte // the round's response as its last event has it
}

// item is an item of the output as its events tell it.
type item struct {
	index  int
	hidden bool
	shown  int    // its index at the client
	done   []byte // as it ended
}

func (r *responsesStream) next() {
	r.spent = sum(r.spent, oneOf(r.final, "usage"))
	r.before = append(r.before, shownOf(r.final)...)
	r.items, r.final = nil, nil
}

var (
	responseKeys = []string{"type", "sequence_number", "output_index", "item", "response"}
	itemKeys     = []string{"type", "name"}
)

func (r *responsesStream) take(e *event) {
	if !isObject(e.data) {
		r.lost = r.lost || e.data != nil && string(e.data) != "[DONE]"
		r.pass(e)
		return
	}
	var at [5]jsonscan.Span
	pick(e.data, all(e.data), responseKeys, at[:])
	switch kind := jsonscan.TextOf(at[0].Of(e.data)); kind {
	case "response.created", "response.queued", "response.in_progress":
		if r.round > 0 {
			r.drop()
			return
		}
		r.relay(e, &at)
	case "response.completed", "response.incomplete", "response.failed":
		r.ending(e, kind, &at)
	case "error":
		r.lost = true
		r.relay(e, &at)
	default:
		r.part(e, kind, &at)
	}
}

// part takes an event of an item. What is of no item passes.
func (r *responsesStream) part(e *event, kind string, at *[5]jsonscan.Span) {
	index, ok := number(at[2].Of(e.data))
	if !ok || r.over {
		r.relay(e, at)
		return
	}
	it := r.find(index, at[3].Of(e.data))
	if kind == "response.output_item.done" {
		r.lost = r.lost || at[3].Len() == 0
		it.done = r.keep([]byte{}, at[3].Of(e.data))
	}
	if it.hidden {
		r.drop()
		return
	}
	var moved []jsonscan.Edit
	if it.shown != it.index {
		moved = append(moved, jsonscan.Edit{Span: at[2], Text: digits(it.shown)})
	}
	r.relay(e, at, moved...)
}

// find is the item of an index, or a new one. Its index at the client is its own, as long as nothing
// was taken away.
func (r *responsesStream) find(index int, raw []byte) *item {
	for _, old := range slices.Backward(r.items) {
		if old.index == index {
			return old
		}
	}
	r.begin(len(r.items))
	it := &item{index: index, hidden: hidesItem(raw)}
	r.items = append(r.items, it)
	switch {
	case it.hidden:
		r.hid = true
	case r.round == 0 && !r.hid:
		it.shown = index
		r.count = max(r.count, index+1)
	default:
		it.shown = r.count
		r.count++
	}
	return it
}

// hidesItem says that an item is a call of the tool that reads back.
func hidesItem(raw []byte) bool {
	var at [2]jsonscan.Span
	pick(raw, all(raw), itemKeys, at[:])
	return is(at[0].Of(raw), "function_call") && is(at[1].Of(raw), Tool)
}

// relay gives an event to the client under the next number, with other edits that stand after it or
// before it.
func (r *responsesStream) relay(e *event, at *[5]jsonscan.Span, edits ...jsonscan.Edit) {
	if r.hid && r.over {
		r.hold(e)
		return
	}
	if n, ok := number(at[1].Of(e.data)); ok {
		if r.round == 0 && !r.hid {
			r.number = n
		}
		if n != r.number {
			edits = jsonscan.Merge(edits, []jsonscan.Edit{{Span: at[1], Text: digits(r.number)}})
		}
		r.number++
	}
	if len(edits) == 0 {
		r.show(e)
		return
	}
	r.change(e, jsonscan.AppendSpliced(nil, e.data, edits))
}

// ending takes the event that has the whole response.
func (r *responsesStream) ending(e *event, kind string, at *[5]jsonscan.Span) {
	r.final = r.keep([]byte{}, at[4].Of(e.data))
	r.over = true
	r.lost = r.lost || kind == "response.failed"
	if r.hid || r.round == 0 {
		r.relay(e, at)
		return
	}
	r.relay(e, at, r.joined(e.data, at[4])...)
}

// joined makes the last response that of all rounds.
func (r *responsesStream) joined(data []byte, response jsonscan.Span) []jsonscan.Edit {
	f, err := jsonscan.ReadFields(data, response)
	if err != nil {
		return nil
	}
	return f.Edits(wholeResponse(response.Of(data), r.before, r.spent)...)
}

// wholeResponse makes a response one of all rounds. It keeps its own id: the provider knows by it
// all that was said, if the client goes on from there.
func wholeResponse(response []byte, before [][]byte, spent []byte) []jsonscan.Change {
	var changes []jsonscan.Change
	if oneOf(response, "output") != nil {
		changes = append(changes, jsonscan.Change{Key: "output", Value: list(append(slices.Clip(before), shownOf(response)...)...)})
	}
	if usage := oneOf(response, "usage"); usage != nil {
		changes = append(changes, jsonscan.Change{Key: "usage", Value: sum(spent, usage)})
	}
	return changes
}

// shownOf are the items of a response's output that the client may see.
func shownOf(response []byte) [][]byte {
	return slices.DeleteFunc(elements(oneOf(response, "output")), hidesItem)
}

func (r *responsesStream) last(e *event) {
	if !isObject(e.data) {
		r.show(e)
		return
	}
	var at [5]jsonscan.Span
	pick(e.data, all(e.data), responseKeys, at[:])
	r.hid = false // nothing is held back any more
	r.round = max(r.round, 1)
	r.relay(e, &at, r.joined(e.data, at[4])...)
}

func (r *responsesStream) said() *Round {
	items := make([][]byte, 0, len(r.items))
	for _, it := range r.items {
		if it.done == nil {
			return responsesRound(elements(oneOf(r.final, "output")), r.final)
		}
		items = append(items, it.done)
	}
	return responsesRound(items, r.final)
}

// responsesRound is what the model said in these items, nil if its calls cannot be answered.
func responsesRound(items [][]byte, response []byte) *Round {
	if status := oneOf(response, "status"); given(status) && !is(status, "completed") {
		return nil // the last call is not whole
	}
	unstored := string(oneOf(response, "store")) == "false"
	var r Round
	var said [][]byte
	for _, raw := range items {
		if is(oneOf(raw, "type"), "reasoning") && unstored && !says(oneOf(raw, "encrypted_content")) {
			continue
		}
		said = append(said, raw)
		if r.call(raw) {
			continue
		}
		r.Shown++
	}
	r.Said = list(said...)
	return r.checked()
}

// call notes whose call an item is, if it is one, and says whether the client must not see it. What
// the provider ran itself stands there with its output.
func (r *Round) call(raw []byte) bool {
	id, kind := jsonscan.TextOf(oneOf(raw, "call_id")), jsonscan.TextOf(oneOf(raw, "type"))
	switch {
	case hidesItem(raw):
		r.Calls = append(r.Calls, Call{ID: id, Args: argsOf(jsonscan.TextOf(oneOf(raw, "arguments")))})
		return true
	case id != "" && strings.HasSuffix(kind, "_call"):
		r.Others = append(r.Others, id)
	case id != "":
		r.Others = slices.DeleteFunc(r.Others, func(old string) bool { return old == id })
	}
	return false
}

// responsesPage is a response that comes in one piece.
type responsesPage struct {
	body   []byte
	before [][]byte
	spent  []byte
}

func (p *responsesPage) read(body []byte) (*Round, bool) {
	p.body = body
	items := elements(oneOf(body, "output"))
	if !slices.ContainsFunc(items, hidesItem) {
		return nil, false
	}
	return responsesRound(items, body), true
}

func (p *responsesPage) next() {
	p.before = append(p.before, shownOf(p.body)...)
	p.spent = sum(p.spent, oneOf(p.body, "usage"))
}

func (p *responsesPage) compose() []byte {
	return with(p.body, wholeResponse(p.body, p.before, p.spent)...)
}
