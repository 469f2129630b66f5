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
)

// A2: ids are the connection's own, counted from 1, and each reply reaches the call of its id,
// wherever in the message the id stands.
func TestRepliesReachTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTaped(time.Minute)
		first := c.begin(t.Context(), calling(mcp.ToolsList, ``))
		second := c.begin(t.Context(), calling(mcp.ToolsCall, `{"name":"x"}`))
		third := c.begin(t.Context(), calling(`odd"method`, `{}`))
		want(t, "sent", strings.Join(c.wire.sent, "\n"), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}
{"jsonrpc":"2.0","id":3,"method":"odd\"method","params":{}}`)
		c.says(`{"result":{"n":3},"jsonrpc":"2.0","id":3}`)
		c.says(`{"jsonrpc":"2.0","result":{"id":2,"n":1}, "id" : 1 }`)
		c.says(`{"id":2,"error":{"code":-1,"message":"no"},"jsonrpc":"2.0"}`)
		want(t, "first", (<-first).String(), `{"id":2,"n":1}`)
		want(t, "second", (<-second).String(), "")
		want(t, "third", (<-third).String(), `{"n":3}`)
		want(t, "strange", c.strange.Load(), 0)
		want(t, "under way", c.busy.Load(), 0)
	})
}

// A2: what answers nothing is dropped and counted, and harms no call.
func TestStrangeRepliesAreDropped(t *testing.T) {
	for name, said := range map[string]string{
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
				c := newTaped(time.Minute)
				done := c.begin(t.Context(), calling(mcp.Ping, ``))
				c.says("%s", said)
				synctest.Wait()
				want(t, "strange", c.strange.Load(), 1)
				c.answered(1)
				want(t, "the call", (<-done).String(), `{"to":1}`)
				want(t, "strange after it", c.strange.Load(), 1)
			})
		})
	}
}

// A2: what is no message but says whose reply it would be fails that call at once, and no other.
func TestUnreadableRepliesFailTheirCall(t *testing.T) {
	for name, said := range map[string]string{
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
				c := newTaped(time.Minute)
				done, other := c.begin(t.Context(), calling(mcp.Ping, ``)), c.begin(t.Context(), calling(mcp.Ping, ``))
				c.says("%s", said)
				want(t, "the call", fault.KindOf((<-done).err), fault.BadReply)
				want(t, "strange", c.strange.Load(), 1)
				c.answered(2)
				want(t, "the other", (<-other).String(), `{"to":2}`)
			})
		})
	}
}

// A2: of two replies the first counts; the other, and one that comes when nobody waits any more,
// are counted as strange.
func TestRepliesThatComeTwiceOrLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTaped(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		f, _ := c.open(context.Background(), calling(mcp.Ping, ``)) // and nobody takes the first away yet
		c.says(`{"jsonrpc":"2.0","id":1,"result":{"n":1}}`)
		c.says(`{"jsonrpc":"2.0","id":1,"result":{"n":2}}`)
		m, err := c.wait(ctx, f)
		want(t, "twice", outcome{string(m.Result.Of(m.Body)), err}.String(), `{"n":1}`)
		want(t, "strange", c.strange.Load(), 1)
		c.shut(f)
		late := c.begin(ctx, calling(mcp.Ping, ``))
		cancel()
		want(t, "late", (<-late).String(), "canceled: the client left")
		c.answered(2)
		want(t, "strange in the end", c.strange.Load(), 2)
	})
}

// A13: where a reply came on the stream of another call, it is none.
func TestReplyOnTheStreamOfAnotherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTaped(time.Minute)
		one, two := c.begin(t.Context(), calling(mcp.Ping, ``)), c.begin(t.Context(), calling(mcp.Ping, ``))
		c.take([]byte(`{"jsonrpc":"2.0","id":2,"result":{}}`), c.flight(1))
		want(t, "strange", c.strange.Load(), 1)
		c.take([]byte(`junk`), c.flight(1))
		if got := <-one; fault.KindOf(got.err) != fault.BadReply {
			t.Errorf("junk on its own stream: %v", got)
		}
		c.take([]byte(`{"jsonrpc":"2.0","id":2,"result":{"n":2}}`), c.flight(2))
		want(t, "two", (<-two).String(), `{"n":2}`)
	})
}

// A2: a server that shows progress is not out of time; one that is silent is.
func TestProgressProlongsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newTaped(10*time.Second), &mate{}
		began := time.Now()
		done := c.begin(t.Context(), calling(mcp.ToolsCall, `{"_meta":{"progressToken":"mine"}}`, of(p, able())))
		quiet := c.begin(t.Context(), calling(mcp.ToolsCall, `{}`, func(call *Call) { call.Peer = p }))
		for n := range 4 {
			time.Sleep(9 * time.Second)
			c.says(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}`, n)
		}
		want(t, "silent", (<-quiet).String(), "timeout: the server did not answer in time")
		want(t, "notes", len(p.notes), 4)
		want(t, "prolonged", (<-done).String(), "timeout: the server did not answer in time")
		want(t, "took", time.Since(began), 46*time.Second)
		want(t, "cancelled", strings.Join(c.wire.canceled, ", "), "2 timeout, 1 timeout")
	})
}

