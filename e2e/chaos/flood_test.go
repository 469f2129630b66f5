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
)

// What the process may hold, and what it may take of the machine.
const (
	floodBudget = `memory_budget = "512MiB"`
	mostRSS     = 640 << 20
)

// flood is a gateway under attack, and what its other caller sees meanwhile.
type flood struct {
	*gateway
	server  *floodServer
	web     *http.Client // the attacker's
	answers sync.Map     // status → *atomic.Int64, of the attack
}

// TestMemoryBudgetHolds floods the gateway in every way that makes it hold bytes for somebody. Each
// flood ends in refusals, and the process stays within its budget and what it needs itself, while
// the small calls of another caller go on.
func TestMemoryBudgetHolds(t *testing.T) {
	for _, attack := range []struct {
		name    string
		run     func(f *flood, t *testing.T)
		refuses bool // it asks for more than it may have
	}{
		{"overlapping ranges", (*flood).overlappingRanges, false},
		{"anonymous bodies", (*flood).anonymousBodies, true},
		{"model requests", (*flood).modelRequests, true},
		{"many small parts", (*flood).smallParts, true},
		{"large replies", (*flood).largeReplies, true},
		{"a list without end", (*flood).endlessList, false},
		{"notes to many sessions", (*flood).notes, false},
		{"initialize without end", (*flood).initializes, false},
		{"parked calls", (*flood).parkedCalls, true},
		{"invented names", (*flood).inventedNames, true},
	} {
		t.Run(attack.name, func(t *testing.T) {
			f := startFlood(t)
			others := f.otherCaller(t)
			attack.run(f, t)
			good, bad, slowest := others()
			peak := memoryOf(f.pid(), "VmHWM")
			refused := f.refused()
			t.Logf("%s: peak RSS %d MiB; answers %s; another caller: %d calls, %d errors, slowest %s",
				attack.name, peak>>20, f.tally(), good+bad, bad, slowest.Round(time.Millisecond))
			if peak == 0 || peak > mostRSS {
				t.Errorf("peak RSS %d MiB, want at most %d", peak>>20, mostRSS>>20)
			}
			if attack.refuses && refused == 0 {
				t.Errorf("nothing was refused: %s", f.tally())
			}
			if good < 20 || bad*100 > good+bad {
				t.Errorf("another caller: %d of %d calls failed", bad, good+bad)
			}
			if f.hasEnded() {
				t.Error("the gateway ended")
			}
		})
	}
}

func startFlood(t *testing.T) *flood {
	t.Helper()
	server := startFloodServer(t)
	s := newSite(t, newLedger(t), server0(server))
	s.head = floodBudget
	s.state = `driver = "sqlite"`
	s.tail = fmt.Sprintf("[[providers]]\nname = \"fake\"\nkind = \"openai\"\nbase_url = %q\nmodels = [\"*\"]\n", server.URL+"/v1")
	g := s.start(t)
	f := &flood{gateway: g, server: server, web: clientAt("127.0.0.1")}
	t.Cleanup(f.web.CloseIdleConnections)
	if !within(20*time.Second, func() bool { return f.small(f.web) == nil }) {
		t.Fatalf("the gateway does not answer: %s", g.said())
	}
	return f
}

func server0(f *floodServer) server {
	return server{id: "flood", url: f.URL + "/mcp", more: `transport = "http"`}
}

// clientAt is a client that calls from an address of this machine.
func clientAt(address string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 10 * time.Second}
	return &http.Client{
		Timeout:   90 * time.Second,
		Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 256, DisableCompression: true},
	}
}

