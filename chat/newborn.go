package chat

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"golang.org/x/sync/semaphore"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
)

// midwife shortens results when they are first sent, and ever after in the same way. It does so in
// two steps: look decides, without the store, and tells the conversation how long its results will
// be; once it is planned which of them are masked, cut keeps the originals of the others and gives
// the edits.
//
// What is decided depends on no clock: a text that takes long is waited for. Only a request whose
// client has left is given up, and that is not sent. So the bytes are the same under any load, in
// every process; a text that could not be kept goes whole, and is shortened as soon as it can be.
type midwife struct {
	keeper *recall.Recall
	known  *known
	busy   *semaphore.Weighted // bytes of text that are being read
}

// maxReading is how much text is read at once. Reading takes a few times as much memory.
const maxReading = 32 << 20

func newMidwife(keeper *recall.Recall) *midwife {
	return &midwife{keeper: keeper, known: newKnown(), busy: semaphore.NewWeighted(maxReading)}
}

// newborn is a text of a result that is to be shortened.
type newborn struct {
	result int
	text   jsonscan.Span
	edits  []jsonscan.Edit // of the text
}

func (n newborn) less() int {
	less := 0
	for _, e := range n.edits {
		less += e.Len() - len(e.Text)
	}
	return less
}

// appendEdits appends the edits as those of the whole body.
func (n newborn) appendEdits(dst []jsonscan.Edit) []jsonscan.Edit {
	for _, e := range n.edits {
		e.Start += n.text.Start
		e.End += n.text.Start
		dst = append(dst, e)
	}
	return dst
}

// look decides which texts of a request are shortened, and how. It tells talk what that leaves of
// each result, masked or not: all were shortened before they were masked. recovers says whether the
// model can read originals back.
func (w *midwife) look(ctx context.Context, o Outgoing, b Birth, talk *history.Dialogue, recovers bool) []newborn {
	if b.off() {
		return nil
	}
	var out []newborn
	var unsure error
	less := make([]int, len(talk.Results))
	goals := talk.Goals()
	general := b.rule(o.Who.Tenant(), recovers)
	for i := range talk.Results {
		r := &talk.Results[i]
		if r.Chars <= b.MaxChars || !b.takes(r) {
			continue
		}
		rule := general
		rule.failed = b.KeepErrors && r.SaysFailed()
		if b.Reduce == reducePrune && recovers {
			rule.goal = goals.Of(i)
		}
		for _, text := range r.Texts {
			edits, err := w.shorten(ctx, rule, text.Of(o.Body))
			unsure = cmp.Or(unsure, err)
			if n := (newborn{i, text, edits}); len(n.edits) > 0 {
				out = append(out, n)
				less[i] += n.less()
			}
		}
	}
	if unsure != nil {
		slog.WarnContext(ctx, "new tool results go whole: the store cannot tell whether they were cut before", "error", unsure)
	}
	talk.Reduced(less)
	return out
}

// shorten is how a text is shortened, found out once. An error means that the store could not tell
// whether it was cut before: then it goes whole, and the store is asked again next time.
func (w *midwife) shorten(ctx context.Context, u rule, raw []byte) ([]jsonscan.Edit, error) {
	if len(raw) <= u.MaxChars {
		return nil, nil
	}
	m := w.known.mark(u, raw)
	if edits, ok := w.known.get(m); ok {
		return edits, nil
	}
	need := min(int64(len(raw)), maxReading)
	if w.busy.Acquire(ctx, need) != nil {
		return nil, nil
	}
	defer w.busy.Release(need)
	edits, err := w.keeper.Shorten(ctx, u.draft(raw))
	switch {
	case err == nil:
		w.known.note(m, edits)
	case ctx.Err() != nil:
		return nil, nil // its client has left
	case fault.KindOf(err) == fault.Internal: // a mistake of ours, which is made once
		slog.ErrorContext(ctx, "a result goes whole: it cannot be shortened", "error", err)
		w.known.note(m, nil)
	default:
		return nil, err
	}
	return edits, nil
}

// cut keeps the originals of those that plan does not mask, and adds the edits for what was kept.
func (w *midwife) cut(ctx context.Context, o Outgoing, talk *history.Dialogue, plan *history.Plan, born []newborn, out *Shrunk) {
	if len(born) == 0 {
		return
	}
	masked := map[int]bool{}
	for _, c := range plan.Cuts {
		masked[c.Result] = true
	}
	born = slices.DeleteFunc(born, func(n newborn) bool { return masked[n.result] })
	if len(born) == 0 {
		return
	}
	texts := make([]recall.Text, len(born))
	for i, n := range born {
		texts[i].From = recall.Origin{Server: OriginOf(o.Provider), Tool: talk.Results[n.result].Name}
		texts[i].Raw = [][]byte{n.text.Of(o.Body)}
		texts[i].Made = func() []byte { return jsonscan.AppendSpliced(nil, n.text.Of(o.Body), n.edits) }
	}
	kept, err := w.keeper.KeepAll(ctx, o.Who.Tenant(), texts)
	if err != nil {
		slog.WarnContext(ctx, "new tool results go whole: their originals cannot be kept", "error", err)
	}
	var edits []jsonscan.Edit
	for i, n := range born {
		if kept[i].ID == "" {
			continue
		}
		edits = n.appendEdits(edits)
		r := &talk.Results[n.result]
		out.Cleared = addCleared(out.Cleared, Cleared{Tool: r.Name, Results: 1, Tokens: history.Tokens(n.less()), Born: true, New: r.Turn >= out.turns})
	}
	out.Edits = jsonscan.Merge(out.Edits, edits)
}
