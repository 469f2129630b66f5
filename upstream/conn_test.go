package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

// A2: ids are the connection's own, from 1, and each reply reaches the call with its id, wherever the id stands.
func TestRepliesReachTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestConn(time.Minute)
		first := c.beginCall(t.Context(), newCall(mcp.ToolsList, ``))
		second := c.beginCall(t.Context(), newCall(mcp.ToolsCall, `{"name":"x"}`))
		third := c.beginCall(t.Context(), newCall(`odd"method`, `{}`))
		checkEqual(t, "sent", strings.Join(c.wire.sent, "\n"), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}
{"jsonrpc":"2.0","id":3,"method":"odd\"method","params":{}}`)
		c.receive(`{"result":{"n":3},"jsonrpc":"2.0","id":3}`)
		c.receive(`{"jsonrpc":"2.0","result":{"id":2,"n":1}, "id" : 1 }`)
		c.receive(`{"id":2,"error":{"code":-1,"message":"no"},"jsonrpc":"2.0"}`)
		checkEqual(t, "first", (<-first).String(), `{"id":2,"n":1}`)
		checkEqual(t, "second", (<-second).String(), "")
		checkEqual(t, "third", (<-third).String(), `{"n":3}`)
		checkEqual(t, "unexpected", c.unexpectedCount.Load(), 0)
		checkEqual(t, "in flight", c.callCount.Load(), 0)
	})
}

// A2: replies to unknown requests are dropped and counted, and harm no call.
func TestUnexpectedRepliesAreDropped(t *testing.T) {
	for name, message := range map[string]string{
		"unknown id":       `{"jsonrpc":"2.0","id":7,"result":{}}`,
		"id of none":       `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}`,
		"id as text":       `{"jsonrpc":"2.0","id":"1","result":{}}`,
		"id of a fraction": `{"jsonrpc":"2.0","id":1.5,"result":{}}`,
		"id out of range":  `{"jsonrpc":"2.0","id":18446744073709551617,"result":{}}`,
		"no id":            `{"jsonrpc":"2.0","result":{}}`,
		"no id but within": `{"jsonrpc":"2.0","result":{"id":1},"x":{"id":1}}`,
		"no JSON":          `{"jsonrpc":"2.0","id":7,"result":{}`,
		"nothing":          ``,
		"several":          `[{"jsonrpc":"2.0","id":1,"result":{}}]`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestConn(time.Minute)
				done := c.beginCall(t.Context(), newCall(mcp.Ping, ``))
				c.receive("%s", message)
				synctest.Wait()
				checkEqual(t, "unexpected", c.unexpectedCount.Load(), 1)
				c.receiveReply(1)
				checkEqual(t, "the call", (<-done).String(), `{"to":1}`)
				checkEqual(t, "unexpected after it", c.unexpectedCount.Load(), 1)
			})
		})
	}
}

// A2: a malformed message with the id of a call fails that call at once, and no other.
func TestMalformedReplyFailsItsCall(t *testing.T) {
	for name, message := range map[string]string{
		"no result":       `{"jsonrpc":"2.0","id":1}`,
		"both":            `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}`,
		"two ids":         `{"jsonrpc":"2.0","id":1,"id":1,"result":{}}`,
		"another version": `{"jsonrpc":"1.0","id":1,"result":{}}`,
		"no JSON":         `{"jsonrpc":"2.0","id":1,"result":{`,
		"bad text":        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"id\":2,\"text\":\"\xff\"}}",
		"too deep":        `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`,
		"id last":         `{"jsonrpc":"2.0","result":{"id":2,"list":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `},"id":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestConn(time.Minute)
				done, other := c.beginCall(t.Context(), newCall(mcp.Ping, ``)), c.beginCall(t.Context(), newCall(mcp.Ping, ``))
				c.receive("%s", message)
				checkEqual(t, "the call", fault.KindOf((<-done).err), fault.BadReply)
				checkEqual(t, "unexpected", c.unexpectedCount.Load(), 1)
				c.receiveReply(2)
				checkEqual(t, "the other", (<-other).String(), `{"to":2}`)
			})
		})
	}
}

// A2: of two replies the first counts. The second, and a reply that comes too late, are counted as unexpected.
func TestDuplicateAndLateReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestConn(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		f, _ := c.startCall(context.Background(), newCall(mcp.Ping, ``)) // it stays in flight
		c.receive(`{"jsonrpc":"2.0","id":1,"result":{"n":1}}`)
		c.receive(`{"jsonrpc":"2.0","id":1,"result":{"n":2}}`)
		m, err := c.awaitReply(ctx, f)
		checkEqual(t, "twice", callResult{string(m.Result.Of(m.Body)), err}.String(), `{"n":1}`)
		checkEqual(t, "unexpected", c.unexpectedCount.Load(), 1)
		c.finishCall(f)
		late := c.beginCall(ctx, newCall(mcp.Ping, ``))
		cancel()
		checkEqual(t, "late", (<-late).String(), "canceled: the client left")
		c.receiveReply(2)
		checkEqual(t, "unexpected in the end", c.unexpectedCount.Load(), 2)
	})
}

// A13: a reply on the stream of another call is ignored.
func TestReplyOnTheStreamOfAnotherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestConn(time.Minute)
		one, two := c.beginCall(t.Context(), newCall(mcp.Ping, ``)), c.beginCall(t.Context(), newCall(mcp.Ping, ``))
		c.handleMessage([]byte(`{"jsonrpc":"2.0","id":2,"result":{}}`), c.inflightCall(1))
		checkEqual(t, "unexpected", c.unexpectedCount.Load(), 1)
		c.handleMessage([]byte(`junk`), c.inflightCall(1))
		if got := <-one; fault.KindOf(got.err) != fault.BadReply {
			t.Errorf("junk on its own stream: %v", got)
		}
		c.handleMessage([]byte(`{"jsonrpc":"2.0","id":2,"result":{"n":2}}`), c.inflightCall(2))
		checkEqual(t, "two", (<-two).String(), `{"n":2}`)
	})
}

// A2: progress restarts the timeout of a call.
func TestProgressExtendsTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newTestConn(10*time.Second), &fakePeer{}
		began := time.Now()
		done := c.beginCall(t.Context(), newCall(mcp.ToolsCall, `{"_meta":{"progressToken":"mine"}}`, forPeer(p, clientWith())))
		quiet := c.beginCall(t.Context(), newCall(mcp.ToolsCall, `{}`, func(call *Call) { call.Peer = p }))
		for n := range 4 {
			time.Sleep(9 * time.Second)
			c.receive(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}`, n)
		}
		checkEqual(t, "silent", (<-quiet).String(), "timeout: the server did not answer in time")
		checkEqual(t, "notes", len(p.notifications), 4)
		checkEqual(t, "prolonged", (<-done).String(), "timeout: the server did not answer in time")
		checkEqual(t, "took", time.Since(began), 46*time.Second)
		checkEqual(t, "cancelled", strings.Join(c.wire.canceled, ", "), "2 timeout, 1 timeout")
	})
}

