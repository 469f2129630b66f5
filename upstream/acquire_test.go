package upstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/mcp"
)

// newConnectedServer is a Server whose protocol is known; its shared connection connects to nothing.
func newConnectedServer(t *testing.T, protocol mcp.Protocol, options ...func(*Config, *ServerConfig)) *Server {
	server, _ := newFakeServer(t).newServer(options...)
	server.protocol, server.legacy = protocol, legacyRefused // a server of one protocol
	server.shared = newManagedConn(server, connKey{kind: "shared"}, mcp.Client{}, nil)
	server.idleTimer = time.AfterFunc(server.cfg.IdleTimeout.D()/2, server.closeIdle)
	return server
}

func withMaxConns(n int) func(*Config, *ServerConfig) {
	return func(c *Config, _ *ServerConfig) { c.MaxClientConns = n }
}

// mustAcquire acquires a connection, which must succeed.
func mustAcquire(t *testing.T, server *Server, caller Caller) (*ManagedConn, func()) {
	t.Helper()
	conn, release, err := server.Acquire(t.Context(), caller)
	if err != nil {
		t.Fatal(err)
	}
	return conn, release
}

// keyName is a key as text.
func keyName(k connKey) string {
	name := strings.TrimSpace(k.kind + " " + k.owner)
	if k.kind == perCall {
		name += fmt.Sprint(" ", k.n)
	}
	return name
}

// connNames are the keys of a server's client connections, sorted.
func (s *Server) connNames() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for key := range maps.Keys(s.conns) {
		names = append(names, keyName(key))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// A5: which connection a client gets. Only a client that its server could ask on a shared stream has its own.
func TestAcquire(t *testing.T) {
	kinds := map[string]struct {
		set              func(*ServerConfig)
		sent             requestSet // that the server has sent
		session, without string     // the connection of a client that can answer elicitations
	}{
		"child":                 {func(s *ServerConfig) { s.URL, s.Command = "", []string{"x"} }, 0, "shared", "shared"},
		"child that elicits":    {func(s *ServerConfig) { s.URL, s.Command = "", []string{"x"} }, requestsElicitation, "session s", "call me 0"},
		"child that asks else":  {func(s *ServerConfig) { s.URL, s.Command = "", []string{"x"} }, requestsRoots | requestsSampling, "shared", "shared"},
		"http":                  {func(s *ServerConfig) { s.Transport = "http" }, 0, "session s", "client me"},
		"sse":                   {func(s *ServerConfig) { s.Transport = "sse" }, 0, "session s", "call me 0"},
		"json-rpc that elicits": {func(s *ServerConfig) { s.URL, s.RPC = "", "http://far.test" }, requestsElicitation, "shared", "shared"},
	}
	yesno := []bool{false, true}
	for name, kind := range kinds {
		for _, protocol := range []mcp.Protocol{mcp.Legacy, mcp.Modern} {
			for bits := range 16 {
				answers, session, shared, singleClient := yesno[bits&1], yesno[bits>>1&1], yesno[bits>>2&1], yesno[bits>>3&1]
				caller, wantKey := Caller{Client: clientWith(), Subject: "me"}, "shared"
				if answers {
					caller.Client = clientWith("elicitation")
				}
				if session {
					caller.SessionID = "s"
				}
				if answers && protocol == mcp.Legacy && !shared && !singleClient {
					wantKey = kind.without
					if session {
						wantKey = kind.session
					}
				}
				synctest.Test(t, func(t *testing.T) {
					server := newConnectedServer(t, protocol, func(_ *Config, s *ServerConfig) {
						kind.set(s)
						if shared {
							s.Shared = &shared
						}
					})
					server.singleClient, server.sentRequests = singleClient, kind.sent
					conn, release := mustAcquire(t, server, caller)
					checkEqual(t, fmt.Sprintf("%s, %s, answers %v, session %v, shared %v, singleClient %v", name, protocol, answers, session, shared, singleClient), keyName(conn.key), wantKey)
					release()
				})
			}
		}
	}
}

// shared = false: every client of a child has its own, whatever it can answer and whatever the server speaks. The gateway
// itself reads the lists from the shared one.
func TestAcquireNeverShared(t *testing.T) {
	for _, command := range [][]string{{"x"}, {"npx", "-y", "@playwright/mcp@latest"}, {"node", "/home/u/node_modules/chrome-devtools-mcp/build/index.js"}} {
		for _, protocol := range []mcp.Protocol{mcp.Legacy, mcp.Modern} {
			for caller, want := range map[*Caller]string{
				{Client: clientWith(), SessionID: "s", Subject: "me"}:              "session s",
				{Client: clientWith("elicitation"), SessionID: "s", Subject: "me"}: "session s",
				{Client: clientWith(), Subject: "me"}:                              "call me 0",
				{Client: clientWith()}:                                             "shared",
			} {
				synctest.Test(t, func(t *testing.T) {
					server := newConnectedServer(t, protocol, func(_ *Config, s *ServerConfig) {
						s.URL, s.Command = "", command
						if len(command) == 1 {
							s.Shared = new(bool)
						}
					})
					conn, release := mustAcquire(t, server, *caller)
					checkEqual(t, fmt.Sprint(command, protocol, caller), keyName(conn.key), want)
					release()
				})
			}
		}
	}
}

// Clients of one class can answer the same requests; all that can answer none are one class.
func TestClientClass(t *testing.T) {
	checkEqual(t, "none", ClientClass(clientWith()), "")
	checkEqual(t, "capability without server requests", ClientClass(clientWith("experimental")), "")
	checkEqual(t, "roots", ClientClass(clientWith("roots")), `{"roots":{}}`)
	checkEqual(t, "roots, modern", ClientClass(clientOfVersion(mcp.V20260728, "roots")), `{"roots":{}}`)
	checkEqual(t, "roots, legacy", ClientClass(clientOfVersion(mcp.V20250618, "roots")), `legacy {"roots":{}}`)
	checkEqual(t, "none, legacy", ClientClass(clientOfVersion(mcp.V20250618)), "")
	checkEqual(t, "none, modern", ClientClass(clientOfVersion(mcp.V20260728)), "")
}

// The messages of a server that fell back to HTTP+SSE share a stream.
func TestAcquireAfterSSEFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newConnectedServer(t, mcp.Legacy, func(_ *Config, s *ServerConfig) { s.Transport = "http" })
		server.speaksSSE = true
		conn, release := mustAcquire(t, server, Caller{Client: clientWith("roots"), Subject: "me"})
		checkEqual(t, "connection", keyName(conn.key), "call me 0")
		release()
	})
}

