package chat

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"

	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/meter"
)

// Usage is what a provider says that a reply used, in tokens. Fresh, Cached and Created add up to
// the input: billed in full, read from the cache, written to it. Long is what of Created was written
// for an hour, which some charge more for.
type Usage struct{ Fresh, Cached, Created, Long, Output int64 }

// tell counts what a reply used.
func (d *Door) tell(ctx context.Context, c *call, from *provider, model string, u Usage) {
	d.deps.Meter.CountTokens(from.Name, meter.Tokens(u))
	if model == "" {
		model = c.model
	}
	told := []any{slog.Int64("fresh", u.Fresh), slog.Int64("cached", u.Cached), slog.Int64("created", u.Created), slog.Int64("output", u.Output)}
	if cost, changed := d.charge(ctx, c, from, clip(model), u); changed {
		told = append(told, slog.Int64("saved", cost.Saved()), slog.Int64("recovery", cost.Recovery))
	}
	group := "" // of the first round the numbers stand alone
	if c.round > 0 {
		group = "round" + strconv.Itoa(c.round)
	}
	front.Note(ctx, slog.Group(group, told...))
}

// observer reads a reply in passing. It keeps a few values of it, and never the reply. A nil
// observer reads nothing.
type observer struct {
	shape  Shape
	pick   picker
	events *events // nil: the reply is one document
	named  string
	seen   bool
	counts counts
}

// newObserver is nil for a reply that cannot be read, or has nothing to say.
func newObserver(e endpoint, resp *http.Response) *observer {
	if encoding := resp.Header.Get("Content-Encoding"); !e.talk || resp.StatusCode/100 != 2 || encoding != "" && encoding != "identity" {
		return nil
	}
	o := &observer{shape: e.shape}
	if isEvents(resp.Header) {
		o.events = &events{data: o.pick.write, over: o.note}
	}
	return o
}

func (o *observer) write(p []byte) {
	switch {
	case o == nil:
	case o.events != nil:
		o.events.write(p)
	default:
		o.pick.write(p)
	}
}

// note takes what a document said.
func (o *observer) note() {
	if name := jsonscan.TextOf(bytes.TrimSpace(o.pick.model)); name != "" {
		o.named = name
	}
	if fields, err := jsonscan.FieldsOf(o.pick.usage); err == nil && len(fields.All()) > 0 {
		o.seen = true
		o.counts.add(wires[o.shape], fields)
	}
	o.pick.reset()
}

func (o *observer) model() string {
	if o == nil {
		return ""
	}
	return o.named
}

// usage is what the reply has said of its cost so far, where it has said anything.
func (o *observer) usage() (Usage, bool) {
	if o == nil {
		return Usage{}, false
	}
	o.note()
	return o.counts.usage(wires[o.shape]), o.seen
}

// wire is how a shape spells its usage.
type wire struct {
	input, output string
	details       string   // where more is said of the input
	cached        []string // in the details or beside the input; the first that is there counts
	created       []string
	long          []string // what of that is for an hour, in the details
	apart         bool     // cached and created input are not part of the input
}

var wires = [...]wire{
	Completions: {
		input: "prompt_tokens", output: "completion_tokens", details: "prompt_tokens_details",
		cached:  []string{"cached_tokens", "prompt_cache_hit_tokens"}, // the second is DeepSeek's
		created: []string{"cache_write_tokens", "cache_creation_tokens"},
	},
	Messages: {
		input: "input_tokens", output: "output_tokens", details: "cache_creation",
		cached: []string{"cache_read_input_tokens"}, created: []string{"cache_creation_input_tokens"},
		long: []string{"ephemeral_1h_input_tokens"}, apart: true,
	},
	Responses: {
		input: "input_tokens", output: "output_tokens", details: "input_tokens_details",
		cached: []string{"cached_tokens"}, created: []string{"cache_write_tokens", "cache_creation_tokens"},
	},
}

// counts are the numbers of a reply as its shape tells them. A stream tells some of them at its
// beginning and some at its end; the last word counts.
type counts struct{ input, cached, created, long, output int64 }

func (c *counts) add(w wire, f jsonscan.Fields) {
	details := jsonscan.Fields{}
	if raw, ok := f.Get(w.details); ok {
		details, _ = jsonscan.FieldsOf(raw)
	}
	take(&c.input, []string{w.input}, f)
	take(&c.output, []string{w.output}, f)
	take(&c.cached, w.cached, details, f)
	take(&c.created, w.created, details, f)
	take(&c.long, w.long, details)
}

func take(into *int64, keys []string, places ...jsonscan.Fields) {
	for _, f := range places {
		for _, key := range keys {
			raw, _ := f.Get(key)
			if n, ok := figure(raw); ok {
				*into = n
				return
			}
		}
	}
}

// figure reads a count of tokens. What is no number, or a negative one, says nothing; more than a reply
// can use counts as the most that is believed.
func figure(raw []byte) (int64, bool) {
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || !(n >= 0) {
		return 0, false
	}
	return int64(math.Round(min(n, meter.MostTokens))), true
}

func (c counts) usage(w wire) Usage {
	u := Usage{Fresh: c.input, Cached: c.cached, Created: c.created, Long: min(c.long, c.created), Output: c.output}
	if !w.apart {
		u.Fresh = max(0, c.input-c.cached-c.created)
	}
	return u
}
