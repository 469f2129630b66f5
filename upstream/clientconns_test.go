package upstream

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
)

// A5: each session has a connection, for each class of it one, and they are closed with it and with nothing else.
func TestConnPerSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, owner := newConnectedServer(t, mcp.Legacy), &fakePeer{}
		one, _ := mustAcquire(t, server, Caller{Client: clientWith("roots"), SessionID: "1", SessionPeer: owner})
		again, _ := mustAcquire(t, server, Caller{Client: clientWith("roots"), SessionID: "1", SessionPeer: owner})
		other, _ := mustAcquire(t, server, Caller{Client: clientWith("sampling"), SessionID: "1", SessionPeer: owner})
		two, _ := mustAcquire(t, server, Caller{Client: clientWith("roots"), SessionID: "2"})
		checkEqual(t, "same session", again, one)
		if one == two || one == other || other == two {
			t.Error("connections are shared")
		}
		checkEqual(t, "owner", one.owner, Peer(owner))
		checkEqual(t, "class", one.ClientClass(), `{"roots":{}}`)
		server.CloseSession("1")
		server.CloseSession("none")
		<-one.stopped
		<-other.stopped
		checkEqual(t, "left", server.connNames(), "session 2")
		select {
		case <-two.stopped:
			t.Error("the connection of another session was closed")
		default:
		}
		fresh, _ := mustAcquire(t, server, Caller{Client: clientWith("roots"), SessionID: "1"})
		if fresh == one {
			t.Error("a closed connection is used again")
		}
	})
}

// A5: a client without a session has a connection for one call at a time: the same for successive calls, another for each
// simultaneous one, and never one of another client or class.
func TestConnPerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newConnectedServer(t, mcp.Legacy)
		me := Caller{Client: clientWith("roots"), Subject: "me"}
		a, releaseA := mustAcquire(t, server, me)
		releaseA()
		b, releaseB := mustAcquire(t, server, me)
		checkEqual(t, "one after the other", b, a)
		c, releaseC := mustAcquire(t, server, me)
		d, releaseD := mustAcquire(t, server, me)
		if c == b || d == c || d == b {
			t.Error("two calls have one connection")
		}
		releaseB()
		again, releaseAgain := mustAcquire(t, server, me)
		checkEqual(t, "the first that is free", again, a)
		you, releaseYou := mustAcquire(t, server, Caller{Client: clientWith("roots"), Subject: "you"})
		class, releaseClass := mustAcquire(t, server, Caller{Client: clientWith("sampling"), Subject: "me"})
		if you == a || class == a {
			t.Error("a connection was given to another client")
		}
		checkEqual(t, "connections", server.connNames(), "call me 0, call me 0, call me 1, call me 2, call you 0")
		for _, release := range []func(){releaseAgain, releaseC, releaseD, releaseYou, releaseClass} {
			release()
		}
	})
}

// The connection of a session is not evicted before the idle timeout: its state may be needed. A newcomer is refused with the
// name of the setting.
func TestLiveSessionIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newConnectedServer(t, mcp.Legacy, withMaxConns(4), func(c *Config, _ *ServerConfig) { c.IdleTimeout = unit.Duration(10 * time.Minute) })
		session := func(name string) (*ManagedConn, error) {
			time.Sleep(time.Second)
			conn, release, err := server.Acquire(t.Context(), Caller{Client: clientWith("roots"), SessionID: name, QuotaKey: name})
			release()
			return conn, err
		}
		first, _ := session("1")
		for i := range 200 {
			_, _ = session(fmt.Sprint("other ", i))
		}
		again, err := session("1")
		checkEqual(t, "connection after 200 other clients", again, first)
		checkEqual(t, "error", err, nil)
		_, err = session("new")
		checkEqual(t, "refusal", fault.KindOf(err), fault.Full)
		if !strings.Contains(fault.PublicOf(err), "max_client_connections = 4") {
			t.Errorf("the refusal does not name the setting: %q", fault.PublicOf(err))
		}
		server.idleTimer.Stop() // room is made when it is needed, not only by the sweep
		time.Sleep(9 * time.Minute)
		again, _ = session("1")
		checkEqual(t, "connection that is used now and then", again, first)
		time.Sleep(2 * time.Minute) // the others have not been used for 11 minutes
		if _, err = session("new"); err != nil {
			t.Error(err)
		}
		if got := server.connNames(); strings.Contains(got, "other 0,") || !strings.Contains(got, "session 1,") || !strings.Contains(got, "session new") {
			t.Errorf("the least recently used connection was not evicted: %s", got)
		}
	})
}

// A connection in use is never evicted, whatever it is used for.
func TestConnInUseIsNotEvicted(t *testing.T) {
	for name, use := range map[string]func(*ManagedConn){
		"call that holds it": func(conn *ManagedConn) { conn.useCount++ },
		"call that waits":    func(conn *ManagedConn) { conn.waitingCalls++ },
		"subscription":       func(conn *ManagedConn) { conn.wanted.uris = map[string]int{"u": 1} },
		"call in flight": func(conn *ManagedConn) {
			conn.conn = newTestConn(time.Minute).Conn
			conn.conn.callCount.Add(1)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := newConnectedServer(t, mcp.Legacy, withMaxConns(1))
			conn, release := mustAcquire(t, server, Caller{Client: clientWith("roots"), Subject: "me"})
			release()
			conn.mu.Lock()
			use(conn)
			conn.mu.Unlock()
			_, _, err := server.Acquire(t.Context(), Caller{Client: clientWith("roots"), Subject: "you", QuotaKey: "you"})
			checkEqual(t, name, fault.KindOf(err), fault.Full)
		})
	}
}

