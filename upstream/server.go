// Package upstream keeps connections to the MCP servers behind the gateway: children that it starts, servers
// over HTTP, and plain JSON-RPC servers. A [Server] is one entry of the server table; a [ManagedConn] is a
// connection to it that is opened again whenever it is lost; a [Conn] is one such connection. The wires are in
// upstream/wire.
//
// Path through the files: config.go is the server table, server.go one server of it, acquire.go decides which
// connection a client's calls use, credentials.go whose credentials it carries and sharing.go when it is one that all share, managedconn.go is that connection,
// supervisor.go restarts it, probes it and counts its failures, status.go describes it for people. negotiate.go
// connects and performs the handshake in the server's protocol, handshake.go has the two handshakes, legacy.go the
// legacy connections to servers that speak both protocols. conn.go sends calls, inflight.go is one of them, dispatch.go
// handles what the server sends, serverrequests.go its requests to clients, causes.go finds the client where several
// share a child. subscriptions.go restores subscriptions and log levels after a reconnect, transport.go is the HTTP
// connection pool. startup.go says how long a start may take and how far it
// is, launcher.go knows the programs that fetch a server first, and installqueue.go limits how many do at once.
//
// Invariants:
//   - Ids and progress tokens on a connection are its own, so that clients that share it cannot collide.
//   - A server's request reaches the client that caused it, or none. Where messages share one stream, that is the
//     client of the only calls that can be the cause.
//   - A connection carries the credentials of one principal, and serves no other's calls.
//   - A call is sent at most once, unless the server did not start it (wire.IsNotStarted).
//   - Every queue is bounded.
//
// Failures are faults: Unavailable and Timeout for a server that cannot be reached or does not answer, BadReply
// for one that sends something else, Full where too many calls wait.
package upstream

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/internal/frame"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/oauth"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

// Deps are the dependencies of servers.
type Deps struct {
	Transport    http.RoundTripper
	Events       EventHandler
	Budget       *membudget.Budget         // is charged for replies
	Env          []string                  // the gateway's own environment, of which children get a part
	ParseLimits  func() (depth, chars int) // the deepest nesting of a message; strings longer than chars are listed in replies
	CountFailure func(error)               // counts a connection that was lost or not made; may be nil
	Installs     *InstallQueue             // shared by all servers; nil for no limit

	// Exchange exchanges a caller's access token for one that the server accepts, if there is none yet; nil where no server of
	// the table needs it.
	Exchange func(ctx context.Context, s *oauth.Server, token secret.Text) error

	// Learned is called when it is found out what a child asks its clients, or that it has clients that can be asked; may
	// be nil. Facts is everything that is known of that, and KnownFacts what an earlier process of the gateway knew.
	Learned    func(s *Server, facts string)
	KnownFacts string
}

// EventHandler gets what happens outside any call.
type EventHandler interface {
	ListChanged(m *ManagedConn, note rpc.Message)     // a list of the server has changed
	ResourceUpdated(m *ManagedConn, note rpc.Message) // a subscribed resource has changed
	Notified(m *ManagedConn, note rpc.Message)        // any other notification
	StateChanged(m *ManagedConn, up bool)             // a connection came up or was lost
}

