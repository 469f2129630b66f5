package upstream

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
)

// clientOfVersion is a client of a revision with these capabilities.
func clientOfVersion(version string, capabilities ...string) mcp.Client {
	c := clientWith(capabilities...)
	c.Version = version
	return c
}

// handshakes is how many handshakes of each protocol the server got.
func (p *fakeServer) handshakes() string {
	return fmt.Sprintf("%d legacy, %d modern", len(p.paramsOf(mcp.Initialize)), len(p.paramsOf(mcp.ServerDiscover)))
}

func protocolOf(t *testing.T, managed *ManagedConn) mcp.Protocol {
	t.Helper()
	conn, err := managed.AwaitConn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn.Handshake().Protocol
}

// At a server that speaks both protocols, each legacy session that can answer requests has a legacy connection of its own;
// all other clients share a modern one.
func TestServerOfBothProtocolsUsesItsClients(t *testing.T) {
	for _, listed := range mcp.LegacyVersions {
		t.Run(listed, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newFakeServer(t).makeBoth(listed)
				server, events := p.newServer()
				server.Start()
				checkEqual(t, "shared", protocolOf(t, server.SharedConn()), mcp.Modern)
				for _, caller := range []Caller{
					{Client: clientOfVersion(mcp.V20260728, "sampling"), Subject: "me"},
					{Client: clientOfVersion(mcp.V20251125), SessionID: "1"},
					{},
				} {
					conn, _ := mustAcquire(t, server, caller)
					checkEqual(t, fmt.Sprintf("%+v shares", caller), conn.IsShared(), true)
				}
				checkEqual(t, "handshakes", p.handshakes(), "0 legacy, 1 modern")

				asking := Caller{Client: clientOfVersion(mcp.V20251125, "sampling"), SessionID: "1", SessionPeer: &fakePeer{}}
				conn, _ := mustAcquire(t, server, asking)
				again, _ := mustAcquire(t, server, asking)
				checkEqual(t, "the same again", again, conn)
				checkEqual(t, "legacy", protocolOf(t, conn), mcp.Legacy)
				checkEqual(t, "client in initialize", p.paramsOf(mcp.Initialize)[0],
					`{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"ctxgate","version":"1"}}`)
				asking.SessionID = "2"
				other, _ := mustAcquire(t, server, asking)
				checkEqual(t, "another session's", keyName(other.key), "session 2")
				checkEqual(t, "handshakes", p.handshakes(), "2 legacy, 1 modern")

				modern, _ := mustAcquire(t, server, Caller{Client: clientOfVersion(mcp.V20260728, "sampling"), Subject: "me"})
				checkEqual(t, "modern clients still share", modern.IsShared(), true)
				checkEqual(t, "protocol", protocolOf(t, modern), mcp.Modern)
				checkEqual(t, "lost connections", len(events.lostConns()), 0)
				server.CloseSession("1")
				<-conn.stopped
				checkEqual(t, "connections", server.connNames(), "session 2")
			})
		})
	}
}

