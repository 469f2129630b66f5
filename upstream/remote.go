// Package upstream is the servers behind the gateway: programs it keeps alive, servers it reaches
// over HTTP in any revision, and plain JSON-RPC. A [Remote] is one entry of the server table; a
// [Lane] is a connection to it that is made again whenever it is lost; a [Conn] is one such
// connection.
//
// Path through the files: config.go is the table, remote.go is one server of it, pick.go says whose
// lane a call gets, lane.go is that lane and tend.go keeps it up, conn.go is one conversation, ask.go what
// its server asks, hello.go begins it in the server's era, eras.go says in which if it has both, watch.go is
// what a lane wants to be told of. The wires: pipe.go is a program; stream.go is Streamable HTTP, with
// refuse.go for what a refusal means, resume.go for streams that break off and mirror.go for the
// headers; sse.go and plain.go are the older ways; web.go is what they share. rpc.go is the plain call
// of one message.
//
// Invariants: ids and progress tokens on the wire are the connection's own, so that clients who
// share a server cannot meet in them. A question of a server reaches the client that caused it or
// nobody: a server whose messages share one stream is shared only by clients it cannot ask. A
// call is sent at most once, unless the server itself said that it was not begun (unbegun.go). Every
// queue has a bound. A failure is a fault: Unavailable and Timeout for a server that cannot be reached or
// does not answer, BadReply for one that answers something else, Full where too many wait.
package upstream

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/internal/frame"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/mcp"
)

// Deps is what remotes are made of.
type Deps struct {
	Transport http.RoundTripper
	Listener  Listener
	Budget    *membudget.Budget         // of which replies take their part
	Env       []string                  // the gateway's own environment, of which programs get a part
	Limits    func() (depth, chars int) // how deep a message may be nested; strings longer than chars are listed in replies
	Count     func(error)               // counts a connection that was lost, and why; may be nil
}

// Remote is one server.
type Remote struct {
	entry    Server
	cfg      Config
	deps     Deps
	listener Listener
	mirrors  mirrors // what its tools want in headers
	sole     bool    // there is only one client: it has the shared lane

	mu         sync.Mutex
	shared     *Lane
	lanes      map[laneKey]*Lane
	sse        bool          // it speaks HTTP+SSE, though the table does not say so
	era        mcp.Era       // 0 until it was met
	older      olderSupport  // whether a server of the newer era speaks the older one too
	trying     *Lane         // the lane that finds out
	listsOlder bool          // it says that it does
	framing    frame.Framing // the framing to begin with
	stumbled   bool          // it could not be greeted the last time
	closed     bool
	sweep      *time.Timer
}

// NewRemote makes a server of a valid entry with resolved secrets. Nothing is started.
func NewRemote(entry Server, cfg Config, d Deps) *Remote {
	if d.Count == nil {
		d.Count = func(error) {}
	}
	return &Remote{entry: entry, cfg: cfg, deps: d, listener: d.Listener, lanes: map[laneKey]*Lane{}}
}

// ID is the server's name.
func (r *Remote) ID() string { return r.entry.ID }

// Entry is the server's entry in the table.
func (r *Remote) Entry() Server { return r.entry }

// Start connects to the server and keeps the connection up.
func (r *Remote) Start() { r.StartFor(mcp.Client{}, nil) }

// StartFor is Start for a gateway that has only one client: the server is told of it, and may
// ask it.
func (r *Remote) StartFor(client mcp.Client, owner Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shared != nil || r.closed {
		return
	}
	r.sole = owner != nil
	r.shared = newLane(r, laneKey{}, client, owner)
	r.sweep = time.AfterFunc(r.cfg.IdleTimeout.D()/2, r.sweepIdle)
}

// Shared is the lane that everybody shares; nil before Start.
func (r *Remote) Shared() *Lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shared
}

// Same says whether an entry and what holds for all servers would make this very server.
func (r *Remote) Same(entry Server, cfg Config) bool {
	cfg.Servers, entry.Prefix = nil, r.entry.Prefix
	own := r.cfg
	own.Servers = nil
	return fmt.Sprintf("%+v", own) == fmt.Sprintf("%+v", cfg) && fingerprint(r.entry) == fingerprint(entry)
}

