package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/mcp"
)

// A2: a lost connection is opened again. The call in flight fails and is not made again; the next one waits for the new
// connection.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t)
		conn, e := p.startShared()
		checkEqual(t, "first", callTool(t.Context(), conn).String(), `{}`)
		p.on(mcp.ToolsCall, func(receivedMessage) string {
			p.closeStream()
			return noReply
		})
		checkEqual(t, "in flight", callTool(t.Context(), conn).String(), "unavailable: the server went away during the call")
		p.on(mcp.ToolsCall, nil)
		began := time.Now()
		checkEqual(t, "next", callTool(t.Context(), conn).String(), `{}`)
		if took := time.Since(began); took < minBackoff/2 || took > minBackoff {
			t.Errorf("it came back after %v", took)
		}
		checkEqual(t, "turns", e.states(), "up down up")
		checkEqual(t, "calls", len(p.paramsOf(mcp.ToolsCall)), 3)
		checkEqual(t, "lost", len(e.lostConns()), 1)
		handshake, up := conn.Handshake()
		checkEqual(t, "up", up, true)
		checkEqual(t, "revision", handshake.Version, mcp.V20250618)
	})
}

// A2, A11: the backoff doubles with every failure in a row up to its limit, and has jitter.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := newFakeServer(t), newFakeServer(t)
		p.setDown(true)
		other.setDown(true)
		_, e := p.startShared()
		other.startShared()
		time.Sleep(10 * time.Minute)
		tries, others := p.connectTimes(), other.connectTimes()
		if len(tries) < 20 || len(others) < 20 {
			t.Fatalf("they were tried %d and %d times", len(tries), len(others))
		}
		differ := 0
		for i := range 16 {
			pause := min(minBackoff<<i, maxBackoff)
			gap := tries[i+1].Sub(tries[i])
			if gap < pause/2 || gap > pause {
				t.Errorf("pause %d was %v, want %v to %v", i+1, gap, pause/2, pause)
			}
			if gap != others[i+1].Sub(others[i]) {
				differ++
			}
		}
		if differ < 10 {
			t.Errorf("of 16 pauses of two servers only %d differ", differ)
		}
		checkEqual(t, "turns", e.states(), "down")
		checkEqual(t, "counted", len(e.lostConns()), len(tries))
		checkEqual(t, "why", fault.KindOf(e.lostConns()[0]), fault.Unavailable)
	})
}

// A2: calls that wait for a failing server fail at its fifth failure in a row, and later calls at once. Attempts go on, and
// the first that succeeds closes the breaker.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refused = "unavailable: the server is not available"
		p := newFakeServer(t)
		p.setDown(true)
		conn, e := p.startShared()
		checkEqual(t, "waiting call", callTool(t.Context(), conn).String(), refused)
		checkEqual(t, "attempts", len(e.lostConns()), breakerThreshold)
		for range 100 {
			began := time.Now()
			checkEqual(t, "at once", callTool(t.Context(), conn).String(), refused)
			checkEqual(t, "waited", time.Since(began), 0)
		}
		time.Sleep(10 * time.Second)
		checkEqual(t, "still", callTool(t.Context(), conn).String(), refused)
		p.setDown(false)
		time.Sleep(maxBackoff)
		checkEqual(t, "again", callTool(t.Context(), conn).String(), `{}`)
		checkEqual(t, "turns", e.states(), "down up")
		p.closeStream() // one failure after a while is one failure, and no reason to refuse
		synctest.Wait()
		checkEqual(t, "after another", callTool(t.Context(), conn).String(), `{}`)
	})
}

// A2: a remote server that closes its connections at once has not failed: it forgets sessions.
func TestRemoteServerThatClosesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t)
		conn, e := p.startShared()
		for range 2 * breakerThreshold {
			if _, err := conn.AwaitConn(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.closeStream()
			synctest.Wait()
		}
		checkEqual(t, "lost", len(e.lostConns()), 2*breakerThreshold)
		checkEqual(t, "failures in a row", conn.failureCount, 1)
	})
}

// A2: while calls come, a failing server is tried again within five seconds, however often it has failed; without calls, the
// backoff applies again.
func TestDemandShortensBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t)
		p.setDown(true)
		conn, _ := p.startShared()
		time.Sleep(10 * time.Minute)
		for range 5 {
			before := p.connectCount()
			callTool(t.Context(), conn)
			time.Sleep(maxDemandBackoff)
			if p.connectCount() == before {
				t.Errorf("it was not tried in time")
			}
		}
		before := p.connectCount()
		time.Sleep(10 * time.Minute)
		if n := p.connectCount() - before; n > 1+int(10*time.Minute/(maxBackoff/2)) {
			t.Errorf("without calls it was tried %d times", n)
		}
	})
}

