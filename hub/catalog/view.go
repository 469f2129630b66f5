package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

// Fit is how tools are listed for clients with limits.
type Fit struct {
	MaxName    int  // the longest name; 0 for any
	PlainNames bool // names have only letters, digits, _ and -, as model APIs require

	// Edit returns a tool as these clients see it, and whether it differs. Nil: as it is. EditKey names everything
	// beside the tool that the result depends on.
	Edit    func(Entry) ([]byte, bool)
	EditKey string
}

type viewKey struct {
	maxName    int
	plainNames bool
	editKey    string
}

// maxViews bounds the views of a catalog that are kept. Clients with the same limits share one.
const maxViews = 32

// views are what a catalog remembers beside its lists; they are made when they are first needed.
type views struct {
	mu       sync.Mutex
	byFit    map[viewKey]*Catalog
	byHash   map[string]int // tools, by the hash that their shortened names end in; -1 for two of the same
	longText map[int][]Entry
	visible  map[string]*Catalog // by the bits of what is left out
}

// maxVisible bounds the parts of a catalog that are kept for callers who may not see all of it. Callers who may see
// the same share one.
const maxVisible = 256

// Visible returns the part of the catalog that a caller may see. Where that is everything, it is the catalog itself.
func (c *Catalog) Visible(keep func(Kind, Entry) bool) *Catalog {
	total := 0
	for k := range kindCount {
		total += len(c.lists[k])
	}
	bits, at, isAll := make([]byte, (total+7)/8), 0, true
	for k := range kindCount {
		for _, e := range c.lists[k] {
			if !keep(k, e) {
				bits[at/8] |= 1 << (at % 8)
				isAll = false
			}
			at++
		}
	}
	if isAll {
		return c
	}
	c.views.mu.Lock()
	defer c.views.mu.Unlock()
	if made := c.views.visible[string(bits)]; made != nil {
		return made
	}
	made := c.without(bits)
	if len(c.views.visible) < maxVisible {
		if c.views.visible == nil {
			c.views.visible = map[string]*Catalog{}
		}
		c.views.visible[string(bits)] = made
	}
	return made
}

// without returns the catalog without the items whose bits are set.
func (c *Catalog) without(bits []byte) *Catalog {
	part := &Catalog{ttl: c.ttl}
	at := 0
	for k := range kindCount {
		part.byShown[k] = map[string]int{}
		for _, e := range c.lists[k] {
			if bits[at/8]&(1<<(at%8)) == 0 {
				part.addEntry(k, e)
			}
			at++
		}
		part.hashes[k] = hashEntries(part.lists[k])
	}
	part.setGeneration()
	return part
}

// For returns the catalog as clients with limits see it: the same items in the same order, some under shorter names.
// Where nothing is over a limit, that is the catalog itself.
func (c *Catalog) For(f Fit) *Catalog {
	key := viewKey{f.MaxName, f.PlainNames, f.EditKey}
	if key == (viewKey{}) {
		return c
	}
	c.views.mu.Lock()
	defer c.views.mu.Unlock()
	if made := c.views.byFit[key]; made != nil {
		return made
	}
	made := c.newView(f)
	if len(c.views.byFit) < maxViews {
		if c.views.byFit == nil {
			c.views.byFit = map[viewKey]*Catalog{}
		}
		c.views.byFit[key] = made
	}
	return made
}

func (c *Catalog) newView(f Fit) *Catalog {
	view := &Catalog{generation: c.generation, lists: c.lists, hashes: c.hashes, byShown: c.byShown, ttl: c.ttl, conflicts: c.conflicts, unserved: c.unserved, held: c.held, known: c.known}
	tools := make([]Entry, len(c.lists[Tools]))
	byShown := make(map[string]int, len(tools))
	changed := false
	for i, e := range c.lists[Tools] {
		if name := f.fitName(e.Shown); name != e.Shown {
			e.Shown, changed = name, true
			if fields, err := jsonscan.FieldsOf(e.Raw); err == nil {
				e.Raw = fields.With(jsonscan.Change{Key: kinds[Tools].key, Value: mcp.Quote(name)})
			}
		}
		if f.Edit != nil {
			if raw, differs := f.Edit(e); differs {
				e.Raw, changed = raw, true
			}
		}
		tools[i] = e
		byShown[e.Shown] = i
	}
	if !changed || len(byShown) < len(tools) { // two names with the same hash: neither can be told from the other
		return c
	}
	view.lists[Tools], view.byShown[Tools] = tools, byShown
	return view
}

