package hub

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/upstream"
)

const (
	maxClasses = 32                     // of clients that are told apart
	readEvery  = 500 * time.Millisecond // a server whose lists change all the time is read no more often
	tellEvery  = 500 * time.Millisecond // and clients are told no more often

	// A catalog that is out of date is built when somebody needs it, else after a delay. The delay
	// is at least rebuildDelay, and rebuildShare times what the last build took: while many servers
	// come up, building takes a small share of the time.
	rebuildDelay = 20 * time.Millisecond
	rebuildShare = 20
)

// shelves hold what every server offers. Servers may offer more to clients that can answer their
// questions, so each class of clients has its own.
type shelves struct {
	hub *Hub

	quick sync.Map // name → *class, for calls, which take no lock

	mu      sync.Mutex
	classes map[string]*class
}

// class is the clients that can answer the same questions.
type class struct {
	name string
	who  upstream.Who // one of them, as whom servers are asked

	plan    atomic.Pointer[plan] // that its shelves are laid out for
	shelf   map[string]*shelf    // by server
	catalog atomic.Pointer[catalog]
	stale   atomic.Bool   // an offer changed since the catalog was built; set and cleared with the lock held
	timer   bool          // a rebuild is scheduled
	took    time.Duration // how long the last build took
	singles sync.Map      // server → *catalog under its own names
	served  bool          // one of them was given a list: before, there is no change to tell of
	used    atomic.Int64  // when one of them last asked for something
	told    time.Time     // when its clients were told of a change
	telling bool          // and will be again
	untold  [kinds]bool
}

// shelf is what one server offers to a class.
type shelf struct {
	remote  *upstream.Remote
	offer   offer
	settled chan struct{} // closed when the server has answered, failed, or been waited for long enough
	once    sync.Once
	reading bool
	again   bool           // it changed while it was read
	met     *upstream.Conn // the connection that came up while it was read; it may be the very one
	read    time.Time
}

func (s *shelf) settle() { s.once.Do(func() { close(s.settled) }) }

func (s *shelves) init(h *Hub) {
	s.hub = h
	s.classes = map[string]*class{}
}

// of is the class of a request's client.
func (s *shelves) of(req *request) *class {
	name := upstream.Class(req.client)
	if found, ok := s.quick.Load(name); ok {
		c := found.(*class) //nolint:forcetypeassert // nothing else is stored there
		if c.plan.Load() == s.hub.plan.Load() {
			c.used.Store(time.Now().UnixNano())
			return c
		}
	}
	who := req.from()
	if name == "" {
		who = upstream.Who{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.classes[name]
	if c == nil {
		if len(s.classes) >= maxClasses {
			s.drop()
		}
		c = &class{name: name, who: who, shelf: map[string]*shelf{}}
		p := s.hub.plan.Load()
		first := build(s.offers(c, p), p.Hub.Naming) // what is there without any server
		first.ttl = 0
		c.catalog.Store(first)
		s.classes[name] = c
	}
	c.used.Store(time.Now().UnixNano())
	c.who = who
	now := s.hub.plan.Load() // a request under way may be of an older one
	for _, r := range now.order {
		s.stock(c, r)
	}
	c.plan.Store(now)
	s.quick.Store(name, c)
	return c
}

// drop forgets the class that was used longest ago; the lock is held.
func (s *shelves) drop() {
	var oldest *class
	for _, c := range s.classes {
		if c.name != "" && (oldest == nil || c.used.Load() < oldest.used.Load()) {
			oldest = c
		}
	}
	if oldest != nil {
		for _, sh := range oldest.shelf {
			sh.offer.memory.Release()
		}
		delete(s.classes, oldest.name)
		s.quick.Delete(oldest.name)
	}
}

// forget lets go of everything that servers offered.
func (s *shelves) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.classes {
		for _, sh := range c.shelf {
			sh.offer.memory.Release()
		}
	}
	s.classes = map[string]*class{}
}

// stock makes the shelf of a server and begins to read it; the lock is held.
func (s *shelves) stock(c *class, r *upstream.Remote) *shelf {
	if sh := c.shelf[r.ID()]; sh != nil && sh.remote == r {
		return sh
	}
	sh := &shelf{remote: r, settled: make(chan struct{})}
	if old := c.shelf[r.ID()]; old != nil {
		sh.offer = old.offer // until the new server has spoken
		sh.offer.known = false
	}
	c.shelf[r.ID()] = sh
	if s.slow(r) && c.name != "" {
		sh.settle()
	}
	time.AfterFunc(s.hub.plan.Load().Hub.ListWait.D(), sh.settle)
	s.begin(c, sh)
	return sh
}

// slow says whether a server has been waited for in vain: it is not waited for again on behalf of
// other clients; the lock is held.
func (s *shelves) slow(r *upstream.Remote) bool {
	plain := s.classes[""]
	if plain == nil || plain.shelf[r.ID()] == nil || plain.shelf[r.ID()].remote != r {
		return false
	}
	select {
	case <-plain.shelf[r.ID()].settled:
		return plain.shelf[r.ID()].read.IsZero()
	default:
		return false
	}
}

// now is the catalog as it is.
func (s *shelves) now(req *request) *catalog { return s.fresh(s.of(req)) }

// fresh is the catalog of a class with everything that was read so far.
func (s *shelves) fresh(c *class) *catalog {
	if c.stale.Load() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rebuildStale(c)
	}
	return c.catalog.Load()
}