// A2: a child that ends at once counts as a failure each time; one that lasted resets the count.
func TestFailureCountAndBackoff(t *testing.T) {
	p := newFakeServer(t)
	server, _ := p.newServer()
	conn := &ManagedConn{server: server, changed: make(chan struct{})}
	for n := range 7 {
		conn.setDown(errors.New("it ended"), false)
		checkEqual(t, "failures", conn.failureCount, n+1)
	}
	conn.setDown(errors.New("it ended"), true)
	checkEqual(t, "failures after a steady time", conn.failureCount, 1)
	for failures, longest := range map[int]time.Duration{0: minBackoff, 1: minBackoff, 4: 8 * minBackoff, 9: 256 * minBackoff, 10: maxBackoff, 99: maxBackoff} {
		conn.failureCount = failures
		for range 50 {
			if d := conn.backoff(); d < longest/2 || d > longest {
				t.Errorf("after %d failures it pauses %v, want %v to %v", failures, d, longest/2, longest)
			}
		}
	}
}

// A2: at most 64 calls wait for a server to come up. The next is refused at once; those that wait are served.
func TestMaxWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t)
		p.on(mcp.Initialize, func(m receivedMessage) string {
			m.delay(3 * time.Second)
			return initializeResult
		})
		conn, _ := p.startShared()
		var wg sync.WaitGroup
		for range maxWaitingCalls {
			wg.Go(func() { checkEqual(t, "waited", callTool(t.Context(), conn).String(), `{}`) })
		}
		synctest.Wait()
		began := time.Now()
		checkEqual(t, "one more", callTool(t.Context(), conn).String(), "full: too many calls wait for this server")
		checkEqual(t, "waited", time.Since(began), 0)
		checkEqual(t, "calling", conn.hasCalls(), true)
		wg.Wait()
		checkEqual(t, "waiting in the end", conn.waitingCalls, 0)
		checkEqual(t, "calling in the end", conn.hasCalls(), false)
		checkEqual(t, "one more", callTool(t.Context(), conn).String(), `{}`)
	})
}

// A2: how waiting for a server that does not come up ends.
func TestAwaitConnErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(context.Context, *ManagedConn) (context.Context, context.CancelFunc)
		want string
		took time.Duration
	}{
		"in time": {func(ctx context.Context, _ *ManagedConn) (context.Context, context.CancelFunc) {
			return context.WithCancel(ctx)
		},
			"timeout: the server did not start in time", 4 * time.Second},
		"left": {func(ctx context.Context, _ *ManagedConn) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, "canceled: the client left", time.Second},
		"stopped": {func(ctx context.Context, conn *ManagedConn) (context.Context, context.CancelFunc) {
			time.AfterFunc(time.Second, conn.Close)
			return context.WithCancel(ctx)
		}, "unavailable: the server is being stopped", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, _ := newFakeServer(t).on(mcp.Initialize, respond(noReply)).startShared(func(_ *Config, s *ServerConfig) { s.StartupTimeout = 4e9 })
				began := time.Now()
				ctx, cancel := tt.end(t.Context(), conn)
				defer cancel()
				checkEqual(t, "call", callTool(ctx, conn).String(), tt.want)
				checkEqual(t, "took", time.Since(began), tt.took)
				checkEqual(t, "waiting", conn.waitingCalls, 0)
				checkEqual(t, "note", fault.KindOf(conn.Notify("x", nil)), fault.Unavailable)
			})
		})
	}
}

// FirstAttemptDone is closed when the server is up or has failed once.
func TestFirstAttemptDone(t *testing.T) {
	settled := func(conn *ManagedConn) bool {
		synctest.Wait()
		select {
		case <-conn.FirstAttemptDone():
			return true
		default:
			return false
		}
	}
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t).on(mcp.Initialize, func(m receivedMessage) string {
			m.delay(time.Second)
			return initializeResult
		})
		conn, _ := p.startShared()
		early := conn.FirstAttemptDone()
		checkEqual(t, "on its way", settled(conn), false)
		checkEqual(t, "so the server", conn.server.HasAttempted(), false)
		conn.server.AwaitFirstAttempt(nil)
		<-early
		checkEqual(t, "up", settled(conn), true)
		checkEqual(t, "so the server", conn.server.HasAttempted(), true)
		p.closeStream()
		checkEqual(t, "down again", settled(conn), true)

		q := newFakeServer(t)
		q.setDown(true)
		conn, _ = q.startShared()
		checkEqual(t, "failed once", settled(conn), true)

		server, _ := q.newServer()
		checkEqual(t, "not started", server.HasAttempted(), true)
		server.AwaitFirstAttempt(nil)
		slow, closing := newFakeServer(t).on(mcp.Initialize, respond(noReply)), make(chan struct{})
		conn, _ = slow.startShared()
		began := time.Now()
		time.AfterFunc(time.Second, func() { close(closing) })
		conn.server.AwaitFirstAttempt(closing)
		checkEqual(t, "waited", time.Since(began), time.Second)
	})
}

