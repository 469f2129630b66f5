// Package prunerd is the pruner as an MCP server: JSON-RPC at POST /rpc, and GET /health. Its tools
// shorten a text for a goal, line by line, and read back what was left out.
//
// Path through the files: http.go is the endpoint, methods.go dispatches and has the errors, tools.go
// describes the tools, args.go reads their arguments; prune.go ★ is prune_text, reranker.go adds a
// reranker's scores, report.go writes the result; recover.go is recover_text; config.go has the settings.
//
// Invariants:
//   - Stored before cut: a text is shortened only after the store acknowledged its original.
//   - The result is within the bounds of the call (P3), and every block left out is annotated (P5).
//   - Same text, goal and options: same bytes, except for the times in the statistics.
//   - Local: with the backend heuristic no connection is made. Instructions in texts and goals are
//     never followed.
//   - Bounded: texts, replies, and concurrent runs, those whose caller has left included.
//
// Pruning fails open. If the text is too large, time runs out, the engine panics or the store fails,
// the text comes back whole, with a warning that says why. If a reranker fails, the local scores
// decide. Invalid arguments are rejected.
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

// Server is the pruner. Apply replaces its plan.
type Server struct {
	deps    Deps
	plan    atomic.Pointer[plan]
	slots   *semaphore.Weighted // concurrent runs, those whose caller has left included
	running sync.WaitGroup
	score   func(ctx context.Context, text, goal string, kind prune.Kind) (*prune.ScoredText, error)
}

// Deps are the dependencies of a Server.
type Deps struct {
	Recall    *recall.Recall
	Transport http.RoundTripper // to rerankers; unused with the backend heuristic
	Version   string
}

// plan is everything that depends on the configuration. A call uses one plan.
type plan struct {
	Config
	reranker *reranker // nil for the backend heuristic
}

// New makes a server. The configuration must be valid and its secrets resolved.
func New(cfg Config, d Deps) *Server {
	runs := cfg.MaxRuns
	if runs == 0 {
		runs = runtime.GOMAXPROCS(0)
	}
	s := &Server{deps: d, slots: semaphore.NewWeighted(int64(runs)), score: prune.Score}
	s.plan.Store(newPlan(cfg, d.Transport))
	return s
}

func newPlan(cfg Config, transport http.RoundTripper) *plan {
	return &plan{Config: cfg, reranker: newReranker(cfg, transport)}
}

// Apply replaces the configuration. Calls in flight end under the old one. An unchanged configuration
// keeps its reranker and cache; max_runs, listen and prune_id_ttl_s take effect only at a restart.
func (s *Server) Apply(cfg Config) {
	if cfg != s.plan.Load().Config {
		s.plan.Store(newPlan(cfg, s.deps.Transport))
	}
}

// Close waits for runs whose caller has left. Nothing may be called after it.
func (s *Server) Close() { s.running.Wait() }

// Call calls a tool for a tenant. The arguments have passed a strict parse; nil means none. An error
// for the caller is an [*Error].
func (s *Server) Call(ctx context.Context, tenant, name string, args []byte) (result []byte, err error) {
	switch name {
	case toolPrune:
		return s.callPrune(ctx, tenant, args)
	case toolRecover, toolRecoverAlias:
		return s.callRecover(ctx, tenant, args)
	case toolHealth:
		if _, err := parseArgs(args, ""); err != nil {
			return nil, err
		}
		return toolResult(s.health(time.Now())), nil
	}
	return nil, unknownTool(name)
}
