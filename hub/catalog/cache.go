package catalog

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/upstream"
)

const (
	maxClasses     = 32
	maxOwnClasses  = 256                    // of callers with credentials of their own
	readInterval   = 500 * time.Millisecond // at most this often the lists of a server are read
	notifyInterval = 500 * time.Millisecond // at most this often the clients of a class are notified
	classIdleAfter = time.Minute            // the lists of a class without requests are not refreshed

	ownClassIdleAfter = 15 * time.Minute // a class of callers with credentials of their own is forgotten then

	// A stale catalog is rebuilt when a request needs it, else after a delay: at least rebuildDelay, and
	// rebuildShare times the duration of the last build, so that many servers starting up cost little.
	rebuildDelay = 20 * time.Millisecond
	rebuildShare = 20
)

// Deps is what a Cache needs.
type Deps struct {
	Layout  func() *Layout // of the configuration in force
	Budget  *membudget.Budget
	Pins    *pins.Guard     // decides which tools may be served; nil: all
	Closing <-chan struct{} // closed when the gateway stops

	// Changed is called when a list changed that clients of the class may have seen. A change of the templates
	// is one of the resources.
	Changed func(*Class, Kind)

	// Announce tells other replicas that a server's lists changed, and to what, by a hash. Nil: there are none.
	Announce func(server, hash string)
}

// Cache holds what every server offers. Servers may offer more to clients that can answer their requests, so each
// class of clients has its own lists.
type Cache struct {
	credentialed atomic.Pointer[credentialed] // of the last layout
	deps         Deps

	byName sync.Map // name → *Class, for calls, which take no lock

	mu      sync.Mutex
	classes map[string]*Class
}

// cachedOffer is what one server offers to a class.
type cachedOffer struct {
	remote  *upstream.Server
	offer   serverOffer
	ready   chan struct{} // closed when the server has answered, failed, or been waited for long enough
	once    sync.Once     // closes ready
	follows bool          // it is what the class without capabilities has: its own is not read
	reading bool
	again   bool           // it changed while it was read
	cameUp  *upstream.Conn // the connection that came up while it was read, maybe the one it is read from
	readAt  time.Time      // zero before it was read
	readErr error          // why the last read failed
	hash    string         // of all lists that were read
	told    bool           // another replica said that the lists changed: it has told all others
	readEnd chan struct{}  // closed and replaced at the end of each read
}

func (o *cachedOffer) markReady() { o.once.Do(func() { close(o.ready) }) }

// NewCache returns a cache that reads a server's lists when the first client of a class needs them.
func NewCache(d Deps) *Cache { return &Cache{deps: d, classes: map[string]*Class{}} }

// Close releases the memory of all offers.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, class := range c.classes {
		for _, o := range class.offers {
			o.offer.memory.Release()
		}
	}
	c.classes = map[string]*Class{}
}

// addServer adds a server to a class and starts to read its lists; the lock is held. Where it replaces another of
// the same id, the lists of that one stay until its own are read.
func (c *Cache) addServer(class *Class, r *upstream.Server) {
	old := class.offers[r.ID()]
	if old != nil && old.remote == r {
		return
	}
	if !r.HasOwnCredential(class.caller) {
		r.NoteClient(class.caller.Client)
	}
	o := &cachedOffer{remote: r, ready: make(chan struct{}), readEnd: make(chan struct{})}
	if old != nil {
		o.offer = old.offer
		o.offer.known = false
	}
	class.offers[r.ID()] = o
	if class.name != "" && !r.HasOwnCredential(class.caller) && c.isSlow(r) {
		o.markReady()
	}
	time.AfterFunc(c.deps.Layout().ListWait, o.markReady)
	if plain := c.plainOffer(class, o); plain != nil && class.name != "" && !plain.readAt.IsZero() {
		c.followPlain(class, o, plain)
	}
	c.chooseSource(class, o)
}

