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
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
)

// A5: each session has a lane, each class of one as well, and they end with it and with nothing else.
func TestLanesOfSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, owner := met(t, mcp.EraLegacy), &mate{}
		one, _ := pick(t, r, Who{Client: able("roots"), Session: "1", Owner: owner})
		again, _ := pick(t, r, Who{Client: able("roots"), Session: "1", Owner: owner})
		other, _ := pick(t, r, Who{Client: able("sampling"), Session: "1", Owner: owner})
		two, _ := pick(t, r, Who{Client: able("roots"), Session: "2"})
		want(t, "same session", again, one)
		if one == two || one == other || other == two {
			t.Error("lanes are shared")
		}
		want(t, "owner", one.owner, Peer(owner))
		want(t, "class", one.Class(), `{"roots":{}}`)
		r.Leave("1")
		r.Leave("none")
		<-one.stopped
		<-other.stopped
		want(t, "left", r.lanesOf(), "session 2")
		select {
		case <-two.stopped:
			t.Error("the lane of another session was closed")
		default:
		}
		fresh, _ := pick(t, r, Who{Client: able("roots"), Session: "1"})
		if fresh == one {
			t.Error("a lane that was left is used again")
		}
	})
}

// A5: a client without a session has a lane for one call at a time: the same for one call after the
// other, another for each that is made meanwhile, and never one of another client or class.
func TestBorrowedLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := met(t, mcp.EraLegacy)
		me := Who{Client: able("roots"), Subject: "me"}
		a, releaseA := pick(t, r, me)
		releaseA()
		b, releaseB := pick(t, r, me)
		want(t, "one after the other", b, a)
		c, releaseC := pick(t, r, me)
		d, releaseD := pick(t, r, me)
		if c == b || d == c || d == b {
			t.Error("two calls have one lane")
		}
		releaseB()
		again, releaseAgain := pick(t, r, me)
		want(t, "the first that is free", again, a)
		you, releaseYou := pick(t, r, Who{Client: able("roots"), Subject: "you"})
		class, releaseClass := pick(t, r, Who{Client: able("sampling"), Subject: "me"})
		if you == a || class == a {
			t.Error("a lane is lent to another")
		}
		want(t, "lanes", r.lanesOf(), "call me 0, call me 0, call me 1, call me 2, call you 0")
		for _, release := range []func(){releaseAgain, releaseC, releaseD, releaseYou, releaseClass} {
			release()
		}
	})
}

// A client's own process is not ended while it is in use: what a session did on its lane may be
// needed until the idle timeout has passed, so a newcomer is refused and told which setting it is.
func TestLaneOfALiveSessionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := met(t, mcp.EraLegacy, few(4), func(c *Config, _ *Server) { c.IdleTimeout = unit.Duration(10 * time.Minute) })
		session := func(name string) (*Lane, error) {
			time.Sleep(time.Second)
			l, release, err := r.Pick(t.Context(), Who{Client: able("roots"), Session: name, Caller: name})
			release()
			return l, err
		}
		first, _ := session("1")
		for i := range 200 {
			_, _ = session(fmt.Sprint("other ", i))
		}
		again, err := session("1")
		want(t, "lane after 200 others came", again, first)
		want(t, "error", err, nil)
		_, err = session("new")
		want(t, "refusal", fault.KindOf(err), fault.Full)
		if !strings.Contains(fault.PublicOf(err), "max_client_connections = 4") {
			t.Errorf("the refusal does not name the setting: %q", fault.PublicOf(err))
		}
		r.sweep.Stop() // room is made when it is needed, not only by the sweep
		time.Sleep(9 * time.Minute)
		again, _ = session("1")
		want(t, "lane that is used now and then", again, first)
		time.Sleep(2 * time.Minute) // the others have not been used for 11 minutes
		if _, err = session("new"); err != nil {
			t.Error(err)
		}
		if got := r.lanesOf(); strings.Contains(got, "other 0,") || !strings.Contains(got, "session 1,") || !strings.Contains(got, "session new") {
			t.Errorf("the least recently used lane was not the one to go: %s", got)
		}
	})
}