// A11: a probe that is not answered in time restarts the server; any answer is a sign of life.
func TestHealthProbe(t *testing.T) {
	for name, tt := range map[string]struct {
		answer handler
		lost   string // "" when the server is left alone
	}{
		"answered": {respond(`"result":{}`), ""},
		"refused":  {respond(methodNotFound), ""},
		"silent":   {respond(noReply), "the health probe failed: the server did not answer in time: context deadline exceeded"},
		"changed":  {respond(`"error":{"code":-32022,"message":"m"}`), "the health probe failed: the server refused ping: code -32022: m"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newFakeServer(t)
				p.on(mcp.Ping, func(m receivedMessage) string {
					if m.stream == 0 {
						return tt.answer(m)
					}
					return `"result":{}`
				})
				conn, e := p.startShared(withProbes(30*time.Second, 5*time.Second))
				time.Sleep(34 * time.Second)
				checkEqual(t, "probes", len(p.paramsOf(mcp.Ping)), 1)
				time.Sleep(2 * time.Second)
				checkEqual(t, "up", callTool(t.Context(), conn).String(), `{}`)
				if tt.lost == "" {
					checkEqual(t, "lost", len(e.lostConns()), 0)
					return
				}
				checkEqual(t, "lost", fmt.Sprint(e.lostConns()), "["+tt.lost+"]")
				checkEqual(t, "turns", e.states(), "up down up")
			})
		})
	}
}

// A11: a modern server is probed with server/discover, which it must answer.
func TestHealthProbeOfModernServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t).makeModern()
		conn, e := p.startShared(withProbes(30*time.Second, 5*time.Second))
		time.Sleep(91 * time.Second)
		checkEqual(t, "server requests", len(p.paramsOf(mcp.ServerDiscover)), 1+3)
		checkEqual(t, "lost", len(e.lostConns()), 0)
		p.on(mcp.ServerDiscover, respond(`"error":{"code":1,"message":"m"}`)).on(mcp.Initialize, respond(initializeResult))
		time.Sleep(31 * time.Second)
		checkEqual(t, "lost then", fmt.Sprint(e.lostConns()), "[the health probe failed: the server refused server/discover: code 1: m]")
		handshake, up := conn.Handshake()
		checkEqual(t, "up", up, true)
		checkEqual(t, "protocol", handshake.Protocol, mcp.Legacy)
	})
}

// A2: a call to a server that forgets every session is sent at most three times.
func TestCallRestartsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t)
		p.http = true
		forgets := 2
		p.on(mcp.ToolsCall, func(receivedMessage) string {
			if forgets--; forgets >= 0 {
				return "404"
			}
			return `"result":{"n":1}`
		})
		conn, _ := p.startShared()
		checkEqual(t, "twice", callTool(t.Context(), conn).String(), `{"n":1}`)
		checkEqual(t, "sent", len(p.paramsOf(mcp.ToolsCall)), 3)
		forgets = 1 << 20
		checkEqual(t, "ever", callTool(t.Context(), conn).String(), "unavailable: the server forgot the session")
		checkEqual(t, "sent then", len(p.paramsOf(mcp.ToolsCall)), 6)
	})
}

// A13: two replies in a row that only a server of the other protocol sends trigger a probe. A single one does not.
func TestMismatchedRepliesTriggerProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mismatched, good = `"error":{"code":-32022,"message":"m"}`, `"result":{}`
		p := newFakeServer(t)
		conn, e := p.startShared()
		for _, answer := range []string{mismatched, good, mismatched, good, methodNotFound, mismatched} {
			p.on(mcp.ToolsCall, respond(answer))
			callTool(t.Context(), conn)
			synctest.Wait()
		}
		checkEqual(t, "probes after one mismatched reply", len(p.paramsOf(mcp.Ping)), 0)
		callTool(t.Context(), conn)
		synctest.Wait()
		checkEqual(t, "probes after two", len(p.paramsOf(mcp.Ping)), 1)
		checkEqual(t, "lost to a good probe", len(e.lostConns()), 0)

		p.on(mcp.Ping, respond(mismatched))
		callTool(t.Context(), conn)
		synctest.Wait()
		checkEqual(t, "lost", fmt.Sprint(e.lostConns()), "[the server changed: the server refused ping: code -32022: m]")
		checkEqual(t, "protocol", conn.server.knownProtocol(), 0)
		time.Sleep(minBackoff)
		checkEqual(t, "protocol after the next handshake", conn.server.knownProtocol(), mcp.Legacy)
	})
}

