package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/mcp"
)

// A2: a lane whose server went away comes back by itself. The call that was under way fails and is
// not made again; the next one waits for the new connection.
func TestLaneComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		l, e := p.lane()
		want(t, "first", tool(t.Context(), l).String(), `{}`)
		p.on(mcp.ToolsCall, func(message) string {
			p.hangUp()
			return silence
		})
		want(t, "under way", tool(t.Context(), l).String(), "unavailable: the server went away during the call")
		p.on(mcp.ToolsCall, nil)
		began := time.Now()
		want(t, "next", tool(t.Context(), l).String(), `{}`)
		if took := time.Since(began); took < firstPause/2 || took > firstPause {
			t.Errorf("it came back after %v", took)
		}
		want(t, "turns", e.turned(), "up down up")
		want(t, "calls", len(p.heard(mcp.ToolsCall)), 3)
		want(t, "lost", len(e.lost()), 1)
		hello, up := l.Up()
		want(t, "up", up, true)
		want(t, "revision", hello.Version, mcp.V20250618)
	})
}

// A2, A11: the pause doubles with every failure in a row up to its bound, and is never the same for
// two servers that fail together.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := newPuppet(t), newPuppet(t)
		p.leave(true)
		other.leave(true)
		_, e := p.lane()
		other.lane()
		time.Sleep(10 * time.Minute)
		tries, others := p.times(), other.times()
		if len(tries) < 20 || len(others) < 20 {
			t.Fatalf("they were tried %d and %d times", len(tries), len(others))
		}
		differ := 0
		for i := range 16 {
			pause := min(firstPause<<i, longPause)
			gap := tries[i+1].Sub(tries[i])
			if gap < pause/2 || gap > pause {
				t.Errorf("pause %d was %v, want %v to %v", i+1, gap, pause/2, pause)
			}
			if gap != others[i+1].Sub(others[i]) {
				differ++
			}
		}
		if differ < 10 {
			t.Errorf("of 16 pauses of two servers only %d differ", differ)
		}
		want(t, "turns", e.turned(), "down")
		want(t, "counted", len(e.lost()), len(tries))
		want(t, "why", fault.KindOf(e.lost()[0]), fault.Unavailable)
	})
}

// A2: who waits for a server that keeps failing is refused at its fifth failure in a row, and later
// callers at once; the lane goes on trying, and the first attempt that succeeds serves again.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refused = "unavailable: the server is not available"
		p := newPuppet(t)
		p.leave(true)
		l, e := p.lane()
		want(t, "who waits", tool(t.Context(), l).String(), refused)
		want(t, "attempts", len(e.lost()), breakAfter)
		for range 100 {
			began := time.Now()
			want(t, "at once", tool(t.Context(), l).String(), refused)
			want(t, "waited", time.Since(began), 0)
		}
		time.Sleep(10 * time.Second)
		want(t, "still", tool(t.Context(), l).String(), refused)
		p.leave(false)
		time.Sleep(longPause)
		want(t, "again", tool(t.Context(), l).String(), `{}`)
		want(t, "turns", e.turned(), "down up")
		p.hangUp() // one failure after a while is one failure, and no reason to refuse
		synctest.Wait()
		want(t, "after another", tool(t.Context(), l).String(), `{}`)
	})
}

// A2: a far server that ends a connection as soon as it is there has not failed: it forgets sessions.
func TestFarServerThatHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		l, e := p.lane()
		for range 2 * breakAfter {
			if _, err := l.Conn(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.hangUp()
			synctest.Wait()
		}
		want(t, "lost", len(e.lost()), 2*breakAfter)
		want(t, "failures in a row", l.failures, 1)
	})
}

// A2: a failing server that somebody wants is tried again within five seconds, however often it has
// failed; one that nobody wants any more is left alone for longer again.
func TestWantedServerIsNotLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		p.leave(true)
		l, _ := p.lane()
		time.Sleep(10 * time.Minute)
		for range 5 {
			before := p.connections()
			tool(t.Context(), l)
			time.Sleep(patience)
			if p.connections() == before {
				t.Errorf("it was not tried in time")
			}
		}
		before := p.connections()
		time.Sleep(10 * time.Minute)
		if n := p.connections() - before; n > 1+int(10*time.Minute/(longPause/2)) {
			t.Errorf("nobody wants it, and it was tried %d times", n)
		}
	})
}

