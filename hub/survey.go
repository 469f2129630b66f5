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
		line := fmt.Sprintf("MCP %s", hello.Version)
		h.shelves.mu.Lock()
		for _, o := range h.shelves.offers(h.shelves.classes[""], req.plan.alone(r.ID())) {
			line += fmt.Sprintf(", %d tools, %d prompts, %d resources, %d templates",
				len(o.items[tools]), len(o.items[prompts]), len(o.items[resources]), len(o.items[templates]))
		}
		h.shelves.mu.Unlock()
		found = append(found, Finding{Server: r.ID(), Line: line})
	}
	return found, h.shelves.now(req).clashes
}
