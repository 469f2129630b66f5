package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

const (
	noMethod = `{"jsonrpc":"2.0","id":"q","error":{"code":-32601,"message":"Method not found"}}`
	fine     = `{"jsonrpc":"2.0","id":"q","result":{"ok":true}}`
)

// requestFromServer receives a server request, on the stream of a call if from is set, and returns the answer.
func (c testConn) requestFromServer(method string, from *inflight) string {
	c.handleMessage([]byte(`{"jsonrpc":"2.0","id":"q","method":"`+method+`","params":{}}`), from)
	synctest.Wait()
	return c.wire.lastSent()
}

// Server requests that no client gets.
func TestServerRequestsAnsweredByTheGateway(t *testing.T) {
	for method, answer := range map[string]string{
		mcp.Ping:      `{"jsonrpc":"2.0","id":"q","result":{}}`,
		mcp.ToolsList: noMethod,
		"x/unheard":   noMethod,
		mcp.RootsList: noMethod, // without a client
	} {
		synctest.Test(t, func(t *testing.T) {
			checkEqual(t, method, newTestConn(time.Minute).requestFromServer(method, nil), answer)
		})
	}
}

// A5: which client gets a server request. On a call's own stream it is that call's; on a connection of one client the one of
// the newest call that can answer it, or else the owner; on a shared connection none.
func TestServerRequestReachesTheRightClient(t *testing.T) {
	type calls []mcp.Client
	for name, tt := range map[string]struct {
		singleClient bool
		owner        bool
		calls        calls // the client of each call, in order
		from         int64 // the call on whose stream the server request comes; 0 for none
		wantPeer     string
	}{
		"the newest call":                 {singleClient: true, calls: calls{clientWith("roots"), clientWith("roots")}, wantPeer: "call 2"},
		"the newest that can":             {singleClient: true, calls: calls{clientWith("roots"), clientWith("sampling")}, wantPeer: "call 1"},
		"the newest before the owner":     {singleClient: true, owner: true, calls: calls{clientWith("roots")}, wantPeer: "call 1"},
		"none that can":                   {singleClient: true, calls: calls{clientWith("sampling"), clientWith()}, wantPeer: ""},
		"the owner outside calls":         {singleClient: true, owner: true, wantPeer: "owner"},
		"the owner for one that cannot":   {singleClient: true, owner: true, calls: calls{clientWith()}, wantPeer: "owner"},
		"shared connection":               {calls: calls{clientWith("roots")}, wantPeer: ""},
		"shared connection without calls": {wantPeer: ""},
		"by stream":                       {singleClient: true, calls: calls{clientWith("roots"), clientWith("roots")}, from: 1, wantPeer: "call 1"},
		"by stream of a shared one":       {calls: calls{clientWith("roots"), clientWith("roots")}, from: 1, wantPeer: "call 1"},
		"by stream of one that cannot":    {calls: calls{clientWith("sampling"), clientWith("roots")}, from: 1, wantPeer: ""},
		"by stream, then not the newest":  {singleClient: true, owner: true, calls: calls{clientWith(), clientWith("roots")}, from: 1, wantPeer: "owner"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, answered := newTestConn(time.Minute), ""
				c.singleClient = tt.singleClient
				newPeer := func(name string) *fakePeer {
					return &fakePeer{reply: func(ctx context.Context, q rpc.Message) (rpc.Reply, error) {
						answered += name
						return resultReply(`{"ok":true}`)(ctx, q)
					}}
				}
				if tt.owner {
					c.owner = newPeer("owner")
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for i, client := range tt.calls {
					c.beginCall(ctx, newCall(mcp.ToolsCall, ``, forPeer(newPeer("call "+string('1'+rune(i))), client)))
				}
				reply := c.requestFromServer(mcp.RootsList, c.inflightCall(tt.from))
				checkEqual(t, "asked", answered, tt.wantPeer)
				if tt.wantPeer == "" {
					checkEqual(t, "reply", reply, noMethod)
				} else {
					checkEqual(t, "reply", reply, fine)
				}
			})
		})
	}
}

// A5: a call that has its reply gets no server requests.
func TestServerRequestAfterTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, old, now := newTestConn(time.Minute), &fakePeer{reply: resultReply(`{"ok":false}`)}, &fakePeer{reply: resultReply(`{"ok":true}`)}
		c.singleClient = true
		done := c.beginCall(t.Context(), newCall(mcp.ToolsCall, ``, forPeer(now, clientWith("roots"))))
		c.beginCall(t.Context(), newCall(mcp.ToolsCall, ``, forPeer(old, clientWith("roots"))))
		c.receiveReply(2)
		synctest.Wait()
		checkEqual(t, "reply", c.requestFromServer(mcp.RootsList, nil), fine)
		c.receiveReply(1)
		<-done
		checkEqual(t, "reply in the end", c.requestFromServer(mcp.RootsList, nil), noMethod)
	})
}

