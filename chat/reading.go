package chat

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rounds"
)

// reading is what is known of one request whose model can read back behind its client's back.
type reading struct {
	Recovery
	talk   *history.Dialogue // as the client sent it
	body   []byte            // with the tool, and with all rounds so far; nothing is masked in it
	tool   int               // what the tool adds to the request, in estimated tokens
	cached bool              // rounds have a cache_control of their own, as the client's messages have
	hidden rounds.Record     // what the client is not shown of the reply
	reply  history.Reply     // what it is shown, as far as the rounds before the last say it
}

// offer adds the tool to a request, and puts back what the client was not shown of the replies
// before; nil where nothing is to be added. It fails open: then the body is as it came.
func (d *Door) offer(ctx context.Context, c *call) (r *reading) {
	cfg := c.plan.Chat.Observation.Recovery
	if !cfg.Offer || d.deps.Recall == nil || !d.deps.Recall.Enabled() {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "offering a tool panicked: the request goes as it came", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			r = nil
		}
	}()
	talk := c.told
	if talk == nil {
		return nil
	}
	tool, ok := rounds.Offer(talk, c.body)
	if !ok {
		return nil
	}
	edits := jsonscan.Merge([]jsonscan.Edit{tool}, d.restore(ctx, c, talk))
	size := jsonscan.SplicedLen(c.body, edits)
	if c.memory.Take(int64(size)) != nil {
		return nil // there is no memory for a second body: the request goes as it came
	}
	body := jsonscan.AppendSpliced(make([]byte, 0, size), c.body, edits)
	c.body = body
	c.plan.talks.Keep(talk) // nothing is masked in it: that is done to the body with the tool
	return &reading{
		Recovery: cfg, talk: talk, body: body, tool: history.Tokens(len(tool.Text)),
		cached: c.shape == Messages && talk.Breakpoint >= 0 && rounds.MayMark(body),
	}
}

// The notes of a conversation: that there is something to put back at all, and what.
func talkNote(talk *history.Dialogue) string {
	first := talk.Prefix(1)
	return "rounds of\x00" + string(first[:])
}

func replyNote(r history.Reply) string {
	place := r.Place()
	return "rounds at\x00" + string(place[:])
}

// restoreTime is the longest a request waits for what is to be put back; then it goes without.
const restoreTime = 5 * time.Second

func dueNote(id string) string { return "rounds due\x00" + id }

// restore gives the edits that put back what the client was not shown. Most conversations have
// nothing to put back: for them the store is asked once. In the others it is asked for a reply only
// until it is known that there is nothing, which stays so: what there is was kept before the client
// had the reply.
func (d *Door) restore(ctx context.Context, c *call, talk *history.Dialogue) (edits []jsonscan.Edit) {
	ctx, cancel := context.WithTimeout(ctx, restoreTime)
	defer cancel()
	var err error
	if len(talk.Turns) > 0 {
		if _, err = d.deps.Recall.GetNote(ctx, c.who.Tenant(), talkNote(talk)); err == nil {
			edits, err = d.mended(ctx, c, talk)
		}
	}
	if id := rounds.Previous(talk); id != "" && len(edits) == 0 {
		var rec *rounds.Record
		if rec, err = d.record(ctx, c, dueNote(id)); err == nil {
			edits, err = rec.Due(c.body)
		}
	}
	if err != nil && fault.KindOf(err) != fault.Unknown {
		slog.WarnContext(ctx, "what a model has read back cannot be put back", "error", err)
	}
	return edits
}

func (d *Door) record(ctx context.Context, c *call, note string) (*rounds.Record, error) {
	raw, err := d.deps.Recall.GetNote(ctx, c.who.Tenant(), note)
	if err != nil {
		return nil, err
	}
	return rounds.DecodeRecord(raw)
}

func (d *Door) mended(ctx context.Context, c *call, talk *history.Dialogue) (edits []jsonscan.Edit, err error) {
	for _, reply := range talk.Replies() {
		name := reply.Name()
		key := c.who.Tenant() + "\x00" + string(name[:])
		if _, nothing := d.bare.Get(key); nothing {
			continue
		}
		rec, err := d.record(ctx, c, replyNote(reply))
		if err != nil {
			if fault.KindOf(err) != fault.Unknown {
				return edits, err
			}
			d.bare.Put(key, struct{}{}, 1)
			continue
		}
		if put, ok := rec.Restore(talk, c.body, reply); ok {
			edits = append(edits, put...)
		}
	}
	return edits, nil
}

// keep remembers a round that the client is not shown, before anything is shown of the next. A
// store that fails costs the model its memory of what it read, no more.
func (d *Door) keep(ctx context.Context, c *call, round *rounds.Round, answers []rounds.Answer) {
	r := c.reads
	if len(r.hidden.Steps) == 0 {
		r.reply = r.talk.Next(r.talk.Replies())
	}
	r.hidden.Add(round, answers)
	r.reply.Hear(c.shape, round.Said)
	r.reply.Calls = round.Others
	if round.Mixed {
		r.hidden.Reply = r.reply.Name()
	}
	d.keepHidden(ctx, c)
}

