package upstream

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
)

// ofEra is a client of a revision that can answer what its capabilities name.
func ofEra(version string, capabilities ...string) mcp.Client {
	c := able(capabilities...)
	c.Version = version
	return c
}

// greetings are how often a server was greeted in each era.
func (p *puppet) greetings() string {
	return fmt.Sprintf("%d older, %d newer", len(p.heard(mcp.Initialize)), len(p.heard(mcp.Discover)))
}

func eraOf(t *testing.T, l *Lane) mcp.Era {
	t.Helper()
	conn, err := l.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn.Hello().Era
}

// A server that speaks both eras is spoken to in its client's: sessions of the older era that it could
// ask have a connection of their own each, greeted with initialize; all others share one of the newer.
func TestServerOfBothErasIsGreetedInItsClientsEra(t *testing.T) {
	for _, listed := range mcp.Legacy {
		t.Run(listed, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPuppet(t).bothEras(listed)
				r, ear := p.remote()
				r.Start()
				want(t, "everybody's", eraOf(t, r.Shared()), mcp.EraModern)
				for _, who := range []Who{
					{Client: ofEra(mcp.V20260728, "sampling"), Subject: "me"},
					{Client: ofEra(mcp.V20251125), Session: "1"},
					{},
				} {
					l, _ := pick(t, r, who)
					want(t, fmt.Sprintf("%+v shares", who), l.Shared(), true)
				}
				want(t, "greetings", p.greetings(), "0 older, 1 newer")

				asking := Who{Client: ofEra(mcp.V20251125, "sampling"), Session: "1", Owner: &mate{}}
				l, _ := pick(t, r, asking)
				again, _ := pick(t, r, asking)
				want(t, "the same again", again, l)
				want(t, "older", eraOf(t, l), mcp.EraLegacy)
				want(t, "the server is told of its client", p.heard(mcp.Initialize)[0],
					`{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"ctxgate","version":"1"}}`)
				asking.Session = "2"
				other, _ := pick(t, r, asking)
				want(t, "another session's", named(other.key), "session 2")
				want(t, "greetings", p.greetings(), "2 older, 1 newer")

				newer, _ := pick(t, r, Who{Client: ofEra(mcp.V20260728, "sampling"), Subject: "me"})
				want(t, "newer clients still share", newer.Shared(), true)
				want(t, "era", eraOf(t, newer), mcp.EraModern)
				want(t, "lost", len(ear.lost()), 0)
				r.Leave("1")
				<-l.stopped
				want(t, "lanes", r.lanesOf(), "session 2")
			})
		})
	}
}