// A2: a program that ends at once was a failure however often it was greeted; one that lasted has
// no past.
func TestSteadiness(t *testing.T) {
	p := newPuppet(t)
	r, _ := p.remote()
	l := &Lane{remote: r, turned: make(chan struct{})}
	for n := range 7 {
		l.down(errors.New("it ended"), false)
		want(t, "failures", l.failures, n+1)
	}
	l.down(errors.New("it ended"), true)
	want(t, "failures after a steady time", l.failures, 1)
	for failures, longest := range map[int]time.Duration{0: firstPause, 1: firstPause, 4: 8 * firstPause, 9: 256 * firstPause, 10: longPause, 99: longPause} {
		l.failures = failures
		for range 50 {
			if d := l.pause(); d < longest/2 || d > longest {
				t.Errorf("after %d failures it pauses %v, want %v to %v", failures, d, longest/2, longest)
			}
		}
	}
}

// A2: at most 64 calls wait for a server to come up. The next is refused at once; those that wait
// are served when it is there.
func TestNotTooManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		p.on(mcp.Initialize, func(m message) string {
			m.pause(3 * time.Second)
			return greeted
		})
		l, _ := p.lane()
		var wg sync.WaitGroup
		for range maxWaiting {
			wg.Go(func() { want(t, "waited", tool(t.Context(), l).String(), `{}`) })
		}
		synctest.Wait()
		began := time.Now()
		want(t, "one more", tool(t.Context(), l).String(), "full: too many calls wait for this server")
		want(t, "waited", time.Since(began), 0)
		want(t, "calling", l.calling(), true)
		wg.Wait()
		want(t, "waiting in the end", l.waiting, 0)
		want(t, "calling in the end", l.calling(), false)
		want(t, "one more", tool(t.Context(), l).String(), `{}`)
	})
}

// A2: how waiting for a server ends that does not come up.
func TestWaitingEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(context.Context, *Lane) (context.Context, context.CancelFunc)
		want string
		took time.Duration
	}{
		"in time": {func(ctx context.Context, _ *Lane) (context.Context, context.CancelFunc) {
			return context.WithCancel(ctx)
		},
			"timeout: the server did not start in time", 4 * time.Second},
		"left": {func(ctx context.Context, _ *Lane) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, "canceled: the client left", time.Second},
		"stopped": {func(ctx context.Context, l *Lane) (context.Context, context.CancelFunc) {
			time.AfterFunc(time.Second, l.Close)
			return context.WithCancel(ctx)
		}, "unavailable: the server is being stopped", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := newPuppet(t).on(mcp.Initialize, says(silence)).lane(func(_ *Config, s *Server) { s.StartupTimeout = 4e9 })
				began := time.Now()
				ctx, cancel := tt.end(t.Context(), l)
				defer cancel()
				want(t, "call", tool(ctx, l).String(), tt.want)
				want(t, "took", time.Since(began), tt.took)
				want(t, "waiting", l.waiting, 0)
				want(t, "note", fault.KindOf(l.Notify("x", nil)), fault.Unavailable)
			})
		})
	}
}

// Settled is for who wants to know whether a server works: it does, or has failed once.
func TestSettled(t *testing.T) {
	settled := func(l *Lane) bool {
		synctest.Wait()
		select {
		case <-l.Settled():
			return true
		default:
			return false
		}
	}
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t).on(mcp.Initialize, func(m message) string {
			m.pause(time.Second)
			return greeted
		})
		l, _ := p.lane()
		early := l.Settled()
		want(t, "on its way", settled(l), false)
		want(t, "so the server", l.remote.Settled(), false)
		l.remote.AwaitSettled(nil)
		<-early
		want(t, "up", settled(l), true)
		want(t, "so the server", l.remote.Settled(), true)
		p.hangUp()
		want(t, "down again", settled(l), true)

		q := newPuppet(t)
		q.leave(true)
		l, _ = q.lane()
		want(t, "failed once", settled(l), true)

		r, _ := q.remote()
		want(t, "not started", r.Settled(), true)
		r.AwaitSettled(nil)
		slow, closing := newPuppet(t).on(mcp.Initialize, says(silence)), make(chan struct{})
		l, _ = slow.lane()
		began := time.Now()
		time.AfterFunc(time.Second, func() { close(closing) })
		l.remote.AwaitSettled(closing)
		want(t, "waited", time.Since(began), time.Second)
	})
}

