package hub

import (
	"context"
	"log/slog"
	"slices"
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
	singles sync.Map     // server → *catalog under its own names
	served  bool         // one of them was given a list: before, there is no change to tell of
	used    atomic.Int64 // when one of them last asked for something
	told    time.Time    // when its clients were told of a change
	telling bool         // and will be again
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
		delete(s.classes, oldest.name)
		s.quick.Delete(oldest.name)
	}
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
func (s *shelves) now(req *request) *catalog { return s.of(req).catalog.Load() }

// plain is the catalog of clients that servers cannot ask anything.
func (s *shelves) plain() *catalog {
	if found, ok := s.quick.Load(""); ok {
		return found.(*class).catalog.Load() //nolint:forcetypeassert // nothing else is stored there
	}
	return &catalog{}
}

// seen finds a thing without waiting for servers that have not yet said what they offer to this
// class: most offer the same to all.
func (s *shelves) seen(req *request, k kind, shown string) (entry, bool) {
	if e, ok := s.now(req).find(k, shown); ok {
		return e, true
	}
	return s.plain().find(k, shown)
}

// wait is the catalog once every server has settled; those that are known to be slow are not
// waited for.
func (s *shelves) wait(ctx context.Context, req *request) *catalog {
	return s.settled(ctx, req, req.plan.order)
}

// settled waits for some servers only.
func (s *shelves) settled(ctx context.Context, req *request, servers []*upstream.Remote) *catalog {
	c := s.of(req)
	for _, r := range servers {
		s.mu.Lock()
		sh := c.shelf[r.ID()]
		s.mu.Unlock()
		if sh == nil {
			continue
		}
		select {
		case <-sh.settled:
		case <-ctx.Done():
		case <-s.hub.closing:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.served = true
	if c.name != "" {
		c.who = req.from() // who asks now is the likeliest to be there later
	}
	return c.catalog.Load()
}

// single is the catalog of one server under its own names.
func (s *shelves) single(ctx context.Context, req *request, server string) *catalog {
	var behind []*upstream.Remote
	if r := req.plan.remotes[server]; r != nil {
		behind = append(behind, r)
	}
	s.settled(ctx, req, behind)
	c := s.of(req)
	if found, ok := c.singles.Load(server); ok {
		return found.(*catalog) //nolint:forcetypeassert // nothing else is stored there
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	made := only(s.offers(c, req.plan), server)
	c.singles.Store(server, made) // with the lock, or it could be older than the catalog
	return made
}

// offers are those of a plan's servers, in its order, and then our own; the lock is held.
func (s *shelves) offers(c *class, p *plan) []offer {
	var out []offer
	for _, r := range p.order {
		if sh := c.shelf[r.ID()]; sh != nil {
			o := sh.offer
			o.server, o.prefix, o.asks = r.ID(), p.prefix[r.ID()], p.rules.asker(r.ID())
			out = append(out, o)
		}
	}
	for _, one := range p.owns {
		out = append(out, one.offer)
	}
	return out
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
	if err == nil {
		sh.offer = o
		sh.read = time.Now()
		s.rebuild(c)
	}
	s.mu.Unlock()
	sh.settle() // after the catalog has it
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

// rebuild makes the catalog anew and says what of it changed; the lock is held.
func (s *shelves) rebuild(c *class) {
	p := s.hub.plan.Load()
	old, made := c.catalog.Load(), build(s.offers(c, p), p.Hub.Naming)
	c.catalog.Store(made)
	c.singles.Clear()
	for _, text := range made.clashes {
		if !slices.Contains(old.clashes, text) {
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
			s.hub.tellChanged(c.name, k)
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
				sh.settle()
			}
		}
		for _, r := range p.order {
			s.stock(c, r)
		}
		c.plan.Store(p)
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
