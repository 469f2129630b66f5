package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

// A child process of a legacy server is shared by all clients until it has sent a request to one (elicitation, sampling,
// roots). From then on every client that can answer such a request has a process of its own, and the others keep the
// shared one. While the process is shared, a request goes to the client whose call caused it: causes.go.
//
// The process is told that it may ask for everything as soon as a legacy client has come that can answer something: it is
// connected again then. What a client cannot answer is refused. In the modern protocol a server may rely on what a
// client declares: modern clients of one class that can answer requests share another process, which is told just that.
//
// A client that has used the shared process before stays there, since the process may hold what it works on: a legacy client
// as long as its session lives, a modern one as long as its connection is open. Many servers ask for roots right after the
// handshake: a client with roots waits for that, for at most rootsWait, before it uses a process that has just been started.
//
// A tool that has never been called may be one that asks. Calls of such tools by different clients wait for each
// other, for at most unprovenWait, so that the first request of a server can be told to be one client's.

const (
	unprovenWait = time.Second // how long a call of an unproven operation waits for those of other clients
	rootsWait    = time.Second // how long after its handshake a process is expected to ask for roots; server-everything does after 0.35 s
	maxProven    = 4096        // operations of one server that are remembered as proven
	maxSessions  = 4096        // clients that are remembered as users of the shared process
)

// requestSet is a set of the requests that servers send to clients.
type requestSet uint8

const (
	requestsElicitation requestSet = 1 << iota
	requestsSampling
	requestsRoots
	requestsAll = requestsElicitation | requestsSampling | requestsRoots
)

// requestMethods are the members of a requestSet, and what the shared connection of a child declares for each.
var requestMethods = []struct {
	is         requestSet
	method     string
	capability string
}{
	{requestsElicitation, mcp.ElicitationCreate, `"elicitation":{"form":{},"url":{}}`},
	{requestsSampling, mcp.SamplingCreateMessage, `"sampling":{"tools":{}}`},
	{requestsRoots, mcp.RootsList, `"roots":{"listChanged":true}`},
}

// requestOf is the set of one method; empty for a method that servers do not send.
func requestOf(method string) requestSet {
	for _, r := range requestMethods {
		if r.method == method {
			return r.is
		}
	}
	return 0
}

// answeredBy is what a client can answer.
func answeredBy(c mcp.Client) (set requestSet) {
	for _, r := range requestMethods {
		if c.Supports(r.method) {
			set |= r.is
		}
	}
	return set
}

func (set requestSet) String() string {
	var names []string
	for _, r := range requestMethods {
		if set&r.is != 0 {
			names = append(names, r.method)
		}
	}
	return strings.Join(names, " ")
}

// answeringFact is the word in a server's facts for a legacy client that can answer requests.
const answeringFact = "clients-answer"

// facts is what was found out about a child, for a later process of the gateway; the lock is held.
func (s *Server) facts() string {
	text := s.sentRequests.String()
	if s.hasAnsweringClients {
		text = strings.TrimSpace(answeringFact + " " + text)
	}
	return text
}

// parseFacts is the opposite of facts. What it does not know is left out.
func parseFacts(text string) (sent requestSet, hasAnsweringClients bool) {
	for word := range strings.FieldsSeq(text) {
		sent |= requestOf(word)
		hasAnsweringClients = hasAnsweringClients || word == answeringFact
	}
	return sent, hasAnsweringClients
}

// FactsKey names what is found out about the server: another command is another server.
func (e ServerConfig) FactsKey() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q%q", e.ID, e.Command))
	return hex.EncodeToString(sum[:16])
}

// tellFacts passes on what is known of a child.
func (s *Server) tellFacts() {
	s.mu.Lock()
	facts, shares := s.facts(), s.sharesChild()
	s.mu.Unlock()
	if shares && s.deps.Learned != nil {
		s.deps.Learned(s.tableServer(), facts)
	}
}

// sharingMode is who uses the child process of a server.
type sharingMode uint8

