// Package catalog keeps what the servers offer (tools, prompts, resources and resource templates), under the
// names by which clients see it.
//
// Path through the files: catalog.go builds an immutable Catalog from the lists of all servers, under the names of
// names.go; view.go fits it to clients with limits; cache.go keeps a Catalog for each class of clients (class.go) up to date and read.go reads a
// server's lists for it, unless the class has those of another (follow.go); notify.go reports changes; page.go answers a list request, a page at a time.
//
// Invariants: a Catalog never changes, another replaces it; the same offers always give the same bytes; an item
// differs from what its server listed only in its name and in the argument that Layout.EditTool adds. A list
// does not wait for a server that is known to be slow. While a server cannot be read, its last lists stay.
package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/glob"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/upstream"
)

// Kind is one of the things that servers list.
type Kind uint8

// The kinds, in the order in which a server's lists are read.
const (
	Tools Kind = iota
	Prompts
	Resources
	Templates
	kindCount
)

// kinds is what differs between them.
var kinds = [kindCount]struct {
	method     string // that lists it
	member     string // of the result
	key        string // the member of an item that names it
	capability string // that a server declares for it
	changed    string // the notification that its list changed
}{
	Tools:     {mcp.ToolsList, "tools", "name", "tools", mcp.NotifyToolsChanged},
	Prompts:   {mcp.PromptsList, "prompts", "name", "prompts", mcp.NotifyPromptsChanged},
	Resources: {mcp.ResourcesList, "resources", "uri", "resources", mcp.NotifyResourcesChanged},
	Templates: {mcp.ResourceTemplatesList, "resourceTemplates", "uriTemplate", "resources", mcp.NotifyResourcesChanged},
}

// KindOf returns the kind that a method lists.
func KindOf(method string) (Kind, bool) {
	for k := range kindCount {
		if kinds[k].method == method {
			return k, true
		}
	}
	return 0, false
}

// Member is the member of a list's result that holds the items.
func (k Kind) Member() string { return kinds[k].member }

// Key is the member of an item that names it.
func (k Kind) Key() string { return kinds[k].key }

// Noun names one item of the kind.
func (k Kind) Noun() string { return strings.TrimSuffix(kinds[k].member, "s") }

// ChangedMethod is the notification that a list of the kind changed.
func (k Kind) ChangedMethod() string { return kinds[k].changed }

// Layout is what the configuration decides about the catalog.
type Layout struct {
	Servers  []*upstream.Server // in the order in which the catalog lists their items
	ByID     map[string]*upstream.Server
	Prefix   map[string]string // by server, when names carry its id: always, auto or never
	Builtins []Builtin         // listed after the servers
	Naming   Naming

	GatewayTool  Item          // listed last, unless a builtin has a tool of the same name
	ListWait     time.Duration // how long a list waits for a server that is starting
	ListTTL      time.Duration // how long a server's lists are used before they are read again
	MaxListBytes int64         // of all lists of one server

	// RefusesLookAlikes: of tools, and of prompts, whose names look alike only the first is listed.
	RefusesLookAlikes bool

	// EditTool returns a tool as it is listed, and whether it differs. Nil: tools are listed as they are.
	EditTool func(server, tool string, raw []byte) ([]byte, bool)
}

// Builtin is a server that is part of the gateway. Its names always carry its id.
type Builtin struct {
	ID    string
	Tools []Item
}

// Item is something as its server listed it.
type Item struct {
	Name string // the URI of a resource, the URI template of a template
	Raw  []byte

	Hold   *pins.Hold // why it is not served; nil for what is
	listed []byte     // a tool as its server listed it, where Raw differs
}

// Entry is something that a server offers, as the catalog lists it.
type Entry struct {
	Server string // "" for the gateway's own tool
	Name   string // the server's own name for it
	Shown  string // the name that clients see
	Raw    []byte // the item, under the name that clients see
	Edited bool   // by Layout.EditTool

	uris glob.Pattern // that a template under its own name expands to
}

