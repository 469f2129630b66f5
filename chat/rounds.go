package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"

	"github.com/ctxgate/ctxgate/chat/readback"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/llm"
)

// isMergeable reports whether a reply can be merged with the rounds before it.
func isMergeable(rep *reply) bool {
	encoding := rep.Header.Get("Content-Encoding")
	return rep.StatusCode == http.StatusOK && (encoding == "" || encoding == "identity")
}

// relayRounds relays a reply in which the model may call recover_text. The proxy answers each call and sends
// the next request, until the model calls it no more. The client gets one merged reply.
func (px *Proxy) relayRounds(ctx context.Context, w http.ResponseWriter, c *call, rep *reply) (string, error) {
	defer func() { rep.close() }()
	m := &mergedReply{px: px, w: w, c: c, stream: isEventStream(rep.Header)}
	m.merger = readback.NewMerger(c.readback.codec, m.stream)
	for n := 0; ; n++ {
		if err := m.relayRound(ctx, rep); err != nil {
			return m.abort(ctx, err)
		}
		round := m.merger.EndRound()
		if round == nil || round.Mixed || n == c.readback.MaxRounds {
			return m.finishReply(ctx, rep, round)
		}
		answers := px.answerCalls(ctx, c, round, n+1 == c.readback.MaxRounds)
		px.storeRound(ctx, c, round, answers)
		next, err := px.requestRound(ctx, c, rep, round, answers)
		if err != nil {
			return m.abort(ctx, err)
		}
		rep = next
		m.shown = readback.NewReplyObserver(c.readback.codec, m.stream)
		if !isMergeable(rep) && !m.hasBegun {
			px.forgetHidden(ctx, c)
			return px.relayAndCharge(ctx, w, c, rep)
		}
		if !isMergeable(rep) || isEventStream(rep.Header) != m.stream {
			return m.abort(ctx, fault.New(fault.BadReply, "the provider did not go on with its reply"))
		}
	}
}

// requestRound sends the next round's request to the provider of the last reply, or to its fallbacks. The
// request is masked again, as the next request of the conversation: the client's next request repeats it.
func (px *Proxy) requestRound(ctx context.Context, c *call, rep *reply, round *llm.Round, answers []llm.Answer) (*reply, error) {
	rep.close()
	c.candidates = c.candidates[slices.Index(c.candidates, rep.provider):]
	// Charge the next body twice, as it is copied to set a cache_control: its minimum before it is built, its
	// real size after. Then release the body of the last round.
	charge := membudget.Charge{Scope: c.memory}
	least := int64(len(c.readback.body))
	for _, a := range answers {
		least += int64(len(a.Text))
	}
	if err := charge.Reserve(2 * least); err != nil {
		return nil, err
	}
	body, err := readback.NextRequest(c.readback.codec, c.readback.body, round, answers)
	if err != nil {
		return nil, fmt.Errorf("building the request of the next round: %w", err)
	}
	size := int64(len(body))
	if err := charge.Reserve(2*size - charge.Bytes); err != nil {
		return nil, err
	}
	c.memory.Free(int64(len(c.readback.body)))
	c.readback.body, c.body = body, body
	if c.readback.marks != nil {
		c.body = c.readback.marks.MarkLast(body)
	}
	c.round++
	if err := px.shrinkBody(ctx, c); err != nil {
		return nil, err
	}
	next, err := px.askProviders(ctx, c)
	c.body = nil
	charge.ShrinkTo(size)
	return next, err
}

// mergedReply is a reply of several rounds on its way to the client.
type mergedReply struct {
	px       *Proxy
	w        http.ResponseWriter
	c        *call
	merger   *readback.Merger
	stream   bool
	shown    *readback.ReplyObserver // of the last round; nil for the first
	out      *clientWriter
	hasBegun bool // the client has received a part
}

// abort ends the request when a round fails: with an error, or with a truncated reply if it has begun.
func (m *mergedReply) abort(ctx context.Context, err error) (string, error) {
	if m.shown.IsComplete() { // clients may disconnect after the last event
		m.px.storeIdentity(ctx, m.c, m.shown)
	} else {
		m.px.forgetHidden(ctx, m.c)
	}
	if !m.hasBegun {
		return "", err
	}
	err = fmt.Errorf("%w: %w", errReplyStarted, err)
	return brokenResultLabel(err), err
}

// relayRound streams the visible part of one reply to the client and records the reply's usage. A connection that
// ends after the last event of a stream is no failure: the reply is whole.
func (m *mergedReply) relayRound(ctx context.Context, rep *reply) (failed error) {
	watch := newObserver(m.c.endpoint, rep.Response)
	m.c.spending.startReply(rep)
	defer func() { m.px.chargeReply(ctx, m.c, rep, watch, failed) }()
	// The merger buffers up to readback.MaxKept bytes of a reply: charge them while it is read.
	charge := membudget.Charge{Scope: m.c.memory}
	defer charge.ShrinkTo(0)
	for {
		piece, err := rep.nextPiece()
		if charge.Bytes < readback.MaxKept {
			if err := charge.Reserve(int64(len(piece))); err != nil {
				return err
			}
		}
		m.c.spending.countReply(piece)
		if len(piece) > 0 {
			shown, err := m.merger.Write(piece)
			if err := m.writePart(ctx, rep, shown, false); err != nil && watch.hasEnded() {
				return nil
			} else if err != nil {
				return err
			}
			m.shown.Write(shown)
			watch.write(piece)
			if err != nil {
				return fault.Wrap(fault.BadReply, "the provider's reply cannot be merged with the rounds before it", err)
			}
		}
		switch {
		case errors.Is(err, io.EOF), err != nil && watch.hasEnded():
			return nil
		case err != nil:
			return err
		}
	}
}

// finishReply ends the reply with its last round. Its recover_text calls are hidden too; storeLastRound keeps
// their answers for the client's next request.
func (m *mergedReply) finishReply(ctx context.Context, rep *reply, last *llm.Round) (string, error) {
	ctx = context.WithoutCancel(ctx) // a client that has the last event may be gone; its next request needs what is stored
	if m.c.round > 0 {
		front.AddLogAttrs(ctx, slog.Int("rounds", m.c.round))
	}
	rest := m.merger.Finish()
	if last == nil {
		m.shown.Write(rest)
		m.px.storeIdentity(ctx, m.c, m.shown)
	} else {
		replyID := ""
		if stateful, ok := m.c.codec.(llm.StatefulCodec); ok {
			replyID = stateful.ReplyID(rest, m.stream)
		}
		m.px.storeLastRound(ctx, m.c, last, replyID)
	}
	if err := m.writePart(ctx, rep, rest, true); err != nil {
		return m.abort(ctx, err)
	}
	return resultLabel(rep.StatusCode), nil
}

// writePart writes a part of the reply, or the rest of it, to the client. The headers are sent with the first
// part, so that until then a failure can still become an error response.
func (m *mergedReply) writePart(ctx context.Context, rep *reply, part []byte, rest bool) error {
	if len(part) == 0 && (m.hasBegun || !rest) {
		return nil
	}
	if !m.hasBegun {
		m.hasBegun = true
		rep.ContentLength = -1
		if rest {
			rep.ContentLength = int64(len(part))
		}
		m.px.writeReplyHeader(ctx, m.w, rep)
		m.out = &clientWriter{w: m.w, control: http.NewResponseController(m.w), cfg: m.c.plan.HTTP}
	}
	if len(part) == 0 {
		return nil
	}
	if err := m.out.writePiece(part); err != nil {
		return fault.Wrap(fault.Canceled, "the client does not read", err)
	}
	return nil
}