const (
	shareAuto   sharingMode = iota // all clients, until it sends them requests
	shareAlways                    // all clients, and it cannot send requests
	shareNever                     // each client has its own
)

// sharing is the server's mode: as the entry says, or else as is known of the program.
func (e ServerConfig) sharing() sharingMode {
	switch {
	case e.Shared != nil && *e.Shared:
		return shareAlways
	case e.Shared != nil, e.keepsClientState():
		return shareNever
	}
	return shareAuto
}

// statefulPrograms are servers whose process holds what one client works on, such as the page of a browser. Two
// clients in one process would work on the same page.
var statefulPrograms = []string{
	"@playwright/mcp", "@executeautomation/playwright-mcp-server", "chrome-devtools-mcp", "@modelcontextprotocol/server-puppeteer",
}

// keepsClientState reports whether the command runs one of those.
func (e ServerConfig) keepsClientState() bool {
	return slices.ContainsFunc(e.Command, func(arg string) bool {
		return slices.ContainsFunc(statefulPrograms, func(program string) bool {
			return arg == program || strings.HasPrefix(arg, program+"@") || strings.Contains(arg, "node_modules/"+program+"/")
		})
	})
}

// sharesChild reports whether the server is a child that clients share until it sends them requests; the lock is held.
func (s *Server) sharesChild() bool {
	return !s.isRemote() && !s.singleClient && s.entry.sharing() == shareAuto
}

// declaredRequests is what the shared connection of a child declares as answered by its client: nothing before a client has
// come that can answer something, and what the server has not sent yet since; the lock is held.
func (s *Server) declaredRequests() requestSet {
	if !s.sharesChild() || !s.hasAnsweringClients {
		return 0
	}
	return requestsAll &^ s.sentRequests
}

// declareClient returns what the legacy handshake of a connection tells the server of its client, and notes it.
func (s *Server) declareClient(m *ManagedConn, c *Conn) mcp.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.IsShared() || !s.sharesChild() {
		return m.client
	}
	c.declared = s.declaredRequests()
	var capabilities []string
	for _, r := range requestMethods {
		if c.declared&r.is != 0 {
			capabilities = append(capabilities, r.capability)
		}
	}
	client := m.client
	client.Capabilities = []byte("{" + strings.Join(capabilities, ",") + "}")
	return client
}

// asksByCause reports whether several clients use a connection, and its server may send requests to them.
func (s *Server) asksByCause(m *ManagedConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sharesChild() && (m.IsShared() || m.key.kind == perClass)
}

// NoteClient takes note of a client that is going to use the server. The first legacy one that can answer requests makes the
// shared connection declare so.
func (s *Server) NoteClient(client mcp.Client) {
	if !isModern(client) && client.SupportsInput() {
		s.mu.Lock()
		isFirst := !s.hasAnsweringClients
		s.hasAnsweringClients = true
		shared := s.shared
		s.mu.Unlock()
		if isFirst {
			s.tellFacts()
		}
		if isFirst && shared != nil {
			if conn := shared.CurrentConn(); conn != nil && shared.mustRedeclare(conn) {
				shared.replaceConn(conn)
			}
		}
	}
}

func isModern(c mcp.Client) bool { return mcp.ProtocolOf(c.Version) == mcp.Modern }

// mustRedeclare reports whether the server has to be told more than it was on a connection.
func (m *ManagedConn) mustRedeclare(conn *Conn) bool {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	return m.IsShared() && conn.handshake.Protocol == mcp.Legacy && m.server.declaredRequests()&^conn.declared != 0
}

// noteServerRequest remembers that the server sends such requests to its clients.
func (s *Server) noteServerRequest(method string) {
	s.mu.Lock()
	isNew := s.sentRequests&requestOf(method) == 0
	s.sentRequests |= requestOf(method)
	all, shares := s.sentRequests, s.sharesChild()
	if isNew {
		s.wakeUnproven()
	}
	s.mu.Unlock()
	if !isNew || !shares {
		return
	}
	slog.Info("server sends requests to its clients: from now on those that can answer have a process of their own", "server", s.entry.ID, "requests", all.String())
	s.tellFacts()
}

