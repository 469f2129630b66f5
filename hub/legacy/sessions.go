package legacy

import (
	"container/list"
	"fmt"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

const (
	sessionIdle = 30 * time.Minute // after which a session is forgotten; its id stays valid

	// maxEnded is how many ended sessions are remembered. If a client uses the id of one that is forgotten, a new,
	// empty session is made from it.
	maxEnded = 10_000
)

// sessionTable is the sessions that this process holds, at most max_sessions. An idle session makes room for another,
// least recently used first: it is made again from its id. A caller has at most half of them, and makes room
// among its own first; where there are several tenants, so do all callers of one together.
//
// A session is in use while a request of its client is served, its stream included, or while it has
// subscriptions. An idle session that is evicted loses its queued messages, its log level, and which servers it has
// called.
type sessionTable struct {
	mu      sync.Mutex
	held    map[string]*session // by name
	idle    *list.List          // of *session, least recently used first; only those not in use
	callers map[string]*ownSessions
	tenants map[string]*ownSessions
	seen    membudget.Tenants
	users   map[string]map[*session]bool // by server: the sessions that use it
	ended   endedSessions
	single  *session // on stdin and stdout
}

// ownSessions is the sessions of one caller, or of one tenant.
type ownSessions struct {
	count int
	idle  *list.List // as above
}

// place is where a session is in the table; the table's lock guards it.
type place struct {
	callerKey     string
	requestCount  int           // being served
	hasSubscribed bool          // to some resource
	usedAt        time.Time     // when it was last in use
	idle          *list.Element // in the list of all idle sessions; nil while it is in use
	callerIdle    *list.Element // in that of its caller
	tenantIdle    *list.Element // in that of its tenant
	servers       []string      // that it uses
}

func newSessionTable() sessionTable {
	return sessionTable{
		held: map[string]*session{}, idle: list.New(), callers: map[string]*ownSessions{}, tenants: map[string]*ownSessions{}, users: map[string]map[*session]bool{},
		ended: endedSessions{names: map[string]*list.Element{}, order: list.New()},
	}
}

// acquire returns a session that is held, in use until it is released.
func (t *sessionTable) acquire(name string) (_ *session, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended.names[name] != nil {
		return nil, true
	}
	s := t.held[name]
	if s != nil {
		t.markUsed(s, +1)
	}
	return s, false
}

// isHeld reports whether this process has a session.
func (t *sessionTable) isHeld(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held[name] != nil
}

// insert adds a session and returns it, or the one that another request added meanwhile. It is in use until it is
// released.
func (t *sessionTable) insert(s *session, cfg hub.Config) (*session, error) {
	t.mu.Lock()
	var evicted []*session
	defer func() {
		t.mu.Unlock()
		for _, s := range evicted {
			s.closeSession()
		}
	}()
	if held := t.held[s.name]; held != nil {
		t.markUsed(held, +1)
		return held, nil
	}
	c := t.callers[s.place.callerKey]
	for c != nil && c.count >= cfg.MaxSessionsPerCaller() {
		old := t.evict(c.idle)
		if old == nil {
			return nil, fault.New(fault.Full, fmt.Sprintf("this caller has %d sessions in use, which is its share; see max_sessions = %d", c.count, cfg.MaxSessions))
		}
		evicted = append(evicted, old)
	}
	tenant := membudget.TenantOf(s.place.callerKey)
	for all := t.tenants[tenant]; t.seen.AreSeveral(tenant) && all != nil && all.count >= cfg.MaxSessionsPerCaller(); {
		old := t.evict(all.idle)
		if old == nil {
			return nil, fault.New(fault.Full, fmt.Sprintf("this tenant has %d sessions in use, which is its share; see max_sessions = %d", all.count, cfg.MaxSessions))
		}
		evicted = append(evicted, old)
	}
	for len(t.held) >= cfg.MaxSessions {
		old := t.evict(t.idle)
		if old == nil {
			return nil, fault.New(fault.Full, fmt.Sprintf("too many sessions are in use; see max_sessions = %d", cfg.MaxSessions))
		}
		evicted = append(evicted, old)
	}
	addSession(t.callers, s.place.callerKey)
	addSession(t.tenants, tenant)
	t.held[s.name] = s
	t.markUsed(s, +1)
	if s.server != "" {
		t.addUseLocked(s, s.server)
	}
	return s, nil
}

// addSession counts a session of an owner.
func addSession(owners map[string]*ownSessions, owner string) {
	if owners[owner] == nil {
		owners[owner] = &ownSessions{idle: list.New()}
	}
	owners[owner].count++
}

// removeSession counts a session less.
func removeSession(owners map[string]*ownSessions, owner string) {
	if owners[owner].count--; owners[owner].count == 0 {
		delete(owners, owner)
	}
}

// evict removes the first session of a list of idle ones; nil where there is none. The lock is held, and
// the caller must close the session.
func (t *sessionTable) evict(idle *list.List) *session {
	first := idle.Front()
	if first == nil {
		return nil
	}
	s := first.Value.(*session) //nolint:forcetypeassert // nothing else is in these lists
	t.removeLocked(s)
	return s
}

// evictIdleOf evicts the idle session of a caller that was used longest ago, if it has one.
func (t *sessionTable) evictIdleOf(callerKey string) bool {
	t.mu.Lock()
	var s *session
	if c := t.callers[callerKey]; c != nil {
		s = t.evict(c.idle)
	}
	t.mu.Unlock()
	if s == nil {
		return false
	}
	s.closeSession()
	return true
}

func (t *sessionTable) removeLocked(s *session) {
	if t.held[s.name] != s {
		return
	}
	t.unlistIdle(s)
	delete(t.held, s.name)
	for _, server := range s.place.servers {
		delete(t.users[server], s)
		if len(t.users[server]) == 0 {
			delete(t.users, server)
		}
	}
	removeSession(t.callers, s.place.callerKey)
	removeSession(t.tenants, membudget.TenantOf(s.place.callerKey))
}

// release ends the use of a session by a request.
func (t *sessionTable) release(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.markUsed(s, -1)
}

// setSubscribed sets whether a session has subscriptions.
func (t *sessionTable) setSubscribed(s *session, has bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.place.hasSubscribed = has
	t.markUsed(s, 0)
}

// markUsed adds to the requests that use a session, and puts it at the end of the lists of idle sessions if it is one;
// the lock is held.
func (t *sessionTable) markUsed(s *session, requests int) {
	s.place.requestCount += requests
	t.unlistIdle(s)
	s.place.usedAt = time.Now()
	if t.held[s.name] == s && s.place.requestCount == 0 && !s.place.hasSubscribed {
		s.place.idle = t.idle.PushBack(s)
		s.place.callerIdle = t.callers[s.place.callerKey].idle.PushBack(s)
		s.place.tenantIdle = t.tenants[membudget.TenantOf(s.place.callerKey)].idle.PushBack(s)
	}
}

func (t *sessionTable) unlistIdle(s *session) {
	if s.place.idle != nil {
		t.idle.Remove(s.place.idle)
		t.callers[s.place.callerKey].idle.Remove(s.place.callerIdle)
		t.tenants[membudget.TenantOf(s.place.callerKey)].idle.Remove(s.place.tenantIdle)
		s.place.idle, s.place.callerIdle, s.place.tenantIdle = nil, nil, nil
	}
}

// addUse notes that a session uses a server: it has called it, or is subscribed to something of it.
func (t *sessionTable) addUse(s *session, server string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held[s.name] == s {
		t.addUseLocked(s, server)
	}
}

func (t *sessionTable) addUseLocked(s *session, server string) {
	if t.users[server][s] {
		return
	}
	if t.users[server] == nil {
		t.users[server] = map[*session]bool{}
	}
	t.users[server][s] = true
	s.place.servers = append(s.place.servers, server)
}

// using returns the sessions that use a server; on stdin and stdout, the single one.
func (t *sessionTable) using(server string) []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*session, 0, len(t.users[server])+1)
	for s := range t.users[server] {
		all = append(all, s)
	}
	if t.single != nil {
		all = append(all, t.single)
	}
	return all
}

