// Package toolcalls measures what tool calls cost: an MCP server whose results are as long as a call asks for
// (server.go), and callers that do little beside writing a request and reading its reply (caller.go), so that they
// hardly measure themselves. [Run] makes many calls with several callers.
package toolcalls

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

// Text is what agents' tools return, joined: source code, search results, lists and logs.
func Text() string {
	var b strings.Builder
	for _, t := range trajectories.Synthetic() {
		for _, turn := range t.Turns {
			for _, use := range turn.ToolUses {
				b.WriteString(use.Result)
			}
		}
	}
	return b.String()
}

// Kind is what a call asks for.
type Kind struct {
	Bytes int  // of the result's text
	Fresh bool // a text that no call returned before
	Read  bool // recover_text with an id of an earlier call, instead of a call of the server
}

// Run makes count calls over the callers and returns how many results were cut, or originals read.
func Run(ctx context.Context, callers []*Caller, count int, kind Kind) (int, error) {
	var left, hits atomic.Int64
	left.Store(int64(count))
	failures := make([]error, len(callers))
	var wg sync.WaitGroup
	for i, c := range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				hit, err := c.Call(kind)
				if err != nil {
					failures[i] = fmt.Errorf("caller %d: %w", i, err)
					return
				}
				if hit {
					hits.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return int(hits.Load()), errors.Join(append(failures, ctx.Err())...)
}
