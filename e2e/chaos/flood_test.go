//go:build linux

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// The gateway's memory budget, and the limit of its RSS.
const (
	floodBudget = `memory_budget = "512MiB"`
	maxRSS      = 640 << 20
)

// floodTest is a gateway under a flood of requests.
type floodTest struct {
	*testGateway
	server  *floodServer
	client  *http.Client // sends the flood
	replies sync.Map     // status → *atomic.Int64
}

// TestMemoryBudgetHolds floods the gateway in every way that makes it buffer data. Floods are refused, the
// process stays within its budget and its own needs, and small calls of another client succeed.
func TestMemoryBudgetHolds(t *testing.T) {
	for _, attack := range []struct {
		name    string
		run     func(f *floodTest, t *testing.T)
		refuses bool // requests must be refused
	}{
		{"overlapping ranges", (*floodTest).overlappingRanges, false},
		{"anonymous bodies", (*floodTest).anonymousBodies, true},
		{"model requests", (*floodTest).modelRequests, true},
		{"many small parts", (*floodTest).smallParts, true},
		{"large replies", (*floodTest).largeReplies, true},
		{"a list without end", (*floodTest).endlessList, false},
		{"notes to many sessions", (*floodTest).notifications, false},
		{"initialize without end", (*floodTest).initializes, false},
		{"pending calls", (*floodTest).pendingCalls, true},
		{"invented names", (*floodTest).inventedNames, true},
	} {
		t.Run(attack.name, func(t *testing.T) {
			f := startFlood(t)
			others := f.otherCaller(t)
			attack.run(f, t)
			good, bad, slowest := others()
			peak := memoryOf(f.PID(), "VmHWM")
			refused := f.refusedCount()
			t.Logf("%s: peak RSS %d MiB; replies %s; other client: %d calls, %d errors, slowest %s",
				attack.name, peak>>20, f.tally(), good+bad, bad, slowest.Round(time.Millisecond))
			if peak == 0 || peak > maxRSS {
				t.Errorf("peak RSS %d MiB, want at most %d", peak>>20, maxRSS>>20)
			}
			if attack.refuses && refused == 0 {
				t.Errorf("nothing was refused: %s", f.tally())
			}
			if good < 20 || bad*100 > good+bad {
				t.Errorf("other client: %d of %d calls failed", bad, good+bad)
			}
			if f.HasExited() {
				t.Error("the gateway exited")
			}
		})
	}
}

func startFlood(t *testing.T) *floodTest {
	t.Helper()
	server := startFloodServer(t)
	s := newSite(t, mcpserver.NewEventLog(t), floodServerConfig(server))
	s.topLevel = floodBudget
	s.state = `driver = "sqlite"`
	s.sections = fmt.Sprintf("[[providers]]\nname = \"fake\"\nkind = \"openai\"\nbase_url = %q\nmodels = [\"*\"]\n", server.URL+"/v1")
	g := s.start(t)
	f := &floodTest{testGateway: g, server: server, client: clientFrom("127.0.0.1")}
	t.Cleanup(f.client.CloseIdleConnections)
	if !wait.True(20*time.Second, func() bool { return f.smallCall(f.client) == nil }) {
		t.Fatalf("the gateway does not reply: %s", g.readLog())
	}
	return f
}

func floodServerConfig(f *floodServer) server {
	return server{id: "flood", url: f.URL + "/mcp", extraTOML: `transport = "http"`}
}

// clientFrom returns a client with the given local address.
func clientFrom(address string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 10 * time.Second}
	return &http.Client{
		Timeout:   90 * time.Second,
		Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 256, DisableCompression: true},
	}
}