// isSlow reports whether the class without capabilities waited for a server in vain: other classes do not wait for
// it again; the lock is held.
func (c *Cache) isSlow(r *upstream.Server) bool {
	plain := c.classes[""]
	if plain == nil || plain.offers[r.ID()] == nil || plain.offers[r.ID()].remote != r {
		return false
	}
	select {
	case <-plain.offers[r.ID()].ready:
		return plain.offers[r.ID()].readAt.IsZero()
	default:
		return false
	}
}

// Now returns the catalog with everything that was read so far.
func (c *Cache) Now(caller upstream.Caller) *Catalog { return c.upToDate(c.ClassOf(caller)) }

func (c *Cache) upToDate(class *Class) *Catalog {
	if class.stale.Load() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.rebuildStale(class)
	}
	return class.catalog.Load()
}

// Plain returns the catalog of clients that can answer no requests of servers.
func (c *Cache) Plain() *Catalog {
	if found, ok := c.byName.Load(""); ok {
		return c.upToDate(found.(*Class)) //nolint:forcetypeassert // nothing else is stored there
	}
	return &Catalog{}
}

// Find returns the entry that a client sees under a name, without waiting for servers. An entry that was not
// read for the client's class yet is looked up among the plain ones: most servers offer the same to all for which they see the
// same credentials.
func (c *Cache) Find(caller upstream.Caller, k Kind, shown string) (Entry, bool) {
	class := c.ClassOf(caller)
	if e, ok := class.catalog.Load().Find(k, shown); ok { // a call does not wait for a catalog to be built
		return e, true
	}
	if e, ok := c.upToDate(class).Find(k, shown); ok {
		return e, true
	}
	e, ok := c.Plain().Find(k, shown)
	return e, ok && !c.IsOfOthers(caller, e)
}

// Wait returns the catalog once the lists of all servers are read, or their list_wait is over.
func (c *Cache) Wait(ctx context.Context, caller upstream.Caller, layout *Layout) *Catalog {
	return c.upToDate(c.waitFor(ctx, caller, layout.Servers))
}

// WaitServer returns the catalog of one server under its own names, once it is read or its list_wait is over.
func (c *Cache) WaitServer(ctx context.Context, caller upstream.Caller, layout *Layout, server string) *Catalog {
	var behind []*upstream.Server
	if r := layout.ByID[server]; r != nil {
		behind = append(behind, r)
	}
	c.waitFor(ctx, caller, behind)
	return c.ofServer(c.ClassOf(caller), layout, server)
}

