package masking

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
)

// Masker masks old tool results by their policy (H1–H9), each only after its original is stored (I1): a result
// that cannot be stored is sent whole.
type Masker struct {
	recall     *recall.Recall
	states     *conversationStates
	counts     inputCounts
	newResults *resultReducer
}

// recoverHint is appended to a template without a prune_id if the model has recover_text.
const (
	pruneID     = "{prune_id}"
	recoverHint = " [recover: prune_id=" + pruneID + "]"
)

// New returns a Masker. now is the clock for the lifetime of providers' caches.
func New(r *recall.Recall, now func() time.Time) *Masker {
	states := &conversationStates{recall: r, now: now, local: gencache.New[string, conversationState](maxLocalStates)}
	counts := inputCounts{gencache.New[string, history.Event](maxLocalStates)}
	return &Masker{r, states, counts, newResultReducer(r)}
}

// ForgetEdits drops the edits of all texts from memory, as when a tenant was forgotten: they have parts of texts.
func (m *Masker) ForgetEdits() { m.newResults.cache.edits.Clear() }

// Shrink computes the edits that shorten a request, after the originals of what they remove are stored.
func (m *Masker) Shrink(ctx context.Context, o Request) Result {
	dialogue := o.Dialogue
	if dialogue == nil || !m.recall.Enabled() {
		return Result{}
	}
	hubCuts := m.findHubCuts(ctx, o, dialogue)
	if isOff := !o.Policy.Enabled && o.NewResults.IsOff(); isOff && len(hubCuts) == 0 && !dialogue.HasReadBack() {
		return Result{NotMasking: "masking is off"}
	}
	canRecover := dialogue.OffersRecovery()
	switch {
	case !canRecover || strings.Contains(o.Policy.Template, pruneID):
	case o.Policy.Template == history.PlainTemplate:
		o.Policy.Template = history.PlainRecoverTemplate
	default:
		o.Policy.Template += recoverHint
	}
	out := Result{OriginalTokens: dialogue.Tokens()}
	reduced := m.newResults.planCuts(ctx, o, dialogue, canRecover)
	plan := m.planCuts(ctx, o, dialogue, &out)
	m.cutOldResults(ctx, o, dialogue, plan, &out)
	if mark, ok := plan.CacheMark(); ok {
		out.Edits = jsonscan.MergeEdits(out.Edits, []jsonscan.Edit{mark})
	}
	m.newResults.storeAndCut(ctx, o, dialogue, plan, reduced, &out)
	out.measureForLedger(dialogue)
	switch {
	case len(out.Cuts) > 0:
	case len(plan.Cuts)+len(reduced) > 0:
		out.NotMasking = "the originals cannot be stored"
	default:
		out.NotMasking = plan.WhyNot()
	}
	out.addHubCuts(dialogue, hubCuts)
	return out
}

// CountInput tells how many tokens of input the provider counted in a request that Shrink has seen: the next request of
// the conversation is measured by it.
func (m *Masker) CountInput(r Result, counted int64) {
	if r.sizeKey != "" {
		m.counts.put(r.sizeKey, r.size, counted)
	}
}

// planCuts decides which results are masked. If the provider's cache gives a discount, or the client marks
// what to cache, the decision also depends on earlier decisions, and on whether the cache has expired.
func (m *Masker) planCuts(ctx context.Context, o Request, dialogue *history.Dialogue, out *Result) *history.Plan {
	prices := o.forPlan(dialogue)
	marked := dialogue.Breakpoint >= 0 && !o.Policy.PastBreakpoints
	if len(dialogue.Turns) == 0 || prices.Read >= prices.Write && !marked {
		return dialogue.Plan(o.Policy, prices, nil)
	}
	first := dialogue.PrefixHash(1)
	name := "talk\x00" + o.Provider + "\x00" + o.Model + "\x00" + string(first[:])
	tenant := o.Tenant
	// Whatever lifetime this request asks for, the next may ask for less: so the stored state is never older
	// than a quarter of the usual lifetime.
	ttl, grain := max(o.CachePrices.TTL.D(), dialogue.CacheTTL), o.CachePrices.TTL.D()/4
	// Without marks the only decisions that the conversation does not tell are sweeps, and moves that keep a
	// request below a size. No process sweeps while the cache is alive: the local state can be trusted for that
	// long, unless a size is near.
	trust := grain
	near := isNearLimit(dialogue, prices)
	if marked || near {
		trust = 0
	}
	rec, known := m.states.load(ctx, tenant, name, trust)
	preamble := dialogue.PreambleHash()
	if known {
		out.CacheState = m.cacheState(dialogue, rec, preamble, ttl, grain)
		out.PreviousTokens, out.lastTurns = dialogue.TokensUpTo(rec.turns), rec.turns
	}
	events := dialogue.OwnEvents(rec.events)
	decided := false
	add := func(e history.Event) {
		events, rec.events, decided = append(slices.Clip(events), e), append(rec.events, e), true
	}
	if o.Policy.PastBreakpoints && !hasEvent(events, history.Unmarked) && dialogue.LeavesNoMark() && !dialogue.EndsWithReadBack() {
		add(dialogue.UnmarkedEvent())
	}
	plan := dialogue.Plan(o.Policy, prices, events)
	if out.CacheState == meter.CacheExpired {
		if swept := dialogue.Plan(o.Policy, prices, append(slices.Clip(events), dialogue.SweepEvent())); len(swept.Cuts) > len(plan.Cuts) {
			plan = swept
			add(dialogue.SweepEvent())
		}
	}
	if near {
		count := m.counts.newest(tenant+name, dialogue, rec.events)
		fit := dialogue.FitEvent()
		if fitted := dialogue.Plan(o.Policy, prices, append(slices.Clip(events), fit)); fitted.Tokens() < plan.Tokens() && needsFit(count, plan, fitted, prices) {
			plan = fitted
			add(fit)
		}
		if count.First > 0 { // in place of older ones
			rec.events = slices.DeleteFunc(slices.Clone(rec.events), func(e history.Event) bool { return e.Kind == history.Counted && e.Turn <= count.Turn })
			rec.events, decided = append(rec.events, count), true
		}
	}
	out.sizeKey, out.size = tenant+name, plan.CountEvent()
	rec.events, decided = append(rec.events, plan.Pins...), decided || len(plan.Pins) > 0
	rec.turns, rec.prefix, rec.preamble = len(dialogue.Turns), dialogue.PrefixHash(len(dialogue.Turns)), preamble
	m.states.save(ctx, tenant, name, rec, decided, grain)
	return plan
}

