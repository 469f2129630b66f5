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

// met is a Remote that has met its server, without one: its shared lane connects to nothing.
func met(t *testing.T, era mcp.Era, mend ...func(*Config, *Server)) *Remote {
	r, _ := newPuppet(t).remote(mend...)
	r.era, r.older = era, olderRefused // a server of one era
	r.shared = newLane(r, laneKey{kind: "nobody"}, mcp.Client{}, nil)
	r.sweep = time.AfterFunc(r.cfg.IdleTimeout.D()/2, r.sweepIdle)
	return r
}

func few(lanes int) func(*Config, *Server) {
	return func(c *Config, _ *Server) { c.MaxLanes = lanes }
}

// pick picks a lane, which must be there.
func pick(t *testing.T, r *Remote, who Who) (*Lane, func()) {
	t.Helper()
	l, release, err := r.Pick(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	return l, release
}

// named is a key as tests write it.
func named(k laneKey) string {
	name := strings.TrimSpace(k.kind + " " + k.owner)
	if k.kind == ofCall {
		name += fmt.Sprint(" ", k.n)
	}
	return name
}

// lanesOf are the owners of a server's own lanes, sorted.
func (r *Remote) lanesOf() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for key := range maps.Keys(r.lanes) {
		names = append(names, named(key))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// A5: which lane a client gets. Alone is only one that its server could ask without saying whom it
// means; all others share.
func TestPick(t *testing.T) {
	kinds := map[string]struct {
		set              func(*Server)
		session, without string // the lane of a client that can be asked
	}{
		"program":  {func(s *Server) { s.URL, s.Command = "", []string{"x"} }, "session s", "call me 0"},
		"http":     {func(s *Server) { s.Transport = "http" }, "session s", "client me"},
		"sse":      {func(s *Server) { s.Transport = "sse" }, "session s", "call me 0"},
		"json-rpc": {func(s *Server) { s.URL, s.RPC = "", "http://far.test" }, "nobody", "nobody"},
	}
	yesno := []bool{false, true}
	for name, kind := range kinds {
		for _, era := range []mcp.Era{mcp.EraLegacy, mcp.EraModern} {
			for bits := range 16 {
				answers, session, shared, sole := yesno[bits&1], yesno[bits>>1&1], yesno[bits>>2&1], yesno[bits>>3&1]
				who, lane := Who{Client: able(), Subject: "me"}, "nobody"
				if answers {
					who.Client = able("elicitation")
				}
				if session {
					who.Session = "s"
				}
				if answers && era == mcp.EraLegacy && !shared && !sole {
					lane = kind.without
					if session {
						lane = kind.session
					}
				}
				synctest.Test(t, func(t *testing.T) {
					r := met(t, era, func(_ *Config, s *Server) {
						kind.set(s)
						s.Shared = shared
					})
					r.sole = sole
					l, release := pick(t, r, who)
					want(t, fmt.Sprintf("%s, %s, answers %v, session %v, shared %v, sole %v", name, era, answers, session, shared, sole), named(l.key), lane)
					release()
				})
			}
		}
	}
}

// Clients of one class can answer the same; all who can answer nothing are one.
func TestClass(t *testing.T) {
	want(t, "none", Class(able()), "")
	want(t, "nothing that is asked", Class(able("experimental")), "")
	want(t, "roots", Class(able("roots")), `{"roots":{}}`)
	want(t, "roots, newer era", Class(ofEra(mcp.V20260728, "roots")), `{"roots":{}}`)
	want(t, "roots, older era", Class(ofEra(mcp.V20250618, "roots")), `legacy {"roots":{}}`)
	want(t, "none, older era", Class(ofEra(mcp.V20250618)), "")
}

// A server that turned out to speak the oldest transport is one whose messages share a stream.
func TestPickOfTheOldestTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := met(t, mcp.EraLegacy, func(_ *Config, s *Server) { s.Transport = "http" })
		r.sse = true
		l, release := pick(t, r, Who{Client: able("roots"), Subject: "me"})
		want(t, "lane", named(l.key), "call me 0")
		release()
	})
}

// A5: until a server has been met nobody knows whether it asks: a client that it could ask waits,
// and no other does.
func TestPickWaitsToMeetTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		p.on(mcp.Initialize, func(m message) string {
			m.pause(2 * time.Second)
			return greeted
		})
		r, _ := p.remote()
		_, _, err := r.Pick(t.Context(), Who{Client: able("roots")})
		want(t, "before the start", fault.KindOf(err), fault.Unavailable)
		r.Start()
		began := time.Now()
		l, _ := pick(t, r, Who{Client: able()})
		want(t, "shared", l.Shared(), true)
		want(t, "waited", time.Since(began), 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err = r.Pick(ctx, Who{Client: able("roots")})
		want(t, "not met in time", fault.KindOf(err), fault.Timeout)
		l, release := pick(t, r, Who{Client: able("roots"), Subject: "me"})
		want(t, "own", named(l.key), "call me 0")
		want(t, "waited", time.Since(began), 2*time.Second)
		release()
		r.Close()
		_, _, err = r.Pick(t.Context(), Who{})
		want(t, "afterwards", fault.KindOf(err), fault.Unavailable)
		r.Start()
	})
}

