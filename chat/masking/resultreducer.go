package masking

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"slices"

	"golang.org/x/sync/semaphore"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
)

// resultReducer shortens tool results when they are first sent, and in the same way ever after. planCuts
// decides, without storing anything, and tells the conversation how long its results will be; once it is
// decided which of them the window masks, storeAndCut stores the originals of the others and returns the
// edits.
//
// The decision does not depend on time: a text that takes long is waited for, and a request is given up
// only if its client has left. So the bytes are the same under any load and in every process. A text whose
// original cannot be stored is sent whole, and shortened as soon as it can be.
type resultReducer struct {
	recall *recall.Recall
	cache  *editCache
	busy   *semaphore.Weighted // bytes of text that are being reduced
}

// maxReducing bounds the text that is reduced at once, which takes a few times as much memory.
const maxReducing = 32 << 20

func newResultReducer(r *recall.Recall) *resultReducer {
	return &resultReducer{recall: r, cache: newEditCache(), busy: semaphore.NewWeighted(maxReducing)}
}

// reducedText is a text of a result that is to be shortened.
type reducedText struct {
	result int
	text   jsonscan.Span
	edits  []jsonscan.Edit // of the text
}

// savedBytes is how much shorter the text becomes.
func (t reducedText) savedBytes() int {
	n := 0
	for _, e := range t.edits {
		n += e.Len() - len(e.Text)
	}
	return n
}

// planCuts decides which texts of a request are shortened, and how. It tells the dialogue how much
// shorter each result becomes, also those that the window masks: they were shortened before.
func (w *resultReducer) planCuts(ctx context.Context, o Request, dialogue *history.Dialogue, canRecover bool) []reducedText {
	b := o.NewResults
	if b.IsOff() {
		return nil
	}
	var out []reducedText
	var lookupErr error
	saved := make([]int, len(dialogue.Results))
	goals := dialogue.Goals()
	general := b.textPolicy(o.Tenant, canRecover)
	for i := range dialogue.Results {
		r := &dialogue.Results[i]
		if r.Chars <= b.MaxChars || !b.matches(r) {
			continue
		}
		policy := general
		policy.IsError = b.KeepErrors && r.IsMarkedError()
		if policy.NeedsGoal() {
			policy.Goal = goals.Of(i)
		}
		for _, text := range r.Texts {
			edits, err := w.planText(ctx, policy, text.Of(o.Body))
			lookupErr = cmp.Or(lookupErr, err)
			if t := (reducedText{i, text, edits}); len(t.edits) > 0 {
				out = append(out, t)
				saved[i] += t.savedBytes()
			}
		}
	}
	if lookupErr != nil {
		slog.WarnContext(ctx, "new tool results are sent whole: the store cannot tell whether they were cut before", "error", lookupErr)
	}
	dialogue.SetReductions(saved)
	return out
}

// planText returns the edits of a text, from the cache if it was seen before. An error means that the
// store could not tell whether the text was cut before: it is sent whole, and the store is asked again
// next time.
func (w *resultReducer) planText(ctx context.Context, p textPolicy, raw []byte) ([]jsonscan.Edit, error) {
	if len(raw) <= p.MaxChars {
		return nil, nil
	}
	key := w.cache.key(p, raw)
	if edits, ok := w.cache.edits.Get(key); ok {
		return edits, nil
	}
	size := min(int64(len(raw)), maxReducing)
	if w.busy.Acquire(ctx, size) != nil {
		return nil, nil
	}
	defer w.busy.Release(size)
	policy := p.Policy
	policy.IsError = policy.IsError || p.keepErrors && history.LooksLikeError(raw)
	edits, err := w.recall.PlanShrink(ctx, recall.PlanRequest{Tenant: p.tenant, Raw: raw, Policy: policy})
	switch {
	case err == nil:
		w.cache.putEdits(key, edits)
	case ctx.Err() != nil:
		return nil, nil // the client has left
	case fault.KindOf(err) == fault.Internal: // a bug, which is not hit again
		slog.ErrorContext(ctx, "a tool result is sent whole: reducing it failed", "error", err)
		w.cache.putEdits(key, nil)
	default:
		return nil, err
	}
	return edits, nil
}

// storeAndCut stores the originals of the texts that plan does not mask, and adds the edits of those
// that were stored to out.
func (w *resultReducer) storeAndCut(ctx context.Context, o Request, dialogue *history.Dialogue, plan *history.Plan, reduced []reducedText, out *Result) {
	if len(reduced) == 0 {
		return
	}
	masked := map[int]bool{}
	for _, c := range plan.Cuts {
		masked[c.Result] = true
	}
	reduced = slices.DeleteFunc(reduced, func(t reducedText) bool { return masked[t.result] })
	if len(reduced) == 0 {
		return
	}
	requests := make([]recall.StoreRequest, len(reduced))
	for i, t := range reduced {
		requests[i].Origin = recall.Origin{Server: ProviderOrigin(o.Provider), Tool: dialogue.Results[t.result].Name, Scope: o.Scope}
		requests[i].CallID = dialogue.Results[t.result].CallID
		requests[i].Raw = [][]byte{t.text.Of(o.Body)}
		requests[i].Replacement = func() []byte { return jsonscan.AppendSpliced(nil, t.text.Of(o.Body), t.edits) }
	}
	stored, err := w.recall.StoreAll(ctx, o.Tenant, requests)
	if err != nil {
		slog.WarnContext(ctx, "new tool results are sent whole: their originals cannot be stored", "error", err)
	}
	var edits []jsonscan.Edit
	for i, t := range reduced {
		if stored[i].ID == "" {
			continue
		}
		for _, e := range t.edits { // as edits of the whole body
			e.Start += t.text.Start
			e.End += t.text.Start
			edits = append(edits, e)
		}
		r := &dialogue.Results[t.result]
		out.Cuts = addCut(out.Cuts, ToolCut{Tool: r.Name, Results: 1, Tokens: history.Tokens(t.savedBytes()), NeverSent: true, IsNew: r.Turn >= out.lastTurns})
	}
	out.Edits = jsonscan.MergeEdits(out.Edits, edits)
}

// editCache remembers the edits of texts, which a conversation shows again on every turn. It only saves
// time: edits that were dropped are computed again, to the byte.
type editCache struct {
	hasher gencache.Hasher
	edits  *gencache.Cache[gencache.Fingerprint, []jsonscan.Edit]
}

const (
	editCacheBytes = 16 << 20 // of each generation
	entryBytes     = 64       // of an entry beside its edits
	editBytes      = 48
)

func newEditCache() *editCache {
	return &editCache{gencache.NewHasher(), gencache.New[gencache.Fingerprint, []jsonscan.Edit](editCacheBytes)}
}

func (c *editCache) key(p textPolicy, raw []byte) gencache.Fingerprint {
	return c.hasher.Sum(func(h *maphash.Hash) {
		maphash.WriteComparable(h, p)
		_, _ = h.Write(raw)
	})
}

func (c *editCache) putEdits(key gencache.Fingerprint, edits []jsonscan.Edit) {
	weight := entryBytes
	for _, e := range edits {
		weight += editBytes + len(e.Text)
	}
	c.edits.Put(key, edits, weight)
}
