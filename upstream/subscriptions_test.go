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
	"github.com/ctxgate/ctxgate/mcp"
)

// mustSubscribe subscribes, which must succeed.
func mustSubscribe(t *testing.T, conn *ManagedConn, uris ...string) {
	t.Helper()
	for _, uri := range uris {
		if err := conn.Subscribe(t.Context(), uri); err != nil {
			t.Fatal(err)
		}
	}
}

func mustUnsubscribe(t *testing.T, conn *ManagedConn, uris ...string) {
	t.Helper()
	for _, uri := range uris {
		if err := conn.Unsubscribe(t.Context(), uri); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
}

// A4: the server gets one subscription per resource, however many clients subscribe, until the last one unsubscribes.
func TestSharedSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t)
		conn, e := p.startShared()
		mustSubscribe(t, conn, "u", "u", "v", "u")
		checkEqual(t, "subscribed", fmt.Sprint(p.paramsOf(mcp.ResourcesSubscribe)), `[{"uri":"u"} {"uri":"v"}]`)
		p.sendEvent(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"u"}}`)
		synctest.Wait()
		checkEqual(t, "events", strings.Join(e.notifications, " "), `updated {"uri":"u"}`)
		mustUnsubscribe(t, conn, "u", "u")
		checkEqual(t, "given up", len(p.paramsOf(mcp.ResourcesUnsubscribe)), 0)
		mustUnsubscribe(t, conn, "u", "u", "none")
		checkEqual(t, "given up in the end", fmt.Sprint(p.paramsOf(mcp.ResourcesUnsubscribe)), `[{"uri":"u"}]`)
		mustSubscribe(t, conn, "u")
		checkEqual(t, "subscribed again", len(p.paramsOf(mcp.ResourcesSubscribe)), 3)
	})
}

// A4: subscriptions are restored after a reconnect, also on a connection of one client, which would not reconnect otherwise.
func TestSubscriptionsAreRestored(t *testing.T) {
	for name, key := range map[string]connKey{"shared": {}, "of one client": {class: "c", kind: perSession, owner: "s"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newFakeServer(t)
				server, _ := p.newServer()
				conn := newManagedConn(server, key, mcp.Client{}, nil)
				defer conn.Close()
				mustSubscribe(t, conn, "v", "u", "gone")
				mustUnsubscribe(t, conn, "gone")
				if _, err := conn.Call(t.Context(), newCall(mcp.ToolsCall, ``, func(c *Call) { c.LogLevel = "info" })); err != nil {
					t.Fatal(err)
				}
				p.closeStream()
				time.Sleep(time.Second)
				checkEqual(t, "subscribed", fmt.Sprint(p.paramsOf(mcp.ResourcesSubscribe)[3:]), `[{"uri":"u"} {"uri":"v"}]`)
				checkEqual(t, "levels", fmt.Sprint(p.paramsOf(mcp.LoggingSetLevel)), `[{"level":"info"} {"level":"info"}]`)
				p.setDown(true)
				p.closeStream()
				synctest.Wait()
				mustUnsubscribe(t, conn, "u", "v") // of a server that is away
				checkEqual(t, "given up", len(p.paramsOf(mcp.ResourcesUnsubscribe)), 1)
				p.setDown(false)
				time.Sleep(maxBackoff)
				checkEqual(t, "subscribed in the end", len(p.paramsOf(mcp.ResourcesSubscribe)), 5)
			})
		})
	}
}

// A4: a refused subscription does not count, and the next one is sent to the server again.
func TestRefusedSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t).on(mcp.ResourcesSubscribe, respond(`"error":{"code":-32002,"message":"no such resource"}`))
		conn, _ := p.startShared()
		for range 2 {
			err := conn.Subscribe(t.Context(), "u")
			if fault.KindOf(err) != fault.BadReply || !strings.Contains(err.Error(), "no such resource") {
				t.Errorf("got %v", err)
			}
		}
		checkEqual(t, "asked", len(p.paramsOf(mcp.ResourcesSubscribe)), 2)
		checkEqual(t, "wanted", len(conn.wanted.uris), 0)
		p.setDown(true)
		p.closeStream()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := conn.Subscribe(ctx, "u"); fault.KindOf(err) == fault.Internal {
			t.Errorf("got %v", err)
		}
		checkEqual(t, "wanted of a server that is away", len(conn.wanted.uris), 0)
	})
}

// listenFilters are the filters of the listen streams so far.
func (p *fakeServer) listenFilters() string {
	var out []string
	for _, params := range p.paramsOf(mcp.SubscriptionsListen) {
		filter, _, _ := strings.Cut(strings.TrimPrefix(params, `{"notifications":`), `,"_meta"`)
		out = append(out, filter)
	}
	return strings.Join(out, "\n")
}

// A13: a modern server has one listen stream, which is replaced at each new subscription and after every reconnect.
func TestListenStream(t *testing.T) {
	const lists = `{"toolsListChanged":true,"resourcesListChanged":true`
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t).makeModern()
		conn, e := p.startShared()
		synctest.Wait()
		mustSubscribe(t, conn, "v", "u", "v")
		mustUnsubscribe(t, conn, "v")
		checkEqual(t, "streams", p.listenFilters(), lists+"}\n"+lists+`,"resourceSubscriptions":["v"]}`+"\n"+lists+`,"resourceSubscriptions":["u","v"]}`)
		mustUnsubscribe(t, conn, "v")
		checkEqual(t, "the last of them", p.listenFilters()[strings.LastIndexByte(p.listenFilters(), '\n')+1:], lists+`,"resourceSubscriptions":["u"]}`)
		checkEqual(t, "open streams", conn.conn.streamCount.Load(), 1)
		checkEqual(t, "old requests", len(p.paramsOf(mcp.ResourcesSubscribe))+len(p.paramsOf(mcp.ResourcesUnsubscribe)), 0)
		p.sendEvent(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"u"}}`)
		synctest.Wait()
		checkEqual(t, "events", strings.Join(e.notifications, " "), `updated {"uri":"u"}`)

		n := len(p.paramsOf(mcp.SubscriptionsListen))
		p.closeStream() // a stream that ends is opened again, a little later each time
		time.Sleep(minBackoff)
		synctest.Wait()
		checkEqual(t, "streams after an end", len(p.paramsOf(mcp.SubscriptionsListen)), n+1)
		p.closeStream()
		time.Sleep(minBackoff)
		checkEqual(t, "streams too early", len(p.paramsOf(mcp.SubscriptionsListen)), n+1)
		time.Sleep(minBackoff)
		synctest.Wait()
		checkEqual(t, "streams after another", len(p.paramsOf(mcp.SubscriptionsListen)), n+2)

		conn.conn.end(fault.New(fault.Unavailable, "x"))
		time.Sleep(minBackoff)
		synctest.Wait()
		checkEqual(t, "streams after a reconnection", p.listenFilters()[strings.LastIndexByte(p.listenFilters(), '\n')+1:], lists+`,"resourceSubscriptions":["u"]}`)
	})
}

