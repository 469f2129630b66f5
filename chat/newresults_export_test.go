package chat

import (
	"context"
	"time"

	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/recall"
)

// NewResultsMasker returns a Shrinker per policy for new results; it parses the requests itself.
func NewResultsMasker(r *recall.Recall, now func() time.Time) func(masking.NewResults) Shrinker {
	mask := masking.New(r, now).Shrink
	return func(policy masking.NewResults) Shrinker {
		return func(ctx context.Context, o masking.Request) masking.Result {
			o.NewResults = policy
			o.Dialogue, _ = history.Read(o.Codec, o.Body, maxDepth)
			return mask(ctx, o)
		}
	}
}