// What a server of both eras asks during a call of an older session reaches that session.
func TestServerOfBothErasAsksItsOlderClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, answered := newPuppet(t).bothEras(mcp.V20251125), make(chan string, 1)
		p.on("", func(m message) string {
			answered <- string(m.Result)
			return silence
		})
		r, _ := p.remote()
		r.Start()
		eraOf(t, r.Shared())
		client := ofEra(mcp.V20251125, "roots")
		owner, caller := &mate{}, &mate{reply: result(`{"roots":[]}`)}
		l, _ := pick(t, r, Who{Client: client, Session: "1", Owner: owner})
		conn, err := l.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.on(mcp.ToolsCall, func(message) string {
			conn.take([]byte(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`), nil)
			return `"result":` + <-answered
		})
		m, err := l.Call(t.Context(), calling(mcp.ToolsCall, `{}`, of(caller, client)))
		want(t, "error", err, nil)
		want(t, "answer", string(m.Result.Of(m.Body)), `{"roots":[]}`)
		want(t, "asked", len(caller.asked), 1)
		want(t, "nobody else", len(owner.asked), 0)
	})
}

// A server that does not serve the older era, in whatever way it says so, serves older sessions in the
// newer one. One session finds that out while all others wait, until the server is met anew.
func TestServerOfTheNewerEraOnlyIsTriedOnce(t *testing.T) {
	refuses := map[string]func(*puppet){
		"refuses":           func(p *puppet) { p.on(mcp.Initialize, says(unknown)) },
		"keeps no sessions": func(p *puppet) { p.forgets = true },
		"another revision":  func(p *puppet) { p.on(mcp.Initialize, says(`"result":{"protocolVersion":"2026-07-28"}`)) },
		"status":            func(p *puppet) { p.on(mcp.Initialize, says("400")) },
	}
	for name, set := range refuses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPuppet(t).bothEras(mcp.V20251125)
				set(p)
				r, ear := p.remote()
				r.Start()
				eraOf(t, r.Shared())
				var wg sync.WaitGroup
				for n := range 10 {
					wg.Go(func() {
						l, _ := pick(t, r, Who{Client: ofEra(mcp.V20251125, "sampling"), Session: fmt.Sprint(n)})
						want(t, "shares", l.Shared(), true)
						want(t, "result", tool(t.Context(), l).String(), `{}`)
					})
				}
				wg.Wait()
				want(t, "greetings", p.greetings(), "1 older, 1 newer")
				synctest.Wait()
				want(t, "lanes", r.lanesOf(), "")
				want(t, "lost", len(ear.lost()), 0)

				p.bothEras(mcp.V20251125).forgets = false
				r.Shared().Current().end(fmt.Errorf("gone"))
				eraOf(t, r.Shared())
				l, _ := pick(t, r, Who{Client: ofEra(mcp.V20251125, "sampling"), Session: "0"})
				want(t, "when it was met anew", eraOf(t, l), mcp.EraLegacy)
			})
		})
	}
}

// A server that has shown that it serves the older era is not given up for one failure.
func TestServerOfBothErasMayFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t).bothEras(mcp.V20251125)
		r, _ := p.remote()
		r.Start()
		eraOf(t, r.Shared())
		p.on(mcp.Initialize, says("503"))
		time.AfterFunc(200*time.Millisecond, func() { p.on(mcp.Initialize, says(greeted)) }) // after five failures it would be given up
		l, _ := pick(t, r, Who{Client: ofEra(mcp.V20251125, "sampling"), Session: "1"})
		want(t, "era", eraOf(t, l), mcp.EraLegacy)
	})
}

// A session whose server no longer serves the older era goes on in the newer one.
func TestServerThatGivesUpTheOlderEra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t).bothEras(mcp.V20251125)
		r, _ := p.remote()
		r.Start()
		eraOf(t, r.Shared())
		who := Who{Client: ofEra(mcp.V20251125, "sampling"), Session: "1"}
		l, release := pick(t, r, who)
		release()
		p.newer()
		l.Current().end(fmt.Errorf("gone"))
		<-l.stopped
		l, _ = pick(t, r, who)
		want(t, "shares", l.Shared(), true)
	})
}

// A notification starts no connection of the older era.
func TestNotificationStartsNoOlderConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t).bothEras(mcp.V20251125)
		r, _ := p.remote()
		r.Start()
		eraOf(t, r.Shared())
		l, there := r.Find(Who{Client: ofEra(mcp.V20251125, "roots"), Session: "1"})
		want(t, "there", there, true)
		want(t, "shares", l.Shared(), true)
		synctest.Wait()
		want(t, "greetings", p.greetings(), "0 older, 1 newer")
	})
}

// The only client of a gateway has its servers greeted in its era, when they can: over HTTP, a server
// that keeps no sessions could not ask it anything in the older one.
func TestOnlyClientOverHTTP(t *testing.T) {
	for name, tt := range map[string]struct {
		set     func(*puppet)
		version string
		era     mcp.Era
		first   string
	}{
		"older client, both eras":         {func(p *puppet) { p.bothEras(mcp.V20250618) }, mcp.V20251125, mcp.EraLegacy, "1 older, 1 newer"},
		"older client, both, no sessions": {func(p *puppet) { p.bothEras(mcp.V20251125).forgets = true }, mcp.V20251125, mcp.EraModern, "1 older, 1 newer"},
		"older client, both, refuses":     {func(p *puppet) { p.bothEras(mcp.V20251125).on(mcp.Initialize, says(unknown)) }, mcp.V20251125, mcp.EraModern, "1 older, 1 newer"},
		"older client, newer only":        {func(p *puppet) { p.newer() }, mcp.V20251125, mcp.EraModern, "0 older, 1 newer"},
		"older client, older only":        {func(p *puppet) { p.http = true }, mcp.V20251125, mcp.EraLegacy, "1 older, 1 newer"},
		"newer client, both eras":         {func(p *puppet) { p.bothEras(mcp.V20251125) }, mcp.V20260728, mcp.EraModern, "0 older, 1 newer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPuppet(t)
				tt.set(p)
				r, _ := p.remote()
				r.StartFor(ofEra(tt.version, "roots"), &mate{})
				want(t, "era", eraOf(t, r.Shared()), tt.era)
				want(t, "greetings", p.greetings(), tt.first)
				want(t, "result", tool(t.Context(), r.Shared()).String(), `{}`)
				r.Shared().Current().end(fmt.Errorf("gone"))
				want(t, "era of the next connection", eraOf(t, r.Shared()), tt.era)
			})
		})
	}
}

// Over HTTP a server that lists no older revision is never greeted in the older era: a request without
// the newer era's headers would be a mistake.
func TestServerThatListsNoOlderRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t).bothEras()
		r, _ := p.remote()
		r.Start()
		eraOf(t, r.Shared())
		l, _ := pick(t, r, Who{Client: ofEra(mcp.V20251125, "sampling"), Session: "1"})
		want(t, "shares", l.Shared(), true)
		want(t, "greetings", p.greetings(), "0 older, 1 newer")
	})
}