// fingerprint is an entry with its secrets, which print as nothing otherwise, and with its lists
// in quotes: "a b" is not "a" and "b".
func fingerprint(s Server) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\x00%q%q", s, s.Command, s.OAuth.Scopes)
	for _, secrets := range []map[string]string{reveal(s.Env), reveal(s.Headers)} {
		fmt.Fprintf(&b, "\x00%q", secrets) // fmt prints maps in the order of their keys
	}
	b.WriteString("\x00" + s.OAuth.ClientSecret.Reveal() + "\x00" + s.URL.Reveal() + "\x00" + s.RPC.Reveal())
	return b.String()
}

// met remembers the era of a server that was greeted.
func (r *Remote) met(h Hello) {
	r.mu.Lock()
	r.era, r.stumbled, r.older, r.listsOlder = h.Era, false, olderUnknown, h.older
	r.mu.Unlock()
}

// knownEra is the era to begin in; 0 to ask. A server that fell over the question is not asked
// again at once.
func (r *Remote) knownEra() mcp.Era {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.era == 0 && r.stumbled {
		return mcp.EraLegacy
	}
	return r.era
}

func (r *Remote) isSole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sole
}

// isFar says that the server is none of our programs.
func (r *Remote) isFar() bool { return len(r.entry.Command) == 0 }

func (r *Remote) restarted(why error) { r.deps.Count(why) }

func (r *Remote) sweepIdle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.evict(func(l *Lane) bool { _, idle := l.idle(r.cfg.IdleTimeout.D()); return idle }) {
	}
	if !r.closed {
		r.sweep.Reset(r.cfg.IdleTimeout.D() / 2)
	}
}

// Close ends every lane and waits for them.
func (r *Remote) Close() {
	r.mu.Lock()
	r.closed = true
	lanes := make([]*Lane, 0, len(r.lanes)+1)
	for _, l := range r.lanes {
		lanes = append(lanes, l)
	}
	if r.shared != nil {
		lanes = append(lanes, r.shared)
		r.sweep.Stop()
	}
	r.mu.Unlock()
	var wg sync.WaitGroup
	for _, l := range lanes {
		wg.Go(l.Close)
	}
	wg.Wait()
}

// Settled says whether the server has come up for the first time, or failed to.
func (r *Remote) Settled() bool {
	l := r.Shared()
	if l == nil {
		return true
	}
	select {
	case <-l.Settled():
		return true
	default:
		return false
	}
}

// AwaitSettled waits for that, as long as a start may take.
func (r *Remote) AwaitSettled(closing <-chan struct{}) {
	l := r.Shared()
	if l == nil {
		return
	}
	select {
	case <-l.Settled():
	case <-time.After(r.entry.StartupTimeout.D()):
	case <-closing:
	}
}

// Retire lets the calls under way finish, for at most grace, and closes.
func (r *Remote) Retire(grace time.Duration) {
	for until := time.Now().Add(grace); time.Now().Before(until) && r.busy(); {
		time.Sleep(20 * time.Millisecond)
	}
	r.Close()
}

func (r *Remote) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lanes {
		if l.calling() {
			return true
		}
	}
	return r.shared != nil && r.shared.calling()
}

// dial makes one connection and greets the server.
func (r *Remote) dial(ctx context.Context, l *Lane) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, r.entry.StartupTimeout.D())
	defer cancel()
	c := newConn(r.entry.ID, limits{read: r.deps.Limits, timeout: r.cfg.ResponseTimeout.D()}, r.deps.Budget)
	c.owner = l.owner
	c.alone = !l.Shared() || r.isSole()
	c.events = l.event
	switch {
	case len(r.entry.Command) > 0:
		return r.dialPipe(ctx, c, l)
	case r.entry.RPC != "":
		return r.dialPlain(ctx, c)
	case r.entry.Transport == "sse":
		return r.dialSSE(ctx, c, l)
	}
	return r.dialStream(ctx, c, l)
}
