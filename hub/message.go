package hub

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// messageOverhead is what a message costs beside its bytes.
const messageOverhead = 128

// message is one encoded message that waits for one client, or for many. Its bytes never change,
// so all who wait for it share them: the memory budget holds them once, until the last of them
// has let go.
type message struct {
	body  []byte
	scope *membudget.Scope // whose memory it is; nil where it is not counted
	holds atomic.Int32
}

// charged is a message whose bytes a scope holds, until its last holder has let go. Its maker must
// release it.
func charged(scope *membudget.Scope, parts [][]byte) (*message, error) {
	m := uncounted(parts)
	if err := scope.Take(int64(len(m.body)) + messageOverhead); err != nil {
		return nil, err
	}
	m.scope = scope
	return m, nil
}

// uncounted is a message that is small.
func uncounted(parts [][]byte) *message {
	m := &message{}
	m.holds.Store(1)
	if len(parts) == 1 {
		m.body = parts[0]
		return m
	}
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	m.body = make([]byte, 0, n)
	for _, p := range parts {
		m.body = append(m.body, p...)
	}
	return m
}

func (m *message) hold() { m.holds.Add(1) }

func (m *message) release() {
	if m.holds.Add(-1) == 0 {
		m.scope.Give(int64(len(m.body)) + messageOverhead)
	}
}

// notes is the memory that messages of servers take while they wait for clients.
type notes struct {
	mu     sync.Mutex
	scopes map[string]*membudget.Scope // by server
}

// message makes a message of a server, which its maker must release. It is refused where the
// server's share of the memory budget is used up.
func (n *notes) message(budget *membudget.Budget, server string, body []byte) (*message, error) {
	n.mu.Lock()
	scope := n.scopes[server]
	if scope == nil {
		if n.scopes == nil {
			n.scopes = map[string]*membudget.Scope{}
		}
		scope = budget.Scope("notes of server " + server)
		n.scopes[server] = scope
	}
	n.mu.Unlock()
	return charged(scope, [][]byte{body})
}

// release gives back what the notes of all servers hold.
func (n *notes) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, scope := range n.scopes {
		scope.Release()
	}
}

// passOn takes what a server said outside any call to these sessions. It is encoded once, and held
// once however many of them do not read it yet. Where the memory budget refuses it, what has been
// waiting longest for them is dropped.
func (h *Hub) passOn(server string, to []*session, note rpc.Message) {
	params, err := jsonscan.ReadFields(note.Body, note.Params)
	if err != nil || note.Method == mcp.Progress { // of which no call is the cause
		return
	}
	var wanted []*session
	isLog, severity := note.Method == mcp.LogMessage, mcp.Severity(params.Text("level"))
	for _, s := range to {
		level := s.logLevel()
		if !s.mute.Load() && (!isLog || level != "" && severity >= mcp.Severity(level)) {
			wanted = append(wanted, s)
		}
	}
	if len(wanted) == 0 {
		return
	}
	body := tagged(server, note.Body, note.Params)
	m, err := h.notes.message(h.deps.Budget, server, body)
	for err != nil && dropOldest(wanted) {
		m, err = h.notes.message(h.deps.Budget, server, body)
	}
	if err != nil {
		slog.Debug("a notification was dropped", "server", server, "error", err)
		return
	}
	defer m.release()
	for _, s := range wanted {
		if err := s.pass(m); err != nil {
			slog.Debug("a notification did not reach its client", "server", server, "error", err)
		}
	}
}

// dropOldest drops the older half of what waits for each of these sessions, and says whether
// there was anything.
func dropOldest(of []*session) bool {
	dropped := false
	for _, s := range of {
		s.mu.Lock()
		for range (len(s.backlog) + 1) / 2 {
			s.dropFirst()
			dropped = true
		}
		s.mu.Unlock()
	}
	return dropped
}