// A5: the client's reply goes back unchanged, also an error. A failure on the way is an error without private details.
func TestRepliesToServerRequests(t *testing.T) {
	refused := []byte(`{"jsonrpc":"2.0","id":9,"error":{"code":-1,"message":"User rejected","data":[1.50]}}`)
	for name, tt := range map[string]struct {
		reply func(context.Context, rpc.Message) (rpc.Reply, error)
		want  string
	}{
		"result": {resultReply(`{ "n" : 1.50 }`), `{"jsonrpc":"2.0","id":"q","result":{ "n" : 1.50 }}`},
		"error": {func(context.Context, rpc.Message) (rpc.Reply, error) { return rpc.ParseReply(refused, 64, 4000) },
			`{"jsonrpc":"2.0","id":"q","error":{"code":-1,"message":"User rejected","data":[1.50]}}`},
		"failure": {func(context.Context, rpc.Message) (rpc.Reply, error) {
			return rpc.Reply{}, fault.Wrap(fault.Timeout, "the client did not answer", errors.New("private"))
		}, `{"jsonrpc":"2.0","id":"q","error":{"code":-32603,"message":"the client did not answer","data":{"reason":"timeout"}}}`},
		"unclassified": {func(context.Context, rpc.Message) (rpc.Reply, error) { return rpc.Reply{}, errors.New("private") },
			`{"jsonrpc":"2.0","id":"q","error":{"code":-32603,"message":"internal error","data":{"reason":"internal"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestConn(time.Minute)
				c.owner = &fakePeer{reply: tt.reply}
				checkEqual(t, "reply", c.requestFromServer(mcp.ElicitationCreate, nil), tt.want)
				c.wire.sendErr = errors.New("gone")
				c.requestFromServer(mcp.ElicitationCreate, nil) // a lost answer is harmless
			})
		})
	}
}

// A5: a server can cancel its request, and only that one.
func TestServerCancelsItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newTestConn(time.Minute), &fakePeer{}
		c.owner = p
		c.receive(`{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}`)
		c.receive(`{"jsonrpc":"2.0","id":"7","method":"elicitation/create","params":{}}`)
		synctest.Wait()
		c.receive(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)
		c.receive(`{"jsonrpc":"2.0","method":"notifications/cancelled"}`)
		synctest.Wait()
		checkEqual(t, "taken back by another id", len(p.canceled), 0)
		c.receive(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"x"}}`)
		synctest.Wait()
		checkEqual(t, "taken back", len(p.canceled), 1)
		checkEqual(t, "open", c.openServerRequests(), 1)
		c.Close()
		synctest.Wait()
		checkEqual(t, "taken back in the end", len(p.canceled), 2)
		checkEqual(t, "open in the end", c.openServerRequests(), 0)
	})
}

func (c testConn) openServerRequests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.serverRequests)
}

// A5: progress reaches the call with its token, if the client wants it, and no other call.
func TestProgressReachesItsCallOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, owner := newTestConn(time.Minute), &fakePeer{}
		c.owner = owner
		one, two, silent := &fakePeer{}, &fakePeer{}, &fakePeer{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c.beginCall(ctx, newCall(mcp.ToolsCall, ``, forPeer(one, clientWith())))
		c.beginCall(ctx, newCall(mcp.ToolsCall, ``, forPeer(two, clientWith())))
		c.beginCall(ctx, newCall(mcp.ToolsCall, ``, func(call *Call) { call.Peer = silent }))
		c.beginCall(ctx, newCall(mcp.Ping, ``)) // our own
		for _, token := range []string{`2`, `"2"`, `3`, `4`, `9`, `null`, `2.0`, `{}`} {
			c.receive(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, token)
		}
		c.receive(`{"jsonrpc":"2.0","method":"notifications/progress"}`)
		checkEqual(t, "one", one.takeNotifications(), "")
		checkEqual(t, "two", two.takeNotifications(), `notifications/progress {"progressToken":2,"progress":1}`)
		checkEqual(t, "the one that did not ask for it", silent.takeNotifications(), "")
		checkEqual(t, "owner", owner.takeNotifications(), "")
		checkEqual(t, "events", c.events.takeNotifications(), "")
		c.receiveReply(2)
		synctest.Wait()
		c.receive(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":2}}`)
		checkEqual(t, "after the reply", two.takeNotifications(), "")
	})
}