// A5: nobody gets a lane before the era is known that says whose it may be.
func TestLaneIsMetBeforeItIsThere(t *testing.T) {
	r, _ := newPuppet(t).remote()
	l := &Lane{remote: r, turned: make(chan struct{})}
	up := make(chan struct{})
	r.mu.Lock()
	go func() {
		l.up(newTaped(time.Minute).Conn)
		close(up)
	}()
	time.Sleep(20 * time.Millisecond)
	want(t, "connection", l.Current(), nil)
	r.mu.Unlock()
	<-up
	want(t, "era", r.knownEra(), mcp.EraLegacy)
}

// A5: a question on the stream that all messages share reaches the client of a lane that is its own,
// and nobody on a lane that is shared, whoever calls there.
func TestQuestionsByLane(t *testing.T) {
	for name, tt := range map[string]struct {
		shared, sole bool
		asked        string
	}{
		"own lane":       {asked: "call"},
		"shared by all":  {shared: true, asked: ""},
		"one client":     {sole: true, asked: "call"},
		"one and shared": {sole: true, shared: true, asked: "call"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, answer := newPuppet(t), make(chan message, 1)
				p.on("", func(m message) string {
					answer <- m
					return silence
				})
				p.on(mcp.ToolsCall, func(message) string {
					p.tells(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
					if m := <-answer; m.Error != nil {
						return `"result":{"error":` + string(m.Error) + `}`
					}
					return `"result":"call"`
				})
				r, _ := p.remote(func(_ *Config, s *Server) { s.Shared = tt.shared })
				if tt.sole {
					r.StartFor(able("roots"), &mate{})
				} else {
					r.Start()
				}
				l, release := pick(t, r, Who{Client: able("roots"), Subject: "me"})
				defer release()
				m, err := l.Call(t.Context(), calling(mcp.ToolsCall, ``, of(&mate{reply: result(`{"roots":[]}`)}, able("roots"))))
				if err != nil {
					t.Fatal(err)
				}
				if got := string(m.Result.Of(m.Body)); tt.asked != "" && got != `"call"` || tt.asked == "" && !strings.Contains(got, "-32601") {
					t.Errorf("the server was answered %s", got)
				}
			})
		})
	}
}

// A15: a server that is taken out of service answers what is under way, for as long as it may. A
// stream of changes does not count.
func TestRetire(t *testing.T) {
	for name, tt := range map[string]struct {
		call, took time.Duration
		want       string
	}{
		"short": {time.Second, time.Second, `{"n":1}`},
		"long":  {time.Minute, 10 * time.Second, "unavailable: the server is being stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPuppet(t).newer()
				p.on(mcp.ToolsCall, func(m message) string {
					m.pause(tt.call)
					return `"result":{"n":1}`
				})
				r, _ := p.remote()
				r.Start()
				done := make(chan outcome, 1)
				go func() { done <- tool(t.Context(), r.Shared()) }()
				synctest.Wait()
				want(t, "streams", len(p.heard(mcp.Listen)), 1)
				began := time.Now()
				r.Retire(10 * time.Second)
				if took := time.Since(began); took < tt.took || took > tt.took+100*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				want(t, "call", (<-done).String(), tt.want)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r, _ := newPuppet(t).remote()
		r.Start()
		tool(t.Context(), r.Shared())
		l, release := pick(t, r, Who{Client: able("roots"), Subject: "me"})
		tool(t.Context(), l)
		began := time.Now()
		time.AfterFunc(time.Minute, release)
		r.Retire(time.Hour)
		if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("with a lane that is lent it took %v", took)
		}
		began = time.Now()
		r.Retire(time.Hour)
		want(t, "an idle one takes", time.Since(began), 0)
	})
}

// Room is made while lanes are in use: who looks for the oldest must not read what others write.
func TestRoomIsMadeMeanwhile(t *testing.T) {
	r := met(t, mcp.EraLegacy, few(3))
	gone, leave := context.WithCancel(t.Context())
	leave()
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range 200 {
				l, release, err := r.Pick(t.Context(), Who{Client: able("roots"), Subject: fmt.Sprint(n, i/10)})
				if err != nil {
					want(t, "refused", fault.KindOf(err), fault.Full)
					continue
				}
				_, _ = l.Conn(gone)
				release()
			}
		})
	}
	wg.Wait()
}
