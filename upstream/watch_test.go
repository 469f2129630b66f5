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

// subscribe subscribes, which must work.
func subscribe(t *testing.T, l *Lane, uris ...string) {
	t.Helper()
	for _, uri := range uris {
		if err := l.Subscribe(t.Context(), uri); err != nil {
			t.Fatal(err)
		}
	}
}

func unsubscribe(t *testing.T, l *Lane, uris ...string) {
	t.Helper()
	for _, uri := range uris {
		if err := l.Unsubscribe(t.Context(), uri); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
}

// A4: a resource is subscribed to once, however many want it, and given up with the last of them.
func TestSubscriptionIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		l, e := p.lane()
		subscribe(t, l, "u", "u", "v", "u")
		want(t, "subscribed", fmt.Sprint(p.heard(mcp.Subscribe)), `[{"uri":"u"} {"uri":"v"}]`)
		p.tells(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"u"}}`)
		synctest.Wait()
		want(t, "heard", strings.Join(e.said, " "), `updated {"uri":"u"}`)
		unsubscribe(t, l, "u", "u")
		want(t, "given up", len(p.heard(mcp.Unsubscribe)), 0)
		unsubscribe(t, l, "u", "u", "none")
		want(t, "given up in the end", fmt.Sprint(p.heard(mcp.Unsubscribe)), `[{"uri":"u"}]`)
		subscribe(t, l, "u")
		want(t, "subscribed again", len(p.heard(mcp.Subscribe)), 3)
	})
}

// A4: a server that comes back is asked again for what is still wanted, by itself; also on a lane of
// one client, which would not come back otherwise.
func TestSubscriptionsOutliveAConnection(t *testing.T) {
	for name, key := range map[string]laneKey{"shared": {}, "of one client": {class: "c", kind: ofSession, owner: "s"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPuppet(t)
				r, _ := p.remote()
				l := newLane(r, key, mcp.Client{}, nil)
				defer l.Close()
				subscribe(t, l, "v", "u", "gone")
				unsubscribe(t, l, "gone")
				if _, err := l.Call(t.Context(), calling(mcp.ToolsCall, ``, func(c *Call) { c.LogLevel = "info" })); err != nil {
					t.Fatal(err)
				}
				p.hangUp()
				time.Sleep(time.Second)
				want(t, "subscribed", fmt.Sprint(p.heard(mcp.Subscribe)[3:]), `[{"uri":"u"} {"uri":"v"}]`)
				want(t, "levels", fmt.Sprint(p.heard(mcp.SetLevel)), `[{"level":"info"} {"level":"info"}]`)
				p.leave(true)
				p.hangUp()
				synctest.Wait()
				unsubscribe(t, l, "u", "v") // of a server that is away
				want(t, "given up", len(p.heard(mcp.Unsubscribe)), 1)
				p.leave(false)
				time.Sleep(longPause)
				want(t, "subscribed in the end", len(p.heard(mcp.Subscribe)), 5)
			})
		})
	}
}

// A4: a subscription that the server refuses is none, and the next is asked for anew.
func TestSubscriptionThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t).on(mcp.Subscribe, says(`"error":{"code":-32002,"message":"no such resource"}`))
		l, _ := p.lane()
		for range 2 {
			err := l.Subscribe(t.Context(), "u")
			if fault.KindOf(err) != fault.BadReply || !strings.Contains(err.Error(), "no such resource") {
				t.Errorf("got %v", err)
			}
		}
		want(t, "asked", len(p.heard(mcp.Subscribe)), 2)
		want(t, "wanted", len(l.watch.uris), 0)
		p.leave(true)
		p.hangUp()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Subscribe(ctx, "u"); fault.KindOf(err) == fault.Internal {
			t.Errorf("got %v", err)
		}
		want(t, "wanted of a server that is away", len(l.watch.uris), 0)
	})
}

// filters are what a server of the newer era was asked to tell, stream by stream.
func (p *puppet) filters() string {
	var out []string
	for _, params := range p.heard(mcp.Listen) {
		filter, _, _ := strings.Cut(strings.TrimPrefix(params, `{"notifications":`), `,"_meta"`)
		out = append(out, filter)
	}
	return strings.Join(out, "\n")
}

// A13: a server of the newer era tells of changes on one stream, which is opened anew with each new
// wish, and again after every reconnection.
func TestListen(t *testing.T) {
	const lists = `{"toolsListChanged":true,"resourcesListChanged":true`
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t).newer()
		l, e := p.lane()
		synctest.Wait()
		subscribe(t, l, "v", "u", "v")
		unsubscribe(t, l, "v")
		want(t, "streams", p.filters(), lists+"}\n"+lists+`,"resourceSubscriptions":["v"]}`+"\n"+lists+`,"resourceSubscriptions":["u","v"]}`)
		unsubscribe(t, l, "v")
		want(t, "the last of them", p.filters()[strings.LastIndexByte(p.filters(), '\n')+1:], lists+`,"resourceSubscriptions":["u"]}`)
		want(t, "open streams", l.conn.streams.Load(), 1)
		want(t, "old requests", len(p.heard(mcp.Subscribe))+len(p.heard(mcp.Unsubscribe)), 0)
		p.tells(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"u"}}`)
		synctest.Wait()
		want(t, "heard", strings.Join(e.said, " "), `updated {"uri":"u"}`)

		n := len(p.heard(mcp.Listen))
		p.hangUp() // a stream that ends is opened again, a little later each time
		time.Sleep(firstPause)
		synctest.Wait()
		want(t, "streams after an end", len(p.heard(mcp.Listen)), n+1)
		p.hangUp()
		time.Sleep(firstPause)
		want(t, "streams too early", len(p.heard(mcp.Listen)), n+1)
		time.Sleep(firstPause)
		synctest.Wait()
		want(t, "streams after another", len(p.heard(mcp.Listen)), n+2)

		l.conn.end(fault.New(fault.Unavailable, "x"))
		time.Sleep(firstPause)
		synctest.Wait()
		want(t, "streams after a reconnection", p.filters()[strings.LastIndexByte(p.filters(), '\n')+1:], lists+`,"resourceSubscriptions":["u"]}`)
	})
}