// A5: while a client is asked something, it is the server that waits; afterwards it has its full
// time again.
func TestQuestionSuspendsTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTaped(10 * time.Second)
		c.alone = true
		p := &mate{reply: func(ctx context.Context, q rpc.Message) (rpc.Reply, error) {
			time.Sleep(time.Hour + 5*time.Second)
			return result(`{"roots":[]}`)(ctx, q)
		}}
		began := time.Now()
		done := c.begin(t.Context(), calling(mcp.ToolsCall, ``, of(p, able("roots"))))
		c.says(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		want(t, "the call", (<-done).String(), "timeout: the server did not answer in time")
		want(t, "took", time.Since(began), time.Hour+15*time.Second)
		want(t, "answered", c.wire.last(), `{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}`)
	})
}

// A call without an end, the stream of changes, has no timeout.
func TestEndlessCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTaped(10 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		done := c.begin(ctx, calling(mcp.Listen, ``, func(call *Call) { call.Endless = true }))
		time.Sleep(24 * time.Hour)
		want(t, "streams", c.streams.Load(), 1)
		cancel()
		want(t, "ended", (<-done).String(), "canceled: the client left")
		want(t, "streams after it", c.streams.Load(), 0)
	})
}

// How a call ends that nobody answers, and what the wire hears of it.
func TestCallsThatAreLeft(t *testing.T) {
	for name, tt := range map[string]struct {
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want string
		told string
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
				c := newTaped(10 * time.Second)
				ctx, cancel := tt.ctx(t.Context())
				defer cancel()
				want(t, "outcome", (<-c.begin(ctx, calling(mcp.Ping, ``))).String(), tt.want)
				want(t, "told", strings.Join(c.wire.canceled, ", "), tt.told)
				want(t, "under way", len(c.flights), 0)
			})
		})
	}
}

// A message that cannot be sent is the call's failure, and leaves nothing behind.
func TestCallThatCannotBeSent(t *testing.T) {
	c := newTaped(time.Minute)
	c.wire.refuse = fault.New(fault.Full, "the server does not take any more")
	_, err := c.Call(t.Context(), calling(mcp.Ping, ``))
	want(t, "kind", fault.KindOf(err), fault.Full)
	want(t, "under way", len(c.flights), 0)
	want(t, "notification", fault.KindOf(c.Notify("x", nil)), fault.Full)
}

// A2: the end of a connection fails every call with a fault, questions are taken back, and the
// first reason counts. What was answered before the end was answered.
func TestEndOfAConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		why  error
		want string
	}{
		"classified": {fault.New(fault.BadReply, "the server prints what is no message"), "bad_reply: the server prints what is no message"},
		"not":        {errors.New("secret detail"), "unavailable: the server went away during the call"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := newTaped(time.Minute), &mate{}
				c.alone = true
				open := make([]<-chan outcome, 20)
				for i := range open {
					open[i] = c.begin(t.Context(), calling(mcp.ToolsCall, ``, of(p, able("roots"))))
				}
				c.says(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
				synctest.Wait()
				c.answered(20)
				c.end(tt.why)
				c.end(errors.New("another"))
				synctest.Wait()
				c.answered(1)
				synctest.Wait()
				for i, done := range open[:19] {
					want(t, fmt.Sprint("call ", i+1), (<-done).String(), tt.want)
				}
				want(t, "answered before", (<-open[19]).String(), `{"to":20}`)
				want(t, "questions taken back", len(p.ended), 1)
				want(t, "closed", c.wire.closed, 1)
				want(t, "why", c.Why(), tt.why)
				_, err := c.Call(t.Context(), calling(mcp.Ping, ``))
				want(t, "a call afterwards", outcome{err: err}.String(), tt.want)
				c.says(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
				synctest.Wait()
				want(t, "sent", len(c.wire.sent), 20+1) // the question's answer, which the tape takes
			})
		})
	}
}

// An answer that was given before the end counts, however the two meet.
func TestAnswersBeforeTheEndCount(t *testing.T) {
	for range 500 {
		c := newTaped(time.Minute)
		var answered atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := c.Call(t.Context(), calling(mcp.Ping, ``)); err == nil {
					answered.Add(1)
				}
			})
		}
		for c.busy.Load() < 8 {
			time.Sleep(time.Microsecond)
		}
		for id := range int64(5) {
			c.answered(id + 1)
		}
		c.Close()
		wg.Wait()
		if got := answered.Load(); got != 5 {
			t.Fatalf("5 calls were answered before the end, %d have their answer", got)
		}
	}
}

// late is a client that notes what it is told of a call that it has the reply of.
type late struct {
	mate
	over atomic.Bool
	bad  *atomic.Int64
}

func (p *late) Notify(string, rpc.Message) {
	if p.over.Load() {
		p.bad.Add(1)
	}
}

// A5: no progress and no other note of a call reaches its client after the reply, on whatever
// streams the three come.
func TestNothingFollowsAReply(t *testing.T) {
	var bad atomic.Int64
	for range 2500 {
		c, p := newTaped(time.Minute), &late{bad: &bad}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Call(t.Context(), calling(mcp.ToolsCall, ``, of(p, able())))
			p.over.Store(true)
		}()
		for c.flight(1) == nil {
			time.Sleep(time.Microsecond)
		}
		f := c.flight(1)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 4 {
				c.says(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
			}
		})
		wg.Go(func() {
			for range 4 {
				c.take([]byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`), f)
			}
		})
		wg.Go(func() { c.answered(1) })
		wg.Wait()
		<-done
	}
	if n := bad.Load(); n > 0 {
		t.Errorf("%d notes came after the reply", n)
	}
}
