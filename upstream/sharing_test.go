package upstream

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/mcp"
)

// newSharedChild is a server whose child clients share; it connects to nothing, and is known to ask for no roots at its start.
func newSharedChild(t *testing.T) *Server {
	server := newConnectedServer(t, mcp.Legacy, func(_ *Config, s *ServerConfig) { s.URL, s.Command = "", []string{"x"} })
	server.startsWithoutRoots = true
	return server
}

func session(name, operation string, capabilities ...string) Caller {
	return Caller{Client: clientWith(capabilities...), SessionID: name, Operation: operation}
}

// A5: the first calls of a tool by different clients run one after the other: should the server ask something, it is clear
// whom. Later calls, calls of one client, and calls of clients that cannot be asked do not wait.
func TestFirstCallsOfAToolDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSharedChild(t)
		elapsed := func(caller Caller) (time.Duration, func()) {
			began := time.Now()
			conn, release := mustAcquire(t, server, caller)
			checkEqual(t, "shared", conn, server.shared)
			return time.Since(began), release
		}
		wait, releaseA := elapsed(session("a", "delete", "elicitation"))
		checkEqual(t, "the first waits", wait, 0)
		wait, again := elapsed(session("a", "delete", "elicitation"))
		checkEqual(t, "the same client waits", wait, 0)
		wait, plain := elapsed(session("p", "delete"))
		checkEqual(t, "a client that cannot be asked waits", wait, 0)
		plain()
		again()
		server.proven = map[string]bool{}
		time.AfterFunc(300*time.Millisecond, releaseA)
		wait, releaseB := elapsed(session("b", "delete", "elicitation"))
		checkEqual(t, "another client waits", wait, 300*time.Millisecond)
		wait, releaseC := elapsed(session("c", "delete", "elicitation"))
		checkEqual(t, "once the tool is known it waits", wait, 0)
		wait, releaseD := elapsed(session("d", "list", "elicitation"))
		checkEqual(t, "beside a known tool it waits", wait, 0)
		wait, releaseE := elapsed(session("e", "move", "elicitation"))
		checkEqual(t, "beside a long call it waits", wait, unprovenWait)
		gone, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		_, _, err := server.Acquire(gone, session("f", "copy", "elicitation"))
		checkEqual(t, "one that leaves", fault.KindOf(err), fault.Timeout)
		for _, release := range []func(){releaseB, releaseC, releaseD, releaseE} {
			release()
		}
		checkEqual(t, "in the end", len(server.unproven), 0)
	})
}

// Operations that are proven are remembered up to a bound.
func TestProvenOperationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSharedChild(t)
		for i := range maxProven + 10 {
			_, release := mustAcquire(t, server, session(fmt.Sprint(i), fmt.Sprint("tool ", i), "elicitation"))
			release()
		}
		checkEqual(t, "remembered", len(server.proven), maxProven)
		checkEqual(t, "sessions", len(server.sharedUsers), maxSessions)
	})
}

// A5: when a server has sent a request, calls that wait go to connections of their own, and so does every further session that
// can answer it. Sessions that used the shared one stay until a request cannot be told to be theirs, and other clients stay.
func TestServerThatAsksGetsOwnConns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSharedChild(t)
		told := ""
		server.deps.Learned = func(_ *Server, facts string) { told = facts }
		_, release := mustAcquire(t, server, session("a", "delete", "elicitation"))
		got := make(chan *ManagedConn, 1)
		go func() {
			conn, _, _ := server.Acquire(t.Context(), session("b", "delete", "elicitation"))
			got <- conn
		}()
		synctest.Wait()
		server.noteServerRequest(mcp.ElicitationCreate)
		checkEqual(t, "waiting call", keyName((<-got).key), "session b")
		release()
		connOf := func(caller Caller) string { return connName(t, server, caller) }
		checkEqual(t, "told", told, "clients-answer elicitation/create")
		checkEqual(t, "the session that used it", connOf(session("a", "list", "elicitation")), "shared")
		checkEqual(t, "another session", connOf(session("c", "list", "elicitation")), "session c")
		checkEqual(t, "one that answers something else", connOf(session("d", "list", "sampling", "roots")), "shared")
		checkEqual(t, "one that answers nothing", connOf(session("e", "list")), "shared")
		checkEqual(t, "lists", server.SharesLists(session("a", "", "elicitation")), false)
		checkEqual(t, "lists of others", server.SharesLists(session("d", "", "sampling")), true)
		server.CloseSession("d")
		checkEqual(t, "users", len(server.sharedUsers), 1)
		server.shared.noteCause(newTestConn(time.Minute).Conn, mcp.ElicitationCreate, false, true)
		checkEqual(t, "after an unclear one", connOf(session("a", "list", "elicitation")), "session a")
	})
}

// connName is the connection that a client gets for a call.
func connName(t *testing.T, server *Server, caller Caller) string {
	t.Helper()
	conn, release := mustAcquire(t, server, caller)
	defer release()
	return keyName(conn.key)
}

// modernClient is a client without a session.
func modernClient(ctx context.Context, conn string, capabilities ...string) Caller {
	return Caller{Client: clientOfVersion(mcp.V20260728, capabilities...), Subject: "me", ConnID: conn, ConnContext: ctx, Operation: "list"}
}