// A5: the timeout stops while a client answers a server request, and then starts anew.
func TestServerRequestSuspendsTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestConn(10 * time.Second)
		c.singleClient = true
		p := &fakePeer{reply: func(ctx context.Context, q rpc.Message) (rpc.Reply, error) {
			time.Sleep(time.Hour + 5*time.Second)
			return resultReply(`{"roots":[]}`)(ctx, q)
		}}
		began := time.Now()
		done := c.beginCall(t.Context(), newCall(mcp.ToolsCall, ``, forPeer(p, clientWith("roots"))))
		c.receive(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		checkEqual(t, "the call", (<-done).String(), "timeout: the server did not answer in time")
		checkEqual(t, "took", time.Since(began), time.Hour+15*time.Second)
		checkEqual(t, "answered", c.wire.lastSent(), `{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}`)
	})
}

// A streaming call has no timeout.
func TestStreamingCallHasNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestConn(10 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		done := c.beginCall(ctx, newCall(mcp.SubscriptionsListen, ``, func(call *Call) { call.Streaming = true }))
		time.Sleep(24 * time.Hour)
		checkEqual(t, "streams", c.streamCount.Load(), 1)
		cancel()
		checkEqual(t, "ended", (<-done).String(), "canceled: the client left")
		checkEqual(t, "streams after it", c.streamCount.Load(), 0)
	})
}

// How an unanswered call ends, and which cancellation the wire gets.
func TestCanceledAndTimedOutCalls(t *testing.T) {
	for name, tt := range map[string]struct {
		ctx        func(context.Context) (context.Context, context.CancelFunc)
		want       string
		wantCancel string
	}{
		"timeout": {context.WithCancel, "timeout: the server did not answer in time", "1 timeout"},
		"cancelled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, "canceled: the client left", "1 cancelled"},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, "timeout: the server did not answer in time", "1 cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestConn(10 * time.Second)
				ctx, cancel := tt.ctx(t.Context())
				defer cancel()
				checkEqual(t, "outcome", (<-c.beginCall(ctx, newCall(mcp.Ping, ``))).String(), tt.want)
				checkEqual(t, "canceled", strings.Join(c.wire.canceled, ", "), tt.wantCancel)
				checkEqual(t, "in flight", len(c.pending), 0)
			})
		})
	}
}