// all returns every session that is held.
func (t *sessionTable) all() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*session, 0, len(t.held)+1)
	for _, s := range t.held {
		all = append(all, s)
	}
	if t.single != nil {
		all = append(all, t.single)
	}
	return all
}

// setSingle sets the session on stdin and stdout.
func (t *sessionTable) setSingle(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.single = s
}

// endSession removes a session, and remembers that it ended until its id expires.
func (t *sessionTable) endSession(s *session, expires time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeLocked(s)
	if !s.isStdio { // no other connection can name it
		t.ended.remember(s.name, expires)
	}
}

// removeIdle closes the sessions that have been idle for long.
func (t *sessionTable) removeIdle(now time.Time) {
	t.mu.Lock()
	t.ended.forgetExpired(now)
	t.mu.Unlock()
	t.closeWhere(func(s *session) bool { return s.place.requestCount == 0 && now.Sub(s.place.usedAt) > sessionIdle })
}

func (t *sessionTable) closeWhere(match func(*session) bool) {
	t.mu.Lock()
	var removed []*session
	for _, s := range t.held {
		if match(s) {
			t.removeLocked(s)
			removed = append(removed, s)
		}
	}
	t.mu.Unlock()
	for _, s := range removed {
		s.closeSession()
	}
}

// endedSessions is the names of sessions that their clients ended, until their ids expire, and at most maxEnded.
type endedSessions struct {
	names map[string]*list.Element
	order *list.List // of endedSession, the first to end first
}

type endedSession struct {
	name    string
	expires time.Time
}

func (e *endedSessions) remember(name string, expires time.Time) {
	if e.names[name] != nil {
		return
	}
	e.names[name] = e.order.PushBack(endedSession{name, expires})
	if e.order.Len() > maxEnded {
		e.forget(e.order.Front())
	}
}

func (e *endedSessions) forget(at *list.Element) {
	delete(e.names, e.order.Remove(at).(endedSession).name) //nolint:forcetypeassert // nothing else is in the list
}

func (e *endedSessions) forgetExpired(now time.Time) {
	for at := e.order.Front(); at != nil; {
		next := at.Next()
		if now.After(at.Value.(endedSession).expires) { //nolint:forcetypeassert // as above
			e.forget(at)
		}
		at = next
	}
}
