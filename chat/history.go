package chat

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/lately"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
)

// maxDepth is how deep a request may nest for its history to be read; a deeper one goes as it came.
const maxDepth = 256

// masker masks old tool results of conversations by their policy (H1–H9), each only after its
// original was kept (I1): what cannot be kept stays.
type masker struct {
	keeper *recall.Recall
	talks  *memory
	births *midwife
}

// recoverMark follows a placeholder that names no id, where the model has a tool to use it with.
const (
	pruneID     = "{prune_id}"
	recoverMark = " [recover: prune_id=" + pruneID + "]"
)

// Mask is the shrinking of conversations. now is the time by which the life of a provider's cache
// is measured.
func Mask(keeper *recall.Recall, now func() time.Time) Shrink {
	m := masker{keeper: keeper, talks: &memory{notes: keeper, now: now, here: lately.NewMap[string, record](memoryMost)}, births: newMidwife(keeper)}
	return m.shrink
}

func (m masker) shrink(ctx context.Context, o Outgoing) Shrunk {
	if !o.Policy.Enabled && o.Birth.off() || !m.keeper.Enabled() {
		return Shrunk{}
	}
	talk := o.Talk
	if talk == nil {
		return Shrunk{}
	}
	recovers := talk.Recovers()
	if recovers && !strings.Contains(o.Policy.Template, pruneID) {
		o.Policy.Template += recoverMark
	}
	out := Shrunk{Tokens: talk.Tokens()}
	born := m.births.look(ctx, o, o.Birth, talk, recovers)
	plan := m.plan(ctx, o, talk, &out)
	m.cut(ctx, o, talk, plan, &out)
	m.births.cut(ctx, o, talk, plan, born, &out)
	out.weigh(talk)
	return out
}

// plan decides what to mask. Where the provider's cache gives a discount, or the client marks what to
// cache, that depends on what was decided before, and on whether the cache is still alive.
func (m masker) plan(ctx context.Context, o Outgoing, talk *history.Dialogue, out *Shrunk) *history.Plan {
	prices := history.Cache{Write: o.Cache.Write, Read: o.Cache.Read}
	if talk.MarkLasts >= time.Hour {
		prices.Write = o.Cache.long()
	}
	marked := talk.Breakpoint >= 0 && !o.Policy.PastBreakpoints
	if len(talk.Turns) == 0 || prices.Read >= prices.Write && !marked {
		return talk.Plan(o.Policy, prices, nil)
	}
	first := talk.Prefix(1)
	name := "talk\x00" + o.Provider + "\x00" + o.Model + "\x00" + string(first[:])
	tenant := o.Who.Tenant()
	// However long this request asks the cache to live, the next may not: the store is never further
	// behind than a part of the usual.
	ttl, grain := max(o.Cache.TTL.D(), talk.Lasts), o.Cache.TTL.D()/4
	// Without marks only a dead cache decides what cannot be told from the conversation, and while it
	// is alive no other process takes it for dead.
	trust := grain
	if marked {
		trust = 0
	}
	rec, known := m.talks.recall(ctx, tenant, name, trust)
	front := talk.Front()
	if known {
		out.Standing = m.standing(talk, rec, front, ttl, grain)
		out.Before, out.turns = talk.TokensUpTo(rec.turns), rec.turns
	}
	events := talk.Own(rec.events)
	plan := talk.Plan(o.Policy, prices, events)
	decided := len(plan.Latch) > 0
	if out.Standing == meter.Expired {
		if swept := talk.Plan(o.Policy, prices, append(slices.Clip(events), talk.SweepNow())); len(swept.Cuts) > len(plan.Cuts) {
			plan, decided = swept, true
			rec.events = append(rec.events, talk.SweepNow())
		}
	}
	rec.events = append(rec.events, plan.Latch...)
	rec.turns, rec.said, rec.front = len(talk.Turns), talk.Prefix(len(talk.Turns)), front
	m.talks.note(ctx, tenant, name, rec, decided, grain)
	return plan
}

// standing says what the provider's cache should have of a conversation. That it has nothing any
// more is only said when it is sure: what the store knows of the last request may be behind by
// grain, and clocks differ.
func (m masker) standing(talk *history.Dialogue, rec record, front history.Sum, ttl, grain time.Duration) meter.Standing {
	switch idle := m.talks.now().Sub(rec.seen); {
	case idle > ttl+2*grain:
		return meter.Expired
	case front != rec.front || rec.turns > len(talk.Turns) || talk.Prefix(rec.turns) != rec.said:
		return meter.Changed
	}
	return meter.Warm
}

