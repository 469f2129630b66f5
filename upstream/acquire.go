package upstream

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/oauth"
)

// connKey says whose a connection is. The zero key is the shared connection's.
type connKey struct {
	class  string // of its client
	kind   string // perClass, perSession, perClient or perCall
	owner  string // the session, or the client that has none; "" for all clients of the class
	n      int    // which of the connections for simultaneous calls of its owner
	legacy bool   // opened with initialize, at a modern server
}

// The kinds of connections for one client, or for clients of one class.
const (
	perClass   = "class"   // of all modern clients of a class that can answer requests, at a child
	perSession = "session" // as long as the session uses it
	perClient  = "client"  // of a client without sessions; its calls may overlap
	perCall    = "call"    // of a client without sessions; one call at a time
)

// Caller is the client of a call, as far as the choice of a connection depends on it.
type Caller struct {
	Client      mcp.Client
	Principal   oauth.Principal // on whose behalf it calls; without a subject, the gateway itself
	AccessToken secret.Text     // that it sent to the gateway, which may be exchanged for another
	SessionID   string          // of a legacy client; "" for a modern one
	Subject     string          // who a client without a session says it is
	ConnID      string          // the connection that its request came by
	ConnContext context.Context // ends when that connection is closed; nil if unknown
	QuotaKey    string          // whose share of the server's connections it uses
	Operation   string          // what it is going to call: a method and a name; "" for none
	ForLists    bool            // its server's lists are read for it: a call may use the connection at the same time
	SessionPeer Peer            // how to reach the session outside its calls
}

// ClientKey identifies the client among all. Clients without a session that call themselves the same are told apart by
// their connections.
func (c Caller) ClientKey() string {
	if c.SessionID != "" {
		return "session " + c.SessionID
	}
	return "client " + c.ConnID + " " + c.Subject
}

// Acquire returns the connection for a client's calls, and a function to release it.
//
// A client that cannot answer server requests uses the shared connection. So does every client of a server that
// asks only in its replies, and of a child that has not sent requests that the client can answer. Any other client
// has a connection of its own: as long as its session lives or, without a session, for one call at a time. Which
// kind a server is, is known after the first handshake: a client that it could ask waits for that. A client with roots
// also waits for the requests that a child sends right after it. A legacy session that can answer requests also has its
// own connection at a server that speaks both protocols. All of that is among the clients for which the server sees the same
// credentials.
func (s *Server) Acquire(ctx context.Context, caller Caller) (*ManagedConn, func(), error) {
	noRelease := func() {}
	if v, done, err := s.forCaller(ctx, caller); err != nil {
		return nil, noRelease, err
	} else if v != s {
		defer done()
		return v.Acquire(ctx, caller)
	}
	s.mu.Lock()
	shared, decided := s.shared, s.singleClient || s.entry.sharing() == shareAlways || s.entry.RPC != "" || s.protocol != 0
	s.mu.Unlock()
	s.NoteClient(caller.Client)
	if !decided && shared != nil && caller.Client.SupportsInput() {
		if _, err := shared.AwaitConn(ctx); err != nil {
			return nil, noRelease, err
		}
	}
	if m, release, err := s.acquireLegacy(ctx, caller); m != nil || err != nil {
		return m, release, err
	}
	if err := s.awaitRootsRequest(ctx, caller); err != nil {
		return nil, noRelease, err
	}
	if m, release, err := s.acquireShared(ctx, caller); m != nil || err != nil {
		return m, release, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, noRelease, errClosed
	}
	key := s.keyFor(caller)
	if key.kind == perCall {
		return s.acquireForCall(key, caller)
	}
	m, err := s.clientConn(key, caller)
	if err != nil {
		return nil, noRelease, err
	}
	return m, m.acquire(), nil
}

var errClosed = fault.New(fault.Unavailable, "the server is being stopped")

