package hub

import (
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/upstream"
)

// loadFacts is what an earlier process found out about a server.
func (h *Hub) loadFacts(entry upstream.ServerConfig) string {
	if h.deps.LoadFacts == nil || len(entry.Command) == 0 {
		return ""
	}
	return h.deps.LoadFacts(entry.FactsKey())
}

// serverLearned takes note of what was found out about a server: who may share its connection.
func (h *Hub) serverLearned(s *upstream.Server, facts string) {
	go func() { // the catalog may be about to use the server
		h.catalog.ServerAsks(s)
		if h.deps.SaveFacts != nil {
			h.deps.SaveFacts(s.Config().FactsKey(), facts)
		}
	}()
}

// ServerStatus is the state of one server and how much it offers.
type ServerStatus struct {
	upstream.Status
	IsBuiltin bool // it is part of the gateway: it has no connection and is always up

	// What is listed of it; what a server that is down listed last.
	Tools, Prompts, Resources, Templates int
	Held                                 int // tools that are not served
}

// ServerStatuses returns the state of every server, in the order of the configuration.
func (h *Hub) ServerStatuses() []ServerStatus {
	p := h.plan.Load()
	all := make([]ServerStatus, 0, len(p.Servers)+len(p.Builtins))
	for _, r := range p.Servers {
		n := h.catalog.Counts(r.ID())
		all = append(all, ServerStatus{
			Status: r.Status(),
			Held:   h.catalog.HeldTools(r.ID()),
			Tools:  n[catalog.Tools], Prompts: n[catalog.Prompts], Resources: n[catalog.Resources], Templates: n[catalog.Templates],
		})
	}
	for _, b := range p.Builtins {
		all = append(all, ServerStatus{Status: upstream.Status{ID: b.ID, State: upstream.StateUp}, IsBuiltin: true, Tools: len(b.Tools)})
	}
	return all
}