// usesSharedChild reports whether a client uses the process that clients share: its server has sent no request that the
// client could answer, or the client used it before; the lock is held.
func (s *Server) usesSharedChild(caller Caller) bool {
	return s.sharesChild() && (s.sentRequests&answeredBy(caller.Client) == 0 || s.sharedUsers[caller.ClientKey()] && !caller.ForLists)
}

// SharesLists reports whether a client gets the lists that the shared connection of the table's server has.
func (s *Server) SharesLists(caller Caller) bool {
	if s.HasOwnCredential(caller) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	caller.ForLists = true
	return s.keyFor(caller) == connKey{} && (s.protocol != mcp.Modern || !caller.Client.SupportsInput())
}

// NeedsOwnConn reports whether a client's lists come from a connection of its own, which may have to be opened.
func (s *Server) NeedsOwnConn(caller Caller) bool {
	if s.HasOwnCredential(caller) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	caller.ForLists = true
	return s.keyFor(caller) != connKey{} || s.needsLegacy(caller)
}

// acquireShared acquires the shared connection for a call; nil if the client has a connection of its own. It waits first while
// a call of another client may be the first for which the server asks something.
func (s *Server) acquireShared(ctx context.Context, caller Caller) (m *ManagedConn, release func(), err error) {
	release = func() {}
	timeout := time.NewTimer(unprovenWait)
	defer timeout.Stop()
	for patient := caller.Client.SupportsInput(); ; {
		s.mu.Lock()
		m, err = s.sharedConnFor(caller)
		isProven := !s.sharesChild() || s.protocol != mcp.Legacy || caller.Operation == "" || s.proven[caller.Operation]
		wait := m != nil && !isProven && patient && s.othersUnproven(caller.ClientKey())
		if m != nil && !wait {
			release = m.acquire()
		}
		if m != nil && !wait && !isProven {
			release = s.beginUnproven(caller, release)
		}
		if m != nil && !wait {
			s.noteSharedUser(caller)
		}
		changed := s.unprovenChanged
		s.mu.Unlock()
		if !wait {
			return m, release, err
		}
		select {
		case <-changed:
		case <-timeout.C:
			patient = false
		case <-ctx.Done():
			return nil, release, wire.CallError(ctx, ctx.Err())
		}
	}
}

// sharedConnFor is the connection that a client shares with others; nil if it has one of its own. The lock is held.
func (s *Server) sharedConnFor(caller Caller) (m *ManagedConn, err error) {
	if s.closed || s.shared == nil {
		return nil, errClosed
	}
	switch key := s.keyFor(caller); {
	case key == connKey{}:
		m = s.shared
	case key.kind == perClass:
		m, err = s.clientConn(key, caller)
	}
	return m, err
}

// noteSharedUser remembers a client that can answer requests as a user of the process that it shares: until its session
// is closed or, without a session, its connection; the lock is held.
func (s *Server) noteSharedUser(caller Caller) {
	key := caller.ClientKey()
	if caller.Operation == "" || !caller.Client.SupportsInput() || !s.sharesChild() || s.sharedUsers[key] || len(s.sharedUsers) >= maxSessions {
		return
	}
	if caller.SessionID == "" {
		if caller.ConnContext == nil {
			return
		}
		context.AfterFunc(caller.ConnContext, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.sharedUsers, key)
		})
	}
	s.sharedUsers[key] = true
}

