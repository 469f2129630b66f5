package catalog

import (
	"context"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/upstream"
)

// checkTools compares tools with what was approved: those that are held back, and those that are shown in another way, say
// so.
func (c *Cache) checkTools(ctx context.Context, server string, items []Item) []Item {
	listed := make([]pins.Tool, len(items))
	for i, it := range items {
		listed[i] = pins.Tool{Name: it.Name, Raw: it.Raw}
	}
	out := make([]Item, len(items))
	for i, checked := range c.deps.Pins.Check(ctx, server, listed) {
		out[i] = Item{Name: items[i].Name, Raw: checked.Raw, Hold: checked.Hold, listed: items[i].Raw}
		if checked.Hold != nil {
			out[i].Raw = items[i].Raw
		}
	}
	return out
}

// Call is what a client calls: an item of a server by its own name, at the endpoint of all servers ("") or of one.
type Call struct {
	Kind             Kind
	At, Server, Name string
}

// Refusal returns why something is not called; nil if it may be. Where the definitions of tools are compared, it waits for
// a server that has not listed its tools yet.
func (c *Cache) Refusal(ctx context.Context, caller upstream.Caller, layout *Layout, call Call) *pins.Hold {
	key := itemKey{call.Kind, call.Server, call.Name}
	at, server := call.At, call.Server
	current := c.Current(c.ClassOf(caller), at)
	if hold := current.held[key]; hold != nil || call.Kind != Tools || c.deps.Pins == nil || !c.deps.Pins.Compares() {
		return hold
	}
	if !current.known[server] {
		current = c.Current(c.ClassOf(upstream.Caller{}), at) // most servers offer the same to all
	}
	if !current.known[server] {
		current = c.WaitServer(ctx, caller, layout, server)
	}
	if hold := current.held[key]; hold != nil {
		return hold
	}
	if !current.known[server] {
		return pins.NewUnlisted(server, call.Name)
	}
	return c.deps.Pins.Refuses(server, call.Name)
}

// ReadAgain reads the lists of a server again, or of all servers (""): something else may be approved now.
func (c *Cache) ReadAgain(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, class := range c.classes {
		for id, o := range class.offers {
			if !o.follows && (server == "" || server == id) {
				c.startReading(class, o)
			}
		}
	}
}

// HeldTools returns how many tools of a server are not served to clients without capabilities.
func (c *Cache) HeldTools(server string) int {
	held := 0
	for key := range c.Plain().held {
		if key.server == server && key.kind == Tools {
			held++
		}
	}
	return held
}

// PinnedTools returns the tools that a server lists to any class of clients, by their names, and whether it was read. Of a
// tool that classes see differently every definition is returned.
func (c *Cache) PinnedTools(server string) (tools []pins.ItemReport, known bool) {
	var items []Item
	c.mu.Lock()
	for _, class := range c.classes {
		if o := class.offers[server]; o != nil {
			known = known || o.offer.known
			items = append(items, o.offer.items[Tools]...)
		}
	}
	c.mu.Unlock()
	seen := map[string]bool{}
	for _, it := range items {
		def, err := pins.ToolDefinition(it.listed)
		if key := it.Name + " " + def.Hash; err == nil && !seen[key] {
			seen[key] = true
			tools = append(tools, pins.NewItem(it.Name, def, it.Hold))
		}
	}
	slices.SortFunc(tools, func(a, b pins.ItemReport) int { return strings.Compare(a.Name+" "+a.SHA256, b.Name+" "+b.SHA256) })
	return tools, known
}