// A5: before the first handshake, a client that the server could ask waits, and no other does.
func TestAcquireWaitsForTheHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t)
		p.on(mcp.Initialize, func(m receivedMessage) string {
			m.delay(2 * time.Second)
			return initializeResult
		})
		server, _ := p.newServer()
		_, _, err := server.Acquire(t.Context(), Caller{Client: clientWith("roots")})
		checkEqual(t, "before the start", fault.KindOf(err), fault.Unavailable)
		server.Start()
		began := time.Now()
		conn, _ := mustAcquire(t, server, Caller{Client: clientWith()})
		checkEqual(t, "shared", conn.IsShared(), true)
		checkEqual(t, "waited", time.Since(began), 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err = server.Acquire(ctx, Caller{Client: clientWith("roots")})
		checkEqual(t, "not met in time", fault.KindOf(err), fault.Timeout)
		conn, release := mustAcquire(t, server, Caller{Client: clientWith("roots"), Subject: "me"})
		checkEqual(t, "own", keyName(conn.key), "call me 0")
		checkEqual(t, "waited", time.Since(began), 2*time.Second)
		release()
		server.Close()
		_, _, err = server.Acquire(t.Context(), Caller{})
		checkEqual(t, "afterwards", fault.KindOf(err), fault.Unavailable)
		server.Start()
	})
}

// A5: no connection is up before the server's protocol is known, which decides who may use it.
func TestHandshakeIsKnownBeforeConnIsUp(t *testing.T) {
	server, _ := newFakeServer(t).newServer()
	conn := &ManagedConn{server: server, changed: make(chan struct{})}
	up := make(chan struct{})
	server.mu.Lock()
	go func() {
		conn.setUp(newTestConn(time.Minute).Conn)
		close(up)
	}()
	time.Sleep(20 * time.Millisecond)
	checkEqual(t, "connection", conn.CurrentConn(), nil)
	server.mu.Unlock()
	<-up
	checkEqual(t, "protocol", server.knownProtocol(), mcp.Legacy)
}

