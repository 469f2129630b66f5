package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// quick makes a program's start and stop short.
func quick(start, stop time.Duration) func(*upstream.Config, *upstream.Server) {
	return func(_ *upstream.Config, s *upstream.Server) {
		s.StartupTimeout, s.ShutdownGrace = unit.Duration(start), unit.Duration(stop)
	}
}

// launch starts a program's lane. Tests with programs wait a lot, so they run side by side; what they
// leave behind is seen when all are over.
func launch(t *testing.T, entry upstream.Server, mend func(*upstream.Config, *upstream.Server), env ...string) *near {
	t.Helper()
	n := assemble(t, entry, mend, env...)
	n.Start()
	return n
}

// assemble is launch without the start.
func assemble(t *testing.T, entry upstream.Server, mend func(*upstream.Config, *upstream.Server), env ...string) *near {
	t.Helper()
	cfg, n := upstream.Default(), &near{}
	cfg.HealthcheckInterval, cfg.ResponseTimeout = 0, unit.Duration(10*time.Second)
	full := entry
	full.SetDefaults()
	full.ID = "a"
	if mend != nil {
		mend(&cfg, &full)
	}
	n.Remote = upstream.NewRemote(full, cfg, upstream.Deps{
		Listener: &n.ears, Limits: func() (int, int) { return 64, 4000 }, Env: env,
		Count: func(err error) {
			n.count.Add(1)
			n.mu.Lock()
			n.lost = append(n.lost, err)
			n.mu.Unlock()
		},
	})
	t.Cleanup(n.Close)
	return n
}

