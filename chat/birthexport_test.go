package chat

import (
	"context"
	"time"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/recall"
)

// Midwife is Mask for one policy of new results, given requests that nobody has read yet.
func Midwife(keeper *recall.Recall, now func() time.Time) func(Birth) Shrink {
	mask := Mask(keeper, now)
	return func(b Birth) Shrink {
		return func(ctx context.Context, o Outgoing) Shrunk {
			o.Birth = b
			o.Talk, _ = history.Read(o.Shape, o.Body, maxDepth)
			return mask(ctx, o)
		}
	}
}