// A13: a server that refuses the listen stream is not asked again; one that declares no changes is not asked at all.
func TestListenNotOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t).makeModern().on(mcp.SubscriptionsListen, respond(methodNotFound))
		p.startShared()
		time.Sleep(time.Hour)
		checkEqual(t, "asked", len(p.paramsOf(mcp.SubscriptionsListen)), 1)

		q := newFakeServer(t).makeModern().on(mcp.ServerDiscover, respond(`"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`))
		q.startShared()
		time.Sleep(time.Hour)
		checkEqual(t, "asked then", len(q.paramsOf(mcp.SubscriptionsListen)), 0)
	})
}

// A13: after concurrent subscriptions, the stream that stays has all of them.
func TestConcurrentSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t).makeModern()
		conn, _ := p.startShared()
		var wg sync.WaitGroup
		for n := range 8 {
			wg.Go(func() { mustSubscribe(t, conn, fmt.Sprint("u", n)) })
		}
		wg.Wait()
		synctest.Wait()
		checkEqual(t, "the last", p.listenFilters()[strings.LastIndexByte(p.listenFilters(), '\n')+1:],
			`{"toolsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["u0","u1","u2","u3","u4","u5","u6","u7"]}`)
		checkEqual(t, "open streams", conn.conn.streamCount.Load(), 1)
	})
}

// A13: a subscription during a reconnect does not close the stream of the new connection, and is part of it.
func TestSubscribeDuringReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t).makeModern()
		conn, _ := p.startShared()
		old, err := conn.AwaitConn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		old.end(fault.New(fault.Unavailable, "x"))
		time.Sleep(minBackoff)
		synctest.Wait()
		conn.mu.Lock()
		conn.wanted.uris = map[string]int{"u": 1} // as Subscribe does that was given the old connection
		conn.mu.Unlock()
		conn.restoreSubscriptions(old, []string{"u"}, "")
		synctest.Wait()
		checkEqual(t, "open streams", conn.conn.streamCount.Load(), 1)
		if got := p.listenFilters(); !strings.HasSuffix(got, `"resourceSubscriptions":["u"]}`) {
			t.Errorf("streams: %s", got)
		}
	})
}

// A4: the log level is lowered and never raised, and only where the server has the logging capability.
func TestLogLevelIsOnlyLowered(t *testing.T) {
	call := func(t *testing.T, conn *ManagedConn, level string) {
		if _, err := conn.Call(t.Context(), newCall(mcp.ToolsCall, ``, func(c *Call) { c.LogLevel = level })); err != nil {
			t.Error(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		p := newFakeServer(t)
		conn, _ := p.startShared()
		for _, level := range []string{"", "warning", "error", "warning", "info", "emergency", "debug", "info"} {
			call(t, conn, level)
		}
		checkEqual(t, "levels", fmt.Sprint(p.paramsOf(mcp.LoggingSetLevel)), `[{"level":"warning"} {"level":"info"} {"level":"debug"}]`)

		withoutLogging := newFakeServer(t).on(mcp.Initialize, respond(`"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}`))
		conn, _ = withoutLogging.startShared()
		call(t, conn, "debug")
		checkEqual(t, "levels of one without", len(withoutLogging.paramsOf(mcp.LoggingSetLevel)), 0)

		modern := newFakeServer(t).makeModern()
		conn, _ = modern.startShared()
		call(t, conn, "debug")
		checkEqual(t, "levels sent to a modern server", len(modern.paramsOf(mcp.LoggingSetLevel)), 0)
		if got := modern.paramsOf(mcp.ToolsCall)[0]; !strings.Contains(got, `"io.modelcontextprotocol/logLevel":"debug"`) {
			t.Errorf("called with %s", got)
		}
	})
}
