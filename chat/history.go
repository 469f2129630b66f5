package chat

import (
	"context"
	"log/slog"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
)

// maxDepth is how deep a request may nest for its history to be read; a deeper one goes as it came.
const maxDepth = 256

// Mask masks old tool results of conversations by their policy (H1–H9), each only after its
// original was kept (I1): what cannot be kept stays.
//
// Requests that say with cache_control what their provider is to cache go as they came, and so does
// everything at /v1/messages, whose clients move these marks: which results were masked before they
// moved would have to be remembered, or the next request would bring them back.
func Mask(keeper *recall.Recall) Shrink {
	return func(ctx context.Context, o Outgoing) []jsonscan.Edit {
		shape, ok := masked[o.Shape]
		if !ok || !o.Policy.Enabled {
			return nil
		}
		talk, err := history.Read(shape, o.Body, maxDepth)
		if err != nil {
			slog.DebugContext(ctx, "the history of a request cannot be read: it goes as it came", "error", err)
			return nil
		}
		if talk.Breakpoint >= 0 {
			return nil
		}
		return maskOld(ctx, keeper, o, talk)
	}
}

// masked are the shapes whose history is masked.
var masked = map[Shape]history.Shape{Completions: history.Chat, Responses: history.Responses}

func maskOld(ctx context.Context, keeper *recall.Recall, o Outgoing, talk *history.Dialogue) []jsonscan.Edit {
	plan := talk.Plan(o.Policy, history.Cache{Write: o.Cache.Write, Read: o.Cache.Read}, nil)
	var edits []jsonscan.Edit
	for i, cut := range plan.Cuts {
		from := recall.Origin{Server: "llm:" + o.Provider, Tool: talk.Results[cut.Result].Name}
		id, err := keeper.Keep(ctx, o.Who.Tenant(), string(talk.Text(cut.Result)), from)
		if err != nil { // the others would wait as long, and fail too
			slog.WarnContext(ctx, "old tool results go whole: their originals cannot be kept", "error", err)
			break
		}
		edits = append(edits, plan.Edits(i, id)...)
	}
	return edits
}