// nameHash is how many letters a shortened name has at its end that tell it from others.
const nameHash = 8

// fitName returns the name as it is, or a shorter one that ends in a hash of it. The same name always gives the same.
func (f Fit) fitName(name string) string {
	fitting := name
	if f.PlainNames {
		fitting = plainName(name)
	}
	if fitting == name && (f.MaxName == 0 || len(name) <= f.MaxName) {
		return name
	}
	end := "_" + hashOfName(name)
	if most := f.MaxName - len(end); f.MaxName > 0 && len(fitting) > most {
		fitting = strings.ToValidUTF8(fitting[:max(most, 0)], "")
	}
	return strings.TrimRight(fitting, "_") + end
}

// plainName replaces every character that model APIs refuse.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if IsPlain(string(r)) {
			return r
		}
		return '_'
	}, name)
}

// IsPlain reports whether a text has only characters that model APIs accept in names.
func IsPlain(text string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	return strings.Trim(text, plain) == ""
}

func hashOfName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])[:nameHash]
}

// LooksShortened reports whether a name may be one that was shortened for some client.
func LooksShortened(name string) bool {
	at := len(name) - nameHash - 1
	return at >= 0 && name[at] == '_' && strings.Trim(name[at+1:], "0123456789abcdef") == ""
}

// FindShortened returns the tool whose name was shortened to this one, for whatever limit.
func (c *Catalog) FindShortened(shown string) (Entry, bool) {
	if !LooksShortened(shown) {
		return Entry{}, false
	}
	c.views.mu.Lock()
	defer c.views.mu.Unlock()
	if c.views.byHash == nil {
		c.views.byHash = make(map[string]int, len(c.lists[Tools]))
		for i, e := range c.lists[Tools] {
			h := hashOfName(e.Shown)
			if _, taken := c.views.byHash[h]; taken {
				i = -1
			}
			c.views.byHash[h] = i
		}
	}
	at, ok := c.views.byHash[shown[len(shown)-nameHash:]]
	if !ok || at < 0 {
		return Entry{}, false
	}
	e, head := c.lists[Tools][at], shown[:len(shown)-nameHash-1]
	return e, strings.HasPrefix(e.Shown, head) || strings.HasPrefix(plainName(e.Shown), head)
}

// LongDescriptions lists the tools whose description has more than so many UTF-16 code units, as clients that are
// written in JavaScript count.
func (c *Catalog) LongDescriptions(chars int) []Entry {
	c.views.mu.Lock()
	defer c.views.mu.Unlock()
	if found, ok := c.views.longText[chars]; ok {
		return found
	}
	var found []Entry
	for _, e := range c.lists[Tools] {
		if len(e.Raw) <= chars {
			continue
		}
		if raw, ok := Description(e.Raw); ok && UTF16Len(jsonscan.DecodeString(raw)) > chars {
			found = append(found, e)
		}
	}
	if len(c.views.longText) < maxViews {
		if c.views.longText == nil {
			c.views.longText = map[int][]Entry{}
		}
		c.views.longText[chars] = found
	}
	return found
}

// Description is the raw description of a tool.
func Description(tool []byte) ([]byte, bool) {
	fields, err := jsonscan.FieldsOf(tool)
	if err != nil {
		return nil, false
	}
	raw, ok := fields.Get("description")
	return raw, ok && len(raw) > 1 && raw[0] == '"'
}

// UTF16Len is the length of a text in UTF-16 code units.
func UTF16Len(text string) int {
	n := 0
	for _, r := range text {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}