// A11: a probe that is not answered in time restarts the server; any answer is a sign of life.
func TestHealthProbe(t *testing.T) {
	for name, tt := range map[string]struct {
		answer act
		lost   string // "" when the server is left alone
	}{
		"answered": {says(`"result":{}`), ""},
		"refused":  {says(unknown), ""},
		"silent":   {says(silence), "the health probe failed: the server did not answer in time: context deadline exceeded"},
		"changed":  {says(`"error":{"code":-32022,"message":"m"}`), "the health probe failed: the server refused ping: code -32022: m"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPuppet(t)
				p.on(mcp.Ping, func(m message) string {
					if m.stream == 0 {
						return tt.answer(m)
					}
					return `"result":{}`
				})
				l, e := p.lane(probed(30*time.Second, 5*time.Second))
				time.Sleep(34 * time.Second)
				want(t, "probes", len(p.heard(mcp.Ping)), 1)
				time.Sleep(2 * time.Second)
				want(t, "up", tool(t.Context(), l).String(), `{}`)
				if tt.lost == "" {
					want(t, "lost", len(e.lost()), 0)
					return
				}
				want(t, "lost", fmt.Sprint(e.lost()), "["+tt.lost+"]")
				want(t, "turns", e.turned(), "up down up")
			})
		})
	}
}

// A11: a server of the newer era is probed by the question that it must answer.
func TestHealthProbeOfTheNewerEra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t).newer()
		l, e := p.lane(probed(30*time.Second, 5*time.Second))
		time.Sleep(91 * time.Second)
		want(t, "questions", len(p.heard(mcp.Discover)), 1+3)
		want(t, "lost", len(e.lost()), 0)
		p.on(mcp.Discover, says(`"error":{"code":1,"message":"m"}`)).on(mcp.Initialize, says(greeted))
		time.Sleep(31 * time.Second)
		want(t, "lost then", fmt.Sprint(e.lost()), "[the health probe failed: the server refused server/discover: code 1: m]")
		hello, up := l.Up()
		want(t, "up", up, true)
		want(t, "era", hello.Era, mcp.EraLegacy)
	})
}

// A2: a server that forgets every session has a call made at most three times, and never begins it.
func TestForgottenAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		p.http = true
		forgets := 2
		p.on(mcp.ToolsCall, func(message) string {
			if forgets--; forgets >= 0 {
				return "404"
			}
			return `"result":{"n":1}`
		})
		l, _ := p.lane()
		want(t, "twice", tool(t.Context(), l).String(), `{"n":1}`)
		want(t, "sent", len(p.heard(mcp.ToolsCall)), 3)
		forgets = 1 << 20
		want(t, "ever", tool(t.Context(), l).String(), "unavailable: the server forgot the session")
		want(t, "sent then", len(p.heard(mcp.ToolsCall)), 6)
	})
}

// A13: two answers in a row that only a server of the other era gives make the lane ask who is
// there. One alone, or one beside good ones, does not.
func TestServerThatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const odd, good = `"error":{"code":-32022,"message":"m"}`, `"result":{}`
		p := newPuppet(t)
		l, e := p.lane()
		for _, answer := range []string{odd, good, odd, good, unknown, odd} {
			p.on(mcp.ToolsCall, says(answer))
			tool(t.Context(), l)
			synctest.Wait()
		}
		want(t, "probes after one odd answer", len(p.heard(mcp.Ping)), 0)
		tool(t.Context(), l)
		synctest.Wait()
		want(t, "probes after two", len(p.heard(mcp.Ping)), 1)
		want(t, "lost to a good probe", len(e.lost()), 0)

		p.on(mcp.Ping, says(odd))
		tool(t.Context(), l)
		synctest.Wait()
		want(t, "lost", fmt.Sprint(e.lost()), "[the server changed: the server refused ping: code -32022: m]")
		want(t, "era", l.remote.knownEra(), 0)
		time.Sleep(firstPause)
		want(t, "era when it was greeted again", l.remote.knownEra(), mcp.EraLegacy)
	})
}