func hasEvent(events []history.Event, kind history.EventKind) bool {
	return slices.ContainsFunc(events, func(e history.Event) bool { return e.Kind == kind })
}

// cacheState returns what the provider's cache should have of a conversation. It is CacheExpired only if that
// is certain: the stored time of the last request may be behind by grain, and clocks differ.
func (m *Masker) cacheState(dialogue *history.Dialogue, rec conversationState, preamble history.Hash, ttl, grain time.Duration) meter.CacheState {
	switch idle := m.states.now().Sub(rec.lastRequestAt); {
	case idle > ttl+2*grain:
		return meter.CacheExpired
	case preamble != rec.preamble || rec.turns > len(dialogue.Turns) || dialogue.PrefixHash(rec.turns) != rec.prefix:
		return meter.PrefixChanged
	}
	return meter.CacheWarm
}

// ProviderOrigin is the origin of originals from requests to a provider. No server has such a name.
func ProviderOrigin(provider string) string { return originPrefix + provider }

const originPrefix = "llm:"

// cutOldResults stores the originals of what the plan masks, and adds the edits for what was stored.
func (m *Masker) cutOldResults(ctx context.Context, o Request, dialogue *history.Dialogue, plan *history.Plan, out *Result) {
	if len(plan.Cuts) == 0 {
		return
	}
	if err := m.storeOriginals(ctx, o, dialogue, plan.Cuts); err != nil {
		slog.WarnContext(ctx, "old tool results are sent whole: their originals cannot be stored", "error", err)
	}
	out.Edits = make([]jsonscan.Edit, 0, len(plan.Cuts))
	for i, cut := range plan.Cuts {
		r := &dialogue.Results[cut.Result]
		if r.Stored.ID == "" {
			continue // it stays whole this time
		}
		first, savedBytes := len(out.Edits), 0
		out.Edits = plan.AppendEdits(out.Edits, i, r.Stored.ID)
		for _, e := range out.Edits[first:] {
			savedBytes += e.Len() - len(e.Text)
		}
		isNew := cut.AtTurn > out.lastTurns
		out.Cuts = addCut(out.Cuts, ToolCut{Tool: r.Name, Results: 1, Tokens: history.Tokens(savedBytes), IsNew: isNew})
		out.BoundaryMoved = out.BoundaryMoved || isNew
	}
}

// storeOriginals makes sure that the originals of the cuts are stored. Most were stored for an earlier request
// of the conversation, and the store need not be asked again.
func (m *Masker) storeOriginals(ctx context.Context, o Request, dialogue *history.Dialogue, cuts []history.Cut) error {
	origin, now, epoch := ProviderOrigin(o.Provider), time.Now(), m.recall.Epoch(ctx)
	dialogue.SetKeeper(origin)
	var requests []recall.StoreRequest
	var results []*history.Result // of each request
	for _, cut := range cuts {
		r := &dialogue.Results[cut.Result]
		if known := (recall.Receipt{ID: r.Stored.ID, ValidUntil: r.Stored.Until, Epoch: state.Epoch(r.Stored.Epoch)}); known.Valid(now, epoch) {
			continue
		}
		t := recall.StoreRequest{Origin: recall.Origin{Server: origin, Tool: r.Name, Scope: o.Scope}, CallID: r.CallID}
		for _, span := range r.Texts {
			t.Raw = append(t.Raw, span.Of(o.Body))
		}
		requests, results = append(requests, t), append(results, r)
	}
	if len(requests) == 0 {
		return nil
	}
	receipts, err := m.recall.StoreAll(ctx, o.Tenant, requests)
	for i, r := range results {
		r.Stored = history.Stored{ID: receipts[i].ID, Until: receipts[i].ValidUntil, Epoch: uint64(receipts[i].Epoch)}
	}
	return err
}