// A lane in use is never ended to make room, whatever it is in use for.
func TestLanesInUseAreKept(t *testing.T) {
	for name, use := range map[string]func(*Lane){
		"call that holds it": func(l *Lane) { l.holds++ },
		"call that waits":    func(l *Lane) { l.waiting++ },
		"subscription":       func(l *Lane) { l.watch.uris = map[string]int{"u": 1} },
		"call under way": func(l *Lane) {
			l.conn = newTaped(time.Minute).Conn
			l.conn.busy.Add(1)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := met(t, mcp.EraLegacy, few(1))
			l, release := pick(t, r, Who{Client: able("roots"), Subject: "me"})
			release()
			l.mu.Lock()
			use(l)
			l.mu.Unlock()
			_, _, err := r.Pick(t.Context(), Who{Client: able("roots"), Subject: "you", Caller: "you"})
			want(t, name, fault.KindOf(err), fault.Full)
		})
	}
}

// The lane of a client of the newer era makes room when its connection is closed, least recently
// used first.
func TestLanesWithoutASessionMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := met(t, mcp.EraLegacy, few(3))
		call := func(client string) func() {
			time.Sleep(time.Second)
			open, leave := context.WithCancel(t.Context())
			_, release := pick(t, r, Who{Client: able("roots"), Subject: client, Caller: client, Conn: time.Now().String(), Open: open})
			return func() { release(); leave() }
		}
		call("a")()
		call("b")()
		call("c")()
		release := call("a") // b is the one that was used longest ago
		call("d")()
		want(t, "lanes", r.lanesOf(), "call a 0, call c 0, call d 0")
		call("e")()
		call("f")()
		want(t, "lanes while a has its own", r.lanesOf(), "call a 0, call e 0, call f 0")
		release()
	})
}

// Processes have a share per caller: what one caller opens leaves half of them for the others.
func TestLanesHaveAShareForEachCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := met(t, mcp.EraLegacy, few(8))
		for i := range 4 {
			pick(t, r, Who{Client: able("roots"), Session: fmt.Sprint(i), Caller: "greedy"})
		}
		for _, who := range []Who{{Session: "more"}, {Subject: "more"}} {
			who.Client, who.Caller = able("roots"), "greedy"
			_, _, err := r.Pick(t.Context(), who)
			want(t, "over its share", fault.KindOf(err), fault.Full)
			if !strings.Contains(fault.PublicOf(err), "max_client_connections = 8") {
				t.Errorf("the refusal does not name the setting: %q", fault.PublicOf(err))
			}
		}
		for i := range 4 {
			pick(t, r, Who{Client: able("roots"), Session: fmt.Sprint("modest ", i), Caller: "modest"})
		}
		r.Leave("0")
		pick(t, r, Who{Client: able("roots"), Session: "more", Caller: "greedy"})
	})
}

// Two clients never get the same lane, whatever they are called.
func TestLanesAreOfOneClient(t *testing.T) {
	for _, set := range []func(*Server){
		func(s *Server) { s.URL, s.Command = "", []string{"x"} }, func(s *Server) { s.Transport = "http" },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := met(t, mcp.EraLegacy, func(_ *Config, s *Server) { set(s) })
			seen := map[*Lane]string{}
			for _, who := range []Who{
				{Session: "me"}, {Subject: "me"}, {Subject: "me 0"}, {Subject: "session me"}, {Session: "call me 0"}, {Session: "me 0"},
				{Subject: "default\x00anonymous\x001"}, {Subject: "default\x00anonymous\x0011"},
			} {
				who.Client = able("roots")
				l, release := pick(t, r, who)
				release()
				if other, there := seen[l]; there {
					t.Errorf("%+v has the lane of %s", who, other)
				}
				seen[l] = fmt.Sprintf("%+v", who)
			}
		})
	}
}

