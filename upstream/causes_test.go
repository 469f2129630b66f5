package upstream

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// sharedConn is a connection that clients share, and the clients that its server has asked, in order.
type sharedConn struct {
	testConn
	asked *[]string
}

func newSharedConn() sharedConn {
	c := sharedConn{newTestConn(time.Minute), new([]string)}
	c.asksByCause = true
	return c
}

// callAs begins a call of a client; the context ends it.
func (c sharedConn) callAs(ctx context.Context, client string, capabilities ...string) {
	peer := &fakePeer{reply: func(ctx context.Context, q rpc.Message) (rpc.Reply, error) {
		*c.asked = append(*c.asked, client)
		return resultReply(`{"ok":true}`)(ctx, q)
	}}
	c.beginCall(ctx, newCall(mcp.ToolsCall, ``, forPeer(peer, clientWith(capabilities...)), func(call *Call) { call.ClientKey = client }))
}

// request handles a request of the server.
func (c sharedConn) request(method, params string) {
	c.receive(`{"jsonrpc":"2.0","id":"q","method":"%s","params":%s}`, method, params)
	synctest.Wait()
}

// answer is what the server got last, if that is an answer.
func (c sharedConn) answer() string {
	if got := c.wire.lastSent(); !strings.Contains(got, `"method"`) {
		return got
	}
	return ""
}

// A5: on a connection that clients share, a request reaches the client whose call must have caused it, or none.
func TestSharedConnAsksTheClientThatCausedIt(t *testing.T) {
	const unclear = "calls of several clients are in flight"
	for name, tt := range map[string]struct {
		before func(ctx context.Context, c sharedConn) // calls before the request
		params string
		after  func(ctx context.Context, c sharedConn) // while it waits, if it does
		asked  string
		answer string        // a part of it
		took   time.Duration // of the wait
	}{
		"no call": {answer: "-32601"},
		"one client": {before: func(ctx context.Context, c sharedConn) {
			c.callAs(ctx, "a", "elicitation")
		}, asked: "a", answer: "ok"},
		"one client, two calls": {before: func(ctx context.Context, c sharedConn) {
			c.callAs(ctx, "a", "elicitation")
			c.callAs(ctx, "a", "elicitation")
		}, asked: "a", answer: "ok"},
		"one client that cannot answer": {before: func(ctx context.Context, c sharedConn) {
			c.callAs(ctx, "a", "sampling")
		}, answer: "-32601"},
		"a call of the gateway beside it": {before: func(ctx context.Context, c sharedConn) {
			c.beginCall(ctx, newCall(mcp.ToolsList, ``))
			c.callAs(ctx, "a", "elicitation")
		}, asked: "a", answer: "ok"},
		"a relayed call of nobody known": {before: func(ctx context.Context, c sharedConn) {
			c.beginCall(ctx, newCall(mcp.ToolsCall, ``))
		}, answer: "-32601"},
		"two unknown clients": {before: func(ctx context.Context, c sharedConn) {
			c.callAs(ctx, "", "elicitation")
			c.callAs(ctx, "", "elicitation")
		}, answer: unclear, took: causeWait},
		"the other has its reply": {before: func(ctx context.Context, c sharedConn) {
			c.callAs(ctx, "a", "elicitation")
			c.callAs(ctx, "b", "elicitation")
		}, after: func(_ context.Context, c sharedConn) {
			time.Sleep(time.Second)
			c.receiveReply(1)
		}, asked: "b", answer: "ok", took: time.Second},
		"the one that is left cannot answer": {before: func(ctx context.Context, c sharedConn) {
			c.callAs(ctx, "a", "elicitation")
			c.callAs(ctx, "b")
		}, after: func(_ context.Context, c sharedConn) {
			c.receiveReply(1)
		}, answer: "-32601"},
		"no call ends": {before: func(ctx context.Context, c sharedConn) {
			c.callAs(ctx, "a", "elicitation")
			c.callAs(ctx, "b", "elicitation")
		}, answer: unclear, took: causeWait},
		"a later call is not the cause": {before: func(ctx context.Context, c sharedConn) {
			c.callAs(ctx, "a", "elicitation")
			c.callAs(ctx, "b", "elicitation")
		}, after: func(ctx context.Context, c sharedConn) {
			c.callAs(ctx, "c", "elicitation")
			c.receiveReply(2)
		}, asked: "a", answer: "ok"},
		"the other was cancelled, and may still go on": {before: func(ctx context.Context, c sharedConn) {
			left, leave := context.WithCancel(ctx)
			c.callAs(left, "a", "elicitation")
			leave()
			synctest.Wait()
			c.callAs(ctx, "b", "elicitation")
		}, answer: unclear},
		"the other is cancelled meanwhile": {before: func(ctx context.Context, c sharedConn) {
			left, leave := context.WithTimeout(ctx, time.Second)
			context.AfterFunc(ctx, leave)
			c.callAs(left, "a", "elicitation")
			c.callAs(ctx, "b", "elicitation")
		}, answer: unclear, took: time.Second},
		"the other was cancelled and replied after all": {before: func(ctx context.Context, c sharedConn) {
			left, leave := context.WithCancel(ctx)
			c.callAs(left, "a", "elicitation")
			leave()
			synctest.Wait()
			c.receiveReply(1)
			c.callAs(ctx, "b", "elicitation")
		}, asked: "b", answer: "ok"},
		"its own earlier call was cancelled": {before: func(ctx context.Context, c sharedConn) {
			left, leave := context.WithCancel(ctx)
			c.callAs(left, "b", "elicitation")
			leave()
			synctest.Wait()
			c.callAs(ctx, "b", "elicitation")
		}, asked: "b", answer: "ok"},
		"elicitation by URL of a client that has forms only": {before: func(ctx context.Context, c sharedConn) {
			c.callAs(ctx, "a", "elicitation")
		}, params: `{"mode":"url","url":"https://x"}`, answer: "-32601"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newSharedConn()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.before != nil {
					tt.before(ctx, c)
				}
				began := time.Now()
				if tt.params == "" {
					tt.params = "{}"
				}
				c.request(mcp.ElicitationCreate, tt.params)
				if tt.after != nil {
					checkEqual(t, "answer before the calls of others ended", c.answer(), "")
					tt.after(ctx, c)
					synctest.Wait()
				}
				for c.answer() == "" && time.Since(began) < time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(began); took < tt.took || took > tt.took+time.Second {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				checkEqual(t, "asked", strings.Join(*c.asked, " "), tt.asked)
				if !strings.Contains(c.answer(), tt.answer) {
					t.Errorf("the server got %s, want %s", c.answer(), tt.answer)
				}
			})
		})
	}
}

