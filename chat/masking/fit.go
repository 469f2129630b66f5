package masking

import (
	"slices"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/gencache"
)

// inputCounts remembers how many tokens the provider counted in the last request of each conversation, as the event
// Counted. Bytes tell tokens only to within a third, which is too coarse for a price step: the first request above it
// costs several times as much. The provider's count of the last request, and an estimate of what was added since, are
// good to a hundredth. A move that was made because of it is an event too, so that later requests decide the same,
// whatever is counted then.
type inputCounts struct {
	last *gencache.Cache[string, history.Event]
}

// The bounds of a plausible count per estimated token: a reply may also count what a request only refers to.
const (
	minTokenRatio = 0.4
	maxTokenRatio = 2.5
)

// put records what the provider counted in a request.
func (n inputCounts) put(key string, e history.Event, counted int64) {
	if ratio := float64(counted) / float64(max(1, e.First)); ratio >= minTokenRatio && ratio <= maxTokenRatio {
		e.End = int(counted)
		n.last.Put(key, e, 1)
	}
}

// newest is the newest count of a conversation: its own, or one among the stored events, which another replica may
// have counted. It is zero if there is none.
func (n inputCounts) newest(key string, dialogue *history.Dialogue, stored []history.Event) (newest history.Event) {
	own, _ := n.last.Get(key)
	for _, e := range dialogue.OwnEvents(append(slices.Clip(stored), own)) {
		if e.Kind == history.Counted && e.First > 0 && e.Turn >= newest.Turn {
			newest = e
		}
	}
	return newest
}

// expectTokens is how many tokens the provider will count for a request, rather too many than too few, given its
// count of an earlier one.
func expectTokens(last history.Event, estimated int) int {
	if last.First == 0 {
		return estimated + estimated/10
	}
	added := float64(estimated-last.First) * float64(last.End) / float64(last.First)
	slack := max(added, -added)/10 + float64(last.End)/200
	return last.End + int(added+slack)
}

// sizeLimit is a size of a request that it should not exceed.
type sizeLimit struct {
	tokens int
	factor float64 // of the price above it; 0: the provider refuses it
}

func sizeLimits(p history.CachePrices) []sizeLimit {
	limits := []sizeLimit{{p.Step.AboveTokens, p.Step.Factor}, {tokens: p.ContextTokens}}
	return slices.DeleteFunc(limits, func(l sizeLimit) bool { return l.tokens <= 0 })
}

// isNearLimit says whether a conversation may be about to exceed a limit, whatever its tokens are.
func isNearLimit(dialogue *history.Dialogue, p history.CachePrices) bool {
	return slices.ContainsFunc(sizeLimits(p), func(l sizeLimit) bool { return 2*dialogue.Tokens() > l.tokens })
}

// needsFit says whether the plan's request would exceed a limit that the other plan, which masks more, keeps, and
// whether that is worth it.
func needsFit(count history.Event, plan, fitted *history.Plan, p history.CachePrices) bool {
	before, after := expectTokens(count, plan.Tokens()), expectTokens(count, fitted.Tokens())
	return slices.ContainsFunc(sizeLimits(p), func(l sizeLimit) bool {
		return before > l.tokens && after <= l.tokens && (l.factor == 0 || fitted.PaysToFit(l.factor))
	})
}
