package chat

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Outgoing is a request on its way to a provider.
type Outgoing struct {
	Who      auth.Caller
	Shape    Shape
	Model    string
	Provider string
	Policy   history.Policy // for its tool results
	Cache    Cache          // what the provider's cache costs
	Body     []byte         // must not be changed or kept
}

// Shrink says what to replace in a request's body. Edits are in order and do not overlap; none
// means that the body goes as it came.
type Shrink func(ctx context.Context, o Outgoing) []jsonscan.Edit

// shrunk is the body as it goes out. It fails open: a hook that panics, or whose edits cannot be
// made, leaves the body as it came.
func (d *Door) shrunk(ctx context.Context, o Outgoing) (body []byte) {
	if d.deps.Shrink == nil {
		return o.Body
	}
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "shrinking a request panicked: it goes as it came", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			body = o.Body
		}
	}()
	edits := d.deps.Shrink(ctx, o)
	if len(edits) == 0 {
		return o.Body
	}
	if !orderly(edits, len(o.Body)) {
		slog.ErrorContext(ctx, "the edits of a request make no sense: it goes as it came", "edits", len(edits))
		return o.Body
	}
	return jsonscan.AppendSpliced(make([]byte, 0, jsonscan.SplicedLen(o.Body, edits)), o.Body, edits)
}

func orderly(edits []jsonscan.Edit, size int) bool {
	at := 0
	for _, e := range edits {
		if e.Start < at || e.End < e.Start {
			return false
		}
		at = e.End
	}
	return at <= size
}