// Catalog is everything that the servers offer to one class of clients, at one moment.
type Catalog struct {
	generation string // changes when anything in it does
	lists      [kindCount][]Entry
	hashes     [kindCount]string
	byShown    [kindCount]map[string]int
	ttl        time.Duration // how long a client may cache it; 0 when a server is missing
	conflicts  []string
	unserved   [kindCount]map[string]*pins.Hold // by the names that clients would see
	held       map[itemKey]*pins.Hold           // the same, by their own names
	known      map[string]bool                  // servers whose lists were read
	skeletons  [kindCount]map[string]Entry      // the first item of those whose names look alike
	views      views                            // as clients with limits see it
}

// itemKey is an item of a server, by its own name.
type itemKey struct {
	kind         Kind
	server, name string
}

// serverOffer is everything that one server listed.
type serverOffer struct {
	server  string
	builtin bool
	prefix  string // always, auto or never
	items   [kindCount][]Item
	ttl     time.Duration
	known   bool             // it has been read; else the server is missing
	memory  *membudget.Scope // holds the bytes of the items; nil before it was read
}

// build lists the offers of all servers under their common names, in the order of the offers and by name within a
// server. Of two items with the same name the first is listed, and the other becomes a conflict. An item that is held back
// keeps its name: no other takes its place.
func build(offers []serverOffer, layout *Layout) *Catalog {
	c := &Catalog{ttl: shortestTTL(offers), held: map[itemKey]*pins.Hold{}, known: map[string]bool{}}
	for _, o := range offers {
		c.known[o.server] = o.known
	}
	for k := range kindCount {
		shared := sharedNames(offers, k, layout.GatewayTool.Name)
		c.byShown[k], c.unserved[k] = map[string]int{}, map[string]*pins.Hold{}
		c.reserveSkeletons(k, offers, layout)
		for _, o := range offers {
			c.addOffer(k, o, layout, shared)
		}
		if _, taken := c.byShown[k][layout.GatewayTool.Name]; k == Tools && layout.GatewayTool.Name != "" && !taken {
			c.addEntry(k, Entry{Name: layout.GatewayTool.Name, Shown: layout.GatewayTool.Name, Raw: layout.GatewayTool.Raw})
		}
		c.hashes[k] = hashEntries(c.lists[k])
	}
	c.setGeneration()
	return c
}

func (c *Catalog) setGeneration() {
	sum := sha256.Sum256([]byte(strings.Join(c.hashes[:], " ")))
	c.generation = hex.EncodeToString(sum[:])[:12]
}