// Lookup returns the connection that a client has already, if any: a notification opens none.
func (s *Server) Lookup(caller Caller) (*ManagedConn, bool) {
	if v := s.lookupCredential(caller); v == nil {
		return nil, false
	} else if v != s {
		return v.Lookup(caller)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.shared == nil {
		return nil, false
	}
	if m, ok := s.conns[legacyKey(caller)]; ok && s.needsLegacy(caller) {
		return m, true
	}
	key := s.keyFor(caller)
	switch key.kind {
	case "":
		return s.shared, true
	case perCall:
		m := s.perCallConn(key, caller.ConnID, false)
		return m, m != nil
	}
	m, ok := s.conns[key]
	return m, ok
}

// keyFor is the key of the connection that a client uses; the lock is held.
func (s *Server) keyFor(caller Caller) connKey {
	isClient := caller.SessionID != "" || caller.Subject != ""
	switch sharing := s.entry.sharing(); {
	case s.singleClient, sharing == shareAlways, s.entry.RPC != "":
		return connKey{}
	case sharing == shareNever && isClient && (s.protocol == mcp.Legacy || !s.isRemote()): // its own
	case s.protocol != mcp.Legacy:
		return connKey{}
	case s.usesSharedChild(caller):
		if isModern(caller.Client) && caller.Client.SupportsInput() { // its server may rely on what it declares, and on nothing else
			return connKey{class: ClientClass(caller.Client), kind: perClass}
		}
		return connKey{}
	case !caller.Client.SupportsInput():
		return connKey{}
	}
	switch {
	case caller.SessionID != "":
		return connKey{class: ClientClass(caller.Client), kind: perSession, owner: caller.SessionID}
	case s.entry.URL != "" && s.entry.Transport == "http" && !s.speaksSSE:
		return connKey{class: ClientClass(caller.Client), kind: perClient, owner: caller.Subject}
	}
	return connKey{class: ClientClass(caller.Client), kind: perCall, owner: caller.Subject}
}

// ClientClass names which requests a client can answer, and in which protocol: a server may offer different
// tools to clients of different classes.
func ClientClass(c mcp.Client) string {
	switch {
	case !c.SupportsInput():
		return ""
	case mcp.ProtocolOf(c.Version) == mcp.Legacy:
		return mcp.Legacy.String() + " " + string(c.Capabilities)
	}
	return string(c.Capabilities)
}

// clientConn finds or creates the connection of a key; the lock is held.
func (s *Server) clientConn(key connKey, caller Caller) (*ManagedConn, error) {
	if m := s.conns[key]; m != nil {
		return m, nil
	}
	if err := s.makeRoom(caller.QuotaKey); err != nil {
		return nil, err
	}
	if err := s.makeCredentialRoom(); err != nil {
		return nil, err
	}
	owner := caller.SessionPeer
	if key.kind != perSession {
		owner = nil
	}
	m := newManagedConn(s, key, caller.Client, owner)
	m.quota = caller.QuotaKey
	s.conns[key] = m
	return m, nil
}

// acquireForCall acquires a connection for one call; the lock is held. Clients that call themselves the same are
// distinguished by their connections to the gateway: each gets the connection back that it had last, so that a client
// with one call at a time always meets the same child. Once a client has closed its connection, another of the
// same name may have what it used: most clients close theirs when they are idle.
func (s *Server) acquireForCall(key connKey, caller Caller) (*ManagedConn, func(), error) {
	mayOverlap := caller.ForLists || caller.Operation == mcp.ResourcesSubscribe // a call of the client needs the process of its subscription
	m := s.perCallConn(key, caller.ConnID, !mayOverlap)
	if m == nil {
		for s.conns[key] != nil {
			key.n++
		}
		var err error
		if m, err = s.clientConn(key, caller); err != nil {
			return nil, func() {}, err
		}
	}
	m.lastUser, m.lastUserOpen = caller.ConnID, caller.ConnContext
	if mayOverlap {
		return m, m.acquire(), nil
	}
	return m, m.acquireForCall(), nil
}

// perCallConn is the connection that a client's calls had last, or else one whose last user is gone; nil if there
// is none. With onlyFree, acquired connections do not count. The lock is held.
func (s *Server) perCallConn(key connKey, connID string, onlyFree bool) *ManagedConn {
	lower := func(a, b *ManagedConn) *ManagedConn {
		if a != nil && a.key.n < b.key.n {
			return a
		}
		return b
	}
	var own, abandoned *ManagedConn
	for k, m := range s.conns {
		k.n = key.n
		switch {
		case k != key || onlyFree && m.hasCall():
		case m.lastUser == connID:
			own = lower(own, m)
		case !m.lastUserIsOpen():
			abandoned = lower(abandoned, m)
		}
	}
	return cmp.Or(own, abandoned)
}

// lastUserIsOpen reports whether the client connection that used m last is still open; the server's lock is held.
func (m *ManagedConn) lastUserIsOpen() bool {
	return m.lastUserOpen == nil || m.lastUserOpen.Err() == nil
}

// makeRoom closes unused connections while there are too many: those of the same caller first if it has used up its
// share; the lock is held. A share is half of all, so that one caller never leaves another without a connection. Where
// there are several tenants, all callers of one have it together.
func (s *Server) makeRoom(quota string) error {
	if tenant := membudget.TenantOf(quota); s.tenants.AreSeveral(tenant) {
		if err := s.makeTenantRoom(tenant); err != nil {
			return err
		}
	}
	own := 0
	for _, m := range s.conns {
		if m.quota == quota {
			own++
		}
	}
	for share := (s.cfg.MaxClientConns + 1) / 2; own >= share; own-- {
		if !s.evictOldest(func(m *ManagedConn) bool { return m.quota == quota && s.isEvictable(m) }) {
			return fault.New(fault.Full, fmt.Sprintf(
				"this caller has %d connections of its own to this server in use, which is its share; see max_client_connections = %d", share, s.cfg.MaxClientConns))
		}
	}
	for len(s.conns) >= s.cfg.MaxClientConns {
		if !s.evictOldest(s.isEvictable) {
			return fault.New(fault.Full, fmt.Sprintf(
				"too many clients have a connection of their own to this server in use; see max_client_connections = %d", s.cfg.MaxClientConns))
		}
	}
	return nil
}

// makeTenantRoom closes unused connections of a tenant that has used up its share; the lock is held.
func (s *Server) makeTenantRoom(tenant string) error {
	isOfTenant := func(m *ManagedConn) bool { return membudget.TenantOf(m.quota) == tenant }
	count := 0
	for _, m := range s.conns {
		if isOfTenant(m) {
			count++
		}
	}
	for share := (s.cfg.MaxClientConns + 1) / 2; count >= share; count-- {
		if !s.evictOldest(func(m *ManagedConn) bool { return isOfTenant(m) && s.isEvictable(m) }) {
			return fault.New(fault.Full, fmt.Sprintf(
				"this tenant has %d connections of its own to this server in use, which is its share; see max_client_connections = %d", count, s.cfg.MaxClientConns))
		}
	}
	return nil
}

// isEvictable reports whether a connection may be closed to make room; the lock is held. A session, or a client
// whose own connection is open, may need what it did there until it has been idle for the idle timeout.
func (s *Server) isEvictable(m *ManagedConn) bool {
	idleFor := time.Duration(-1)
	if m.key.kind == perSession || m.key.kind == perCall && m.lastUserIsOpen() {
		idleFor = s.cfg.IdleTimeout.D()
	}
	_, idle := m.idleSince(idleFor)
	return idle
}

// CloseSession closes the connections of a session.
func (s *Server) CloseSession(session string) {
	s.eachCredential(func(v *Server) { v.CloseSession(session) })
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sharedUsers, Caller{SessionID: session}.ClientKey())
	for key, m := range s.conns {
		if key.kind == perSession && key.owner == session {
			s.removeConn(m)
		}
	}
}

// removeConn closes a connection in the background; the lock is held.
func (s *Server) removeConn(m *ManagedConn) {
	if s.conns[m.key] == m {
		delete(s.conns, m.key)
		go m.Close()
	}
}

// evictOldest closes the connection that was used longest ago, of those that may be closed; the lock is held.
func (s *Server) evictOldest(may func(*ManagedConn) bool) bool {
	var oldest *ManagedConn
	var lastUsed time.Time
	for _, m := range s.conns {
		if !may(m) {
			continue
		}
		if used, _ := m.idleSince(0); oldest == nil || used.Before(lastUsed) {
			oldest, lastUsed = m, used
		}
	}
	if oldest == nil {
		return false
	}
	s.removeConn(oldest)
	return true
}