// A message that cannot be sent fails the call, and leaves nothing behind.
func TestSendFailure(t *testing.T) {
	c := newTestConn(time.Minute)
	c.wire.sendErr = fault.New(fault.Full, "the server does not take any more")
	_, err := c.Call(t.Context(), newCall(mcp.Ping, ``))
	checkEqual(t, "kind", fault.KindOf(err), fault.Full)
	checkEqual(t, "in flight", len(c.pending), 0)
	checkEqual(t, "notification", fault.KindOf(c.Notify("x", nil)), fault.Full)
}

// A2: the end of a connection fails every call and cancels server requests. The first reason counts.
func TestConnectionEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		why  error
		want string
	}{
		"classified": {fault.New(fault.BadReply, "the server prints only lines that are not JSON-RPC messages"), "bad_reply: the server prints only lines that are not JSON-RPC messages"},
		"not":        {errors.New("secret detail"), "unavailable: the server went away during the call"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := newTestConn(time.Minute), &fakePeer{}
				c.singleClient = true
				open := make([]<-chan callResult, 20)
				for i := range open {
					open[i] = c.beginCall(t.Context(), newCall(mcp.ToolsCall, ``, forPeer(p, clientWith("roots"))))
				}
				c.receive(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
				synctest.Wait()
				c.receiveReply(20)
				c.end(tt.why)
				c.end(errors.New("another"))
				synctest.Wait()
				c.receiveReply(1)
				synctest.Wait()
				for i, done := range open[:19] {
					checkEqual(t, fmt.Sprint("call ", i+1), (<-done).String(), tt.want)
				}
				checkEqual(t, "answered before", (<-open[19]).String(), `{"to":20}`)
				checkEqual(t, "canceled server requests", len(p.canceled), 1)
				checkEqual(t, "closed", c.wire.closed, 1)
				checkEqual(t, "why", c.Err(), tt.why)
				_, err := c.Call(t.Context(), newCall(mcp.Ping, ``))
				checkEqual(t, "a call afterwards", callResult{err: err}.String(), tt.want)
				c.receive(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
				synctest.Wait()
				checkEqual(t, "sent", len(c.wire.sent), 20+1) // the answer to the server request, which the wire records
			})
		})
	}
}

// A reply that came before the end counts, however the two race.
func TestReplyBeforeConnectionEnd(t *testing.T) {
	for range 500 {
		c := newTestConn(time.Minute)
		var answered atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := c.Call(t.Context(), newCall(mcp.Ping, ``)); err == nil {
					answered.Add(1)
				}
			})
		}
		for c.callCount.Load() < 8 {
			time.Sleep(time.Microsecond)
		}
		for id := range int64(5) {
			c.receiveReply(id + 1)
		}
		c.Close()
		wg.Wait()
		if got := answered.Load(); got != 5 {
			t.Fatalf("5 calls were answered before the end, %d have their answer", got)
		}
	}
}

// lateNotifications counts notifications that reach a client after the reply.
type lateNotifications struct {
	fakePeer
	over atomic.Bool
	bad  *atomic.Int64
}

func (p *lateNotifications) Notify(string, rpc.Message) {
	if p.over.Load() {
		p.bad.Add(1)
	}
}

// A5: no notification of a call reaches its client after the reply, whatever streams they come on.
func TestNoNotificationAfterReply(t *testing.T) {
	var bad atomic.Int64
	for range 2500 {
		c, p := newTestConn(time.Minute), &lateNotifications{bad: &bad}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Call(t.Context(), newCall(mcp.ToolsCall, ``, forPeer(p, clientWith())))
			p.over.Store(true)
		}()
		for c.inflightCall(1) == nil {
			time.Sleep(time.Microsecond)
		}
		f := c.inflightCall(1)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 4 {
				c.receive(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
			}
		})
		wg.Go(func() {
			for range 4 {
				c.handleMessage([]byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`), f)
			}
		})
		wg.Go(func() { c.receiveReply(1) })
		wg.Wait()
		<-done
	}
	if n := bad.Load(); n > 0 {
		t.Errorf("%d notes came after the reply", n)
	}
}

// A2: a call that comes after the connection ended gets the same reason as one in flight, and may be made again.
func TestCallAfterTheEnd(t *testing.T) {
	c := newTestConn(time.Minute)
	f, err := c.startCall(t.Context(), &Call{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.finishCall(f)
	why := errors.New("exit status 9")
	c.end(why)
	if _, err := c.startCall(t.Context(), &Call{}); fault.KindOf(err) != fault.Unavailable || !errors.Is(err, why) || !wire.IsNotStarted(err) {
		t.Errorf("after the end: got %v", err)
	}
	if _, err := c.awaitReply(t.Context(), f); !errors.Is(err, why) || wire.IsNotStarted(err) {
		t.Errorf("in flight: got %v", err)
	}
}
