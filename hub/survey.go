package hub

import (
	"context"
	"fmt"

	"github.com/ctxgate/ctxgate/mcp"
)

// Finding is what is true of one server now.
type Finding struct {
	Server  string
	Problem error // nil when it is up
	Line    string
}

// Survey waits for every server, as long as their starts may take, and says what each of them is and
// offers, and which names two of them want.
func (h *Hub) Survey(ctx context.Context) (found []Finding, clashes []string) {
	req := &request{plan: h.plan.Load(), era: mcp.EraModern, client: mcp.Client{Capabilities: []byte("{}")}}
	h.shelves.wait(ctx, req)
	for _, r := range req.plan.order {
		lane := r.Shared()
		conn, err := lane.Conn(ctx)
		if err != nil {
			found = append(found, Finding{Server: r.ID(), Problem: err})
			continue
		}
		hello := conn.Hello()
		h.shelves.mu.Lock()
		o := h.shelves.classes[""].shelf[r.ID()].offer
		h.shelves.mu.Unlock()
		found = append(found, Finding{Server: r.ID(), Line: fmt.Sprintf("MCP %s, %d tools, %d prompts, %d resources, %d templates",
			hello.Version, len(o.items[tools]), len(o.items[prompts]), len(o.items[resources]), len(o.items[templates]))})
	}
	for _, o := range req.plan.owns {
		found = append(found, Finding{Server: o.ID, Line: fmt.Sprintf("built in, %d tools", len(o.items))})
	}
	return found, h.shelves.now(req).clashes
}
