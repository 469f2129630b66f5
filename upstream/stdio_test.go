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
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// withStartStop sets the start and stop timeouts of a child.
func withStartStop(start, stop time.Duration) func(*upstream.Config, *upstream.ServerConfig) {
	return func(_ *upstream.Config, s *upstream.ServerConfig) {
		s.StartupTimeout, s.ShutdownGrace = unit.Duration(start), unit.Duration(stop)
	}
}

// launchChild starts a server with a child. Such tests mostly wait, so they run in parallel; leaks are found after all of them.
func launchChild(t *testing.T, entry upstream.ServerConfig, options func(*upstream.Config, *upstream.ServerConfig), env ...string) *testClient {
	t.Helper()
	n := newChild(t, entry, options, env...)
	n.Start()
	return n
}

// newChild is launchChild without the start.
func newChild(t *testing.T, entry upstream.ServerConfig, options func(*upstream.Config, *upstream.ServerConfig), env ...string) *testClient {
	t.Helper()
	cfg, n := upstream.Default(), &testClient{}
	cfg.HealthcheckInterval, cfg.ResponseTimeout = 0, unit.Duration(10*time.Second)
	full := entry
	full.SetDefaults()
	full.ID = "a"
	if options != nil {
		options(&cfg, &full)
	}
	n.Server = upstream.NewServer(full, cfg, upstream.Deps{
		Events: &n.ears, ParseLimits: func() (int, int) { return 64, 4000 }, Env: env,
		CountFailure: func(err error) {
			failures := n.count.Add(1)
			n.mu.Lock()
			n.lost = append(n.lost, err)
			n.mu.Unlock()
			if n.onFailure != nil {
				n.onFailure(failures)
			}
		},
	})
	t.Cleanup(n.Close)
	return n
}