// A server request during a call of a legacy session reaches that session.
func TestServerOfBothProtocolsAsksLegacyClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, answered := newFakeServer(t).makeBoth(mcp.V20251125), make(chan string, 1)
		p.on("", func(m receivedMessage) string {
			answered <- string(m.Result)
			return noReply
		})
		server, _ := p.newServer()
		server.Start()
		protocolOf(t, server.SharedConn())
		client := clientOfVersion(mcp.V20251125, "roots")
		owner, caller := &fakePeer{}, &fakePeer{reply: resultReply(`{"roots":[]}`)}
		managed, _ := mustAcquire(t, server, Caller{Client: client, SessionID: "1", SessionPeer: owner})
		conn, err := managed.AwaitConn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.on(mcp.ToolsCall, func(receivedMessage) string {
			conn.handleMessage([]byte(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`), nil)
			return `"result":` + <-answered
		})
		m, err := managed.Call(t.Context(), newCall(mcp.ToolsCall, `{}`, forPeer(caller, client)))
		checkEqual(t, "error", err, nil)
		checkEqual(t, "answer", string(m.Result.Of(m.Body)), `{"roots":[]}`)
		checkEqual(t, "asked", len(caller.requests), 1)
		checkEqual(t, "requests to the owner", len(owner.requests), 0)
	})
}

// A server that does not accept initialize, however it refuses, serves legacy sessions over the modern connection. One session
// finds that out while the others wait; after the next handshake it is found out anew.
func TestModernOnlyServerIsTriedOnce(t *testing.T) {
	refuses := map[string]func(*fakeServer){
		"refuses":           func(p *fakeServer) { p.on(mcp.Initialize, respond(methodNotFound)) },
		"keeps no sessions": func(p *fakeServer) { p.hasNoSessions = true },
		"another revision":  func(p *fakeServer) { p.on(mcp.Initialize, respond(`"result":{"protocolVersion":"2026-07-28"}`)) },
		"status":            func(p *fakeServer) { p.on(mcp.Initialize, respond("400")) },
	}
	for name, set := range refuses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newFakeServer(t).makeBoth(mcp.V20251125)
				set(p)
				server, events := p.newServer()
				server.Start()
				protocolOf(t, server.SharedConn())
				var wg sync.WaitGroup
				for n := range 10 {
					wg.Go(func() {
						conn, _ := mustAcquire(t, server, Caller{Client: clientOfVersion(mcp.V20251125, "sampling"), SessionID: fmt.Sprint(n)})
						checkEqual(t, "shares", conn.IsShared(), true)
						checkEqual(t, "result", callTool(t.Context(), conn).String(), `{}`)
					})
				}
				wg.Wait()
				checkEqual(t, "handshakes", p.handshakes(), "1 legacy, 1 modern")
				synctest.Wait()
				checkEqual(t, "connections", server.connNames(), "")
				checkEqual(t, "lost connections", len(events.lostConns()), 0)

				p.makeBoth(mcp.V20251125).hasNoSessions = false
				server.SharedConn().CurrentConn().end(fmt.Errorf("gone"))
				protocolOf(t, server.SharedConn())
				conn, _ := mustAcquire(t, server, Caller{Client: clientOfVersion(mcp.V20251125, "sampling"), SessionID: "0"})
				checkEqual(t, "when it was met anew", protocolOf(t, conn), mcp.Legacy)
			})
		})
	}
}

// One failure does not mean that a server has no legacy support.
func TestLegacySupportSurvivesAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t).makeBoth(mcp.V20251125)
		server, _ := p.newServer()
		server.Start()
		protocolOf(t, server.SharedConn())
		p.on(mcp.Initialize, respond("503"))
		time.AfterFunc(200*time.Millisecond, func() { p.on(mcp.Initialize, respond(initializeResult)) }) // after five failures it would be given up
		conn, _ := mustAcquire(t, server, Caller{Client: clientOfVersion(mcp.V20251125, "sampling"), SessionID: "1"})
		checkEqual(t, "protocol", protocolOf(t, conn), mcp.Legacy)
	})
}

// If a server drops its legacy support, its sessions continue on the modern connection.
func TestServerDropsLegacySupport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t).makeBoth(mcp.V20251125)
		server, _ := p.newServer()
		server.Start()
		protocolOf(t, server.SharedConn())
		caller := Caller{Client: clientOfVersion(mcp.V20251125, "sampling"), SessionID: "1"}
		conn, release := mustAcquire(t, server, caller)
		release()
		p.makeModern()
		conn.CurrentConn().end(fmt.Errorf("gone"))
		<-conn.stopped
		conn, _ = mustAcquire(t, server, caller)
		checkEqual(t, "shares", conn.IsShared(), true)
	})
}

// A notification opens no legacy connection.
func TestLookupOpensNoLegacyConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t).makeBoth(mcp.V20251125)
		server, _ := p.newServer()
		server.Start()
		protocolOf(t, server.SharedConn())
		conn, there := server.Lookup(Caller{Client: clientOfVersion(mcp.V20251125, "roots"), SessionID: "1"})
		checkEqual(t, "there", there, true)
		checkEqual(t, "shares", conn.IsShared(), true)
		synctest.Wait()
		checkEqual(t, "handshakes", p.handshakes(), "0 legacy, 1 modern")
	})
}

// For the only client of a gateway, servers use its protocol if they can: over HTTP, a legacy server without sessions could
// not send it requests.
func TestSingleClientOverHTTP(t *testing.T) {
	for name, tt := range map[string]struct {
		set      func(*fakeServer)
		version  string
		protocol mcp.Protocol
		first    string
	}{
		"legacy client, both protocols":    {func(p *fakeServer) { p.makeBoth(mcp.V20250618) }, mcp.V20251125, mcp.Legacy, "1 legacy, 1 modern"},
		"legacy client, both, no sessions": {func(p *fakeServer) { p.makeBoth(mcp.V20251125).hasNoSessions = true }, mcp.V20251125, mcp.Modern, "1 legacy, 1 modern"},
		"legacy client, both, refuses":     {func(p *fakeServer) { p.makeBoth(mcp.V20251125).on(mcp.Initialize, respond(methodNotFound)) }, mcp.V20251125, mcp.Modern, "1 legacy, 1 modern"},
		"legacy client, modern only":       {func(p *fakeServer) { p.makeModern() }, mcp.V20251125, mcp.Modern, "0 legacy, 1 modern"},
		"legacy client, legacy only":       {func(p *fakeServer) { p.http = true }, mcp.V20251125, mcp.Legacy, "1 legacy, 1 modern"},
		"modern client, both protocols":    {func(p *fakeServer) { p.makeBoth(mcp.V20251125) }, mcp.V20260728, mcp.Modern, "0 legacy, 1 modern"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newFakeServer(t)
				tt.set(p)
				server, _ := p.newServer()
				server.StartForClient(clientOfVersion(tt.version, "roots"), &fakePeer{})
				checkEqual(t, "protocol", protocolOf(t, server.SharedConn()), tt.protocol)
				checkEqual(t, "handshakes", p.handshakes(), tt.first)
				checkEqual(t, "result", callTool(t.Context(), server.SharedConn()).String(), `{}`)
				server.SharedConn().CurrentConn().end(fmt.Errorf("gone"))
				checkEqual(t, "protocol of the next connection", protocolOf(t, server.SharedConn()), tt.protocol)
			})
		})
	}
}

// Over HTTP a modern server that lists no legacy revision never gets initialize: it would be a request without the modern
// headers.
func TestServerThatListsNoLegacyRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t).makeBoth()
		server, _ := p.newServer()
		server.Start()
		protocolOf(t, server.SharedConn())
		conn, _ := mustAcquire(t, server, Caller{Client: clientOfVersion(mcp.V20251125, "sampling"), SessionID: "1"})
		checkEqual(t, "shares", conn.IsShared(), true)
		checkEqual(t, "handshakes", p.handshakes(), "0 legacy, 1 modern")
	})
}