// A13: a server that does not offer the stream is not asked for it again; one that tells of nothing
// is not asked at all.
func TestListenThatIsNotOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t).newer().on(mcp.Listen, says(unknown))
		p.lane()
		time.Sleep(time.Hour)
		want(t, "asked", len(p.heard(mcp.Listen)), 1)

		q := newPuppet(t).newer().on(mcp.Discover, says(`"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`))
		q.lane()
		time.Sleep(time.Hour)
		want(t, "asked then", len(q.heard(mcp.Listen)), 0)
	})
}

// A13: whoever subscribes at the same time, the stream that stays is one for all of them.
func TestListenForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t).newer()
		l, _ := p.lane()
		var wg sync.WaitGroup
		for n := range 8 {
			wg.Go(func() { subscribe(t, l, fmt.Sprint("u", n)) })
		}
		wg.Wait()
		synctest.Wait()
		want(t, "the last", p.filters()[strings.LastIndexByte(p.filters(), '\n')+1:],
			`{"toolsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["u0","u1","u2","u3","u4","u5","u6","u7"]}`)
		want(t, "open streams", l.conn.streams.Load(), 1)
	})
}

// A13: who subscribes on a connection that is replaced meanwhile does not end the stream of the new
// one, and is part of it.
func TestListenAcrossAReconnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t).newer()
		l, _ := p.lane()
		old, err := l.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		old.end(fault.New(fault.Unavailable, "x"))
		time.Sleep(firstPause)
		synctest.Wait()
		l.mu.Lock()
		l.watch.uris = map[string]int{"u": 1} // as Subscribe does that was given the old connection
		l.mu.Unlock()
		l.rewatch(old, []string{"u"}, "")
		synctest.Wait()
		want(t, "open streams", l.conn.streams.Load(), 1)
		if got := p.filters(); !strings.HasSuffix(got, `"resourceSubscriptions":["u"]}`) {
			t.Errorf("streams: %s", got)
		}
	})
}

// A4: a server is made louder and never quieter, and only where it offers log messages.
func TestLouder(t *testing.T) {
	call := func(t *testing.T, l *Lane, level string) {
		if _, err := l.Call(t.Context(), calling(mcp.ToolsCall, ``, func(c *Call) { c.LogLevel = level })); err != nil {
			t.Error(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		l, _ := p.lane()
		for _, level := range []string{"", "warning", "error", "warning", "info", "emergency", "debug", "info"} {
			call(t, l, level)
		}
		want(t, "levels", fmt.Sprint(p.heard(mcp.SetLevel)), `[{"level":"warning"} {"level":"info"} {"level":"debug"}]`)

		mute := newPuppet(t).on(mcp.Initialize, says(`"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}`))
		l, _ = mute.lane()
		call(t, l, "debug")
		want(t, "levels of one without", len(mute.heard(mcp.SetLevel)), 0)

		newer := newPuppet(t).newer()
		l, _ = newer.lane()
		call(t, l, "debug")
		want(t, "levels of the newer era", len(newer.heard(mcp.SetLevel)), 0)
		if got := newer.heard(mcp.ToolsCall)[0]; !strings.Contains(got, `"io.modelcontextprotocol/logLevel":"debug"`) {
			t.Errorf("called with %s", got)
		}
	})
}
