package hub

import (
	"container/list"
	"fmt"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/mcp"
)

// maxEnded is how many ended sessions are remembered. What is forgotten is the end that is longest
// ago: should its client use the id after all, a new, empty session is made from it.
const maxEnded = 10_000

// sessions are those that this process holds, at most max_sessions of them. One that nobody uses
// at the moment makes room for another, least recently used first: its id makes it again. A caller
// has at most half of them, and makes room among its own first.
//
// A session is in use while a request of its client is served, its stream included, or while it is
// subscribed to something. What an idle session loses when it is evicted is what waits for its
// client to open a stream, its log level, and which servers it has called.
type sessions struct {
	mu      sync.Mutex
	held    map[string]*session // by name
	idle    *list.List          // of *session, least recently used first; only those not in use
	callers map[string]*callerSessions
	users   map[string]map[*session]bool // of each server
	ended   endedSessions
	one     *session // on stdin and stdout
}

// callerSessions are the sessions of one caller.
type callerSessions struct {
	count int
	idle  *list.List // as above
}

// place is where a session stands in the table; the table's lock guards it.
type place struct {
	caller     string
	requests   int           // being served
	subscribed bool          // to some resource
	used       time.Time     // when it was last in use
	idle       *list.Element // in the list of all idle sessions; nil while it is in use
	callerIdle *list.Element // in that of its caller
	servers    []string      // that it uses
}

func (t *sessions) init() {
	t.held = map[string]*session{}
	t.idle = list.New()
	t.callers = map[string]*callerSessions{}
	t.users = map[string]map[*session]bool{}
	t.ended = endedSessions{names: map[string]*list.Element{}, order: list.New()}
}

// shareOf is how many of so many one caller may have.
func shareOf(n int) int { return (n + 1) / 2 }

// find gives a session that is held, in use from now on until it is released.
func (t *sessions) find(name string) (held *session, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended.has(name) {
		return nil, true
	}
	if held = t.held[name]; held != nil {
		t.acquire(held)
	}
	return held, false
}

// hold keeps a session, and gives the one that counts: another request may have been faster. It is
// in use until it is released.
func (t *sessions) hold(h *Hub, one *session) (*session, error) {
	t.mu.Lock()
	var evicted []*session
	defer func() {
		t.mu.Unlock()
		for _, s := range evicted {
			s.close()
		}
	}()
	if held := t.held[one.name]; held != nil {
		t.acquire(held)
		return held, nil
	}
	most := h.plan.Load().Hub.MaxSessions
	c := t.callers[one.place.caller]
	for c != nil && c.count >= shareOf(most) {
		s := t.evict(c.idle)
		if s == nil {
			return nil, fault.New(fault.Full, fmt.Sprintf("this caller has %d sessions in use, which is its share; see max_sessions = %d", c.count, most))
		}
		evicted = append(evicted, s)
	}
	for len(t.held) >= most {
		s := t.evict(t.idle)
		if s == nil {
			return nil, fault.New(fault.Full, fmt.Sprintf("too many sessions are in use; see max_sessions = %d", most))
		}
		evicted = append(evicted, s)
	}
	if c = t.callers[one.place.caller]; c == nil {
		c = &callerSessions{idle: list.New()}
		t.callers[one.place.caller] = c
	}
	c.count++
	t.held[one.name] = one
	t.acquire(one)
	if one.only != "" {
		t.addUser(one, one.only)
	}
	return one, nil
}

// evict takes the first session of a list of idle ones out of the table; nil where there is none. The
// lock is held, and the session is still to be closed.
func (t *sessions) evict(idle *list.List) *session {
	first := idle.Front()
	if first == nil {
		return nil
	}
	s := first.Value.(*session) //nolint:forcetypeassert // nothing else is in these lists
	t.remove(s)
	return s
}

// evictIdleOf evicts the idle session of a caller that was used longest ago, if it has one.
func (t *sessions) evictIdleOf(caller string) bool {
	t.mu.Lock()
	var s *session
	if c := t.callers[caller]; c != nil {
		s = t.evict(c.idle)
	}
	t.mu.Unlock()
	if s == nil {
		return false
	}
	s.close()
	return true
}

// remove takes a session out of the table; the lock is held.
func (t *sessions) remove(s *session) {
	if t.held[s.name] != s {
		return
	}
	t.unlist(s)
	delete(t.held, s.name)
	for _, server := range s.place.servers {
		delete(t.users[server], s)
		if len(t.users[server]) == 0 {
			delete(t.users, server)
		}
	}
	c := t.callers[s.place.caller]
	if c.count--; c.count == 0 {
		delete(t.callers, s.place.caller)
	}
}