// plain is the catalog of clients that servers cannot ask anything.
func (s *shelves) plain() *catalog {
	if found, ok := s.quick.Load(""); ok {
		return s.fresh(found.(*class)) //nolint:forcetypeassert // nothing else is stored there
	}
	return &catalog{}
}

// seen finds a thing without waiting for servers that have not yet said what they offer to this
// class: most offer the same to all.
func (s *shelves) seen(req *request, k kind, shown string) (entry, bool) {
	c := s.of(req)
	if e, ok := c.catalog.Load().find(k, shown); ok { // a call does not wait for a catalog to be built
		return e, true
	}
	if e, ok := s.fresh(c).find(k, shown); ok {
		return e, true
	}
	return s.plain().find(k, shown)
}

// wait is the catalog once every server has settled; those that are known to be slow are not
// waited for.
func (s *shelves) wait(ctx context.Context, req *request) *catalog {
	return s.fresh(s.settled(ctx, req, req.plan.order))
}

// settled waits for some servers only, and gives the class of the request's client.
func (s *shelves) settled(ctx context.Context, req *request, servers []*upstream.Remote) *class {
	c := s.of(req)
	waits := make([]<-chan struct{}, 0, len(servers))
	s.mu.Lock()
	for _, r := range servers {
		if sh := c.shelf[r.ID()]; sh != nil {
			waits = append(waits, sh.settled)
		}
	}
	s.mu.Unlock()
	for _, settled := range waits {
		select {
		case <-settled:
		case <-ctx.Done():
		case <-s.hub.closing:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.served {
		s.rebuildStale(c) // what is known by now is no change to tell of
		c.served = true
	}
	if c.name != "" {
		c.who = req.from() // who asks now is the likeliest to be there later
	}
	return c
}

// single is the catalog of one server under its own names.
func (s *shelves) single(ctx context.Context, req *request, server string) *catalog {
	var behind []*upstream.Remote
	if r := req.plan.remotes[server]; r != nil {
		behind = append(behind, r)
	}
	s.settled(ctx, req, behind)
	return s.singleNow(s.of(req), req.plan, server)
}

// singleNow is the catalog of one server under its own names, as it is.
func (s *shelves) singleNow(c *class, p *plan, server string) *catalog {
	if found, ok := c.singles.Load(server); ok {
		return found.(*catalog) //nolint:forcetypeassert // nothing else is stored there
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var one []offer
	if sh := c.shelf[server]; sh != nil && p.remotes[server] != nil {
		one = append(one, sh.offerOf(p))
	} else if o := p.own[server]; o != nil {
		one = append(one, o.offer)
	}
	made := only(one, server)
	c.singles.Store(server, made) // with the lock, or it could be older than the offer
	return made
}

// offers are those of a plan's servers, in its order, and then our own; the lock is held.
func (s *shelves) offers(c *class, p *plan) []offer {
	out := make([]offer, 0, len(p.order)+len(p.owns))
	for _, r := range p.order {
		if sh := c.shelf[r.ID()]; sh != nil {
			out = append(out, sh.offerOf(p))
		}
	}
	for _, one := range p.owns {
		out = append(out, one.offer)
	}
	return out
}

// offerOf is what the server offers under a plan; the lock is held.
func (s *shelf) offerOf(p *plan) offer {
	o, id := s.offer, s.remote.ID()
	o.server, o.prefix, o.asks = id, p.prefix[id], p.rules.asker(id)
	return o
}

// begin reads a server's lists, unless that is being done; the lock is held.
func (s *shelves) begin(c *class, sh *shelf) {
	if sh.reading {
		sh.again = true
		return
	}
	sh.reading = true
	go s.read(c, sh, c.who)
}

// read asks the server for everything it offers and puts it on its shelf.
func (s *shelves) read(c *class, sh *shelf, who upstream.Who) {
	began := time.Now()
	var o offer
	var from *upstream.Conn
	err := contained(func() (err error) {
		o, from, err = s.hub.readOffer(sh.remote, who)
		return err
	})
	if err != nil && fault.KindOf(err) != fault.Unavailable {
		slog.Warn("a server's lists could not be read", "server", sh.remote.ID(), "error", err)
	}
	s.mu.Lock()
	switch {
	case err != nil:
	case s.classes[c.name] != c || c.shelf[sh.remote.ID()] != sh:
		o.memory.Release() // nobody wants it any more
	default:
		sh.offer.memory.Release()
		sh.offer = o
		sh.read = time.Now()
		s.outdated(c, sh.remote.ID())
	}
	s.mu.Unlock()
	sh.settle() // after the catalog is known to be out of date
	time.Sleep(readEvery - time.Since(began))
	s.mu.Lock()
	defer s.mu.Unlock()
	sh.reading = false
	sh.again = sh.again || sh.met != nil && sh.met != from
	sh.met = nil
	if sh.again && c.shelf[sh.remote.ID()] == sh {
		sh.again = false
		s.begin(c, sh)
	}
}

// outdated notes that a server's offer changed since the catalog was built. The catalog is built
// again when somebody needs it, and at the latest after a delay, so that servers that come up at the
// same time cost one build together; the lock is held.
func (s *shelves) outdated(c *class, server string) {
	c.singles.Delete(server)
	c.stale.Store(true)
	if c.timer {
		return
	}
	c.timer = true
	delay := max(rebuildDelay, rebuildShare*c.took)
	if !c.served { // nobody is to be told of a change: only the log waits for what is wrong
		delay = max(delay, tellEvery)
	}
	time.AfterFunc(delay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.timer = false
		if s.classes[c.name] == c && !s.hub.ended() { // else nobody reads it any more
			s.rebuildStale(c)
		}
	})
}

// rebuildStale builds the catalog if it is out of date; the lock is held.
func (s *shelves) rebuildStale(c *class) {
	if c.stale.Load() {
		s.rebuild(c)
	}
}

// rebuild makes the catalog anew and says what of it changed; the lock is held.
func (s *shelves) rebuild(c *class) {
	began := time.Now()
	p := s.hub.plan.Load()
	old, made := c.catalog.Load(), build(s.offers(c, p), p.Hub.Naming)
	c.catalog.Store(made)
	c.stale.Store(false) // after the catalog: who sees that it is not stale sees the new one
	c.took = time.Since(began)
	known := map[string]bool{}
	for _, text := range old.clashes {
		known[text] = true
	}
	for _, text := range made.clashes {
		if !known[text] {
			slog.Warn("a name is taken", "name", text)
		}
	}
	for k := range kinds {
		if c.served && old.hashes[k] != made.hashes[k] {
			c.untold[k] = true
		}
	}
	if c.untold != ([kinds]bool{}) && !c.telling {
		c.telling = true
		time.AfterFunc(tellEvery-time.Since(c.told), func() { s.tell(c) })
	}
}

// tell tells the clients of a class which of their lists changed.
func (s *shelves) tell(c *class) {
	s.mu.Lock()
	changed := c.untold
	c.untold, c.telling, c.told = [kinds]bool{}, false, time.Now()
	s.mu.Unlock()
	changed[resources] = changed[resources] || changed[templates]
	for _, k := range []kind{tools, prompts, resources} {
		if changed[k] {
			s.hub.tellChanged(c, k)
		}
	}
}

// replan lays the shelves out for another plan.
func (s *shelves) replan(p *plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.classes {
		for id, sh := range c.shelf {
			if p.remotes[id] == nil {
				delete(c.shelf, id)
				sh.offer.memory.Release()
				sh.settle()
			}
		}
		for _, r := range p.order {
			s.stock(c, r)
		}
		c.plan.Store(p)
		c.singles.Clear()
		s.rebuild(c)
	}
}

// reread reads the lists of a lane's server again: it said that they changed.
func (s *shelves) reread(l *upstream.Lane) {
	s.each(l, func(c *class, sh *shelf) { s.begin(c, sh) })
}

// met reads the lists of a server that came up. What it offers to a class of clients is not read
// again for each of them that comes.
func (s *shelves) met(l *upstream.Lane) {
	s.each(l, func(c *class, sh *shelf) {
		switch {
		case sh.reading:
			sh.met = l.Current()
		case l.Shared() || sh.read.IsZero():
			s.begin(c, sh)
		}
	})
}

// failed lets nobody wait for a server that has just failed.
func (s *shelves) failed(l *upstream.Lane) {
	s.each(l, func(_ *class, sh *shelf) { sh.settle() })
}

// each calls f with the shelves that a lane can fill.
func (s *shelves) each(l *upstream.Lane, f func(*class, *shelf)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.classes {
		if sh := c.shelf[l.Server()]; sh != nil && sh.remote == l.Remote() && (l.Shared() || l.Class() == c.name) {
			f(c, sh)
		}
	}
}

// refresh reads again what is older than it may be. For a class that nobody is of any more no
// server is troubled.
func (s *shelves) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.classes {
		if c.name != "" && time.Since(time.Unix(0, c.used.Load())) > time.Minute {
			continue
		}
		for _, sh := range c.shelf {
			if !sh.reading && (sh.read.IsZero() || time.Since(sh.read) > sh.offer.ttl) {
				s.begin(c, sh)
			}
		}
	}
}