// Of clients that say the same of themselves each has a lane of its own while its connection is
// open; a client that comes back by another connection finds its lane again.
func TestLanesAreToldApartByConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := met(t, mcp.EraLegacy)
		by := func(conn string) (Who, context.CancelFunc) {
			open, leave := context.WithCancel(t.Context())
			return Who{Client: able("roots"), Subject: "me", Conn: conn, Open: open}, leave
		}
		one, leave := by("1")
		two, _ := by("2")
		three, _ := by("3")
		first, release := pick(t, r, one)
		release()
		second, release := pick(t, r, two)
		release()
		if first == second {
			t.Fatal("two clients with open connections have one lane")
		}
		again, release := pick(t, r, one)
		beside, releaseBeside := pick(t, r, one) // two calls at once
		if again != first || beside == first || beside == second {
			t.Error("a client did not get its own lane, or one for two calls at once")
		}
		release()
		releaseBeside()
		leave()
		back, release := pick(t, r, three)
		if back != first {
			t.Error("a client that came back by another connection did not find its lane")
		}
		other, _ := pick(t, r, Who{Client: able("roots"), Subject: "you", Conn: "1"})
		if other == beside {
			t.Error("a client of another name has the lane")
		}
		release()
		want(t, "in the end", r.lanesOf(), "call me 0, call me 1, call me 2, call you 0")
	})
}

// A client's notification is for the lane that the client has, and makes none.
func TestFindMakesNoLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := met(t, mcp.EraLegacy)
		me := Who{Client: able("roots"), Session: "me"}
		if _, there := r.Find(me); there || r.lanesOf() != "" {
			t.Errorf("there are lanes: %s", r.lanesOf())
		}
		l, _ := pick(t, r, me)
		if found, _ := r.Find(me); found != l {
			t.Error("the client's lane was not found")
		}
		if found, _ := r.Find(Who{Client: able()}); found != r.shared {
			t.Error("the shared lane was not found")
		}
		r.Close()
		if _, there := r.Find(me); there {
			t.Error("a closed server has a lane")
		}
	})
}

// A notification of a client without a session goes to the lane of its own connection, never to that of
// another client that says the same of itself.
func TestFindTellsClientsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := met(t, mcp.EraLegacy)
		by := func(conn string) Who { return Who{Client: able("roots"), Subject: "me", Conn: conn, Open: t.Context()} }
		first, _ := pick(t, r, by("1"))
		left := by("2")
		var leave context.CancelFunc
		left.Open, leave = context.WithCancel(t.Context())
		second, _ := pick(t, r, left)
		for conn, want := range map[string]*Lane{"1": first, "2": second, "3": nil} {
			if found, there := r.Find(by(conn)); found != want || there != (want != nil) {
				t.Errorf("connection %s: not its own lane", conn)
			}
		}
		leave()
		if found, _ := r.Find(by("3")); found != second {
			t.Error("a client that came back by another connection does not find its lane")
		}
	})
}

// A lane that nobody used for the time that the config says is closed; the shared one never.
func TestIdleLanesAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		r, _ := p.remote(func(c *Config, _ *Server) { c.IdleTimeout = unit.Duration(10 * time.Minute) })
		r.Start()
		tool(t.Context(), r.Shared())
		idle, releaseIdle := pick(t, r, Who{Client: able("roots"), Session: "idle"})
		used, releaseUsed := pick(t, r, Who{Client: able("roots"), Session: "used"})
		releaseIdle()
		releaseUsed()
		tool(t.Context(), idle)
		for range 6 {
			tool(t.Context(), used)
			time.Sleep(4 * time.Minute)
		}
		<-idle.stopped
		want(t, "lanes", r.lanesOf(), "session used")
		want(t, "shared", tool(t.Context(), r.Shared()).String(), `{}`)
		time.Sleep(16 * time.Minute)
		want(t, "lanes in the end", r.lanesOf(), "")
		want(t, "connections", p.connections(), 3)
	})
}

// Lanes are picked, used, left and closed for room all at once.
func TestLanesUnderFire(t *testing.T) {
	r, _ := newPuppet(t).remote(few(4))
	r.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tool(ctx, r.Shared())
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			for i := range 20 {
				who := Who{Client: able("roots"), Subject: "me"}
				if n%2 == 0 {
					who.Session = fmt.Sprint(n, i%3)
				}
				l, release, err := r.Pick(ctx, who)
				if err != nil {
					want(t, "refused", fault.KindOf(err), fault.Full)
					time.Sleep(time.Millisecond)
					continue
				}
				if got := tool(ctx, l); got.err != nil && fault.KindOf(got.err) != fault.Unavailable {
					t.Error(got)
				}
				release()
				if i%5 == 0 {
					r.Leave(who.Session)
				}
			}
		})
	}
	wg.Wait()
	if n := strings.Count(r.lanesOf(), ",") + 1; n > 4 {
		t.Errorf("there are %d lanes", n)
	}
}
