package chat

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/chat/readback"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/recall"
)

// readbackState is the state of one request that offers recover_text to the model. The client does not know
// the tool: the proxy answers its calls.
type readbackState struct {
	Recovery
	codec    llm.ReadbackCodec
	dialogue *history.Dialogue  // as the client sent it
	body     []byte             // with the tool and all rounds so far, unmasked
	marks    llm.CacheMarkCodec // sets a cache_control on each round; nil if the client sets none
	hidden   readback.Record    // the rounds that the client is not shown
	reply    history.Reply      // what the client was shown by the rounds before the last
}

// offerTool adds recover_text to a request and restores the hidden rounds of earlier replies. It returns nil
// if the tool is not offered. It fails open: on a panic the request is sent unchanged.
func (px *Proxy) offerTool(ctx context.Context, c *call) (r *readbackState) {
	cfg := c.plan.Chat.ObservationMasking.Recovery
	if !cfg.Offer || px.deps.Recall == nil || !px.deps.Recall.Enabled() {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "offering recover_text panicked: the request is sent unchanged", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			r = nil
		}
	}()
	dialogue := c.dialogue
	if dialogue == nil || c.EventsParam != c.eventsParam() {
		return nil
	}
	tool, ok := readback.OfferTool(dialogue, c.body)
	if !ok {
		return nil
	}
	codec := c.codec.(llm.ReadbackCodec) // OfferTool refuses every other codec
	edits := jsonscan.MergeEdits([]jsonscan.Edit{tool}, px.restoreHidden(ctx, c, codec, dialogue))
	size := jsonscan.SplicedLen(c.body, edits)
	if c.memory.Reserve(int64(size)) != nil {
		return nil // no memory for a second body: send the request unchanged
	}
	body := jsonscan.AppendSpliced(make([]byte, 0, size), c.body, edits)
	c.body = body
	c.plan.conversations.Put(dialogue) // masking reads the body with the tool instead
	r = &readbackState{Recovery: cfg, codec: codec, dialogue: dialogue, body: body}
	if marks, ok := codec.(llm.CacheMarkCodec); ok && dialogue.Breakpoint >= 0 && marks.MayMark(body) {
		r.marks = marks
	}
	return r
}

// Three kinds of records are stored. conversationKey: this conversation has hidden rounds. replyKey: the
// hidden rounds of one reply. pendingKey: the unanswered calls of a reply that the provider stores.
func conversationKey(dialogue *history.Dialogue) string {
	first := dialogue.PrefixHash(1)
	return "rounds of\x00" + string(first[:])
}

func replyKey(r history.Reply) string {
	place := r.Place()
	return "rounds at\x00" + string(place[:])
}

func pendingKey(id string) string { return "rounds due\x00" + id }

// restoreTimeout bounds the wait for hidden rounds; after it the request is sent without them.
const restoreTimeout = 5 * time.Second

// restoreHidden returns the edits that restore hidden rounds. Most conversations have none: for them the
// store is asked once. In the others, a reply found without hidden rounds is not looked up again: hidden
// rounds are stored before the client has the reply, so it never gets any later.
func (px *Proxy) restoreHidden(ctx context.Context, c *call, codec llm.ReadbackCodec, dialogue *history.Dialogue) (edits []jsonscan.Edit) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	var err error
	if len(dialogue.Turns) > 0 {
		if _, err = px.deps.Recall.GetRecord(ctx, c.caller.Tenant(), conversationKey(dialogue)); err == nil {
			edits, err = px.restoreReplies(ctx, c, dialogue)
		}
	}
	if stateful, ok := codec.(llm.StatefulCodec); ok && len(edits) == 0 {
		if id := stateful.PreviousReplyID(dialogue.Other); id != "" {
			var rec *readback.Record
			if rec, err = px.loadRecord(ctx, c, pendingKey(id)); err == nil {
				edits, err = rec.AnswerPending(codec, c.body)
			}
		}
	}
	if err != nil && fault.KindOf(err) != fault.UnknownHandle {
		slog.WarnContext(ctx, "hidden rounds cannot be restored: the request is sent without them", "error", err)
	}
	return edits
}

func (px *Proxy) loadRecord(ctx context.Context, c *call, key string) (*readback.Record, error) {
	raw, err := px.deps.Recall.GetRecord(ctx, c.caller.Tenant(), key)
	if err != nil {
		return nil, err
	}
	return readback.DecodeRecord(raw)
}

func (px *Proxy) restoreReplies(ctx context.Context, c *call, dialogue *history.Dialogue) (edits []jsonscan.Edit, err error) {
	for _, reply := range dialogue.Replies() {
		name := reply.Identity()
		key := c.caller.Tenant() + "\x00" + string(name[:])
		if _, nothing := px.unhiddenReplies.Get(key); nothing {
			continue
		}
		rec, err := px.loadRecord(ctx, c, replyKey(reply))
		if err != nil {
			if fault.KindOf(err) != fault.UnknownHandle {
				return edits, err
			}
			px.unhiddenReplies.Put(key, struct{}{}, 1)
			continue
		}
		if more, ok := rec.Restore(dialogue, c.body, reply); ok {
			edits = append(edits, more...)
		}
	}
	return edits, nil
}

// storeRound stores a hidden round before the client is shown any part of the next one. If the store fails,
// later requests lack this round; nothing else is lost.
func (px *Proxy) storeRound(ctx context.Context, c *call, round *llm.Round, answers []llm.Answer) {
	r := c.readback
	if len(r.hidden.Steps) == 0 {
		r.reply = r.dialogue.Next(r.dialogue.Replies())
	}
	r.hidden.Add(round, answers)
	r.codec.ReadSaid(&r.reply.Statement, round.Said)
	r.reply.Calls = round.Others
	if round.Mixed {
		r.hidden.Reply = r.reply.Identity()
	}
	px.storeHidden(ctx, c)
}