// Server is one server and its connections.
type Server struct {
	entry       ServerConfig
	cfg         Config
	deps        Deps
	toolHeaders wire.ToolHeaders
	launcher    *launcher     // that may have to fetch the server; nil for a program that is there
	installWait time.Duration // how long a call waits for that
	credential  credential    // that its connections carry; the zero one for what the entry alone says
	root        *Server       // the server of the table, of one that carries a credential; nil for the server of the table itself
	rpcClient   *wire.RPCClient

	mu           sync.Mutex
	singleClient bool // the gateway has only one client, which has the shared connection
	shared       *ManagedConn
	conns        map[connKey]*ManagedConn // those of one client each
	tenants      membudget.Tenants        // that had one
	speaksSSE    bool                     // it speaks HTTP+SSE, though the table does not say so
	protocol     mcp.Protocol             // 0 until the first handshake
	legacy       legacySupport            // of a modern server
	legacyTrial  *ManagedConn             // the connection that finds it out
	listsLegacy  bool                     // it is modern and lists legacy revisions
	framing      frame.Framing            // to start a child with
	sentRequests requestSet               // that it has sent to clients

	hasAnsweringClients bool            // a legacy client has come that can answer requests
	sharedUsers         map[string]bool // clients that have called it on a connection that they share, as a child
	startsWithoutRoots  bool            // a process that knew of roots has not asked for them within rootsWait
	proven              map[string]bool // operations that were called and ended
	unproven            map[string]int  // calls in flight of others, by client
	unprovenChanged     chan struct{}   // closed and replaced whenever those or sentRequests change
	handshakeFailed     bool            // the last handshake with a child failed
	wasUp               bool            // a connection has been up
	closed              bool
	idleTimer           *time.Timer

	// Of the server of the table, for those that carry credentials of tenants or callers: see credentials.go.
	byCredential    map[credential]*Server
	userCounts      map[*Server]int // how many are about to acquire a connection of it
	started         func(*Server)   // starts one as this one was started; nil before
	credentialConns atomic.Int64    // their connections
}

// NewServer returns a server for a valid entry with resolved secrets. Nothing is started.
func NewServer(entry ServerConfig, cfg Config, d Deps) *Server {
	if d.CountFailure == nil {
		d.CountFailure = func(error) {}
	}
	sent, hasAnswering := parseFacts(d.KnownFacts)
	s := &Server{
		entry: entry, cfg: cfg, deps: d, launcher: launcherOf(entry.Command), installWait: maxInstallWait, conns: map[connKey]*ManagedConn{}, sentRequests: sent, hasAnsweringClients: hasAnswering,
		sharedUsers: map[string]bool{}, proven: map[string]bool{}, unproven: map[string]int{}, unprovenChanged: make(chan struct{}),
		byCredential: map[credential]*Server{}, userCounts: map[*Server]int{},
	}
	if entry.RPC != "" {
		s.rpcClient = NewRPCClient(entry, cfg, d.Transport)
	}
	return s
}

// ID is the server's id.
func (s *Server) ID() string { return s.entry.ID }

// Config is the server's entry in the table.
func (s *Server) Config() ServerConfig { return s.entry }

// Start connects to the server and keeps the connection up.
func (s *Server) Start() { s.StartForClient(mcp.Client{}, nil) }

// StartForClient is Start for a gateway with only one client: the handshake names it, and the server may
// send it requests.
func (s *Server) StartForClient(client mcp.Client, owner Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared != nil || s.closed || s.started != nil {
		return
	}
	s.started = func(v *Server) { v.StartForClient(client, owner) }
	s.singleClient = owner != nil
	if s.root == nil && s.entry.needsCredential() { // there is no connection without a caller
		s.idleTimer = time.AfterFunc(s.cfg.IdleTimeout.D()/2, s.closeIdle)
		return
	}
	s.shared = newManagedConn(s, connKey{}, client, owner)
	s.idleTimer = time.AfterFunc(s.cfg.IdleTimeout.D()/2, s.closeIdle)
}

// SharedConn is the connection that all clients share; nil before Start.
func (s *Server) SharedConn() *ManagedConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shared
}

// IsSameConfig reports whether an entry and the settings for all servers would make the same server.
func (s *Server) IsSameConfig(entry ServerConfig, cfg Config) bool {
	cfg.Servers, entry.Prefix = nil, s.entry.Prefix
	own := s.cfg
	own.Servers = nil
	return fmt.Sprintf("%+v", own) == fmt.Sprintf("%+v", cfg) && fingerprint(s.entry) == fingerprint(entry)
}

