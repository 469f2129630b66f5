package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

// kind is one of the things that servers list.
type kind uint8

const (
	tools kind = iota
	prompts
	resources
	templates
	kinds
)

// listing is what differs between the kinds.
var listing = [kinds]struct {
	method     string // that lists it
	member     string // of the result
	key        string // of an item, that names it
	capability string // that a server declares for it
	changed    string // the notification that says it is not what it was
}{
	tools:     {mcp.ToolsList, "tools", "name", "tools", mcp.ToolsChanged},
	prompts:   {mcp.PromptsList, "prompts", "name", "prompts", mcp.PromptsChanged},
	resources: {mcp.ResourcesList, "resources", "uri", "resources", mcp.ResourcesChanged},
	templates: {mcp.TemplatesList, "resourceTemplates", "uriTemplate", "resources", mcp.ResourcesChanged},
}

func kindOf(method string) (kind, bool) {
	for k := range kinds {
		if listing[k].method == method {
			return k, true
		}
	}
	return 0, false
}

// entry is one thing that a server offers.
type entry struct {
	server string
	key    string // the server's own name for it
	shown  string // the name here
	raw    []byte // the item, under the name here
	asks   bool   // a tool that is listed with what calls look for (focusKey)

	fits glob // the addresses that a template under its own name can make
}

// catalog is everything the servers offer to one class of clients, at one moment. It does not
// change: a new one takes its place.
type catalog struct {
	generation string // changes when anything in it does
	lists      [kinds][]entry
	hashes     [kinds]string
	byShown    [kinds]map[string]int
	ttl        time.Duration // how long it may be believed; 0 when a server is missing
	clashes    []string      // names that two servers wanted, and who did not get them
}

// offer is what one server listed.
type offer struct {
	server string
	own    bool   // it is part of the gateway
	prefix string // always, auto or never
	items  [kinds][]item
	ttl    time.Duration
	known  bool             // it has been read; else the server is missing
	memory *membudget.Scope // holds the items' bytes; nil before it was read

	asks func(tool string) bool // which tools to list with what calls look for; nil for none
}

// item is a thing as its server listed it.
type item struct {
	key string
	raw []byte
}

// build lays the offers of all servers out under their common names, in the order of the table
// and by name within a server, so that the same offers always give the same bytes. Of two things
// that would have the same name the first is kept, and the other is said in the log.
func build(offers []offer, naming Naming) *catalog {
	c := &catalog{}
	c.ttl = lifetime(offers)
	for k := range kinds {
		clash := clashes(offers, k)
		c.byShown[k] = map[string]int{}
		for _, o := range offers {
			c.add(k, o, naming, clash)
		}
		c.hashes[k] = hashOf(c.lists[k])
	}
	c.generation = hashText(strings.Join(c.hashes[:], " "))[:12]
	return c
}

func (c *catalog) add(k kind, o offer, naming Naming, clash map[string]bool) {
	items := slices.Clone(o.items[k])
	slices.SortStableFunc(items, func(a, b item) int { return strings.Compare(a.key, b.key) })
	for _, it := range items {
		e := entry{server: o.server, key: it.key, shown: it.key, raw: it.raw}
		if k == tools && o.asks != nil && o.asks(it.key) {
			e.raw, e.asks = offerFocus(it.raw)
		}
		if o.prefix == "always" || o.prefix == "auto" && clash[it.key] {
			e.shown = show(k, e.server, it.key, naming)
			e.raw = renamed(e.raw, listing[k].key, e.shown)
		}
		if at, taken := c.byShown[k][e.shown]; taken || k == tools && e.shown == recoverTool && !o.own {
			first := "the gateway"
			if taken {
				first = c.lists[k][at].server
			}
			c.clashes = append(c.clashes, fmt.Sprintf("%s: %s %q is taken by %s: not offered twice",
				e.server, strings.TrimSuffix(listing[k].member, "s"), e.shown, first))
			continue
		}
		if k == templates && e.shown == e.key {
			e.fits = templateGlob(e.key)
		}
		c.byShown[k][e.shown] = len(c.lists[k])
		c.lists[k] = append(c.lists[k], e)
	}
}

// show is a thing's name in the common space.
func show(k kind, server, key string, naming Naming) string {
	switch k {
	case resources:
		return showResource(server, key)
	case templates:
		return showTemplate(server, key)
	case tools, prompts, kinds:
	}
	return server + naming.Separator + key
}

// renamed is an item under another name; all its other bytes stay.
func renamed(raw []byte, key, shown string) []byte {
	fields, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return raw
	}
	return fields.With(jsonscan.Change{Key: key, Value: mcp.Quote(shown)})
}

// clashes are the names that more than one server has.
func clashes(offers []offer, k kind) map[string]bool {
	owner := map[string]string{}
	clash := map[string]bool{}
	if k == tools {
		owner[recoverTool] = "" // the gateway's own
	}
	for _, o := range offers {
		if o.own {
			continue // their names always carry the id
		}
		for _, it := range o.items[k] {
			if first, ok := owner[it.key]; ok && first != o.server {
				clash[it.key] = true
			}
			owner[it.key] = o.server
		}
	}
	return clash
}

// lifetime is the shortest of the offers'; a server that is missing may come at any moment.
func lifetime(offers []offer) time.Duration {
	shortest := time.Hour
	for _, o := range offers {
		if !o.known {
			return 0
		}
		shortest = min(shortest, o.ttl)
	}
	return shortest
}

func hashOf(entries []entry) string {
	h := sha256.New()
	for _, e := range entries {
		_, _ = h.Write(e.raw)
		_, _ = h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}

func hashText(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// find is the entry of a shown name.
func (c *catalog) find(k kind, shown string) (entry, bool) {
	at, ok := c.byShown[k][shown]
	if !ok {
		return entry{}, false
	}
	return c.lists[k][at], true
}

// only is the catalog of one server under its own names.
func only(offers []offer, server string) *catalog {
	for _, o := range offers {
		if o.server == server {
			o.prefix = "never"
			return build([]offer{o}, Naming{})
		}
	}
	return build(nil, Naming{})
}
