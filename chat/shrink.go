package chat

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/meter"
)

// Outgoing is a request on its way to a provider.
type Outgoing struct {
	Who      auth.Caller
	Shape    Shape
	Model    string
	Provider string
	Policy   history.Policy    // for its old tool results
	Birth    Birth             // for new ones
	Cache    Cache             // what the provider's cache costs
	Body     []byte            // must not be changed or kept
	Talk     *history.Dialogue // what it tells; nil where that cannot be read

	recent *history.Recent // who remembers it
}

// Shrunk is what becomes of a request, and what that means for what it costs.
type Shrunk struct {
	// Edits are what to replace in the body, in order and without overlap; none means that it goes
	// as it came.
	Edits []jsonscan.Edit

	Tokens   int            // the request as it came, estimated
	Read     int            // what the model reads of that
	Cleared  []Cleared      // what the edits take out of it
	Moved    bool           // something is masked that the request before this one showed
	Standing meter.Standing // of the conversation to the provider's cache
	Before   int            // the conversation's last request as it came, in estimated tokens; 0 when there is none
	Unmarked bool           // the provider caches only what is marked, and of the messages nothing is
	Burden   meter.Burden   // what is in the request only because something was masked

	turns int // tool turns of the conversation's last request
}

// Cleared is what was taken out of results of one tool.
type Cleared struct {
	Tool    string
	Results int
	Tokens  int  // estimated
	Born    bool // it never was in a request: it was reduced when it came
	New     bool // it is taken out for the first time
}

// maxAlike is how many kinds of what was cleared are looked at for one like the next: a conversation
// has few tools.
const maxAlike = 8

// addCleared adds what was taken out of results.
func addCleared(all []Cleared, c Cleared) []Cleared {
	for i := range all[max(0, len(all)-maxAlike):] {
		if like := &all[len(all)-1-i]; like.Tool == c.Tool && like.Born == c.Born && like.New == c.New {
			like.Results += c.Results
			like.Tokens += c.Tokens
			return all
		}
	}
	return append(all, c)
}

// Shrink says what to replace in a request's body.
type Shrink func(ctx context.Context, o Outgoing) Shrunk

// shrunk is what to replace in the body as it goes out, and what that means. It fails open: a hook
// that panics, or whose edits cannot be made, leaves the body as it came.
func (d *Door) shrunk(ctx context.Context, o Outgoing) (edits []jsonscan.Edit, done Shrunk) {
	if d.deps.Shrink == nil {
		return nil, Shrunk{}
	}
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "shrinking a request panicked: it goes as it came", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			edits, done = nil, Shrunk{}
		}
	}()
	done = d.deps.Shrink(ctx, o)
	if !orderly(done.Edits, len(o.Body)) {
		slog.ErrorContext(ctx, "the edits of a request make no sense: it goes as it came", "edits", len(done.Edits))
		return nil, Shrunk{}
	}
	o.recent.Keep(o.Talk) // not where something panicked: what that found out is not to be relied on
	return done.Edits, done
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
