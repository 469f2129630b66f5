package catalog

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/upstream"
)

// Class is the clients that can answer the same requests of servers, and for which servers see the same credentials.
type Class struct {
	name   string
	isOwn  bool            // some server sees credentials that are not everybody's
	caller upstream.Caller // one of the clients, as whom the servers' lists are read

	layout  atomic.Pointer[Layout]  // for whose servers there are offers
	offers  map[string]*cachedOffer // by server
	catalog atomic.Pointer[Catalog] // of all servers
	single  sync.Map                // server → *Catalog under the server's own names
	used    atomic.Int64            // time of the last request, in Unix nanoseconds
	served  bool                    // a client got a list: before that there is no change to notify of

	stale            atomic.Bool // an offer changed since catalog was built; set and cleared with the lock held
	rebuildScheduled bool
	buildTook        time.Duration

	unnotified      [kindCount]bool // the lists that changed since notifiedAt
	notifyScheduled bool
	notifiedAt      time.Time
}

// ClassOf returns the class of a client.
func (c *Cache) ClassOf(caller upstream.Caller) *Class {
	name, isOwn := c.className(c.deps.Layout(), caller)
	if found, ok := c.byName.Load(name); ok {
		class := found.(*Class) //nolint:forcetypeassert // nothing else is stored there
		if class.layout.Load() == c.deps.Layout() {
			class.used.Store(time.Now().UnixNano())
			return class
		}
	}
	if name == "" {
		caller = upstream.Caller{}
	}
	caller.AccessToken = secret.Text{} // it is for this request alone
	c.mu.Lock()
	defer c.mu.Unlock()
	layout := c.deps.Layout()
	class := c.classes[name]
	if class == nil {
		c.makeRoom(isOwn)
		class = &Class{name: name, isOwn: isOwn, caller: caller, offers: map[string]*cachedOffer{}}
		first := build(c.offersOf(class, layout), layout) // without any server
		first.ttl = 0
		class.catalog.Store(first)
		c.classes[name] = class
	}
	class.used.Store(time.Now().UnixNano())
	class.caller = caller
	for _, r := range layout.Servers {
		c.addServer(class, r)
	}
	class.layout.Store(layout)
	c.byName.Store(name, class)
	return class
}

// isIdle reports whether no client of the class has made a request lately; the class without capabilities never is.
func (c *Class) isIdle() bool {
	return c.name != "" && time.Since(time.Unix(0, c.used.Load())) > classIdleAfter
}

// ClassCount returns how many classes there are.
func (c *Cache) ClassCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.classes)
}

// credentialed is the servers of a layout that do not see the same credentials for everybody.
type credentialed struct {
	layout    *Layout
	perCaller []*upstream.Server
	perTenant *upstream.Server // one of them: all see the same of a tenant; nil for none
}

func (c *Cache) credentialedServers(layout *Layout) *credentialed {
	if known := c.credentialed.Load(); known != nil && known.layout == layout {
		return known
	}
	found := &credentialed{layout: layout}
	for _, r := range layout.Servers {
		switch {
		case r.IsPerCaller():
			found.perCaller = append(found.perCaller, r)
		case r.IsPerTenant():
			found.perTenant = r
		}
	}
	c.credentialed.Store(found)
	return found
}

// className names the class of a client, and says whether some server sees credentials for it that are not everybody's. The
// lists of such a server are for those alone for which it sees the same.
func (c *Cache) className(layout *Layout, caller upstream.Caller) (name string, isOwn bool) {
	name = upstream.ClientClass(caller.Client)
	servers := c.credentialedServers(layout)
	if servers.perTenant == nil && len(servers.perCaller) == 0 {
		return name, false
	}
	names, last := []string{name}, ""
	add := func(r *upstream.Server) {
		if key := r.CredentialKey(caller); key != "" && key != last {
			names = append(names, key)
			last, isOwn = key, true
		}
	}
	if servers.perTenant != nil {
		add(servers.perTenant)
	}
	for _, r := range servers.perCaller {
		add(r)
	}
	return strings.Join(names, "\x00"), isOwn
}

// IsOf reports whether a client is of a class.
func (c *Cache) IsOf(class *Class, caller upstream.Caller) bool {
	name, _ := c.className(c.deps.Layout(), caller)
	return name == class.name
}

// IsOfOthers reports whether an entry among the plain ones says nothing about what a client is offered: its server sees other
// credentials for that.
func (c *Cache) IsOfOthers(caller upstream.Caller, e Entry) bool {
	r := c.deps.Layout().ByID[e.Server]
	return r != nil && r.HasOwnCredential(caller)
}

// makeRoom forgets the class that was used longest ago if there are too many of its sort; the lock is held. Those of callers with
// credentials of their own do not push out the others.
func (c *Cache) makeRoom(isOwn bool) {
	limit, count := maxClasses, 0
	if isOwn {
		limit = maxOwnClasses
	}
	var oldest *Class
	for _, class := range c.classes {
		if class.isOwn != isOwn {
			continue
		}
		count++
		if class.name != "" && (oldest == nil || class.used.Load() < oldest.used.Load()) {
			oldest = class
		}
	}
	if oldest != nil && count >= limit {
		c.forgetClass(oldest)
	}
}

// forgetClass forgets a class; the lock is held.
func (c *Cache) forgetClass(class *Class) {
	for _, o := range class.offers {
		o.offer.memory.Release()
	}
	delete(c.classes, class.name)
	c.byName.Delete(class.name)
}

// forgetIdle forgets the classes of callers with credentials of their own that have made no request for long; the lock is held.
func (c *Cache) forgetIdle() {
	for _, class := range c.classes {
		if class.isOwn && time.Since(time.Unix(0, class.used.Load())) > ownClassIdleAfter {
			c.forgetClass(class)
		}
	}
}

// SeenLists is the lists as one client knows them, by their hashes. A client is notified that a list changed when
// it would get another one now, not merely because a server's list was read again.
type SeenLists struct {
	mu     sync.Mutex
	hashes [kindCount]string // "" for a list that the client is not known to have seen
}

// Set notes that the client got a list.
func (s *SeenLists) Set(k Kind, c *Catalog) {
	s.mu.Lock()
	s.hashes[k] = c.hashes[k]
	s.mu.Unlock()
}

// SetAll notes all lists as they were when the client came.
func (s *SeenLists) SetAll(c *Catalog) {
	s.mu.Lock()
	s.hashes = c.hashes
	s.mu.Unlock()
}

// Update reports whether a list differs from the one that the client knows, and notes it as known from now on.
// Templates change together with resources.
func (s *SeenLists) Update(k Kind, c *Catalog) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range kindCount {
		if kinds[other].changed == kinds[k].changed && s.hashes[other] != c.hashes[other] {
			s.hashes[other], changed = c.hashes[other], true
		}
	}
	return changed
}

// SameList reports whether two catalogs have the same list of a kind.
func (c *Catalog) SameList(k Kind, other *Catalog) bool { return c.hashes[k] == other.hashes[k] }

// IsServed reports whether a client of the class got a list.
func (c *Cache) IsServed(class *Class) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return class.served
}