// smallCall makes a call that needs hardly any memory.
func (f *floodTest) smallCall(client *http.Client) error {
	status, body, err := f.post(client, "/api/mcp-gateway/flood/rpc", nil, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`))
	if err == nil && (status != http.StatusOK || !bytes.Contains(body, []byte(`"ok"`))) {
		err = fmt.Errorf("HTTP %d: %.200s", status, body)
	}
	return err
}

func (f *floodTest) post(client *http.Client, path string, head http.Header, body io.Reader) (int, []byte, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, f.URL+path, body)
	if err != nil {
		return 0, nil, err
	}
	for name, values := range head {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, reply, err
}

// attack posts a body and counts the reply: by status, JSON-RPC error, or closed connection.
func (f *floodTest) attack(path string, head http.Header, body io.Reader) []byte {
	status, reply, err := f.post(f.client, path, head, body)
	key := strconv.Itoa(status)
	switch {
	case err != nil:
		key = "closed"
	case bytes.Contains(reply, []byte(`"reason":"full"`)) || bytes.Contains(reply, []byte(`"error":{"code":-31503`)):
		key = "503"
	case bytes.Contains(reply, []byte(`"error"`)) && status == http.StatusOK:
		key = "error"
	}
	n, _ := f.replies.LoadOrStore(key, new(atomic.Int64))
	n.(*atomic.Int64).Add(1) //nolint:forcetypeassert // the only type in this map
	return reply
}

func (f *floodTest) tally() string {
	var parts []string
	f.replies.Range(func(key, n any) bool {
		parts = append(parts, fmt.Sprintf("%v: %d", key, n.(*atomic.Int64).Load())) //nolint:forcetypeassert // as above
		return true
	})
	return strings.Join(parts, ", ")
}

// refusedCount counts the refused requests of the flood.
func (f *floodTest) refusedCount() (n int64) {
	f.replies.Range(func(key, count any) bool {
		if key != "200" && key != "202" {
			n += count.(*atomic.Int64).Load() //nolint:forcetypeassert // as above
		}
		return true
	})
	return n
}

// otherCaller makes small calls from another address until the returned function is called, which returns the
// results.
func (f *floodTest) otherCaller(t *testing.T) func() (good, bad int, slowest time.Duration) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	var good, bad int
	var slowest time.Duration
	client := clientFrom("127.0.0.2")
	go func() {
		defer close(done)
		defer client.CloseIdleConnections()
		for {
			began := time.Now()
			if err := f.smallCall(client); err != nil {
				bad++
				t.Logf("other client: %v", err)
			} else {
				good++
			}
			slowest = max(slowest, time.Since(began))
			select {
			case <-stop:
				if good+bad >= 20 {
					return
				}
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() (int, int, time.Duration) {
		close(stop)
		<-done
		return good, bad, slowest
	}
}

// forEach runs do for n numbers with the given concurrency.
func forEach(n, atOnce int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				do(int(i))
			}
		})
	}
	wg.Wait()
}

var anyPruneID = regexp.MustCompile(`prn_[0-9a-z]+`)

// overlappingRanges asks for 1,500 overlapping ranges of a large text.
func (f *floodTest) overlappingRanges(t *testing.T) {
	reply := f.attack("/api/mcp-gateway/flood/rpc", nil, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"text","arguments":{"size":20000000}}}`))
	id := anyPruneID.Find(reply)
	if id == nil {
		t.Fatalf("nothing was stored: %.300s", reply)
	}
	var ranges []string
	for i := range 1500 {
		ranges = append(ranges, fmt.Sprintf(`{"start_line":%d,"end_line":300000}`, i+1))
	}
	head := f.initialize(t, "{}")
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"recover_text","arguments":{"prune_id":%q,"ranges":[%s],"include_line_numbers":true}}}`, id, strings.Join(ranges, ","))
	forEach(shortOrFull(8, 40), 8, func(int) { f.attack("/mcp", head, strings.NewReader(call)) })
}

// initialize starts a legacy session.
func (f *floodTest) initialize(t *testing.T, can string) http.Header {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, f.URL+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":`+can+`,"clientInfo":{"name":"flood","version":"1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	id := resp.Header.Get("Mcp-Session-Id")
	if id == "" {
		t.Fatalf("HTTP %d without a session", resp.StatusCode)
	}
	return http.Header{"Mcp-Session-Id": {id}}
}

// largeBody is a body of the given size that is not held in memory.
func largeBody(head, tail string, size int) io.Reader {
	rest := max(0, size-len(head)-len(tail))
	return io.MultiReader(strings.NewReader(head), io.LimitReader(repeatedLetters{}, int64(rest)), strings.NewReader(tail))
}

type repeatedLetters struct{}

func (repeatedLetters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// anonymousBodies sends 20 bodies of 60 MiB at once.
func (f *floodTest) anonymousBodies(*testing.T) {
	forEach(shortOrFull(20, 100), 20, func(int) {
		f.attack("/mcp", nil, largeBody(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"flood::echo","arguments":{"x":"`, `"}}}`, 60<<20))
	})
}

// modelRequests sends 1,000 requests of 32 MiB to a model, 64 at once.
func (f *floodTest) modelRequests(*testing.T) {
	forEach(shortOrFull(200, 1000), 64, func(int) {
		f.attack("/v1/chat/completions", nil, largeBody(`{"model":"m","messages":[{"role":"user","content":"`, `"}]}`, 32<<20-100))
	})
}

