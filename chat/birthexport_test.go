package chat

import (
	"context"
	"time"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/recall"
)

// Midwife is Mask for one policy of new results.
func Midwife(keeper *recall.Recall, now func() time.Time) func(Birth) Shrink {
	m, w := masker{keeper: keeper, talks: &memory{notes: keeper, now: now}}, newMidwife(keeper)
	return func(b Birth) Shrink {
		return func(ctx context.Context, o Outgoing) Shrunk {
			talk, err := history.Read(forms[o.Shape], o.Body, maxDepth)
			if err != nil {
				return Shrunk{}
			}
			out := Shrunk{Tokens: talk.Tokens()}
			born := w.look(ctx, o, b, talk, talk.Recovers())
			plan := m.plan(ctx, o, talk, &out)
			m.cut(ctx, o, talk, plan, &out)
			w.cut(ctx, o, talk, plan, born, &out)
			return out
		}
	}
}
