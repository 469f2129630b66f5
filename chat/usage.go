package chat

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/meter"
)

// recordUsage counts, records and logs what a reply used.
func (px *Proxy) recordUsage(ctx context.Context, c *call, from *provider, model string, u llm.Usage) {
	px.deps.Meter.CountTokens(from.Name, meter.Tokens(u))
	if model == "" {
		model = c.model
	}
	attrs := []any{slog.Int64("fresh", u.Fresh), slog.Int64("cached", u.Cached), slog.Int64("created", u.Created), slog.Int64("output", u.Output)}
	if cost, changed := px.recordCost(ctx, c, from, fault.Clip(model), u); changed {
		attrs = append(attrs, slog.Int64("saved", cost.Saved()), slog.Int64("recovery", cost.Recovery))
	}
	if why := c.shrunk.NotMasking; why != "" && c.round == 0 {
		attrs = append(attrs, slog.String("not_masking", why))
	}
	group := "" // the numbers of the first round have no prefix
	if c.round > 0 {
		group = "round" + strconv.Itoa(c.round)
	}
	front.AddLogAttrs(ctx, slog.Group(group, attrs...))
}

// observer reads a reply while it passes. A nil observer reads nothing.
type observer struct {
	scanner *llm.UsageScanner
	events  *sse.Scanner // nil: the reply is one document
	start   []byte       // of the current event's data
	ended   bool         // the event came that ends the reply
}

// doneData is the last event of OpenAI's chat completions. It is no JSON.
const doneData = "[DONE]"

// newObserver is nil for a reply that cannot be read, or says nothing of its usage.
func newObserver(e endpoint, resp *http.Response) *observer {
	if encoding := resp.Header.Get("Content-Encoding"); !e.Conversation || resp.StatusCode/100 != 2 || encoding != "" && encoding != "identity" {
		return nil
	}
	o := &observer{scanner: llm.NewUsageScanner(e.codec.Wire())}
	if isEventStream(resp.Header) {
		o.events = &sse.Scanner{}
	}
	return o
}

func (o *observer) write(p []byte) {
	if o == nil {
		return
	}
	if o.events == nil {
		o.scanner.Write(p)
		return
	}
	for len(p) > 0 {
		token, value, n := o.events.Next(p)
		p = p[n:]
		switch {
		case token == sse.EndEvent:
			o.scanner.EndDocument()
			o.ended = o.ended || o.scanner.HasEnded() || string(o.start) == doneData
			o.start = o.start[:0]
		case token == sse.Value && o.events.Field() == sse.DataField:
			o.scanner.Write(value)
			o.start = append(o.start, value[:min(len(value), len(doneData)+1-len(o.start))]...)
		}
	}
}

// hasEnded says whether a streamed reply has nothing more to say: whoever disconnects then lost nothing.
func (o *observer) hasEnded() bool { return o != nil && o.ended }

// usage is what the reply has said of its cost so far, and the model that it names; false where it has
// said nothing.
func (o *observer) usage() (used llm.Usage, model string, ok bool) {
	if o == nil {
		return llm.Usage{}, "", false
	}
	o.scanner.EndDocument()
	used, ok = o.scanner.Usage()
	return used, o.scanner.Model(), ok
}