// smallParts sends documents whose decoded form is many times larger.
func (f *floodTest) smallParts(*testing.T) {
	var keys strings.Builder
	for i := range 2_000_000 {
		fmt.Fprintf(&keys, `,"%x":1`, i)
	}
	for _, body := range []struct{ path, head, part, tail string }{
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}`, strings.Repeat(`,{"role":"tool"}`, 1_000_000), `]}`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"a"}`, strings.Repeat(`,{"id":"a"}`, 1_000_000), `]}]}`},
		{"/v1/chat/completions", `{"model":"m","messages":[]`, keys.String(), `}`},
		{"/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{}`, keys.String(), `}}`},
		{"/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":{"y":0`, keys.String(), `}}}`},
		{"/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":[0`, strings.Repeat(`,{}`, 3_000_000), `]}}`},
	} {
		forEach(shortOrFull(16, 64), 16, func(int) {
			f.attack(body.path, nil, io.MultiReader(strings.NewReader(body.head), strings.NewReader(body.part), strings.NewReader(body.tail)))
		})
	}
}

// largeReplies asks for 100 replies of 128 MiB at once.
func (f *floodTest) largeReplies(*testing.T) {
	forEach(100, 100, func(int) {
		f.attack("/api/mcp-gateway/flood/rpc", nil, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"text","arguments":{"size":127000000}}}`))
	})
}

// endlessList adds a server with 400 MB of tools.
func (f *floodTest) endlessList(t *testing.T) {
	lister := startBigLister(t, 400)
	f.servers = append(f.servers, server{id: "lists", url: lister.URL, extraTOML: `transport = "http"`})
	if err := f.writeConfig(f.configText()); err != nil {
		t.Fatal(err)
	}
	if !wait.True(60*time.Second, func() bool { return strings.Contains(f.readLog(), "max_list_bytes") }) {
		t.Error("the log does not say that the lists are too large")
	}
	head := f.initialize(t, "{}")
	forEach(20, 4, func(int) {
		f.attack("/mcp", head, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	})
}

// notifications starts 500 sessions and sends 250 notifications of 4 KB to each. They wait for clients that
// open no stream; the last client then opens one and receives them.
func (f *floodTest) notifications(t *testing.T) {
	var head http.Header
	for range 500 {
		head = f.initialize(t, "{}")
		f.attack("/mcp", head, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"flood::echo","arguments":{}}}`))
	}
	// Log messages would go only to clients that set a level.
	note := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/flood","params":{"data":%q}}`, strings.Repeat("n", 4000))
	sent := 0
	for range 250 {
		sent += f.server.note(note)
	}
	if sent < 250 {
		t.Errorf("%d notifications were sent", sent)
	}
	if got := f.countWaiting(t, head, 200); got < 200 {
		t.Errorf("%d notifications waited for a client, want at least 200", got)
	}
}

// countWaiting opens the stream of a session and counts the waiting notifications, up to most.
func (f *floodTest) countWaiting(t *testing.T, head http.Header, most int) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = head.Clone()
	req.Header.Set("Accept", "text/event-stream")
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for events := mcpwire.NewEventReader(resp.Body); n < most; n++ {
		if _, err := events.Next(); err != nil {
			return n
		}
	}
	return n
}

// initializes starts sessions that are never ended.
func (f *floodTest) initializes(*testing.T) {
	forEach(shortOrFull(20_000, 100_000), 32, func(i int) {
		f.attack("/mcp", nil, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"%d","version":"1"}}}`, i, i)))
	})
}

// pendingCalls makes calls that wait for input of a client that never returns.
func (f *floodTest) pendingCalls(*testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"flood","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`
	head := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"flood::ask"}}
	forEach(shortOrFull(2000, 10_000), 32, func(i int) {
		f.attack("/mcp", head, largeBody(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%s,"name":"flood::ask","arguments":{"x":"`, i, meta), `"}}}`, 64<<10))
	})
}

// inventedNames requests models, tools and ids that do not exist.
func (f *floodTest) inventedNames(t *testing.T) {
	n := shortOrFull(30_000, 333_334)
	head := f.initialize(t, "{}")
	batch := func(from int, call func(i int) string) string {
		var calls []string
		for i := from; i < from+64; i++ {
			calls = append(calls, call(i))
		}
		return "[" + strings.Join(calls, ",") + "]"
	}
	forEach(n/64, 4, func(i int) {
		f.attack("/mcp", head, strings.NewReader(batch(64*i, func(i int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"invented_%d","arguments":{}}}`, i, i)
		})))
		f.attack("/mcp", head, strings.NewReader(batch(64*i, func(i int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"recover_text","arguments":{"prune_id":"prn_%026d"}}}`, i, i)
		})))
	})
	forEach(n, 16, func(i int) {
		f.attack("/v1/chat/completions", nil, strings.NewReader(fmt.Sprintf(`{"model":"invented-%d","messages":[{"role":"user","content":"%d"}]}`, i, i)))
	})
	f.attack("/v1/chat/completions", nil, strings.NewReader(`{"model":1}`))
}