// resultLines are the strings of a tool's result.
func (n *testClient) resultLines(t *testing.T, name string) []string {
	t.Helper()
	var out []string
	if err := json.Unmarshal([]byte(n.mustCall(t, mcp.ToolsCall, fmt.Sprintf(`{"name":%q}`, name))), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// A2, A12: a child is started, gets its handshake, is called and stopped, whatever else it prints.
func TestChild(t *testing.T) {
	t.Parallel()
	for flag, protocol := range map[string]mcp.Protocol{"banner": mcp.Legacy, "modern": mcp.Modern} {
		n := launchChild(t, childEntry("banner", flag), nil)
		n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
		n.mustCall(t, mcp.ToolsCall, `{"name":"junk","arguments":{"n":50}}`)
		handshake, up := n.SharedConn().Handshake()
		if !up || handshake.Protocol != protocol || n.count.Load() != 0 {
			t.Errorf("%s: %s, up %v, %d connections lost", flag, handshake.Protocol, up, n.count.Load())
		}
	}
}

// A cancellation has the connection's id of the call. initialize is never canceled.
func TestCancellationReachesChild(t *testing.T) {
	t.Parallel()
	n := launchChild(t, childEntry(), nil)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x","_meta":{"progressToken":"mine"}}`)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := n.SharedConn().Call(ctx, newCall(t, mcp.ToolsCall, `{"name":"hang"}`)); fault.KindOf(err) != fault.Timeout {
		t.Errorf("got %v", err)
	}
	got := n.resultLines(t, "received")
	if last := got[len(got)-2:]; last[0] != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4,"reason":"cancelled"}}` {
		t.Errorf("it received %q", got)
	}

	log := filepath.Join(t.TempDir(), "log")
	n = launchChild(t, childEntry("mum", "log="+log), withStartStop(2*time.Second, time.Second))
	if err := n.awaitFailure(t); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
	if got := readLog(t, log); slices.Contains(got, "got "+mcp.NotifyCancelled) || got[2] != "got "+mcp.Initialize {
		t.Errorf("it noted %q", got)
	}
}

// A2: the exit status of a child is logged, not sent to the client, and the child is restarted.
func TestChildThatEnds(t *testing.T) {
	t.Parallel()
	n := launchChild(t, childEntry(), nil)
	ends := int64(0)
	for status, text := range map[int]string{0: "the child closed its stdout", 7: "the child ended: exit status 7"} {
		for hasText := false; !hasText; { // on a slow machine the exit status may arrive too late
			_, err := n.call(t, mcp.ToolsCall, fmt.Sprintf(`{"name":"exit","arguments":{"n":%d}}`, status))
			ends++
			hasText = err != nil && strings.HasSuffix(err.Error(), text)
			if fault.KindOf(err) != fault.Unavailable || strings.Contains(fault.PublicOf(err), "status") || !hasText && ends > 5 {
				t.Fatalf("got %v", err)
			}
			n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
		}
	}
	if n.count.Load() != ends {
		t.Errorf("%d connections were lost, want %d", n.count.Load(), ends)
	}
}

// A2: children that cannot be started, or do not answer.
func TestChildrenThatDoNotStart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		command []string
		want    string
	}{
		"none":  {[]string{"/no/such/program"}, `the server cannot be started: exec: "/no/such/program": stat /no/such/program: no such file or directory`},
		"false": {[]string{"/bin/sh", "-c", "exit 9"}, "the server did not start: the server went away during the call: the child ended: exit status 9"},
	} {
		t.Run(name, func(t *testing.T) {
			n := launchChild(t, upstream.ServerConfig{Command: tt.command}, nil)
			if err := n.awaitFailure(t); fault.KindOf(err) != fault.Unavailable {
				t.Errorf("got %v", err)
			}
			wait.For(t, "failure "+tt.want, func() bool { return n.hasFailure(tt.want) })
		})
	}
	// A2: after five failures in a row, calls fail without waiting.
	n := launchChild(t, upstream.ServerConfig{Command: []string{"/bin/sh", "-c", "exit 9"}}, nil)
	_, err := n.call(t, mcp.Ping, ``)
	wait.For(t, "five have failed", func() bool { return n.count.Load() >= 5 })
	const why = "the server did not start: the server went away during the call: the child ended: exit status 9"
	if fault.KindOf(err) != fault.Unavailable || !strings.HasPrefix(err.Error(), "the server is not available: the server did not start") || !n.hasFailure(why) || n.count.Load() != 5 {
		t.Errorf("got %v after %d failures", err, n.count.Load())
	}
}

// A2: lines that are not messages are dropped; after too many in a row the connection ends, and the call in flight gets the
// reason. A message resets the count.
func TestJunk(t *testing.T) {
	t.Parallel()
	n := launchChild(t, childEntry(), nil)
	for range 3 {
		n.mustCall(t, mcp.ToolsCall, `{"name":"junk","arguments":{"n":6000}}`)
	}
	if n.count.Load() != 0 {
		t.Errorf("a connection was lost: %v", n.lost)
	}
	for _, text := range []string{"no message", `{"no":"message"}`} {
		_, err := n.call(t, mcp.ToolsCall, fmt.Sprintf(`{"name":"junk","arguments":{"n":10000,"text":%q}}`, text))
		if fault.KindOf(err) != fault.BadReply || fault.PublicOf(err) != "the server prints only lines that are not JSON-RPC messages" {
			t.Errorf("%s: got %v", text, err)
		}
		n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	}
}

// A2: a message over the limit fails the call it answers, and no other: its id is found in its head or tail.
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
			n := launchChild(t, childEntry(), func(c *upstream.Config, _ *upstream.ServerConfig) { c.MaxReplyBytes = 8 << 10 })
			defer n.Close()
			ctx, cancel := context.WithCancel(context.Background())
			hangs := make(chan error, 1)
			go func() { // the handshake has taken two ids: this is 3
				_, err := n.SharedConn().Call(ctx, newCall(t, mcp.ToolsCall, `{"name":"hang"}`))
				hangs <- err
			}()
			wait.For(t, "the call is in flight", func() bool { return upstream.CallCount(n.SharedConn()) == 1 })
			params, _ := json.Marshal(map[string]any{"name": "raw", "arguments": map[string]any{"n": 10 << 10, "text": text}})
			_, err := n.call(t, mcp.ToolsCall, string(params))
			if fault.KindOf(err) != fault.BadReply || fault.PublicOf(err) != "the server's answer is too large" {
				t.Errorf("got %v", err)
			}
			n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
			cancel()
			if err := <-hangs; fault.KindOf(err) != fault.Canceled || n.count.Load() != 0 {
				t.Errorf("the other call: %v; %d connections lost", err, n.count.Load())
			}
		})
	}
}

// A12: a child that knows only Content-Length framing gets it: from its second start at the latest if it sends first, from its
// third if it waits silently. The framing is remembered.
func TestContentLengthFraming(t *testing.T) {
	t.Parallel()
	for flag, tt := range map[string]struct {
		starts  int64
		timeout time.Duration // of the starts that are bound to fail
	}{
		"counted": {2, 4 * time.Second}, // enough for the child to send, too short for the handshake to be tried twice
		"quiet":   {3, 700 * time.Millisecond},
	} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			n := newChild(t, childEntry(flag), withStartStop(tt.timeout, time.Second))
			n.onFailure = func(failures int64) {
				if failures == tt.starts-1 { // the next start has to succeed, however slow the machine is
					upstream.SetStartupTimeout(n.Server, time.Minute)
				}
			}
			n.Start()
			if !wait.True(time.Minute, func() bool { _, up := n.SharedConn().Handshake(); return up }) {
				t.Fatalf("it is not up after %d starts: %v", n.count.Load()+1, n.lost)
			}
			if got := n.count.Load(); got >= tt.starts {
				t.Errorf("it was started %d times", got+1)
			}
			n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
			before := n.count.Load()
			_, _ = n.call(t, mcp.ToolsCall, `{"name":"exit","arguments":{"n":1}}`)
			n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
			if got := n.count.Load(); got != before+1 {
				t.Errorf("it took %d starts to come back: %v", got-before, n.lost)
			}
		})
	}
}

// A12: the framing of a child that was understood at once is remembered for its next start too.
func TestFramingIsRemembered(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	n := launchChild(t, childEntry("both", "log="+log), nil)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	_, _ = n.call(t, mcp.ToolsCall, `{"name":"exit"}`)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	const first = "start, got server/discover, counted, got initialize, "
	const second = ", start, counted, got initialize, "
	if got := strings.Join(readLog(t, log), ", "); !strings.HasPrefix(got, first) || !strings.Contains(got, second) {
		t.Errorf("it noted %s", got)
	}
}

// A13: a child that crashes at server/discover gets initialize from its next start on.
func TestChildThatCrashesAtDiscover(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	n := launchChild(t, childEntry("fall", "log="+log), nil)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	_, _ = n.call(t, mcp.ToolsCall, `{"name":"exit"}`)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	want := "start, got server/discover, start, got initialize, got notifications/initialized, got tools/call, got tools/call, " +
		"start, got initialize, got notifications/initialized, got tools/call"
	if got := strings.Join(readLog(t, log), ", "); got != want {
		t.Errorf("it noted %s", got)
	}
}

// S14: a child gets the safe part of the gateway's environment and its configured variables, and nothing else.
func TestS14ChildEnvironment(t *testing.T) {
	t.Parallel()
	entry := childEntry()
	entry.Env["TOKEN"], entry.Env["HOME"] = secret.Literal("t"), secret.Literal("/other")
	n := launchChild(t, entry, nil, "PATH=/bin", "HOME=/h", "LANG=C", "AWS_SECRET_ACCESS_KEY=x", "CTXGATE_KEY=x", "LD_PRELOAD=x")
	got := n.resultLines(t, "environment")
	slices.Sort(got)
	if want := "GORACE=atexit_sleep_ms=0 HOME=/other LANG=C PATH=/bin TOKEN=t"; strings.Join(got, " ") != want {
		t.Errorf("got %q", got)
	}
}

func TestChildRunsInItsDirectory(t *testing.T) {
	t.Parallel()
	entry := childEntry()
	entry.Cwd = t.TempDir()
	n := launchChild(t, entry, nil, "PATH=/bin")
	if got := strings.Join(n.resultLines(t, "directory"), ""); filepath.Base(got) != filepath.Base(entry.Cwd) {
		t.Errorf("it runs in %s, want %s", got, entry.Cwd)
	}
}

// A2: a child is stopped by the end of its input first, and with TERM if it stays.
func TestChildIsStoppedGently(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{"": "eof exit", "stay": "eof term"} {
		log := filepath.Join(t.TempDir(), "log")
		n := launchChild(t, childEntry(flag, "log="+log), withStartStop(20*time.Second, 300*time.Millisecond))
		n.mustCall(t, mcp.Ping, ``)
		n.Close()
		if got := readLog(t, log); strings.Join(got[len(got)-2:], " ") != want {
			t.Errorf("it noted %q", got)
		}
	}
}

// A2: a child is restarted only after the last one has ended, even if its stdout ended earlier. Close waits as well.
func TestOneChildAtATime(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	n := launchChild(t, childEntry("log="+log), nil)
	if _, err := n.call(t, mcp.ToolsCall, `{"name":"close-stdout"}`); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
	n.mustCall(t, mcp.Ping, ``)
	_, _ = n.call(t, mcp.ToolsCall, `{"name":"close-stdout"}`)
	n.Close()
	var lives []string
	for _, line := range readLog(t, log) {
		if line == "start" || line == "exit" {
			lives = append(lives, line)
		}
	}
	if got := strings.Join(lives, " "); got != "start exit start exit" {
		t.Errorf("it noted %s", got)
	}
}

// Calls to a child that does not read fail soon.
func TestChildThatDoesNotRead(t *testing.T) {
	t.Parallel()
	n := launchChild(t, childEntry(), withStartStop(20*time.Second, 50*time.Millisecond))
	n.mustCall(t, mcp.ToolsCall, `{"name":"stop-reading"}`)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	kinds := map[fault.Kind]int{}
	params := fmt.Sprintf(`{"name":"x","pad":%q}`, strings.Repeat("x", 100<<10))
	began := time.Now()
	for range 20 {
		wg.Go(func() {
			_, err := n.SharedConn().Call(ctx, newCall(t, mcp.ToolsCall, params))
			mu.Lock()
			kinds[fault.KindOf(err)]++
			mu.Unlock()
		})
	}
	wait.For(t, "calls are refused", func() bool {
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

// A2: a child dies while calls wait for it to read. Calls that it may have received fail; calls that wait for space in the
// queue were not started, and are made after the restart.
func TestChildThatDoesNotReadAndDies(t *testing.T) {
	t.Parallel()
	n := launchChild(t, childEntry(), nil)
	pid, _ := strconv.Atoi(n.resultLines(t, "pid")[0])
	n.mustCall(t, mcp.ToolsCall, `{"name":"stop-reading"}`)
	params := fmt.Sprintf(`{"name":"x","pad":%q}`, strings.Repeat("x", 100<<10))
	errs := make(chan error, 20)
	for range cap(errs) {
		go func() {
			_, err := n.SharedConn().Call(context.Background(), newCall(t, mcp.ToolsCall, params))
			errs <- err
		}()
	}
	wait.For(t, "all are in flight", func() bool { return upstream.CallCount(n.SharedConn()) == 20 })
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

// A2: a child that was killed after it had served calls is not broken: its failure count is reset.
func TestKilledChildResetsFailures(t *testing.T) {
	t.Parallel()
	n := launchChild(t, childEntry(), nil)
	for range 3 {
		n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
		_, _ = n.call(t, mcp.ToolsCall, `{"name":"exit"}`)
	}
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	if got := upstream.FailureCount(n.SharedConn()); got != 1 {
		t.Errorf("it has failed %d times in a row", got)
	}
}

// A2, A11: a child that ends right after the handshake counts as a failure each time; one that lasted three seconds resets the
// count.
func TestStableChildResetsFailures(t *testing.T) {
	t.Parallel()
	brief := filepath.Join(t.TempDir(), "brief")
	if err := os.WriteFile(brief, []byte("...."), 0o600); err != nil {
		t.Fatal(err)
	}
	n := launchChild(t, childEntry("brief="+brief), nil)
	wait.For(t, "it stays up", func() bool { _, up := n.SharedConn().Handshake(); return up && n.count.Load() == 4 })
	if got := upstream.FailureCount(n.SharedConn()); got != 4 {
		t.Errorf("after four brief lives it has failed %d times", got)
	}
	time.Sleep(3100 * time.Millisecond)
	_, _ = n.call(t, mcp.ToolsCall, `{"name":"exit"}`)
	wait.For(t, "it is noticed", func() bool { return n.count.Load() == 5 })
	if got := upstream.FailureCount(n.SharedConn()); got != 1 {
		t.Errorf("after a long life it has failed %d times", got)
	}
}

// sendRequest makes the child send a request to its client, which makes it known as one that does.
func (n *testClient) sendRequest(t *testing.T, method string) {
	t.Helper()
	text := `{"jsonrpc":"2.0","id":"q","method":"` + method + `","params":{}}` + "\n" + `{"jsonrpc":"2.0","id":$id,"result":{}}`
	quoted, _ := json.Marshal(text)
	n.mustCall(t, mcp.ToolsCall, `{"name":"raw","arguments":{"text":`+string(quoted)+`}}`)
	wait.For(t, method+" has come", func() bool { return strings.Contains(upstream.SentRequests(n.Server), method) })
}

// A5: each session that can answer requests of a server that has sent one has a child of its own, which ends with the session.
func TestChildPerSession(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	n := newChild(t, childEntry("log="+log), nil)
	n.NoteClient(mcp.Client{Capabilities: []byte(`{"roots":{}}`)})
	n.Start()
	n.sendRequest(t, mcp.RootsList)
	pids := map[string]bool{}
	for _, session := range []string{"", "1", "2", "1"} {
		caller := upstream.Caller{SessionID: session}
		if session != "" {
			caller.Client = mcp.Client{Capabilities: []byte(`{"roots":{}}`)}
		}
		conn, release, err := n.Acquire(t.Context(), caller)
		if err != nil {
			t.Fatal(err)
		}
		m, err := conn.Call(t.Context(), newCall(t, mcp.ToolsCall, `{"name":"pid"}`))
		if err != nil {
			t.Fatal(err)
		}
		pids[string(m.Result.Of(m.Body))] = true
		release()
	}
	if len(pids) != 3 {
		t.Errorf("there were %d children", len(pids))
	}
	n.CloseSession("1")
	wait.For(t, "one has ended", func() bool { return slices.Contains(readLog(t, log), "exit") })
	n.Close()
	if got := strings.Count(strings.Join(readLog(t, log), " "), "exit"); got != 3 {
		t.Errorf("%d have ended", got)
	}
}