// small is a call that needs next to nothing.
func (f *flood) small(client *http.Client) error {
	status, body, err := f.post(client, "/api/mcp-gateway/flood/rpc", nil, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`))
	if err == nil && (status != http.StatusOK || !bytes.Contains(body, []byte(`"ok"`))) {
		err = fmt.Errorf("HTTP %d: %.200s", status, body)
	}
	return err
}

func (f *flood) post(client *http.Client, path string, head http.Header, body io.Reader) (int, []byte, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, f.url+path, body)
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
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, said, err
}

// attack posts a body and counts what is answered: a status, what the JSON-RPC error says, or that
// the connection was closed in the middle of the body.
func (f *flood) attack(path string, head http.Header, body io.Reader) []byte {
	status, said, err := f.post(f.web, path, head, body)
	key := strconv.Itoa(status)
	switch {
	case err != nil:
		key = "closed"
	case bytes.Contains(said, []byte(`"reason":"full"`)) || bytes.Contains(said, []byte(`"error":{"code":-31503`)):
		key = "503"
	case bytes.Contains(said, []byte(`"error"`)) && status == http.StatusOK:
		key = "error"
	}
	n, _ := f.answers.LoadOrStore(key, new(atomic.Int64))
	n.(*atomic.Int64).Add(1) //nolint:forcetypeassert // nothing else is stored there
	return said
}

func (f *flood) tally() string {
	var parts []string
	f.answers.Range(func(key, n any) bool {
		parts = append(parts, fmt.Sprintf("%v: %d", key, n.(*atomic.Int64).Load())) //nolint:forcetypeassert // as above
		return true
	})
	return strings.Join(parts, ", ")
}

// refused is how many requests of the attack did not get what they wanted.
func (f *flood) refused() (n int64) {
	f.answers.Range(func(key, count any) bool {
		if key != "200" && key != "202" {
			n += count.(*atomic.Int64).Load() //nolint:forcetypeassert // as above
		}
		return true
	})
	return n
}

// otherCaller makes small calls from another address until the function it returns is called,
// which says what came of them.
func (f *flood) otherCaller(t *testing.T) func() (good, bad int, slowest time.Duration) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	var good, bad int
	var slowest time.Duration
	client := clientAt("127.0.0.2")
	go func() {
		defer close(done)
		defer client.CloseIdleConnections()
		for {
			began := time.Now()
			if err := f.small(client); err != nil {
				bad++
				t.Logf("another caller: %v", err)
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

// each runs do for n numbers, so many at a time.
func each(n, atOnce int, do func(i int)) {
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
func (f *flood) overlappingRanges(t *testing.T) {
	said := f.attack("/api/mcp-gateway/flood/rpc", nil, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"text","arguments":{"size":20000000}}}`))
	id := anyPruneID.Find(said)
	if id == nil {
		t.Fatalf("nothing was kept: %.300s", said)
	}
	var ranges []string
	for i := range 1500 {
		ranges = append(ranges, fmt.Sprintf(`{"start_line":%d,"end_line":300000}`, i+1))
	}
	head := f.initialize(t, "{}")
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"recover_text","arguments":{"prune_id":%q,"ranges":[%s],"include_line_numbers":true}}}`, id, strings.Join(ranges, ","))
	each(pick(8, 40), 8, func(int) { f.attack("/mcp", head, strings.NewReader(call)) })
}

// initialize begins a session of the older era.
func (f *flood) initialize(t *testing.T, can string) http.Header {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, f.url+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":`+can+`,"clientInfo":{"name":"flood","version":"1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := f.web.Do(req)
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

// filled is a body of so many bytes that is not held in memory.
func filled(head, tail string, size int) io.Reader {
	rest := max(0, size-len(head)-len(tail))
	return io.MultiReader(strings.NewReader(head), io.LimitReader(letters{}, int64(rest)), strings.NewReader(tail))
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// anonymousBodies sends 20 bodies of 60 MiB at once.
func (f *flood) anonymousBodies(*testing.T) {
	each(pick(20, 100), 20, func(int) {
		f.attack("/mcp", nil, filled(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"flood::echo","arguments":{"x":"`, `"}}}`, 60<<20))
	})
}

// modelRequests sends 1,000 requests of 32 MiB to a model, 64 at once.
func (f *flood) modelRequests(*testing.T) {
	each(pick(200, 1000), 64, func(int) {
		f.attack("/v1/chat/completions", nil, filled(`{"model":"m","messages":[{"role":"user","content":"`, `"}]}`, 32<<20-100))
	})
}