// A13: malformed replies count as those of the other protocol.
func TestMalformedRepliesTriggerProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t)
		p.http = true
		p.on(mcp.ToolsCall, respond(`"unknown":1`))
		conn, _ := p.startShared()
		for range 2 {
			checkEqual(t, "kind", fault.KindOf(callTool(t.Context(), conn).err), fault.BadReply)
		}
		synctest.Wait()
		checkEqual(t, "probes", len(p.paramsOf(mcp.Ping)), 1)
	})
}

// The connection of one client is opened at its first call, and again only at another call.
func TestClientConnOpensOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t)
		p.on(mcp.Initialize, func(m receivedMessage) string {
			m.delay(time.Second)
			return initializeResult
		})
		server, e := p.newServer()
		conn := newManagedConn(server, connKey{class: "c", kind: perSession, owner: "s"}, clientWith("roots"), nil)
		defer conn.Close()
		time.Sleep(time.Hour)
		checkEqual(t, "connections", p.connectCount(), 0)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { checkEqual(t, "call", callTool(t.Context(), conn).String(), `{}`) })
			synctest.Wait()
		}
		wg.Wait()
		checkEqual(t, "handshake", p.paramsOf(mcp.Initialize)[0],
			`{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"ctxgate","version":"1"}}`)
		p.closeStream()
		time.Sleep(time.Hour)
		checkEqual(t, "connections after it was lost", p.connectCount(), 1)
		checkEqual(t, "turns", e.states(), "up down")
		checkEqual(t, "call", callTool(t.Context(), conn).String(), `{}`)
		checkEqual(t, "connections", p.connectCount(), 2)
		checkEqual(t, "class", conn.ClientClass(), "c")
		checkEqual(t, "shared", conn.IsShared(), false)
		checkEqual(t, "server", conn.ServerID()+" "+conn.Server().ID()+" "+conn.Server().Config().ID, "a a a")
	})
}

// Close ends calls in flight and leaves nothing: synctest would fail if a goroutine were left.
func TestCloseManagedConn(t *testing.T) {
	for name, tt := range map[string]struct {
		set  func(*fakeServer)
		want string
	}{
		"in flight": {func(p *fakeServer) { p.on(mcp.ToolsCall, respond(noReply)) }, "unavailable: the server is being stopped"},
		"handshake": {func(p *fakeServer) { p.on(mcp.Initialize, respond(noReply)) }, "unavailable: the server is being stopped"},
		"pausing":   {func(p *fakeServer) { p.setDown(true) }, "unavailable: the server is being stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newFakeServer(t)
				tt.set(p)
				conn, e := p.startShared()
				done := make(chan callResult, 1)
				go func() { done <- callTool(t.Context(), conn) }()
				synctest.Wait()
				conn.Close()
				checkEqual(t, "call", (<-done).String(), tt.want)
				checkEqual(t, "afterwards", callTool(t.Context(), conn).String(), "unavailable: the server is being stopped")
				if strings.Contains(e.states(), "up down") {
					t.Error("a requested end was counted as a failure")
				}
			})
		})
	}
}

// A7: notifications outside any call reach the event handler, by their kind.
func TestEventHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t)
		conn, e := p.startShared()
		callTool(t.Context(), conn)
		for _, method := range []string{
			mcp.NotifyToolsChanged, mcp.NotifyPromptsChanged, mcp.NotifyResourcesChanged, mcp.NotifyResourceUpdated, mcp.NotifyMessage, "notifications/odd", mcp.NotifySubscriptionsAcknowledged,
		} {
			p.sendEvent(`{"jsonrpc":"2.0","method":"` + method + `","params":{}}`)
		}
		synctest.Wait()
		checkEqual(t, "events", strings.Join(e.notifications, ", "), "changed {}, changed {}, changed {}, updated {}, notified {}, notified {}")
		if err := conn.Notify("notifications/roots/list_changed", []byte(`{"a":1}`)); err != nil {
			t.Error(err)
		}
		checkEqual(t, "sent", strings.Join(p.paramsOf(mcp.NotifyRootsChanged), " "), `{"a":1}`)
	})
}
