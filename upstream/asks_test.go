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

// asks puts a question of the server, on the stream of a call if there is one.
func (c taped) asks(method string, from *flight) string {
	c.take([]byte(`{"jsonrpc":"2.0","id":"q","method":"`+method+`","params":{}}`), from)
	synctest.Wait()
	return c.wire.last()
}

// Requests of a server that are no question to anybody.
func TestRequestsOfAServer(t *testing.T) {
	for method, answer := range map[string]string{
		mcp.Ping:      `{"jsonrpc":"2.0","id":"q","result":{}}`,
		mcp.ToolsList: noMethod,
		"x/unheard":   noMethod,
		mcp.RootsList: noMethod, // of nobody
	} {
		synctest.Test(t, func(t *testing.T) {
			want(t, method, newTaped(time.Minute).asks(method, nil), answer)
		})
	}
}

// A5: who is asked. A call's own stream names the call; on a connection of one client it is the
// newest call that can answer, and outside calls the owner; on a shared one it is nobody.
func TestWhoIsAsked(t *testing.T) {
	type calls []mcp.Client
	for name, tt := range map[string]struct {
		alone bool
		owner bool
		calls calls // the client of each call, in order
		from  int64 // the call on whose stream the question comes; 0 for none
		asked string
	}{
		"the newest call":               {alone: true, calls: calls{able("roots"), able("roots")}, asked: "call 2"},
		"the newest that can":           {alone: true, calls: calls{able("roots"), able("sampling")}, asked: "call 1"},
		"the newest before the owner":   {alone: true, owner: true, calls: calls{able("roots")}, asked: "call 1"},
		"none that can":                 {alone: true, calls: calls{able("sampling"), able()}, asked: ""},
		"the owner outside calls":       {alone: true, owner: true, asked: "owner"},
		"the owner for one that cannot": {alone: true, owner: true, calls: calls{able()}, asked: "owner"},
		"nobody of a shared one":        {calls: calls{able("roots")}, asked: ""},
		"nobody of a shared one idle":   {asked: ""},
		"by stream":                     {alone: true, calls: calls{able("roots"), able("roots")}, from: 1, asked: "call 1"},
		"by stream of a shared one":     {calls: calls{able("roots"), able("roots")}, from: 1, asked: "call 1"},
		"by stream of one that cannot":  {calls: calls{able("sampling"), able("roots")}, from: 1, asked: ""},
		"by stream, then not the newer": {alone: true, owner: true, calls: calls{able(), able("roots")}, from: 1, asked: "owner"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, answered := newTaped(time.Minute), ""
				c.alone = tt.alone
				who := func(name string) *mate {
					return &mate{reply: func(ctx context.Context, q rpc.Message) (rpc.Reply, error) {
						answered += name
						return result(`{"ok":true}`)(ctx, q)
					}}
				}
				if tt.owner {
					c.owner = who("owner")
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for i, client := range tt.calls {
					c.begin(ctx, calling(mcp.ToolsCall, ``, of(who("call "+string('1'+rune(i))), client)))
				}
				reply := c.asks(mcp.RootsList, c.flight(tt.from))
				want(t, "asked", answered, tt.asked)
				if tt.asked == "" {
					want(t, "reply", reply, noMethod)
				} else {
					want(t, "reply", reply, fine)
				}
			})
		})
	}
}

// A5: a call that has its reply is not asked any more.
func TestNobodyIsAskedAfterTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, old, now := newTaped(time.Minute), &mate{reply: result(`{"ok":false}`)}, &mate{reply: result(`{"ok":true}`)}
		c.alone = true
		done := c.begin(t.Context(), calling(mcp.ToolsCall, ``, of(now, able("roots"))))
		c.begin(t.Context(), calling(mcp.ToolsCall, ``, of(old, able("roots"))))
		c.answered(2)
		synctest.Wait()
		want(t, "reply", c.asks(mcp.RootsList, nil), fine)
		c.answered(1)
		<-done
		want(t, "reply in the end", c.asks(mcp.RootsList, nil), noMethod)
	})
}

// A5: what the client answers goes back as it is, a refusal as well; what went wrong on the way is
// an error that says no more than it may.
func TestAnswersToAServer(t *testing.T) {
	refused := []byte(`{"jsonrpc":"2.0","id":9,"error":{"code":-1,"message":"User rejected","data":[1.50]}}`)
	for name, tt := range map[string]struct {
		reply func(context.Context, rpc.Message) (rpc.Reply, error)
		want  string
	}{
		"result": {result(`{ "n" : 1.50 }`), `{"jsonrpc":"2.0","id":"q","result":{ "n" : 1.50 }}`},
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
				c := newTaped(time.Minute)
				c.owner = &mate{reply: tt.reply}
				want(t, "reply", c.asks(mcp.Elicit, nil), tt.want)
				c.wire.refuse = errors.New("gone")
				c.asks(mcp.Elicit, nil) // an answer that does not arrive harms nobody
			})
		})
	}
}