func (c *Cache) waitFor(ctx context.Context, caller upstream.Caller, servers []*upstream.Server) *Class {
	var prepared sync.WaitGroup
	for _, r := range servers {
		if r.NeedsToken() { // the lists are read later, without the caller's request
			prepared.Go(func() { r.PrepareFor(ctx, caller) })
		}
	}
	prepared.Wait()
	caller.AccessToken = secret.Text{}
	class := c.ClassOf(caller)
	waits := make([]<-chan struct{}, 0, len(servers))
	c.mu.Lock()
	for _, r := range servers {
		if o := class.offers[r.ID()]; o != nil {
			waits = append(waits, o.ready)
		}
	}
	c.mu.Unlock()
	for _, ready := range waits {
		select {
		case <-ready:
		case <-ctx.Done():
		case <-c.deps.Closing:
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !class.served {
		c.rebuildStale(class) // what is known by now is no change to notify of
		class.served = true
	}
	if class.name != "" {
		class.caller = caller // the latest client is the likeliest to be there later
	}
	return class
}

// Current returns the catalog of a class as it is, at the endpoint of all servers ("") or of one server.
func (c *Cache) Current(class *Class, server string) *Catalog {
	if server == "" {
		return c.upToDate(class)
	}
	return c.ofServer(class, c.deps.Layout(), server)
}

// ofServer returns the catalog of one server under its own names.
func (c *Cache) ofServer(class *Class, layout *Layout, server string) *Catalog {
	if found, ok := class.single.Load(server); ok {
		return found.(*Catalog) //nolint:forcetypeassert // nothing else is stored there
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var one []serverOffer
	if o := class.offers[server]; o != nil && layout.ByID[server] != nil {
		one = append(one, o.offerUnder(layout))
	}
	for _, b := range layout.Builtins {
		if b.ID == server && one == nil {
			one = append(one, b.offer())
		}
	}
	for i := range one {
		one[i].prefix = "never"
	}
	made := build(one, layout)
	class.single.Store(server, made) // with the lock held, or it could be older than the offer
	return made
}

// offersOf returns the offers of a layout's servers and then of its builtins; the lock is held.
func (c *Cache) offersOf(class *Class, layout *Layout) []serverOffer {
	out := make([]serverOffer, 0, len(layout.Servers)+len(layout.Builtins))
	for _, r := range layout.Servers {
		if o := class.offers[r.ID()]; o != nil {
			out = append(out, o.offerUnder(layout))
		}
	}
	for _, b := range layout.Builtins {
		out = append(out, b.offer())
	}
	return out
}

func (o *cachedOffer) offerUnder(layout *Layout) serverOffer {
	offer, id := o.offer, o.remote.ID()
	offer.server, offer.prefix = id, layout.Prefix[id]
	return offer
}

func (b Builtin) offer() serverOffer {
	o := serverOffer{server: b.ID, builtin: true, prefix: "always", ttl: time.Hour, known: true}
	o.items[Tools] = b.Tools
	return o
}

// startReading reads a server's lists, or once more after a read that is under way; the lock is held.
func (c *Cache) startReading(class *Class, o *cachedOffer) {
	if o.reading {
		o.again = true
		return
	}
	o.reading = true
	go c.refreshOffer(class, o, class.caller)
}

// refreshOffer reads a server's lists and puts them into the class.
func (c *Cache) refreshOffer(class *Class, o *cachedOffer, caller upstream.Caller) {
	began := time.Now()
	offer, conn, err := c.readOffer(o.remote, caller)
	if err != nil && fault.KindOf(err) != fault.Unavailable && fault.KindOf(err) != fault.Forbidden {
		slog.Warn("a server's lists could not be read", "server", o.remote.ID(), "error", err)
	}
	c.mu.Lock()
	o.readErr = err
	close(o.readEnd)
	o.readEnd = make(chan struct{})
	announce := ""
	switch {
	case err != nil:
		c.offerAuthorize(class, o, err)
	case c.classes[class.name] != class || class.offers[o.remote.ID()] != o: // replaced meanwhile
		offer.memory.Release()
	default:
		o.offer.memory.Release()
		announce = o.noteHash(class, offer)
		o.offer = offer
		o.readAt = time.Now()
		c.markStale(class, o.remote.ID())
		if class.name == "" {
			c.updateFollowers(o)
		}
	}
	c.mu.Unlock()
	o.markReady() // after the catalog is marked stale
	if announce != "" && c.deps.Announce != nil {
		c.deps.Announce(o.remote.ID(), announce)
	}
	time.Sleep(readInterval - time.Since(began))
	c.mu.Lock()
	defer c.mu.Unlock()
	o.reading = false
	o.again = o.again || o.cameUp != nil && o.cameUp != conn
	o.cameUp = nil
	if o.again && class.offers[o.remote.ID()] == o {
		o.again = false
		c.startReading(class, o)
	}
}

// markStale notes that a server's offer changed, and schedules a rebuild, so that servers that come up at the same
// time cost one build together; the lock is held.
func (c *Cache) markStale(class *Class, server string) {
	class.single.Delete(server)
	class.stale.Store(true)
	if class.rebuildScheduled {
		return
	}
	class.rebuildScheduled = true
	delay := max(rebuildDelay, rebuildShare*class.buildTook)
	if !class.served { // there is no client to notify: only the log of conflicts waits for the build
		delay = max(delay, notifyInterval)
	}
	time.AfterFunc(delay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		class.rebuildScheduled = false
		select {
		case <-c.deps.Closing:
			return
		default:
		}
		if c.classes[class.name] == class {
			c.rebuildStale(class)
		}
	})
}

// rebuildStale rebuilds the catalog if it is stale; the lock is held.
func (c *Cache) rebuildStale(class *Class) {
	if class.stale.Load() {
		c.rebuild(class)
	}
}

// rebuild builds the catalog, logs new conflicts, and schedules notifications of what changed; the lock is held.
func (c *Cache) rebuild(class *Class) {
	began := time.Now()
	layout := c.deps.Layout()
	old, made := class.catalog.Load(), build(c.offersOf(class, layout), layout)
	class.catalog.Store(made)
	class.stale.Store(false) // after the catalog: a reader that sees it as not stale sees the new one
	class.buildTook = time.Since(began)
	known := map[string]bool{}
	for _, text := range old.conflicts {
		known[text] = true
	}
	for _, text := range made.conflicts {
		if !known[text] {
			slog.Warn("two names are the same or look alike: rename one, or see naming.prefix", "name", text)
		}
	}
	for k := range kindCount {
		if class.served && old.hashes[k] != made.hashes[k] {
			class.unnotified[k] = true
		}
	}
	c.scheduleNotify(class)
}

// ApplyLayout brings all classes to the layout in force.
func (c *Cache) ApplyLayout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	layout := c.deps.Layout()
	for _, class := range c.classes {
		for id, o := range class.offers {
			if layout.ByID[id] == nil {
				delete(class.offers, id)
				o.offer.memory.Release()
				o.markReady()
			}
		}
		for _, r := range layout.Servers {
			c.addServer(class, r)
		}
		class.layout.Store(layout)
		class.single.Clear()
		c.rebuild(class)
	}
}

// ListsChanged reads the lists of a server again: it announced a change.
func (c *Cache) ListsChanged(l *upstream.ManagedConn) {
	c.eachOffer(l, func(class *Class, o *cachedOffer) {
		if !o.follows {
			c.startReading(class, o)
		}
	})
}

// ServerUp reads the lists of a server that came up. What it offers to a class is not read again for each client
// with a connection of its own.
func (c *Cache) ServerUp(l *upstream.ManagedConn) {
	c.eachOffer(l, func(class *Class, o *cachedOffer) {
		switch {
		case o.follows && o.remote.SharesLists(class.caller):
		case o.follows: // its protocol is known now
			c.chooseSource(class, o)
		case o.reading:
			o.cameUp = l.CurrentConn()
		case l.IsShared() || o.readAt.IsZero():
			c.startReading(class, o)
		}
	})
}

// ServerDown ends the wait for a server that failed.
func (c *Cache) ServerDown(l *upstream.ManagedConn) {
	c.eachOffer(l, func(class *Class, o *cachedOffer) {
		if o.reading && o.remote.HasOwnCredential(class.caller) {
			return // the read is about to fail, and may have something to list in its place
		}
		o.markReady()
	})
}

// eachOffer calls f for the offers that can be read from a connection.
func (c *Cache) eachOffer(l *upstream.ManagedConn, f func(*Class, *cachedOffer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, class := range c.classes {
		if o := class.offers[l.ServerID()]; o != nil && o.remote == l.Server() && l.IsFor(class.caller) && (l.IsShared() || l.ClientClass() == upstream.ClientClass(class.caller.Client)) {
			f(class, o)
		}
	}
}

// Refresh reads the lists again that are older than their TTL. Idle classes are not refreshed.
func (c *Cache) Refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetIdle()
	for _, class := range c.classes {
		if class.isIdle() {
			continue
		}
		for _, o := range class.offers {
			if !o.reading && !o.follows && (o.readAt.IsZero() || time.Since(o.readAt) > o.offer.ttl) {
				c.startReading(class, o)
			}
		}
	}
}