// A13: answers that cannot be read are as odd as those of the other era.
func TestUnreadableAnswersAreOdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		p.http = true
		p.on(mcp.ToolsCall, says(`"odd":1`))
		l, _ := p.lane()
		for range 2 {
			want(t, "kind", fault.KindOf(tool(t.Context(), l).err), fault.BadReply)
		}
		synctest.Wait()
		want(t, "probes", len(p.heard(mcp.Ping)), 1)
	})
}

// A lane of one client connects when that client first calls, and not again before it calls again.
func TestLaneOfOneClientWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		p.on(mcp.Initialize, func(m message) string {
			m.pause(time.Second)
			return greeted
		})
		r, e := p.remote()
		l := newLane(r, laneKey{class: "c", kind: ofSession, owner: "s"}, able("roots"), nil)
		defer l.Close()
		time.Sleep(time.Hour)
		want(t, "connections", p.connections(), 0)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { want(t, "call", tool(t.Context(), l).String(), `{}`) })
			synctest.Wait()
		}
		wg.Wait()
		want(t, "greeting", p.heard(mcp.Initialize)[0],
			`{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"ctxgate","version":"1"}}`)
		p.hangUp()
		time.Sleep(time.Hour)
		want(t, "connections after it was lost", p.connections(), 1)
		want(t, "turns", e.turned(), "up down")
		want(t, "call", tool(t.Context(), l).String(), `{}`)
		want(t, "connections", p.connections(), 2)
		want(t, "class", l.Class(), "c")
		want(t, "shared", l.Shared(), false)
		want(t, "server", l.Server()+" "+l.Remote().ID()+" "+l.Remote().Entry().ID, "a a a")
	})
}

// A lane that is closed ends what is under way, and leaves nothing; the bubble would not end if a
// goroutine were left.
func TestCloseOfALane(t *testing.T) {
	for name, tt := range map[string]struct {
		set  func(*puppet)
		want string
	}{
		"under way": {func(p *puppet) { p.on(mcp.ToolsCall, says(silence)) }, "unavailable: the server is being stopped"},
		"greeting":  {func(p *puppet) { p.on(mcp.Initialize, says(silence)) }, "unavailable: the server is being stopped"},
		"pausing":   {func(p *puppet) { p.leave(true) }, "unavailable: the server is being stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPuppet(t)
				tt.set(p)
				l, e := p.lane()
				done := make(chan outcome, 1)
				go func() { done <- tool(t.Context(), l) }()
				synctest.Wait()
				l.Close()
				want(t, "call", (<-done).String(), tt.want)
				want(t, "afterwards", tool(t.Context(), l).String(), "unavailable: the server is being stopped")
				if strings.Contains(e.turned(), "up down") {
					t.Error("the end that was asked for was told as a failure")
				}
			})
		})
	}
}

// A7: what a server says outside any call reaches who listens, by its kind.
func TestWhatALaneHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		l, e := p.lane()
		tool(t.Context(), l)
		for _, method := range []string{
			mcp.ToolsChanged, mcp.PromptsChanged, mcp.ResourcesChanged, mcp.ResourceUpdated, mcp.LogMessage, "notifications/odd", mcp.Acknowledged,
		} {
			p.tells(`{"jsonrpc":"2.0","method":"` + method + `","params":{}}`)
		}
		synctest.Wait()
		want(t, "heard", strings.Join(e.said, ", "), "changed {}, changed {}, changed {}, updated {}, said {}, said {}")
		if err := l.Notify("notifications/roots/list_changed", []byte(`{"a":1}`)); err != nil {
			t.Error(err)
		}
		want(t, "told", strings.Join(p.heard(mcp.RootsChanged), " "), `{"a":1}`)
	})
}