// lines are the strings of a result.
func (n *near) lines(t *testing.T, name string) []string {
	t.Helper()
	var out []string
	if err := json.Unmarshal([]byte(n.must(t, mcp.ToolsCall, fmt.Sprintf(`{"name":%q}`, name))), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// until waits for something that is about to be so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for range 1000 {
		if so() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("it was never so: %s", what)
}

// A2, A12: a program is started, greeted in its era, called and left, whatever else it prints.
func TestProgram(t *testing.T) {
	t.Parallel()
	for flag, era := range map[string]mcp.Era{"banner": mcp.EraLegacy, "modern": mcp.EraModern} {
		n := launch(t, program("banner", flag), nil)
		n.must(t, mcp.ToolsCall, `{"name":"x"}`)
		n.must(t, mcp.ToolsCall, `{"name":"junk","arguments":{"n":50}}`)
		hello, up := n.Shared().Up()
		if !up || hello.Era != era || n.count.Load() != 0 {
			t.Errorf("%s: %s, up %v, %d connections lost", flag, hello.Era, up, n.count.Load())
		}
	}
}

// A program that is told that nobody waits any more hears our id of the call, and never that of its
// greeting.
func TestProgramHearsOfCancellation(t *testing.T) {
	t.Parallel()
	n := launch(t, program(), nil)
	n.must(t, mcp.ToolsCall, `{"name":"x","_meta":{"progressToken":"mine"}}`)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := n.Shared().Call(ctx, newCall(t, mcp.ToolsCall, `{"name":"hang"}`)); fault.KindOf(err) != fault.Timeout {
		t.Errorf("got %v", err)
	}
	got := n.lines(t, "heard")
	if last := got[len(got)-2:]; last[0] != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4,"reason":"cancelled"}}` {
		t.Errorf("it heard %q", got)
	}

	log := filepath.Join(t.TempDir(), "log")
	n = launch(t, program("mum", "log="+log), quick(2*time.Second, time.Second))
	if err := n.failed(t); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
	if got := logged(t, log); slices.Contains(got, "got "+mcp.Cancelled) || got[2] != "got "+mcp.Initialize {
		t.Errorf("it noted %q", got)
	}
}

// A2: how a program ended is said in the log, not to the client, and it is started again.
func TestProgramThatEnds(t *testing.T) {
	t.Parallel()
	n := launch(t, program(), nil)
	ends := int64(0)
	for status, text := range map[int]string{0: "the program closed its stdout", 7: "the program ended: exit status 7"} {
		for said := false; !said; { // a machine that is slow may know it too late, now and then
			_, err := n.call(t, mcp.ToolsCall, fmt.Sprintf(`{"name":"exit","arguments":{"n":%d}}`, status))
			ends++
			said = err != nil && strings.HasSuffix(err.Error(), text)
			if fault.KindOf(err) != fault.Unavailable || strings.Contains(fault.PublicOf(err), "status") || !said && ends > 5 {
				t.Fatalf("got %v", err)
			}
			n.must(t, mcp.ToolsCall, `{"name":"x"}`)
		}
	}
	if n.count.Load() != ends {
		t.Errorf("%d connections were lost, want %d", n.count.Load(), ends)
	}
}

// A2: programs that cannot be run, or do not speak.
func TestProgramsThatDoNotStart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		command []string
		want    string
	}{
		"none":  {[]string{"/no/such/program"}, `the server cannot be started: exec: "/no/such/program": stat /no/such/program: no such file or directory`},
		"false": {[]string{"/bin/sh", "-c", "exit 9"}, "the server did not start: the server went away during the call: the program ended: exit status 9"},
	} {
		t.Run(name, func(t *testing.T) {
			n := launch(t, upstream.Server{Command: tt.command}, nil)
			if err := n.failed(t); fault.KindOf(err) != fault.Unavailable {
				t.Errorf("got %v", err)
			}
			until(t, "it says "+tt.want, func() bool { return n.lostFor(tt.want) }) // a slow machine says so later
		})
	}
	// A2: five failures in a row, and who calls is refused without waiting.
	n := launch(t, upstream.Server{Command: []string{"/bin/sh", "-c", "exit 9"}}, nil)
	_, err := n.call(t, mcp.Ping, ``)
	until(t, "five have failed", func() bool { return n.count.Load() >= 5 })
	const why = "the server did not start: the server went away during the call: the program ended: exit status 9"
	if fault.KindOf(err) != fault.Unavailable || !strings.HasPrefix(err.Error(), "the server is not available: the server did not start") || !n.lostFor(why) || n.count.Load() != 5 {
		t.Errorf("got %v after %d failures", err, n.count.Load())
	}
}

// A2: junk within the budget is dropped; over it the connection ends, and the call that is under way
// hears why. A message in between begins the count anew.
func TestJunk(t *testing.T) {
	t.Parallel()
	n := launch(t, program(), nil)
	for range 3 {
		n.must(t, mcp.ToolsCall, `{"name":"junk","arguments":{"n":6000}}`)
	}
	if n.count.Load() != 0 {
		t.Errorf("a connection was lost: %v", n.lost)
	}
	for _, text := range []string{"no message", `{"no":"message"}`} {
		_, err := n.call(t, mcp.ToolsCall, fmt.Sprintf(`{"name":"junk","arguments":{"n":10000,"text":%q}}`, text))
		if fault.KindOf(err) != fault.BadReply || fault.PublicOf(err) != "the server prints what is no message" {
			t.Errorf("%s: got %v", text, err)
		}
		n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	}
}

// A2: a message over the limit fails the call it answers, and no other: its id stands in its head or
// in its tail, and what looks like one elsewhere is none.
func TestOversizedReplies(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"id first":               `{"jsonrpc":"2.0","id":$id,"result":{"text":"$fill"}}`,
		"id before the version":  `{"id": $id, "jsonrpc":"2.0","result":{"text":"$fill"}}`,
		"id last":                `{"jsonrpc":"2.0","result":{"text":"$fill"},"id":$id}`,
		"id before the last":     `{"result":{"text":"$fill"}, "id" : $id, "jsonrpc": "2.0"} `,
		"another in the result":  `{"jsonrpc":"2.0","id":$id,"result":{"items":[{"id":3},{"id":3}],"text":"$fill","id":3}}`,
		"another, and id last":   `{"jsonrpc":"2.0","result":{"items":[{"id":3}],"id":3,"text":"$fill","last":{"id":3}},"id":$id}`,
		"another, id before":     `{"result":{"id":3,"text":"$fill"},"id":$id,"jsonrpc":"2.0"}`,
		"another in an error":    `{"jsonrpc":"2.0","id":$id,"error":{"code":1,"message":"\"id\":3","data":{"x":"$fill","id":3}}}`,
		"a string that looks so": `{"jsonrpc":"2.0","result":{"text":"$fill{\"id\":3}"},"id":$id}`,
	} {
		t.Run(name, func(t *testing.T) {
			n := launch(t, program(), func(c *upstream.Config, _ *upstream.Server) { c.MaxReplyBytes = 8 << 10 })
			defer n.Close()
			ctx, cancel := context.WithCancel(context.Background())
			hangs := make(chan error, 1)
			go func() { // the greeting has taken two ids: this is 3
				_, err := n.Shared().Call(ctx, newCall(t, mcp.ToolsCall, `{"name":"hang"}`))
				hangs <- err
			}()
			until(t, "the call is under way", func() bool { return upstream.Calls(n.Shared()) == 1 })
			params, _ := json.Marshal(map[string]any{"name": "raw", "arguments": map[string]any{"n": 10 << 10, "text": text}})
			_, err := n.call(t, mcp.ToolsCall, string(params))
			if fault.KindOf(err) != fault.BadReply || fault.PublicOf(err) != "the server's answer is too large" {
				t.Errorf("got %v", err)
			}
			n.must(t, mcp.ToolsCall, `{"name":"x"}`)
			cancel()
			if err := <-hangs; fault.KindOf(err) != fault.Canceled || n.count.Load() != 0 {
				t.Errorf("the other call: %v; %d connections lost", err, n.count.Load())
			}
		})
	}
}

// A12: a program that knows only Content-Length framing is spoken to in it: one that begins so from
// its second start on at the latest, one that waits in silence from its third. It is remembered.
func TestContentLength(t *testing.T) {
	t.Parallel()
	for flag, starts := range map[string]int64{"counted": 2, "quiet": 3} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			n := launch(t, program(flag), quick(700*time.Millisecond, time.Second))
			until(t, "it is up", func() bool { _, up := n.Shared().Up(); return up })
			if got := n.count.Load(); got >= starts {
				t.Errorf("it was started %d times", got+1)
			}
			n.must(t, mcp.ToolsCall, `{"name":"x"}`)
			before := n.count.Load()
			_, _ = n.call(t, mcp.ToolsCall, `{"name":"exit","arguments":{"n":1}}`)
			n.must(t, mcp.ToolsCall, `{"name":"x"}`)
			if got := n.count.Load(); got != before+1 {
				t.Errorf("it took %d starts to come back: %v", got-before, n.lost)
			}
		})
	}
}

// A12: the framing of a program that was understood at once is remembered too: its next start begins
// with it.
func TestContentLengthIsRemembered(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	n := launch(t, program("both", "log="+log), nil)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	_, _ = n.call(t, mcp.ToolsCall, `{"name":"exit"}`)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	const first = "start, got server/discover, counted, got initialize, "
	const second = ", start, counted, got initialize, "
	if got := strings.Join(logged(t, log), ", "); !strings.HasPrefix(got, first) || !strings.Contains(got, second) {
		t.Errorf("it noted %s", got)
	}
}

// A13: a program that falls over the question of the newest revision gets the older greeting the
// next time, and from then on.
func TestProgramThatFallsOverTheQuestion(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	n := launch(t, program("fall", "log="+log), nil)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	_, _ = n.call(t, mcp.ToolsCall, `{"name":"exit"}`)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	want := "start, got server/discover, start, got initialize, got notifications/initialized, got tools/call, got tools/call, " +
		"start, got initialize, got notifications/initialized, got tools/call"
	if got := strings.Join(logged(t, log), ", "); got != want {
		t.Errorf("it noted %s", got)
	}
}

// A program gets the harmless part of our environment and what its entry says, and nothing else.
func TestEnvironmentOfAProgram(t *testing.T) {
	t.Parallel()
	entry := program()
	entry.Env["TOKEN"], entry.Env["HOME"] = secret.Literal("t"), secret.Literal("/other")
	n := launch(t, entry, nil, "PATH=/bin", "HOME=/h", "LANG=C", "AWS_SECRET_ACCESS_KEY=x", "CTXGATE_KEY=x", "LD_PRELOAD=x")
	got := n.lines(t, "environment")
	slices.Sort(got)
	if want := "GORACE=atexit_sleep_ms=0 HOME=/other LANG=C PATH=/bin TOKEN=t"; strings.Join(got, " ") != want {
		t.Errorf("got %q", got)
	}
}

// A2: a program is asked to end by the end of its input first, and with TERM when it stays.
func TestProgramIsAskedToEnd(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{"": "eof exit", "stay": "eof term"} {
		log := filepath.Join(t.TempDir(), "log")
		n := launch(t, program(flag, "log="+log), quick(20*time.Second, 300*time.Millisecond))
		n.must(t, mcp.Ping, ``)
		n.Close()
		if got := logged(t, log); strings.Join(got[len(got)-2:], " ") != want {
			t.Errorf("it noted %q", got)
		}
	}
}

// A2: of a program there is only one at a time. The next is started when the last has ended, also
// when its stdout ended before it did; and so does Close wait.
func TestOneProgramAtATime(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	n := launch(t, program("log="+log), nil)
	if _, err := n.call(t, mcp.ToolsCall, `{"name":"mute"}`); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
	n.must(t, mcp.Ping, ``)
	_, _ = n.call(t, mcp.ToolsCall, `{"name":"mute"}`)
	n.Close()
	var lives []string
	for _, line := range logged(t, log) {
		if line == "start" || line == "exit" {
			lives = append(lives, line)
		}
	}
	if got := strings.Join(lives, " "); got != "start exit start exit" {
		t.Errorf("it noted %s", got)
	}
}

// A program that does not read makes calls fail, and nobody wait for long.
func TestProgramThatDoesNotRead(t *testing.T) {
	t.Parallel()
	n := launch(t, program(), quick(20*time.Second, 50*time.Millisecond))
	n.must(t, mcp.ToolsCall, `{"name":"deaf"}`)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	kinds := map[fault.Kind]int{}
	params := fmt.Sprintf(`{"name":"x","pad":%q}`, strings.Repeat("x", 100<<10))
	began := time.Now()
	for range 20 {
		wg.Go(func() {
			_, err := n.Shared().Call(ctx, newCall(t, mcp.ToolsCall, params))
			mu.Lock()
			kinds[fault.KindOf(err)]++
			mu.Unlock()
		})
	}
	until(t, "calls are refused", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return kinds[fault.Full] >= 5
	})
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("they were refused after %v", took)
	}
	cancel()
	wg.Wait()
	if kinds[fault.Full]+kinds[fault.Canceled] != 20 || kinds[fault.Canceled] == 0 {
		t.Errorf("got %v", kinds)
	}
}

// A2: a program dies while calls wait for it to read. Those that it may have got fail; those that wait
// for a place in its queue were not begun, and are made once it is back.
func TestProgramThatDoesNotReadAndDies(t *testing.T) {
	t.Parallel()
	n := launch(t, program(), nil)
	pid, _ := strconv.Atoi(n.lines(t, "pid")[0])
	n.must(t, mcp.ToolsCall, `{"name":"deaf"}`)
	params := fmt.Sprintf(`{"name":"x","pad":%q}`, strings.Repeat("x", 100<<10))
	errs := make(chan error, 20)
	for range cap(errs) {
		go func() {
			_, err := n.Shared().Call(context.Background(), newCall(t, mcp.ToolsCall, params))
			errs <- err
		}()
	}
	until(t, "all are under way", func() bool { return upstream.Calls(n.Shared()) == 20 })
	if p, err := os.FindProcess(pid); err != nil || p.Kill() != nil {
		t.Fatalf("killing %d: %v", pid, err)
	}
	failed := 0
	for range cap(errs) {
		if err := <-errs; err != nil {
			failed++
			if fault.KindOf(err) != fault.Unavailable || !strings.HasSuffix(err.Error(), "signal: killed") {
				t.Errorf("got %v", err)
			}
		}
	}
	if failed > 12 || n.count.Load() != 1 { // a MiB of queue and 64 KiB of pipe
		t.Errorf("%d calls failed; %d connections lost", failed, n.count.Load())
	}
}

// A2: a program that was killed in the midst of its work is no broken one: it has no past either.
func TestUsefulProgram(t *testing.T) {
	t.Parallel()
	n := launch(t, program(), nil)
	for range 3 {
		n.must(t, mcp.ToolsCall, `{"name":"x"}`)
		_, _ = n.call(t, mcp.ToolsCall, `{"name":"exit"}`)
	}
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	if got := upstream.Failures(n.Shared()); got != 1 {
		t.Errorf("it has failed %d times in a row", got)
	}
}

// A2, A11: a program that ends as soon as it is greeted was a failure each time; one that lasted
// three seconds has no past.
func TestSteadyProgram(t *testing.T) {
	t.Parallel()
	brief := filepath.Join(t.TempDir(), "brief")
	if err := os.WriteFile(brief, []byte("...."), 0o600); err != nil {
		t.Fatal(err)
	}
	n := launch(t, program("brief="+brief), nil)
	until(t, "it stays up", func() bool { _, up := n.Shared().Up(); return up && n.count.Load() == 4 })
	if got := upstream.Failures(n.Shared()); got != 4 {
		t.Errorf("after four brief lives it has failed %d times", got)
	}
	time.Sleep(3100 * time.Millisecond)
	_, _ = n.call(t, mcp.ToolsCall, `{"name":"exit"}`)
	until(t, "it is noticed", func() bool { return n.count.Load() == 5 })
	if got := upstream.Failures(n.Shared()); got != 1 {
		t.Errorf("after a long life it has failed %d times", got)
	}
}

// A5: sessions that a program could ask have a program each, which ends with the session.
func TestProgramsOfSessions(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	n := launch(t, program("log="+log), nil)
	pids := map[string]bool{}
	for _, session := range []string{"", "1", "2", "1"} {
		who := upstream.Who{Session: session}
		if session != "" {
			who.Client = mcp.Client{Capabilities: []byte(`{"roots":{}}`)}
		}
		lane, release, err := n.Pick(t.Context(), who)
		if err != nil {
			t.Fatal(err)
		}
		m, err := lane.Call(t.Context(), newCall(t, mcp.ToolsCall, `{"name":"pid"}`))
		if err != nil {
			t.Fatal(err)
		}
		pids[string(m.Result.Of(m.Body))] = true
		release()
	}
	if len(pids) != 3 {
		t.Errorf("there were %d programs", len(pids))
	}
	n.Leave("1")
	until(t, "one has ended", func() bool { return slices.Contains(logged(t, log), "exit") })
	n.Close()
	if got := strings.Count(strings.Join(logged(t, log), " "), "exit"); got != 3 {
		t.Errorf("%d have ended", got)
	}
}
