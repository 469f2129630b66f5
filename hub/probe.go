package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// quietProbe is how long a server may take before the progress of its start is reported.
const quietProbe = 2 * time.Second

// minListWait is how long a probe waits for a server's lists at least.
const minListWait = 5 * time.Second

// ProbeResult is what one server turned out to be.
type ProbeResult struct {
	Server  string
	Err     error         // nil when the server is up and its lists were read
	Stderr  []string      // of a server that failed: the last lines of its stderr
	Summary string        // of a server that is up: its revision, and how much it offers
	Took    time.Duration // from the start of the probe
}

// ProbeWatcher gets what a probe finds, while it runs.
type ProbeWatcher struct {
	Found    func(ProbeResult)           // each server, as soon as it is known; those that are built in last
	Progress func(starts []fmt.Stringer) // once a second: the servers that take long
}

// Probe waits for every server, as long as its start may take, and tells the watcher what each of them is and offers. It
// returns the names that two of them want.
func (h *Hub) Probe(ctx context.Context, watch ProbeWatcher) (conflicts []string) {
	p := h.plan.Load()
	began := time.Now()
	found := make(chan ProbeResult)
	pending := map[string]*upstream.Server{}
	for _, r := range p.Servers {
		pending[r.ID()] = r
		go func() { found <- h.probeServer(ctx, r) }()
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for len(pending) > 0 {
		select {
		case result := <-found:
			delete(pending, result.Server)
			result.Took = time.Since(began)
			watch.Found(result)
		case <-tick.C:
			if slow := slowStarts(p, pending, time.Since(began)); len(slow) > 0 {
				watch.Progress(slow)
			}
		}
	}
	for _, b := range p.Builtins {
		watch.Found(ProbeResult{Server: b.ID, Summary: "built in, " + countItems(len(b.Tools), "tool")})
	}
	return slices.Clone(h.catalog.Now(upstream.Caller{Client: mcp.Client{Capabilities: []byte("{}")}}).Conflicts())
}

// probeServer waits for one server and its lists.
func (h *Hub) probeServer(ctx context.Context, r *upstream.Server) ProbeResult {
	if r.IsPerCaller() {
		return ProbeResult{Server: r.ID(), Summary: "not connected: it is called with the credentials of each caller"}
	}
	conn, err := r.SharedConn().AwaitStart(ctx)
	if err != nil {
		status := r.Status()
		if status.LastError != "" { // it says more than that the server is not available
			err = errors.New(status.LastError)
		}
		return ProbeResult{Server: r.ID(), Err: err, Stderr: status.Stderr}
	}
	// A call may take minutes, where response_timeout allows it; a list that is not there by now has no excuse.
	limit := max(r.Config().StartupTimeout, unit.Duration(minListWait))
	listCtx, cancel := context.WithTimeout(ctx, limit.D())
	defer cancel()
	n, err := h.catalog.AwaitRead(listCtx, r)
	if err != nil {
		if ctx.Err() == nil && listCtx.Err() != nil {
			err = fmt.Errorf("no answer within startup_timeout = %s", limit)
		}
		err = fmt.Errorf("it is up, but its lists cannot be read: %w", err)
		return ProbeResult{Server: r.ID(), Err: err, Stderr: r.Status().Stderr}
	}
	parts := []string{"MCP " + conn.Handshake().Version, countItems(n[catalog.Tools], "tool")}
	for _, k := range []catalog.Kind{catalog.Prompts, catalog.Resources, catalog.Templates} {
		if n[k] > 0 {
			parts = append(parts, countItems(n[k], shortNoun(k)))
		}
	}
	return ProbeResult{Server: r.ID(), Summary: strings.Join(parts, ", ")}
}

func shortNoun(k catalog.Kind) string {
	if k == catalog.Templates {
		return "template"
	}
	return k.Noun()
}

// countItems is a number with its noun: "1 tool", "2 tools".
func countItems(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// slowStarts returns the progress of the servers that have not answered for a while, in the order of the configuration.
func slowStarts(p *Plan, pending map[string]*upstream.Server, elapsed time.Duration) []fmt.Stringer {
	var slow []fmt.Stringer
	for _, r := range p.Servers {
		if pending[r.ID()] == nil || elapsed < quietProbe {
			continue
		}
		if progress, ok := r.StartProgress(); ok {
			slow = append(slow, progress)
		} else {
			slow = append(slow, waitingFor{r, elapsed})
		}
	}
	return slow
}

// waitingFor is a server that is up and lists what it offers, or that is started again.
type waitingFor struct {
	server  *upstream.Server
	elapsed time.Duration
}

func (w waitingFor) String() string {
	doing := "listing what it offers"
	if status := w.server.Status(); status.State != upstream.StateUp {
		doing = "failed, is started again"
	}
	return fmt.Sprintf("%s: %s, %d s", w.server.ID(), doing, int(w.elapsed.Seconds()))
}