// A13: a listen stream is ready when it is acknowledged: on its own stream, or by its id on a shared one.
func TestListenAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ready := newTestConn(time.Minute), make([]int, 3)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range ready {
			c.beginCall(ctx, newCall(mcp.SubscriptionsListen, ``, func(call *Call) { call.Streaming, call.OnReady = true, func() { ready[i]++ } }))
		}
		const note = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":`
		c.handleMessage([]byte(note+`{}}`), c.inflightCall(1))
		c.receive(note + `{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`)
		c.receive(note + `{"_meta":{"io.modelcontextprotocol/subscriptionId":9}}}`)
		c.receive(note + `{"_meta":{"io.modelcontextprotocol/subscriptionId":"3"}}}`)
		c.receive(note + `{}}`)
		synctest.Wait()
		checkEqual(t, "ready", fmt.Sprint(ready), "[1 1 0]")
	})
}

// A7: a log message or an unknown notification goes to the only call it can belong to, else to the connection's owner, else
// to the event handler. Changed lists always go to the event handler.
func TestNotificationRouting(t *testing.T) {
	const log, unknown, news = mcp.NotifyMessage, "notifications/odd", mcp.NotifyToolsChanged
	for name, tt := range map[string]struct {
		calls  int // with a client
		ours   int // without
		owner  bool
		from   int64
		method string
		want   string
	}{
		"only one call":             {calls: 1, method: log, want: "call 1"},
		"one beside ours":           {calls: 1, ours: 3, method: log, want: "call 1"},
		"one before the owner":      {calls: 1, owner: true, method: unknown, want: "call 1"},
		"several":                   {calls: 2, method: log, want: "events"},
		"several of an owner":       {calls: 2, owner: true, method: log, want: "owner"},
		"none":                      {ours: 1, method: unknown, want: "events"},
		"none of an owner":          {owner: true, method: unknown, want: "owner"},
		"by stream":                 {calls: 2, owner: true, from: 2, method: unknown, want: "call 2"},
		"by stream of ours":         {calls: 0, ours: 1, owner: true, from: 1, method: log, want: "owner"},
		"news of a list":            {calls: 1, owner: true, method: news, want: "events"},
		"news on the stream of one": {calls: 1, owner: true, from: 1, method: mcp.NotifyResourceUpdated, want: "events"},
		"acknowledgement":           {calls: 1, owner: true, method: mcp.NotifySubscriptionsAcknowledged, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, all := newTestConn(time.Minute), map[string]*fakePeer{}
				all["events"] = c.events
				if tt.owner {
					all["owner"] = &fakePeer{}
					c.owner = all["owner"]
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for i := range tt.calls {
					name := "call " + string('1'+rune(i))
					all[name] = &fakePeer{}
					c.beginCall(ctx, newCall(mcp.ToolsCall, ``, forPeer(all[name], clientWith())))
				}
				for range tt.ours {
					c.beginCall(ctx, newCall(mcp.Ping, ``))
				}
				c.handleMessage([]byte(`{"jsonrpc":"2.0","method":"`+tt.method+`","params":{"a":1}}`), c.inflightCall(tt.from))
				for name, p := range all {
					expect := ""
					if name == tt.want {
						expect = tt.method + ` {"a":1}`
					}
					checkEqual(t, name, p.takeNotifications(), expect)
				}
			})
		})
	}
}

// Server requests are charged to memory while their client has not answered. Those that do not fit are refused.
func TestServerRequestsAreChargedToMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := membudget.New(4 << 20)
		c, answer := newTestConn(time.Minute), make(chan struct{})
		c.budget = budget
		c.owner = &fakePeer{reply: func(context.Context, rpc.Message) (rpc.Reply, error) {
			<-answer
			return rpc.Reply{}, context.Canceled
		}}
		pad := strings.Repeat("x", 512<<10)
		for i := range 20 {
			c.receive(`{"jsonrpc":"2.0","id":%d,"method":"roots/list","params":{"pad":%q}}`, i, pad)
		}
		synctest.Wait()
		if held := budget.Stats().Held; held < 512<<10 || held > 2<<20 {
			t.Errorf("%d KiB are held", held>>10)
		}
		if n := len(c.wire.sent); n < 16 || !strings.Contains(c.wire.lastSent(), "share of the gateway's memory") {
			t.Errorf("%d server requests were refused, the last with %s", n, c.wire.lastSent())
		}
		close(answer)
		synctest.Wait()
		if now := budget.Stats(); now.Held != 0 || now.Callers != 0 {
			t.Errorf("%+v is left", now)
		}
	})
}