func (c *Catalog) addOffer(k Kind, o serverOffer, layout *Layout, shared map[string]bool) {
	items := slices.Clone(o.items[k])
	slices.SortStableFunc(items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	for _, it := range items {
		e := Entry{Server: o.server, Name: it.Name, Shown: it.Name, Raw: it.Raw}
		if k == Tools && !o.builtin && layout.EditTool != nil {
			e.Raw, e.Edited = layout.EditTool(o.server, it.Name, it.Raw)
		}
		if o.prefix == "always" || o.prefix == "auto" && shared[it.Name] {
			e.Shown = prefixedName(k, o.server, it.Name, layout.Naming)
			if fields, err := jsonscan.FieldsOf(e.Raw); err == nil { // all other bytes stay
				e.Raw = fields.With(jsonscan.Change{Key: kinds[k].key, Value: mcp.Quote(e.Shown)})
			}
		}
		first, taken := "the gateway", k == Tools && e.Shown == layout.GatewayTool.Name && !o.builtin
		if at, ok := c.byShown[k][e.Shown]; ok {
			first, taken = c.lists[k][at].Server, true
		} else if other, ok := c.unserved[k][e.Shown]; ok {
			first, taken = other.Server, true
		}
		if taken {
			c.conflicts = append(c.conflicts, fmt.Sprintf("%s: %s %q is not offered: server %s has one of that name", e.Server, k.Noun(), e.Shown, first))
			continue
		}
		if hold := c.checkName(k, e, it, layout); hold != nil {
			c.unserved[k][e.Shown] = hold
			c.held[itemKey{k, e.Server, e.Name}] = hold
			continue
		}
		if k == Templates && e.Shown == e.Name {
			e.uris = glob.FromTemplate(e.Name)
		}
		c.addEntry(k, e)
	}
}

// reserveSkeletons makes sure that no server's name looks like one of the gateway's own.
func (c *Catalog) reserveSkeletons(k Kind, offers []serverOffer, layout *Layout) {
	c.skeletons[k] = map[string]Entry{}
	if k != Tools || !layout.RefusesLookAlikes {
		return
	}
	reserve := func(server, shown string) {
		c.skeletons[k][pins.Skeleton(shown)] = Entry{Server: server, Shown: shown}
	}
	reserve("the gateway", layout.GatewayTool.Name)
	for _, o := range offers {
		for _, it := range o.items[k] {
			if o.builtin {
				reserve(o.server, prefixedName(k, o.server, it.Name, layout.Naming))
			}
		}
	}
}

// checkName returns why an item is not served: it is held back, or its name looks like an earlier one.
func (c *Catalog) checkName(k Kind, e Entry, it Item, layout *Layout) *pins.Hold {
	if k == Prompts && pins.HasHidden(e.Name) {
		return pins.NewHidden(e.Server, k.Noun(), e.Name)
	}
	if k != Tools && k != Prompts || !layout.RefusesLookAlikes {
		return it.Hold
	}
	skeleton := pins.Skeleton(e.Shown)
	first, taken := c.skeletons[k][skeleton]
	if !taken {
		c.skeletons[k][skeleton] = e
	}
	if it.Hold != nil || !taken || first.Shown == e.Shown {
		return it.Hold
	}
	name, _ := pins.MarkHidden(e.Shown)
	c.conflicts = append(c.conflicts, fmt.Sprintf("%s: %s %q is not offered: it looks like %q of server %s", e.Server, k.Noun(), name, first.Shown, first.Server))
	return pins.NewLookAlike(e.Server, k.Noun(), e.Name)
}

func (c *Catalog) addEntry(k Kind, e Entry) {
	c.byShown[k][e.Shown] = len(c.lists[k])
	c.lists[k] = append(c.lists[k], e)
}

// sharedNames returns the names that more than one server has, the gateway counting as one.
func sharedNames(offers []serverOffer, k Kind, gatewayTool string) map[string]bool {
	owner, shared := map[string]string{}, map[string]bool{}
	if k == Tools {
		owner[gatewayTool] = ""
	}
	for _, o := range offers {
		if o.builtin {
			continue // their names always carry the id
		}
		for _, it := range o.items[k] {
			if first, ok := owner[it.Name]; ok && first != o.server {
				shared[it.Name] = true
			}
			owner[it.Name] = o.server
		}
	}
	return shared
}

// shortestTTL returns the shortest of the offers' TTLs; 0 when a server is missing, as it may appear at any moment.
func shortestTTL(offers []serverOffer) time.Duration {
	shortest := time.Hour
	for _, o := range offers {
		if !o.known {
			return 0
		}
		shortest = min(shortest, o.ttl)
	}
	return shortest
}

func hashEntries(entries []Entry) string {
	h := sha256.New()
	for _, e := range entries {
		_, _ = h.Write(e.Raw)
		_, _ = h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Find returns the entry that clients see under a name.
func (c *Catalog) Find(k Kind, shown string) (Entry, bool) {
	at, ok := c.byShown[k][shown]
	if !ok {
		return Entry{}, false
	}
	return c.lists[k][at], true
}

// FindTemplate returns the first template that is listed under its own name and can expand to a URI, of the servers
// that usable accepts.
func (c *Catalog) FindTemplate(uri string, usable func(server string) bool) (Entry, bool) {
	for _, e := range c.lists[Templates] {
		if usable(e.Server) && e.uris.Match(uri) {
			return e, true
		}
	}
	return Entry{}, false
}

// Unserved returns why the item that clients would see under a name is not served.
func (c *Catalog) Unserved(k Kind, shown string) (*pins.Hold, bool) {
	hold, ok := c.unserved[k][shown]
	return hold, ok
}

// Conflicts describes the items that are not listed because their name is taken, or looks like another one.
func (c *Catalog) Conflicts() []string { return c.conflicts }