// A server can cancel a request that waits for the calls of others, and its end ends the wait.
func TestWaitForTheCauseEnds(t *testing.T) {
	for name, end := range map[string]func(c sharedConn){
		"cancelled": func(c sharedConn) {
			c.receive(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`)
		},
		"closed": func(c sharedConn) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newSharedConn()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c.callAs(ctx, "a", "elicitation")
				c.callAs(ctx, "b", "elicitation")
				c.request(mcp.ElicitationCreate, `{}`)
				checkEqual(t, "open", c.openServerRequests(), 1)
				end(c)
				synctest.Wait()
				checkEqual(t, "open in the end", c.openServerRequests(), 0)
				checkEqual(t, "asked", strings.Join(*c.asked, " "), "")
			})
		})
	}
}

// The calls that may be the cause do not run into their timeout while the request waits for the others.
func TestCallsDoNotTimeOutWhileTheCauseIsUnclear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSharedConn()
		c.limits.timeout = 2 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c.callAs(ctx, "a", "elicitation")
		c.callAs(ctx, "b", "elicitation")
		c.request(mcp.ElicitationCreate, `{}`)
		time.Sleep(causeWait - time.Second)
		checkEqual(t, "calls in flight", c.callCount.Load(), 2)
		c.receiveReply(1)
		synctest.Wait()
		checkEqual(t, "asked", strings.Join(*c.asked, " "), "b")
	})
}

// Calls without a reply are remembered up to a bound; after that every request is unclear.
func TestAbandonedCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSharedConn()
		left, leave := context.WithCancel(t.Context())
		for range maxAbandoned + 1 {
			go func() { _, _ = c.Call(left, newCall(mcp.ToolsCall, ``, func(call *Call) { call.ClientKey = "a" })) }()
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		c.mu.Lock()
		checkEqual(t, "remembered", len(c.abandoned), maxAbandoned)
		checkEqual(t, "too many", c.abandonedTooMany, true)
		c.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c.callAs(ctx, "a", "elicitation")
		c.request(mcp.ElicitationCreate, `{}`)
		checkEqual(t, "asked", strings.Join(*c.asked, " "), "")
	})
}
