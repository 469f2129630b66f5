package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/rounds"
)

// legible says whether a reply can be joined to another.
func legible(rep *reply) bool {
	encoding := rep.Header.Get("Content-Encoding")
	return rep.StatusCode == http.StatusOK && (encoding == "" || encoding == "identity")
}

// converse relays a reply in which the model may read back: then it is answered, and the provider
// asked again, until it has nothing more to ask. The client gets one reply.
func (d *Door) converse(ctx context.Context, w http.ResponseWriter, c *call, rep *reply) (string, error) {
	defer func() { rep.end() }()
	p := &pouring{d: d, w: w, c: c, stream: isEvents(rep.Header)}
	p.join = rounds.NewJoin(c.shape, p.stream)
	for n := 0; ; n++ {
		if err := p.round(ctx, rep); err != nil {
			return p.failed(ctx, err)
		}
		round := p.join.End()
		if round == nil || round.Mixed || n == c.reads.MaxRounds {
			return p.finish(ctx, rep, round)
		}
		answers := d.answers(ctx, c, round, n+1 == c.reads.MaxRounds)
		d.keep(ctx, c, round, answers)
		next, err := d.askOn(ctx, c, rep, round, answers)
		if err != nil {
			return p.failed(ctx, err)
		}
		rep = next
		p.ear = rounds.NewEar(c.shape, p.stream)
		if !legible(rep) && !p.begun {
			d.forget(ctx, c)
			return d.answer(ctx, w, c, rep)
		}
		if !legible(rep) || isEvents(rep.Header) != p.stream {
			return p.failed(ctx, fault.New(fault.BadReply, "the provider did not go on with its reply"))
		}
	}
}

// askOn asks the provider that gave a reply to go on with it, and its fallbacks if it cannot. The
// request is masked anew: to the masking it is the next of the conversation, as it will be when the
// client's next request tells it again.
func (d *Door) askOn(ctx context.Context, c *call, rep *reply, round *rounds.Round, answers []rounds.Answer) (*reply, error) {
	rep.end()
	c.chain = c.chain[slices.Index(c.chain, rep.from):]
	// The body of the next round is charged, and once more where it is marked for the cache: first what it
	// will have at least, then what it has. That of the last round is let go.
	charge := membudget.Charge{Scope: c.memory}
	least := int64(len(c.reads.body))
	for _, a := range answers {
		least += int64(len(a.Text))
	}
	if err := charge.Take(2 * least); err != nil {
		return nil, err
	}
	body, err := rounds.Follow(c.shape, c.reads.body, round, answers)
	if err != nil {
		return nil, fmt.Errorf("going on with a reply: %w", err)
	}
	size := int64(len(body))
	if err := charge.Take(2*size - charge.Bytes); err != nil {
		return nil, err
	}
	c.memory.Give(int64(len(c.reads.body)))
	c.reads.body, c.body = body, body
	if c.reads.cached {
		c.body = rounds.Mark(body)
	}
	c.round++
	if err := d.shrink(ctx, c); err != nil {
		return nil, err
	}
	next, err := d.ask(ctx, c)
	c.body = nil
	charge.Keep(size)
	return next, err
}

// pouring is the way of one reply of several rounds to the client.
type pouring struct {
	d      *Door
	w      http.ResponseWriter
	c      *call
	join   *rounds.Join
	stream bool
	ear    *rounds.Ear // hears the last round; nil for the first
	out    *outlet
	begun  bool // the client has a part of it
}

// failed is what becomes of the request when a round fails: a refusal, or a reply that broke off.
func (p *pouring) failed(ctx context.Context, err error) (string, error) {
	if p.ear.Over() { // clients leave when they have the last event
		p.d.keepName(ctx, p.c, p.ear)
	} else {
		p.d.forget(ctx, p.c)
	}
	if !p.begun {
		return "", err
	}
	err = fmt.Errorf("%w: %w", errBegun, err)
	return resultOf(err), err
}

// round passes on what the client may see of one reply, as it comes, and tells what the reply cost.
func (p *pouring) round(ctx context.Context, rep *reply) error {
	watch := newObserver(p.c.endpoint, rep.Response)
	defer func() {
		if used, ok := watch.usage(); ok {
			p.d.tell(ctx, p.c, rep.from, watch.model(), used)
		}
	}()
	// The rounds keep of a reply what they may need, up to a limit. That is charged while it is read.
	charge := membudget.Charge{Scope: p.c.memory}
	defer charge.Keep(0)
	for {
		piece, err := rep.next()
		if charge.Bytes < rounds.MaxKept {
			if err := charge.Take(int64(len(piece))); err != nil {
				return err
			}
		}
		if len(piece) > 0 {
			shown, err := p.join.Write(piece)
			if err := p.write(ctx, rep, shown, false); err != nil {
				return err
			}
			p.ear.Write(shown)
			watch.write(piece)
			if err != nil {
				return fault.Wrap(fault.BadReply, "the provider's reply cannot be joined", err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// finish ends the reply with its last round, whose calls the client is not shown either. What they
// ask for is kept for the client's next request: beside calls of its own they must be answered, and
// where the provider has the conversation, always.
func (p *pouring) finish(ctx context.Context, rep *reply, last *rounds.Round) (string, error) {
	if p.c.round > 0 {
		front.Note(ctx, slog.Int("rounds", p.c.round))
	}
	rest := p.join.Finish()
	if last == nil {
		p.ear.Write(rest)
		p.d.keepName(ctx, p.c, p.ear)
	} else {
		p.d.keepLast(ctx, p.c, last, rounds.ReplyID(p.c.shape, rest, p.stream))
	}
	if err := p.write(ctx, rep, rest, true); err != nil {
		return p.failed(ctx, err)
	}
	return outcome(rep.StatusCode), nil
}

// write gives the client a part of the reply, or the rest of it. The head goes with the first part:
// until then the provider may still fail, and the client be told so.
func (p *pouring) write(ctx context.Context, rep *reply, part []byte, rest bool) error {
	if len(part) == 0 && (p.begun || !rest) {
		return nil
	}
	if !p.begun {
		p.begun = true
		rep.ContentLength = -1
		if rest {
			rep.ContentLength = int64(len(part))
		}
		p.d.head(ctx, p.w, rep)
		p.out = &outlet{w: p.w, control: http.NewResponseController(p.w), cfg: p.c.plan.HTTP}
	}
	if len(part) == 0 {
		return nil
	}
	if err := p.out.write(part); err != nil {
		return fault.Wrap(fault.Canceled, "the client does not read", err)
	}
	return nil
}
