package chat

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// call is one request on its way.
type call struct {
	endpoint
	plan    *plan
	who     auth.Caller
	model   string
	query   string           // as the client wrote it
	head    http.Header      // what every provider gets
	own     http.Header      // the client's own credentials
	memory  *membudget.Scope // what the request holds is charged to it
	body    []byte
	edits   []jsonscan.Edit   // what is replaced in it on its way out
	room    *room             // where it is
	told    *history.Dialogue // what the body tells; nil where that cannot be read, or nobody asks
	done    Shrunk            // what was done to it
	routed  *provider         // the one that its model names
	chain   []*provider       // who is asked, in order
	asked   *provider         // the last one that was
	reads   *reading          // nil where the model cannot read back here
	round   int               // how often the provider was asked to go on
	output  int64             // tokens of the round before this one
	tries   int
	started time.Time
}

// complete serves one endpoint.
func (d *Door) complete(p *plan, e endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		done := d.deps.Meter.BeginLLM()
		c := &call{endpoint: e, plan: p, query: r.URL.RawQuery, started: time.Now()}
		result := "internal" // of a panic
		defer func() {
			name := ""
			if c.asked != nil {
				name = c.asked.Name
				front.Note(r.Context(), slog.String("provider", name), slog.String("model", clip(c.model)), slog.Int("tries", c.tries))
			}
			done(name, result)
		}()
		var err error
		result, err = d.serve(w, r, c)
		switch {
		case errors.Is(err, errBegun):
			front.Note(r.Context(), slog.String("fault", result), slog.String("error", clip(err.Error())))
			panic(http.ErrAbortHandler) // half a reply must not look whole
		case err != nil:
			Refuse(w, r, err)
		}
	}
}

// serve is the way of one request: read, routed, shrunk, asked, relayed. Its result is the label it
// is counted under. An error that is not errBegun is a refusal: nothing was answered yet.
func (d *Door) serve(w http.ResponseWriter, r *http.Request, c *call) (result string, err error) {
	defer func() {
		if err != nil && result == "" {
			result = fault.KindOf(err).String()
		}
	}()
	ctx := r.Context()
	c.memory = membudget.From(ctx)
	if c.who, err = auth.From(ctx); err != nil {
		return "", err
	}
	leave, err := d.admit(ctx, c.plan, c.who)
	if err != nil {
		return "", err
	}
	defer leave()
	c.room = enterRoom(r.ContentLength)
	defer c.vacate()
	if err := d.read(w, r, c); err != nil {
		return "", err
	}
	if c.talk {
		c.reads = d.offer(ctx, c)
		if err := d.shrink(ctx, c); err != nil {
			return "", err
		}
	}
	rep, err := d.ask(ctx, c)
	if err != nil {
		return "", err
	}
	defer rep.end()
	c.settle() // it is not asked again, and a stream may be long
	d.deps.Meter.FirstByte(rep.from.Name, time.Since(c.started))
	if c.reads != nil && legible(rep) {
		return d.converse(ctx, w, c, rep)
	}
	return d.answer(ctx, w, c, rep)
}

// shrink makes of the body what goes out.
func (d *Door) shrink(ctx context.Context, c *call) (err error) {
	to := c.routed
	talk := c.told
	if c.reads != nil {
		talk, err = c.hear("offered") // nil where it cannot be read: then nothing is masked
		if fault.KindOf(err) == fault.Full {
			return err
		}
	}
	c.edits, c.done = d.shrunk(ctx, Outgoing{
		Who: c.who, Shape: c.shape, Model: c.model, Provider: to.Name,
		Policy: c.plan.Chat.Observation.Schema1, Birth: c.plan.Chat.Observation.Birth, Cache: to.Cache, Body: c.body, Talk: talk, recent: c.plan.talks,
	})
	return nil
}

// read takes the request off the wire and finds its provider. A body that is compressed is decoded, and
// goes on without its coding.
func (d *Door) read(w http.ResponseWriter, r *http.Request, c *call) (err error) {
	if c.body, err = readBody(c.room.body, w, r, int64(c.plan.HTTP.MaxRequestBytes)); err != nil {
		return err
	}
	c.room.body = c.body
	if c.model, c.told, err = d.look(c); err != nil {
		return err
	}
	c.head, c.own = c.plan.forwarded(r.Header)
	if c.routed, err = c.plan.route(kindOf(c.shape), c.model); err == nil {
		c.chain = append([]*provider{c.routed}, c.routed.spare...)
	}
	return err
}

// answer relays the reply and tells what it cost.
func (d *Door) answer(ctx context.Context, w http.ResponseWriter, c *call, rep *reply) (string, error) {
	watch := newObserver(c.endpoint, rep.Response)
	err := d.relay(ctx, w, c, rep, watch)
	if used, ok := watch.usage(); ok {
		d.tell(ctx, c, rep.from, watch.model(), used)
	}
	if err != nil {
		return resultOf(err), err
	}
	return outcome(rep.StatusCode), nil
}

// outcome is the label of a reply that was passed on whole.
func outcome(status int) string {
	switch {
	case status/100 == 2:
		return "ok"
	case status == http.StatusTooManyRequests:
		return "rate_limited"
	case status/100 == 4:
		return "rejected"
	}
	return "failed"
}