func (px *Proxy) storeHidden(ctx context.Context, c *call) {
	r := c.readback
	if len(r.dialogue.Turns) == 0 {
		return // a conversation without results cannot be recognized yet
	}
	px.putRecords(ctx, c, recall.Record{Name: conversationKey(r.dialogue)}, recall.Record{Name: replyKey(r.reply), Value: r.hidden.Encode()})
}

// storeIdentity stores which reply the hidden rounds belong to, once the client was shown all of it.
func (px *Proxy) storeIdentity(ctx context.Context, c *call, shown *readback.ReplyObserver) {
	if r := c.readback; len(r.hidden.Steps) > 0 && shown.AddTo(&r.reply.Statement) {
		r.hidden.Reply = r.reply.Identity()
		px.storeHidden(ctx, c)
	}
}

// forgetHidden removes the hidden rounds of a reply that the client did not get.
func (px *Proxy) forgetHidden(ctx context.Context, c *call) {
	if r := c.readback; len(r.hidden.Steps) > 0 {
		r.hidden = readback.Record{}
		px.storeHidden(ctx, c)
	}
}

// storeLastRound stores the recover_text calls of the last round, which are hidden too. If the round also
// calls the client's tools, they are answered when the client answers those. If the provider stores the
// conversation, they are answered in the next request that continues this reply by its id.
func (px *Proxy) storeLastRound(ctx context.Context, c *call, last *llm.Round, replyID string) {
	answers := px.answerCalls(ctx, c, last, false)
	switch r := c.readback; {
	case last.Mixed:
		px.storeRound(ctx, c, last, answers)
	case len(r.hidden.Steps) > 0:
		r.codec.ReadSaid(&r.reply.Statement, last.Said)
		r.reply.Calls = nil
		r.hidden.Reply = r.reply.Identity()
		px.storeHidden(ctx, c)
	}
	if replyID != "" {
		pending := readback.Record{Steps: []llm.Step{{Answers: answers}}}
		px.putRecords(ctx, c, recall.Record{Name: pendingKey(replyID), Value: pending.Encode()})
	}
}

// putRecords stores records even if the client has disconnected: it may continue the conversation later.
func (px *Proxy) putRecords(ctx context.Context, c *call, records ...recall.Record) {
	if err := px.deps.Recall.PutRecords(context.WithoutCancel(ctx), c.caller.Tenant(), records...); err != nil {
		slog.WarnContext(ctx, "hidden rounds cannot be stored: later requests go without them", "error", err)
	}
}

// answerCalls answers the recover_text calls of a round. An error becomes an answer for the model, which can
// continue without the text; the client could do nothing about it.
func (px *Proxy) answerCalls(ctx context.Context, c *call, round *llm.Round, last bool) []llm.Answer {
	out := make([]llm.Answer, len(round.Calls))
	for i, call := range round.Calls {
		var text string
		err := errManyCalls
		if i < maxCalls {
			text, err = px.recoverText(ctx, c.plan.Gate, c.caller, call.Args, c.readback.MaxChars/min(len(out), maxCalls))
		}
		if err != nil {
			slog.DebugContext(ctx, "a recover_text call of a model failed", "error", err)
			text = explainFailure(err)
		}
		out[i] = llm.Answer{ID: call.ID, Text: text, Failed: err != nil}
	}
	if last {
		out[len(out)-1].Text += lastAnswerNote
	}
	return out
}

// maxCalls bounds the calls answered per round: each may cost a search.
const maxCalls = 16

var errManyCalls error = fault.New(fault.BadParams, "too many calls at once; at most "+strconv.Itoa(maxCalls)+" are answered, call again")

// lastAnswerNote tells the model not to make a call that would not be answered.
const lastAnswerNote = "\n[You have read back as often as you can before you answer: go on with what you know.]"

// CanRead reports whether a caller may read back what came from an origin: a provider that is configured now, in
// requests of the caller itself where the access rules tell callers apart.
func (px *Proxy) CanRead(c auth.Caller, o recall.Origin) bool {
	if scope := px.active.Load().Gate.SubjectScope(c); scope != "" && scope != o.Scope {
		return false
	}
	return slices.ContainsFunc(px.active.Load().providers, func(p *provider) bool { return masking.ProviderOrigin(p.Name) == o.Server })
}

func (px *Proxy) recoverText(ctx context.Context, g *gate.Gate, who auth.Caller, args []byte, chars int) (string, error) {
	request, err := recall.ParseReadRequest(args)
	if err != nil {
		return "", err
	}
	may := px.deps.MayRead
	if may == nil {
		may = px.CanRead
	}
	text, err := px.deps.Recall.RecoverText(ctx, who.Tenant(), request, func(o recall.Origin) bool { return may(who, o) }, max(chars, 1))
	g.RecordRead(ctx, who, request.KnownID(), utf8.RuneCount(text), err)
	if err == nil {
		px.deps.Meter.CountReadBack(utf8.RuneCount(text))
	}
	return string(text), err
}

// explainFailure returns the answer to a recover_text call that failed.
func explainFailure(err error) string {
	switch fault.KindOf(err) { //nolint:exhaustive // a model cannot act on the other kinds
	case fault.BadParams:
		return "Not read: " + fault.PublicOf(err) + "."
	case fault.UnknownHandle:
		return "Not read: nothing is kept under this prune_id, or it has expired. Call the tool that gave the result again if you need it."
	}
	return "Not read: what is kept cannot be had now. Go on without it, or call the tool that gave the result again."
}