// A5: a server request on a shared stream reaches the client of a connection of its own, and none on a shared connection.
func TestServerRequestsByConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		shared, singleClient bool
		wantPeer             string
	}{
		"own connection": {wantPeer: "call"},
		"shared by all":  {shared: true, wantPeer: ""},
		"one client":     {singleClient: true, wantPeer: "call"},
		"one and shared": {singleClient: true, shared: true, wantPeer: "call"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, answer := newFakeServer(t), make(chan receivedMessage, 1)
				p.on("", func(m receivedMessage) string {
					answer <- m
					return noReply
				})
				p.on(mcp.ToolsCall, func(receivedMessage) string {
					p.sendEvent(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
					if m := <-answer; m.Error != nil {
						return `"result":{"error":` + string(m.Error) + `}`
					}
					return `"result":"call"`
				})
				server, _ := p.newServer(func(_ *Config, s *ServerConfig) { s.Shared = &tt.shared })
				if tt.singleClient {
					server.StartForClient(clientWith("roots"), &fakePeer{})
				} else {
					server.Start()
				}
				conn, release := mustAcquire(t, server, Caller{Client: clientWith("roots"), Subject: "me"})
				defer release()
				m, err := conn.Call(t.Context(), newCall(mcp.ToolsCall, ``, forPeer(&fakePeer{reply: resultReply(`{"roots":[]}`)}, clientWith("roots"))))
				if err != nil {
					t.Fatal(err)
				}
				if got := string(m.Result.Of(m.Body)); tt.wantPeer != "" && got != `"call"` || tt.wantPeer == "" && !strings.Contains(got, "-32601") {
					t.Errorf("the server was answered %s", got)
				}
			})
		})
	}
}

// A15: Shutdown waits for the calls in flight, at most for grace. Listen streams do not count.
func TestShutdown(t *testing.T) {
	for name, tt := range map[string]struct {
		call, took time.Duration
		want       string
	}{
		"short": {time.Second, time.Second, `{"n":1}`},
		"long":  {time.Minute, 10 * time.Second, "unavailable: the server is being stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newFakeServer(t).makeModern()
				p.on(mcp.ToolsCall, func(m receivedMessage) string {
					m.delay(tt.call)
					return `"result":{"n":1}`
				})
				server, _ := p.newServer()
				server.Start()
				done := make(chan callResult, 1)
				go func() { done <- callTool(t.Context(), server.SharedConn()) }()
				synctest.Wait()
				checkEqual(t, "streams", len(p.paramsOf(mcp.SubscriptionsListen)), 1)
				began := time.Now()
				server.Shutdown(10 * time.Second)
				if took := time.Since(began); took < tt.took || took > tt.took+100*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				checkEqual(t, "call", (<-done).String(), tt.want)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		server, _ := newFakeServer(t).newServer()
		server.Start()
		callTool(t.Context(), server.SharedConn())
		conn, release := mustAcquire(t, server, Caller{Client: clientWith("roots"), Subject: "me"})
		callTool(t.Context(), conn)
		began := time.Now()
		time.AfterFunc(time.Minute, release)
		server.Shutdown(time.Hour)
		if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("with an acquired connection it took %v", took)
		}
		began = time.Now()
		server.Shutdown(time.Hour)
		checkEqual(t, "an idle one takes", time.Since(began), 0)
	})
}

// Eviction runs while connections are in use (for the race detector).
func TestConcurrentEviction(t *testing.T) {
	server := newConnectedServer(t, mcp.Legacy, withMaxConns(3))
	gone, leave := context.WithCancel(t.Context())
	leave()
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range 200 {
				conn, release, err := server.Acquire(t.Context(), Caller{Client: clientWith("roots"), Subject: fmt.Sprint(n, i/10)})
				if err != nil {
					checkEqual(t, "refused", fault.KindOf(err), fault.Full)
					continue
				}
				_, _ = conn.AwaitConn(gone)
				release()
			}
		})
	}
	wg.Wait()
}