// acquire says that a request of the session is served; the lock is held.
func (t *sessions) acquire(s *session) {
	s.place.requests++
	t.relist(s)
}

// release says that the request is done.
func (t *sessions) release(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.place.requests--
	t.relist(s)
}

// setSubscribed says whether a session is subscribed to anything.
func (t *sessions) setSubscribed(s *session, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.place.subscribed = is
	t.relist(s)
}

// relist puts a session at the end of the lists of idle sessions, if it is one; the lock is held.
func (t *sessions) relist(s *session) {
	t.unlist(s)
	s.place.used = time.Now()
	if t.held[s.name] == s && s.place.requests == 0 && !s.place.subscribed {
		s.place.idle = t.idle.PushBack(s)
		s.place.callerIdle = t.callers[s.place.caller].idle.PushBack(s)
	}
}

// unlist takes a session out of these lists; the lock is held.
func (t *sessions) unlist(s *session) {
	if s.place.idle != nil {
		t.idle.Remove(s.place.idle)
		t.callers[s.place.caller].idle.Remove(s.place.callerIdle)
		s.place.idle, s.place.callerIdle = nil, nil
	}
}

// use notes that a session uses a server: it has called it, or is subscribed to something of it. What
// the server says outside any call is for the sessions that use it.
func (t *sessions) use(s *session, server string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held[s.name] == s {
		t.addUser(s, server)
	}
}

// addUser is use with the lock held.
func (t *sessions) addUser(s *session, server string) {
	if t.users[server][s] {
		return
	}
	if t.users[server] == nil {
		t.users[server] = map[*session]bool{}
	}
	t.users[server][s] = true
	s.place.servers = append(s.place.servers, server)
}

// using are the sessions that use a server; on stdin and stdout, the one client.
func (t *sessions) using(server string) []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*session, 0, len(t.users[server])+1)
	for s := range t.users[server] {
		all = append(all, s)
	}
	if t.one != nil {
		all = append(all, t.one)
	}
	return all
}

// end ends a session that its client is done with, and its connections to servers.
func (t *sessions) end(h *Hub, one *session) {
	t.mu.Lock()
	t.remove(one)
	t.ended.add(one.name, time.Now().Add(h.plan.Load().Hub.SessionTTL.D()))
	t.mu.Unlock()
	one.close()
	for _, r := range h.plan.Load().order {
		r.Leave(one.name)
	}
}

// sweep lets go of sessions that nobody has used for long; their ids stay good.
func (t *sessions) sweep(now time.Time) {
	t.mu.Lock()
	var unused []*session
	for _, s := range t.held {
		if s.place.requests == 0 && now.Sub(s.place.used) > sessionIdle {
			t.remove(s)
			unused = append(unused, s)
		}
	}
	t.ended.sweep(now)
	t.mu.Unlock()
	for _, s := range unused {
		s.close()
	}
}

// close closes all sessions.
func (t *sessions) close() {
	t.mu.Lock()
	var all []*session
	for _, s := range t.held {
		t.remove(s)
		all = append(all, s)
	}
	t.mu.Unlock()
	for _, s := range all {
		s.close()
	}
}

// sole is the one client of a hub on stdin and stdout.
func (t *sessions) sole() (mcp.Client, *session, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.one == nil {
		return mcp.Client{}, nil, false
	}
	return t.one.client, t.one, true
}

// each calls f with every session that is held.
func (t *sessions) each(f func(*session)) {
	t.mu.Lock()
	all := make([]*session, 0, len(t.held)+1)
	for _, one := range t.held {
		all = append(all, one)
	}
	if t.one != nil {
		all = append(all, t.one)
	}
	t.mu.Unlock()
	for _, one := range all {
		f(one)
	}
}

// endedSessions are the names of sessions that their clients ended, until their ids expire, and no more of
// them than maxEnded.
type endedSessions struct {
	names map[string]*list.Element
	order *list.List // of endedSession, the first to end first
}

type endedSession struct {
	name  string
	until time.Time
}

func (e *endedSessions) has(name string) bool { return e.names[name] != nil }

func (e *endedSessions) add(name string, until time.Time) {
	if e.has(name) {
		return
	}
	e.names[name] = e.order.PushBack(endedSession{name, until})
	if e.order.Len() > maxEnded {
		e.remove(e.order.Front())
	}
}

func (e *endedSessions) remove(at *list.Element) {
	delete(e.names, e.order.Remove(at).(endedSession).name) //nolint:forcetypeassert // nothing else is in the list
}

func (e *endedSessions) sweep(now time.Time) {
	for at := e.order.Front(); at != nil; {
		next := at.Next()
		if now.After(at.Value.(endedSession).until) { //nolint:forcetypeassert // as above
			e.remove(at)
		}
		at = next
	}
}