// The connection of a modern client can be evicted when the client has closed its own, least recently used first.
func TestAbandonedConnIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newConnectedServer(t, mcp.Legacy, withMaxConns(3))
		call := func(client string) func() {
			time.Sleep(time.Second)
			open, leave := context.WithCancel(t.Context())
			_, release := mustAcquire(t, server, Caller{Client: clientWith("roots"), Subject: client, QuotaKey: client, ConnID: time.Now().String(), ConnContext: open})
			return func() { release(); leave() }
		}
		call("a")()
		call("b")()
		call("c")()
		release := call("a") // b is the one that was used longest ago
		call("d")()
		checkEqual(t, "connections", server.connNames(), "call a 0, call c 0, call d 0")
		call("e")()
		call("f")()
		checkEqual(t, "connections while a has its own", server.connNames(), "call a 0, call e 0, call f 0")
		release()
	})
}

// One caller can have at most half of the connections.
func TestQuotaPerCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newConnectedServer(t, mcp.Legacy, withMaxConns(8))
		for i := range 4 {
			mustAcquire(t, server, Caller{Client: clientWith("roots"), SessionID: fmt.Sprint(i), QuotaKey: "greedy"})
		}
		for _, caller := range []Caller{{SessionID: "more"}, {Subject: "more"}} {
			caller.Client, caller.QuotaKey = clientWith("roots"), "greedy"
			_, _, err := server.Acquire(t.Context(), caller)
			checkEqual(t, "over its share", fault.KindOf(err), fault.Full)
			if !strings.Contains(fault.PublicOf(err), "max_client_connections = 8") {
				t.Errorf("the refusal does not name the setting: %q", fault.PublicOf(err))
			}
		}
		for i := range 4 {
			mustAcquire(t, server, Caller{Client: clientWith("roots"), SessionID: fmt.Sprint("modest ", i), QuotaKey: "modest"})
		}
		server.CloseSession("0")
		mustAcquire(t, server, Caller{Client: clientWith("roots"), SessionID: "more", QuotaKey: "greedy"})
	})
}

// Where there are several tenants, all callers of one can have at most half of the connections together.
func TestQuotaPerTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newConnectedServer(t, mcp.Legacy, withMaxConns(8))
		acquire := func(tenant string, i int) error {
			_, _, err := server.Acquire(t.Context(), Caller{Client: clientWith("roots"), SessionID: fmt.Sprint(tenant, i), QuotaKey: fmt.Sprintf("%s\x00\x00%d", tenant, i)})
			return err
		}
		for i := range 5 { // a single tenant can have more
			if err := acquire("greedy", i); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			if err := acquire("modest", i); err != nil {
				t.Fatal(err)
			}
		}
		err := acquire("greedy", 6)
		if checkEqual(t, "over its share", fault.KindOf(err), fault.Full); !strings.Contains(fault.PublicOf(err), "this tenant has 5 connections") {
			t.Errorf("got %q", fault.PublicOf(err))
		}
		for _, session := range []string{"greedy0", "greedy1"} {
			server.CloseSession(session)
		}
		if err := acquire("greedy", 7); err != nil {
			t.Errorf("within its share: %v", err)
		}
	})
}

// Two clients never get the same connection, whatever their names.
func TestConnsAreNotSharedByClients(t *testing.T) {
	for _, set := range []func(*ServerConfig){
		func(s *ServerConfig) { s.URL, s.Command = "", []string{"x"} }, func(s *ServerConfig) { s.Transport = "http" },
	} {
		synctest.Test(t, func(t *testing.T) {
			server := newConnectedServer(t, mcp.Legacy, func(_ *Config, s *ServerConfig) { set(s) })
			server.sentRequests = requestsRoots
			seen := map[*ManagedConn]string{}
			for _, caller := range []Caller{
				{SessionID: "me"}, {Subject: "me"}, {Subject: "me 0"}, {Subject: "session me"}, {SessionID: "call me 0"}, {SessionID: "me 0"},
				{Subject: "default\x00anonymous\x001"}, {Subject: "default\x00anonymous\x0011"},
			} {
				caller.Client = clientWith("roots")
				conn, release := mustAcquire(t, server, caller)
				release()
				if other, there := seen[conn]; there {
					t.Errorf("%+v has the connection of %s", caller, other)
				}
				seen[conn] = fmt.Sprintf("%+v", caller)
			}
		})
	}
}