// made is what came of the first cuts of a conversation's plan. Its next requests mostly begin with
// the same.
type made struct {
	via     string
	cuts    []history.Cut
	turn    int // the request at which the last of them was masked
	edits   []jsonscan.Edit
	cleared []Cleared // none of it new any more
	until   time.Time // for so long it is sure that all of it is kept
	epoch   state.Epoch
}

// made is what came of an earlier request's cuts, if it can be used again: the plan begins with them,
// all is surely kept, and nothing of it is new.
func (m masker) made(plan *history.Plan, via string, now time.Time, epoch state.Epoch, turns int) made {
	old, ok := plan.Made().(made)
	if n := len(old.cuts); ok && old.via == via && old.turn <= turns && now.Before(old.until) && old.epoch == epoch &&
		n <= len(plan.Cuts) && slices.Equal(plan.Cuts[:n], old.cuts) {
		return old
	}
	return made{via: via, until: now.Add(state.MaxAckAge), epoch: epoch}
}

// OriginOf is the origin of texts that were in requests to a provider: the name of no server.
func OriginOf(provider string) string { return originPrefix + provider }

const originPrefix = "llm:"

// cut keeps what the plan masks, and gives the edits for what was kept.
func (m masker) cut(ctx context.Context, o Outgoing, talk *history.Dialogue, plan *history.Plan, out *Shrunk) {
	if len(plan.Cuts) == 0 {
		return
	}
	via, now, epoch := OriginOf(o.Provider), time.Now(), m.keeper.Epoch(ctx)
	old := m.made(plan, via, now, epoch, out.turns)
	if err := m.keep(ctx, o, talk, plan.Cuts[len(old.cuts):], via, now, epoch); err != nil {
		slog.WarnContext(ctx, "old tool results go whole: their originals cannot be kept", "error", err)
	}
	out.Edits = slices.Grow(slices.Clip(old.edits), len(plan.Cuts)-len(old.cuts))
	out.Cleared = slices.Clone(old.cleared)
	stay := plan.Stay
	for i := len(old.cuts); i < len(plan.Cuts); i++ {
		cut := plan.Cuts[i]
		r := &talk.Results[cut.Result]
		if r.Kept.ID == "" {
			stay = min(stay, i) // another time, perhaps
			continue
		}
		first, left := len(out.Edits), 0
		out.Edits = plan.AppendEdits(out.Edits, i, r.Kept.ID)
		for _, e := range out.Edits[first:] {
			left += e.Len() - len(e.Text)
		}
		fresh := cut.At > out.turns
		cleared := Cleared{Tool: r.Name, Results: 1, Tokens: history.Tokens(left), New: fresh}
		out.Cleared = addCleared(out.Cleared, cleared)
		out.Moved = out.Moved || fresh
		if i < stay {
			cleared.New = false
			old.cleared = addCleared(old.cleared, cleared)
			old.cuts, old.turn, old.edits = plan.Cuts[:i+1], max(old.turn, cut.At), out.Edits
			if r.Kept.Until.Before(old.until) {
				old.until = r.Kept.Until
			}
		}
	}
	plan.Remember(old)
}

// keep makes sure that the originals of what is masked are kept. Most were a moment ago, when the
// conversation was last here, and need no second look.
func (m masker) keep(ctx context.Context, o Outgoing, talk *history.Dialogue, cuts []history.Cut, via string, now time.Time, epoch state.Epoch) error {
	talk.Via(via)
	var texts []recall.Text
	var of []*history.Result
	for _, cut := range cuts {
		r := &talk.Results[cut.Result]
		if known := (recall.Kept{ID: r.Kept.ID, Until: r.Kept.Until, Epoch: state.Epoch(r.Kept.Epoch)}); known.Holds(now, epoch) {
			continue
		}
		t := recall.Text{From: recall.Origin{Server: via, Tool: r.Name}}
		for _, span := range r.Texts {
			t.Raw = append(t.Raw, span.Of(o.Body))
		}
		texts, of = append(texts, t), append(of, r)
	}
	if len(texts) == 0 {
		return nil
	}
	kept, err := m.keeper.KeepAll(ctx, o.Who.Tenant(), texts)
	for i, r := range of {
		r.Kept = history.Kept{ID: kept[i].ID, Until: kept[i].Until, Epoch: uint64(kept[i].Epoch)}
	}
	return err
}