// fingerprint is an entry as text. Secrets, which print as nothing otherwise, are revealed, and lists are
// quoted: "a b" is not "a" and "b".
func fingerprint(e ServerConfig) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d ", e.sharing())
	e.Shared = nil // an address
	for _, r := range e.CredentialsFor {
		fmt.Fprintf(&b, "%q%q%q%q%q\x00", r.Tenant, r.Subject, r.Issuer, revealAll(r.Headers), revealAll(r.Env))
	}
	fmt.Fprintf(&b, "%q\x00", e.TokenExchange.ClientSecret.Reveal())
	fmt.Fprintf(&b, "%+v\x00%q%q%q%q", e, e.Command, e.OAuth.Scopes, e.EnabledTools, e.DisabledTools)
	for _, secrets := range []map[string]string{revealAll(e.Env), revealAll(e.Headers)} {
		fmt.Fprintf(&b, "\x00%q", secrets) // fmt prints maps in the order of their keys
	}
	b.WriteString("\x00" + e.OAuth.ClientSecret.Reveal() + "\x00" + e.URL.Reveal() + "\x00" + e.RPC.Reveal())
	return b.String()
}

// noteHandshake remembers the protocol of a server.
func (s *Server) noteHandshake(h Handshake) {
	s.mu.Lock()
	s.protocol, s.handshakeFailed, s.legacy, s.listsLegacy = h.Protocol, false, legacyUnknown, h.listsLegacy
	s.mu.Unlock()
}

// forgetProtocol makes the next handshake find out the protocol again.
func (s *Server) forgetProtocol() {
	s.mu.Lock()
	s.protocol, s.legacy = 0, legacyUnknown
	s.mu.Unlock()
}

func (s *Server) isSingleClient() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.singleClient
}

// isRemote reports whether the server is not a child process.
func (s *Server) isRemote() bool { return len(s.entry.Command) == 0 }

func (s *Server) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.evictOldest(func(m *ManagedConn) bool { _, idle := m.idleSince(s.cfg.IdleTimeout.D()); return idle }) {
	}
	s.closeIdleCredentials(s.cfg.IdleTimeout.D())
	if !s.closed {
		s.idleTimer.Reset(s.cfg.IdleTimeout.D() / 2)
	}
}

// Close closes every connection and waits for it.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	conns := make([]*ManagedConn, 0, len(s.conns)+1)
	for _, m := range s.conns {
		conns = append(conns, m)
	}
	if s.shared != nil {
		conns = append(conns, s.shared)
	}
	if s.idleTimer != nil {
		s.idleTimer.Stop()
	}
	withCredentials := slices.Collect(maps.Values(s.byCredential))
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, v := range withCredentials {
		wg.Go(v.Close)
	}
	for _, m := range conns {
		wg.Go(m.Close)
	}
	wg.Wait()
}

// HasAttempted reports whether the first attempt to connect has succeeded or failed.
func (s *Server) HasAttempted() bool {
	m := s.SharedConn()
	if m == nil {
		return true
	}
	select {
	case <-m.FirstAttemptDone():
		return true
	default:
		return false
	}
}

// AwaitFirstAttempt waits for that, at most as long as a start may take.
func (s *Server) AwaitFirstAttempt(closing <-chan struct{}) {
	m := s.SharedConn()
	if m == nil {
		return
	}
	select {
	case <-m.FirstAttemptDone():
	case <-time.After(s.entry.StartupTimeout.D()):
	case <-closing:
	}
}

// Shutdown lets the calls in flight finish, for at most grace, and closes.
func (s *Server) Shutdown(grace time.Duration) {
	for until := time.Now().Add(grace); time.Now().Before(until) && s.hasCalls(); {
		time.Sleep(20 * time.Millisecond)
	}
	s.Close()
}

func (s *Server) hasCalls() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.conns {
		if m.hasCalls() {
			return true
		}
	}
	for _, v := range s.byCredential {
		if v.hasCalls() {
			return true
		}
	}
	return s.shared != nil && s.shared.hasCalls()
}
