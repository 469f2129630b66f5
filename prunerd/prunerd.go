// Package prunerd is the line pruner as an MCP server of its own: one JSON-RPC message a POST at
// /rpc, and GET /health. Its tools make a text shorter for a goal, line by line, and give back
// what was left out.
//
// Path through the files: http.go is the door, methods.go the table of methods, tools.go what the
// tools say of themselves, args.go reads their arguments; prune.go ★ is the straight line of
// prune_text, run.go the engine under its time limit, far.go the reranker that may be asked,
// report.go the document that comes of it; recover.go is recover_text, health.go health, error.go
// the failures, config.go what an operator can set.
//
// Invariants:
//   - Kept before cut: a text is shortened only after the store acknowledged the original.
//   - The bounds of a call bind its result (P3), and what was left out is annotated, all of it (P5).
//   - Same text, goal and options: same bytes, but for the times in the statistics.
//   - Local: with the backend heuristic nothing is asked of anybody. What a text or a goal says is
//     never acted on.
//   - Bounded: texts, answers, and how many are read at once, whoever has given up waiting.
//
// Pruning fails open. A text that is too large, a time limit, a mistake of ours, a store that
// refuses: the text comes back whole, with a warning that says why. A reranker that fails costs
// its opinion, not the cut: the local engine decides then. Arguments fail closed.
package prunerd

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ctxgate/ctxgate/prune"
	"github.com/ctxgate/ctxgate/recall"
)

// Server is the pruner. What a configuration decides is in its plan, which Apply replaces.
type Server struct {
	deps  Deps
	plan  atomic.Pointer[plan]
	slots *semaphore.Weighted // engine runs under way, those that nobody waits for among them
	runs  sync.WaitGroup
	read  func(ctx context.Context, text, goal string, kind prune.Kind) (*prune.Doc, error)
}

// Deps is what a Server is made of.
type Deps struct {
	Recall    *recall.Recall
	Transport http.RoundTripper // to rerankers; unused with the backend heuristic
	Version   string
}

// plan is everything that one configuration decides. A call is decided under one plan.
type plan struct {
	Config
	far *far // nil: nobody is asked
}

// New makes a server of a valid configuration whose secrets are resolved.
func New(cfg Config, d Deps) *Server {
	runs := cfg.MaxRuns
	if runs == 0 {
		runs = runtime.GOMAXPROCS(0)
	}
	s := &Server{deps: d, slots: semaphore.NewWeighted(int64(runs)), read: prune.Read}
	s.plan.Store(newPlan(cfg, d.Transport))
	return s
}

func newPlan(cfg Config, transport http.RoundTripper) *plan {
	return &plan{Config: cfg, far: newFar(cfg, transport)}
}

// Apply puts another configuration into force. Calls under way end under the old one. What the
// configuration does not change is kept, the scores in the cache among it; max_runs, listen and
// prune_id_ttl_s are those of the start.
func (s *Server) Apply(cfg Config) {
	if cfg != s.plan.Load().Config {
		s.plan.Store(newPlan(cfg, s.deps.Transport))
	}
}

// Close waits for engine runs that nobody waits for any more. Nothing may be called after it.
func (s *Server) Close() { s.runs.Wait() }

// Call calls a tool for a tenant. The arguments have passed a strict parse; nil means none. A
// failure that the caller is to be told is an [*Error].
func (s *Server) Call(ctx context.Context, tenant, name string, args []byte) (result []byte, err error) {
	switch name {
	case toolPrune:
		return s.prune(ctx, tenant, args)
	case toolRecover, toolRecoverAlias:
		return s.recover(ctx, tenant, args)
	case toolHealth:
		if _, err := readArgs(args, ""); err != nil {
			return nil, err
		}
		return toolResult(s.health(time.Now())), nil
	}
	return nil, unknownTool(name)
}