// awaitRootsRequest waits until a process that was just started has asked for roots, or has had the time to do so, for a client
// that is about to use it and has roots. Once the process has asked, such a client has one of its own: without the wait it
// would use the shared one just before. When a process has not asked, nobody waits for those that are started later.
func (s *Server) awaitRootsRequest(ctx context.Context, caller Caller) error {
	s.mu.Lock()
	mayAsk := s.sharesChild() && s.protocol == mcp.Legacy && s.sentRequests&requestsRoots == 0 && !s.startsWithoutRoots
	if !mayAsk || caller.Operation == "" || !caller.Client.Supports(mcp.RootsList) || s.sharedUsers[caller.ClientKey()] {
		s.mu.Unlock()
		return nil
	}
	m, err := s.sharedConnFor(caller)
	release := func() {}
	if m != nil {
		release = m.acquire()
	}
	s.mu.Unlock()
	defer release()
	if m == nil || err != nil {
		return err
	}
	conn, err := m.AwaitConn(ctx)
	if err != nil {
		return err
	}
	if m.IsShared() && conn.declared&requestsRoots == 0 { // it knows of no roots
		return nil
	}
	timeout := time.NewTimer(time.Until(conn.upSince.Add(rootsWait)))
	defer timeout.Stop()
	for {
		s.mu.Lock()
		hasAsked, changed := s.sentRequests&requestsRoots != 0, s.unprovenChanged
		s.mu.Unlock()
		if hasAsked {
			return nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			s.mu.Lock()
			s.startsWithoutRoots = true
			s.mu.Unlock()
			return nil
		case <-conn.Done():
			return nil
		case <-ctx.Done():
			return wire.CallError(ctx, ctx.Err())
		}
	}
}

// othersUnproven reports whether unproven calls of other clients are in flight; the lock is held.
func (s *Server) othersUnproven(client string) bool {
	for other := range s.unproven {
		if other != client {
			return true
		}
	}
	return false
}

// beginUnproven notes an unproven call until the returned function is called; the lock is held. Its operation is
// proven then: if the server has asked something, its clients have connections of their own.
func (s *Server) beginUnproven(caller Caller, done func()) (release func()) {
	client := caller.ClientKey()
	s.unproven[client]++
	return sync.OnceFunc(func() {
		done()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.unproven[client]--; s.unproven[client] == 0 {
			delete(s.unproven, client)
		}
		if len(s.proven) < maxProven {
			s.proven[caller.Operation] = true
		}
		s.wakeUnproven()
	})
}

// wakeUnproven wakes the calls that wait for others; the lock is held.
func (s *Server) wakeUnproven() {
	close(s.unprovenChanged)
	s.unprovenChanged = make(chan struct{})
}

// noteCause acts on a request that the server of a shared connection sent.
//
// The clients that use the connection stay there, since its process may hold what they work on, as long as its requests
// can be told to be theirs. Roots are another matter: a server keeps what it is told of them, and uses it for all. So a
// connection that was told those of one client is replaced, and no client stays. One that was told nothing may do without
// them, and its users stay: it is replaced only as long as no client has used it.
func (m *ManagedConn) noteCause(conn *Conn, method string, isKnown, isUnclear bool) {
	isRoots := method == mcp.RootsList
	if isRoots && isKnown || !isRoots && isUnclear {
		m.server.mu.Lock()
		clear(m.server.sharedUsers)
		m.server.mu.Unlock()
	}
	if isRoots && m.IsShared() && (isKnown || !conn.hasServed.Load() && len(conn.possibleCauses().calls) == 0) {
		m.replaceConn(conn)
	}
}

// errReplaced ends a connection that another one replaces.
var errReplaced = errors.New("the connection is replaced by one with other capabilities")

// replaceConn lets another connection, with the capabilities that the server is told of now, take the place of conn.
// Calls in flight go on there; those that come wait for the other one.
func (m *ManagedConn) replaceConn(conn *Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != conn {
		return
	}
	select {
	case m.replace <- conn:
		m.conn, m.isReplacing = nil, true
		m.wakeWaiters()
	default: // another is about to be replaced
	}
}

// drain closes a connection that was replaced, once its calls are done or have had their time.
func (m *ManagedConn) drain(ctx context.Context, conn *Conn) {
	defer conn.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(conn.limits.timeout); conn.callCount.Load() > conn.streamCount.Load() && time.Now().Before(end); {
		select {
		case <-tick.C:
		case <-conn.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}