// A5: when a server asks for roots outside any call, it is told of none, and the clients that have used its process stay there:
// it may hold what they work on. That ends with their session or connection, and when it is told of one client's roots.
func TestUsersOfASharedProcessStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSharedChild(t)
		conn := newTestConn(time.Minute).Conn
		conn.hasServed.Store(true)
		open, leave := context.WithCancel(t.Context())
		user := session("s", "list", "roots")
		var unknownConn context.Context
		modern, unknown := modernClient(open, "1", "roots"), modernClient(unknownConn, "2", "roots")
		checkEqual(t, "a session before", connName(t, server, user), "shared")
		for _, caller := range []Caller{modern, unknown} {
			checkEqual(t, "a modern client before", connName(t, server, caller), "class")
		}
		server.noteServerRequest(mcp.RootsList)
		server.shared.noteCause(conn, mcp.RootsList, false, true)

		checkEqual(t, "the session that used it", connName(t, server, user), "shared")
		checkEqual(t, "another session", connName(t, server, session("t", "list", "roots")), "session t")
		checkEqual(t, "the modern client that used it", connName(t, server, modern), "class")
		checkEqual(t, "another connection of it", connName(t, server, modernClient(t.Context(), "3", "roots")), "call me 0")
		unknown.ConnContext = t.Context()
		checkEqual(t, "one whose connection was not known", connName(t, server, unknown), "call me 1")
		checkEqual(t, "lists", server.SharesLists(user), false)
		subscriber := modernClient(t.Context(), "3", "roots")
		subscriber.Operation = mcp.ResourcesSubscribe
		_, subscribed := mustAcquire(t, server, subscriber)
		checkEqual(t, "a call beside a subscription", connName(t, server, modernClient(t.Context(), "3", "roots")), "call me 0")
		subscribed()

		leave()
		synctest.Wait()
		modern.ConnContext = t.Context()
		checkEqual(t, "the modern client after its connection", connName(t, server, modern), "call me 2")
		server.shared.noteCause(conn, mcp.RootsList, true, false)
		checkEqual(t, "the session, when the process was told of roots", connName(t, server, user), "session s")
		checkEqual(t, "users", len(server.sharedUsers), 0)
	})
}

// A client with roots does not use a process right before it asks for them: it waits for that in the first second after the
// handshake. Other clients do not wait, and nobody does once a process has not asked.
func TestClientWithRootsWaitsForTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := func() *Server {
			server := newSharedChild(t)
			server.startsWithoutRoots = false
			conn := newTestConn(time.Minute).Conn
			conn.upSince = time.Now()
			server.shared.mu.Lock()
			server.shared.conn = conn
			server.shared.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			return server
		}
		check := func(what string, server *Server, caller Caller, wantConn string, wantWait time.Duration) {
			t.Helper()
			began := time.Now()
			checkEqual(t, what, connName(t, server, caller), wantConn)
			checkEqual(t, what+": waited", time.Since(began), wantWait)
		}
		server := start()
		check("without roots", server, session("a", "list", "elicitation"), "shared", 0)
		check("for no call", server, session("b", "", "roots"), "shared", 0)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, _, err := server.Acquire(ctx, session("c", "list", "roots"))
		checkEqual(t, "one that leaves", fault.KindOf(err), fault.Timeout)
		time.AfterFunc(50*time.Millisecond, func() { server.noteServerRequest(mcp.RootsList) })
		check("it asks", server, session("d", "list", "roots"), "session d", 50*time.Millisecond)

		server = start()
		check("it does not ask", server, session("a", "list", "roots"), "shared", 900*time.Millisecond)
		server.shared.conn.upSince = time.Now()
		check("another start", server, session("b", "list", "roots"), "shared", 0)

		server = start()
		time.Sleep(rootsWait)
		check("a warm process", server, session("a", "list", "roots"), "shared", 0)
	})
}

// What was found out about a server earlier is known from the start.
func TestKnownFacts(t *testing.T) {
	server := NewServer(ServerConfig{Command: []string{"x"}}, Default(), Deps{KnownFacts: "roots/list x/unheard"})
	checkEqual(t, "known", server.sentRequests, requestsRoots)
	declared := func() string {
		return string(server.declareClient(&ManagedConn{server: server}, newTestConn(time.Minute).Conn).Capabilities)
	}
	checkEqual(t, "declared", declared(), `{}`)
	server.NoteClient(clientWith("elicitation"))
	checkEqual(t, "declared for a client that answers", declared(), `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}}}`)
	server = NewServer(ServerConfig{Command: []string{"x"}}, Default(), Deps{KnownFacts: server.facts()})
	checkEqual(t, "known later", server.facts(), "clients-answer roots/list")
	checkEqual(t, "declared later", declared(), `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}}}`)
	other := ServerConfig{ID: "a", Command: []string{"x y"}}
	checkEqual(t, "key of another command", ServerConfig{ID: "a", Command: []string{"x", "y"}}.FactsKey() == other.FactsKey(), false)
	checkEqual(t, "all", requestsAll.String(), "elicitation/create sampling/createMessage roots/list")
}