// smallParts sends documents that become many times as large when they are taken apart.
func (f *flood) smallParts(*testing.T) {
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
		each(pick(16, 64), 16, func(int) {
			f.attack(body.path, nil, io.MultiReader(strings.NewReader(body.head), strings.NewReader(body.part), strings.NewReader(body.tail)))
		})
	}
}

// largeReplies asks for 100 replies of 128 MiB at once.
func (f *flood) largeReplies(*testing.T) {
	each(100, 100, func(int) {
		f.attack("/api/mcp-gateway/flood/rpc", nil, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"text","arguments":{"size":127000000}}}`))
	})
}

// endlessList adds a server with 400 MB of tools.
func (f *flood) endlessList(t *testing.T) {
	lister := startBigLister(t, 400)
	f.servers = append(f.servers, server{id: "lists", url: lister.URL, more: `transport = "http"`})
	if err := f.write(f.text()); err != nil {
		t.Fatal(err)
	}
	if !within(60*time.Second, func() bool { return strings.Contains(f.said(), "max_list_bytes") }) {
		t.Error("the log does not say that the lists are too large")
	}
	head := f.initialize(t, "{}")
	each(20, 4, func(int) {
		f.attack("/mcp", head, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	})
}

// notes has 500 sessions that used a server, and the server send 250 notes of 4 KB. They wait for
// clients that open no stream; the last client then does, and finds them.
func (f *flood) notes(t *testing.T) {
	var head http.Header
	for range 500 {
		head = f.initialize(t, "{}")
		f.attack("/mcp", head, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"flood::echo","arguments":{}}}`))
	}
	// Log messages would go only to clients that asked for them.
	note := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/flood","params":{"data":%q}}`, strings.Repeat("n", 4000))
	sent := 0
	for range 250 {
		sent += f.server.note(note)
	}
	if sent < 250 {
		t.Errorf("%d notes were sent", sent)
	}
	if got := f.waiting(t, head, 200); got < 200 {
		t.Errorf("%d notes waited for a client, want at least 200", got)
	}
}

// waiting opens the stream of a session and counts the notes on it, up to most of them.
func (f *flood) waiting(t *testing.T, head http.Header, most int) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = head.Clone()
	req.Header.Set("Accept", "text/event-stream")
	resp, err := f.web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for events := newSSEReader(resp.Body); n < most; n++ {
		if _, err := events.next(); err != nil {
			return n
		}
	}
	return n
}

// initializes begins sessions that nobody ends.
func (f *flood) initializes(*testing.T) {
	each(pick(20_000, 100_000), 32, func(i int) {
		f.attack("/mcp", nil, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"%d","version":"1"}}}`, i, i)))
	})
}

// parkedCalls makes calls that wait for their client, which never comes back.
func (f *flood) parkedCalls(*testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"flood","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`
	head := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"flood::ask"}}
	each(pick(2000, 10_000), 32, func(i int) {
		f.attack("/mcp", head, filled(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%s,"name":"flood::ask","arguments":{"x":"`, i, meta), `"}}}`, 64<<10))
	})
}

// inventedNames asks for models, tools and ids that there are not.
func (f *flood) inventedNames(t *testing.T) {
	n := pick(30_000, 333_334)
	head := f.initialize(t, "{}")
	batch := func(from int, call func(i int) string) string {
		var calls []string
		for i := from; i < from+64; i++ {
			calls = append(calls, call(i))
		}
		return "[" + strings.Join(calls, ",") + "]"
	}
	each(n/64, 4, func(i int) {
		f.attack("/mcp", head, strings.NewReader(batch(64*i, func(i int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"invented_%d","arguments":{}}}`, i, i)
		})))
		f.attack("/mcp", head, strings.NewReader(batch(64*i, func(i int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"recover_text","arguments":{"prune_id":"prn_%026d"}}}`, i, i)
		})))
	})
	each(n, 16, func(i int) {
		f.attack("/v1/chat/completions", nil, strings.NewReader(fmt.Sprintf(`{"model":"invented-%d","messages":[{"role":"user","content":"%d"}]}`, i, i)))
	})
	f.attack("/v1/chat/completions", nil, strings.NewReader(`{"model":1}`))
}