// A5: a server may take its question back, and only that one.
func TestQuestionIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newTaped(time.Minute), &mate{}
		c.owner = p
		c.says(`{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}`)
		c.says(`{"jsonrpc":"2.0","id":"7","method":"elicitation/create","params":{}}`)
		synctest.Wait()
		c.says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)
		c.says(`{"jsonrpc":"2.0","method":"notifications/cancelled"}`)
		synctest.Wait()
		want(t, "taken back by another id", len(p.ended), 0)
		c.says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"x"}}`)
		synctest.Wait()
		want(t, "taken back", len(p.ended), 1)
		want(t, "open", c.pending(), 1)
		c.Close()
		synctest.Wait()
		want(t, "taken back in the end", len(p.ended), 2)
		want(t, "open in the end", c.pending(), 0)
	})
}

func (c taped) pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.Conn.asks)
}

// A5: progress reaches the call whose token it has, if its client wants it, and no other.
func TestProgressReachesItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, owner := newTaped(time.Minute), &mate{}
		c.owner = owner
		one, two, deaf := &mate{}, &mate{}, &mate{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c.begin(ctx, calling(mcp.ToolsCall, ``, of(one, able())))
		c.begin(ctx, calling(mcp.ToolsCall, ``, of(two, able())))
		c.begin(ctx, calling(mcp.ToolsCall, ``, func(call *Call) { call.Peer = deaf }))
		c.begin(ctx, calling(mcp.Ping, ``)) // our own
		for _, token := range []string{`2`, `"2"`, `3`, `4`, `9`, `null`, `2.0`, `{}`} {
			c.says(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, token)
		}
		c.says(`{"jsonrpc":"2.0","method":"notifications/progress"}`)
		want(t, "one", one.heard(), "")
		want(t, "two", two.heard(), `notifications/progress {"progressToken":2,"progress":1}`)
		want(t, "the one that did not ask for it", deaf.heard(), "")
		want(t, "owner", owner.heard(), "")
		want(t, "events", c.events.heard(), "")
		c.answered(2)
		synctest.Wait()
		c.says(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":2}}`)
		want(t, "after the reply", two.heard(), "")
	})
}

// A13: the stream of changes has begun when it is acknowledged: on its own stream, or by its id where
// all messages share one.
func TestAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ready := newTaped(time.Minute), make([]int, 3)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range ready {
			c.begin(ctx, calling(mcp.Listen, ``, func(call *Call) { call.Endless, call.Ready = true, func() { ready[i]++ } }))
		}
		const note = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":`
		c.take([]byte(note+`{}}`), c.flight(1))
		c.says(note + `{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`)
		c.says(note + `{"_meta":{"io.modelcontextprotocol/subscriptionId":9}}}`)
		c.says(note + `{"_meta":{"io.modelcontextprotocol/subscriptionId":"3"}}}`)
		c.says(note + `{}}`)
		synctest.Wait()
		want(t, "told", fmt.Sprint(ready), "[1 1 0]")
	})
}

// A7: a log message or a notification of unknown kind goes to the one call it can belong to, else
// to the connection's owner, else to all who listen. News of lists is everybody's.
func TestWhoHearsANotification(t *testing.T) {
	const log, odd, news = mcp.LogMessage, "notifications/odd", mcp.ToolsChanged
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
		"one before the owner":      {calls: 1, owner: true, method: odd, want: "call 1"},
		"several":                   {calls: 2, method: log, want: "events"},
		"several of an owner":       {calls: 2, owner: true, method: log, want: "owner"},
		"none":                      {ours: 1, method: odd, want: "events"},
		"none of an owner":          {owner: true, method: odd, want: "owner"},
		"by stream":                 {calls: 2, owner: true, from: 2, method: odd, want: "call 2"},
		"by stream of ours":         {calls: 0, ours: 1, owner: true, from: 1, method: log, want: "owner"},
		"news of a list":            {calls: 1, owner: true, method: news, want: "events"},
		"news on the stream of one": {calls: 1, owner: true, from: 1, method: mcp.ResourceUpdated, want: "events"},
		"acknowledgement":           {calls: 1, owner: true, method: mcp.Acknowledged, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, all := newTaped(time.Minute), map[string]*mate{}
				all["events"] = c.events
				if tt.owner {
					all["owner"] = &mate{}
					c.owner = all["owner"]
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for i := range tt.calls {
					name := "call " + string('1'+rune(i))
					all[name] = &mate{}
					c.begin(ctx, calling(mcp.ToolsCall, ``, of(all[name], able())))
				}
				for range tt.ours {
					c.begin(ctx, calling(mcp.Ping, ``))
				}
				c.take([]byte(`{"jsonrpc":"2.0","method":"`+tt.method+`","params":{"a":1}}`), c.flight(tt.from))
				for name, p := range all {
					expect := ""
					if name == tt.want {
						expect = tt.method + ` {"a":1}`
					}
					want(t, name, p.heard(), expect)
				}
			})
		})
	}
}

// The questions of a server are held while its client thinks: they are counted, those that do not fit are
// refused, and those that were answered are given back.
func TestQuestionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := membudget.New(4 << 20)
		c, answer := newTaped(time.Minute), make(chan struct{})
		c.budget = budget
		c.owner = &mate{reply: func(context.Context, rpc.Message) (rpc.Reply, error) {
			<-answer
			return rpc.Reply{}, context.Canceled
		}}
		pad := strings.Repeat("x", 512<<10)
		for i := range 20 {
			c.says(`{"jsonrpc":"2.0","id":%d,"method":"roots/list","params":{"pad":%q}}`, i, pad)
		}
		synctest.Wait()
		if held := budget.Stats().Held; held < 512<<10 || held > 2<<20 {
			t.Errorf("%d KiB are held", held>>10)
		}
		if n := len(c.wire.sent); n < 16 || !strings.Contains(c.wire.last(), "share of the gateway's memory") {
			t.Errorf("%d questions were refused, the last with %s", n, c.wire.last())
		}
		close(answer)
		synctest.Wait()
		if now := budget.Stats(); now.Held != 0 || now.Callers != 0 {
			t.Errorf("%+v is left", now)
		}
	})
}