func (d *Door) keepHidden(ctx context.Context, c *call) {
	r := c.reads
	if len(r.talk.Turns) == 0 {
		return // a conversation without results has no name yet
	}
	d.remember(ctx, c, recall.Note{Name: talkNote(r.talk)}, recall.Note{Name: replyNote(r.reply), Value: r.hidden.Encode()})
}

// keepName remembers which reply it was, when the last of it is heard.
func (d *Door) keepName(ctx context.Context, c *call, ear *rounds.Ear) {
	if r := c.reads; len(r.hidden.Steps) > 0 && ear.Heard(&r.reply) {
		r.hidden.Reply = r.reply.Name()
		d.keepHidden(ctx, c)
	}
}

// forget makes that nothing is put back into a reply that the client did not get.
func (d *Door) forget(ctx context.Context, c *call) {
	if r := c.reads; len(r.hidden.Steps) > 0 {
		r.hidden = rounds.Record{}
		d.keepHidden(ctx, c)
	}
}

// keepLast remembers the calls of a round that is the last, which the client is not shown either.
// Beside calls of its own they must be answered when the client answers those; and where the
// provider has the conversation, with the next request that goes on with this reply by its id.
func (d *Door) keepLast(ctx context.Context, c *call, last *rounds.Round, id string) {
	answers := d.answers(ctx, c, last, false)
	switch r := c.reads; {
	case last.Mixed:
		d.keep(ctx, c, last, answers)
	case len(r.hidden.Steps) > 0:
		r.reply.Hear(c.shape, last.Said)
		r.reply.Calls = nil
		r.hidden.Reply = r.reply.Name()
		d.keepHidden(ctx, c)
	}
	if id != "" {
		due := rounds.Record{Steps: []rounds.Step{{Answers: answers}}}
		d.remember(ctx, c, recall.Note{Name: dueNote(id), Value: due.Encode()})
	}
}

// remember puts notes. A client may leave as soon as it has what it wants, and come back later.
func (d *Door) remember(ctx context.Context, c *call, notes ...recall.Note) {
	if err := d.deps.Recall.PutNotes(context.WithoutCancel(ctx), c.who.Tenant(), notes...); err != nil {
		slog.WarnContext(ctx, "what a model has read back cannot be kept", "error", err)
	}
}

// answers reads back what the calls of a round ask for. What cannot be read is told to the model:
// it can go on without, and the client could do nothing about it.
func (d *Door) answers(ctx context.Context, c *call, round *rounds.Round, last bool) []rounds.Answer {
	out := make([]rounds.Answer, len(round.Calls))
	for i, call := range round.Calls {
		var text string
		err := errManyCalls
		if i < maxCalls {
			text, err = d.readBack(ctx, c.who, call.Args, c.reads.MaxChars/min(len(out), maxCalls))
		}
		if err != nil {
			slog.DebugContext(ctx, "a model cannot read back", "error", err)
			text = unread(err)
		}
		out[i] = rounds.Answer{ID: call.ID, Text: text, Failed: err != nil}
	}
	if last {
		out[len(out)-1].Text += lastOne
	}
	return out
}

// maxCalls is how many calls of one round are answered: each may cost a search.
const maxCalls = 16

var errManyCalls error = fault.New(fault.BadParams, "too many calls at once; at most "+strconv.Itoa(maxCalls)+" are answered, call again")

// lastOne spares the model a call that nobody would answer.
const lastOne = "\n[You have read back as often as you can before you answer: go on with what you know.]"

// Calls says whether an origin is a request to a provider that is there today.
func (d *Door) Calls(_ auth.Caller, o recall.Origin) bool {
	return slices.ContainsFunc(d.plan.Load().providers, func(p *provider) bool { return OriginOf(p.Name) == o.Server })
}

func (d *Door) readBack(ctx context.Context, who auth.Caller, args []byte, chars int) (string, error) {
	wish, err := recall.ReadWish(args)
	if err != nil {
		return "", err
	}
	may := d.deps.MayRead
	if may == nil {
		may = d.Calls
	}
	text, err := d.deps.Recall.Answer(ctx, who.Tenant(), wish, func(o recall.Origin) bool { return may(who, o) }, max(chars, 1))
	return string(text), err
}

// unread is what a model is told of what it cannot read.
func unread(err error) string {
	switch fault.KindOf(err) { //nolint:exhaustive // the rest is all the same to a model
	case fault.BadParams:
		return "Not read: " + fault.PublicOf(err) + "."
	case fault.Unknown:
		return "Not read: nothing is kept under this prune_id, or it has expired. Call the tool that gave the result again if you need it."
	}
	return "Not read: what is kept cannot be had now. Go on without it, or call the tool that gave the result again."
}