// Clients of the same subject have a connection each while their own is open; a client that comes back on another connection
// gets its previous one.
func TestSameSubjectOnSeveralConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newConnectedServer(t, mcp.Legacy)
		by := func(conn string) (Caller, context.CancelFunc) {
			open, leave := context.WithCancel(t.Context())
			return Caller{Client: clientWith("roots"), Subject: "me", ConnID: conn, ConnContext: open}, leave
		}
		one, leave := by("1")
		two, _ := by("2")
		three, _ := by("3")
		first, release := mustAcquire(t, server, one)
		release()
		second, release := mustAcquire(t, server, two)
		release()
		if first == second {
			t.Fatal("two clients with open connections have one connection")
		}
		again, release := mustAcquire(t, server, one)
		beside, releaseBeside := mustAcquire(t, server, one) // two calls at once
		if again != first || beside == first || beside == second {
			t.Error("a client did not get its own connection, or one for two calls at once")
		}
		release()
		releaseBeside()
		leave()
		back, release := mustAcquire(t, server, three)
		if back != first {
			t.Error("a client that came back on another connection did not get its previous one")
		}
		other, _ := mustAcquire(t, server, Caller{Client: clientWith("roots"), Subject: "you", ConnID: "1"})
		if other == beside {
			t.Error("a client of another name has the connection")
		}
		release()
		checkEqual(t, "in the end", server.connNames(), "call me 0, call me 1, call me 2, call you 0")
	})
}

// A client's notification goes to the connection that the client has, and opens none.
func TestLookupOpensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newConnectedServer(t, mcp.Legacy)
		me := Caller{Client: clientWith("roots"), SessionID: "me"}
		if _, there := server.Lookup(me); there || server.connNames() != "" {
			t.Errorf("there are connections: %s", server.connNames())
		}
		conn, _ := mustAcquire(t, server, me)
		if found, _ := server.Lookup(me); found != conn {
			t.Error("the client's connection was not found")
		}
		if found, _ := server.Lookup(Caller{Client: clientWith()}); found != server.shared {
			t.Error("the shared connection was not found")
		}
		server.Close()
		if _, there := server.Lookup(me); there {
			t.Error("a closed server has a connection")
		}
	})
}

// A notification of a client without a session never goes to the connection of another client of the same subject.
func TestLookupDistinguishesClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newConnectedServer(t, mcp.Legacy)
		by := func(conn string) Caller {
			return Caller{Client: clientWith("roots"), Subject: "me", ConnID: conn, ConnContext: t.Context()}
		}
		first, _ := mustAcquire(t, server, by("1"))
		left := by("2")
		var leave context.CancelFunc
		left.ConnContext, leave = context.WithCancel(t.Context())
		second, _ := mustAcquire(t, server, left)
		for conn, want := range map[string]*ManagedConn{"1": first, "2": second, "3": nil} {
			if found, there := server.Lookup(by(conn)); found != want || there != (want != nil) {
				t.Errorf("connection %s: not its own connection", conn)
			}
		}
		leave()
		if found, _ := server.Lookup(by("3")); found != second {
			t.Error("a client that came back on another connection does not get its previous one")
		}
	})
}

// A connection that was idle for the idle timeout is closed; the shared one never.
func TestIdleConnsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t)
		server, _ := p.newServer(func(c *Config, _ *ServerConfig) { c.IdleTimeout = unit.Duration(10 * time.Minute) })
		server.Start()
		callTool(t.Context(), server.SharedConn())
		idle, releaseIdle := mustAcquire(t, server, Caller{Client: clientWith("roots"), SessionID: "idle"})
		used, releaseUsed := mustAcquire(t, server, Caller{Client: clientWith("roots"), SessionID: "used"})
		releaseIdle()
		releaseUsed()
		callTool(t.Context(), idle)
		for range 6 {
			callTool(t.Context(), used)
			time.Sleep(4 * time.Minute)
		}
		<-idle.stopped
		checkEqual(t, "connections", server.connNames(), "session used")
		checkEqual(t, "shared", callTool(t.Context(), server.SharedConn()).String(), `{}`)
		time.Sleep(16 * time.Minute)
		checkEqual(t, "connections in the end", server.connNames(), "")
		checkEqual(t, "connections", p.connectCount(), 3)
	})
}

// Connections are acquired, used, released and evicted concurrently.
func TestConcurrentAcquire(t *testing.T) {
	server, _ := newFakeServer(t).newServer(withMaxConns(4))
	server.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	callTool(ctx, server.SharedConn())
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			for i := range 20 {
				caller := Caller{Client: clientWith("roots"), Subject: "me"}
				if n%2 == 0 {
					caller.SessionID = fmt.Sprint(n, i%3)
				}
				conn, release, err := server.Acquire(ctx, caller)
				if err != nil {
					checkEqual(t, "refused", fault.KindOf(err), fault.Full)
					time.Sleep(time.Millisecond)
					continue
				}
				if got := callTool(ctx, conn); got.err != nil && fault.KindOf(got.err) != fault.Unavailable {
					t.Error(got)
				}
				release()
				if i%5 == 0 {
					server.CloseSession(caller.SessionID)
				}
			}
		})
	}
	wg.Wait()
	if n := strings.Count(server.connNames(), ",") + 1; n > 4 {
		t.Errorf("there are %d connections", n)
	}
}
