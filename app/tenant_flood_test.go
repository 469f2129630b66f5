package app

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The limits of tenant acme, and what it sends: ten times as much. The periods are so long that no bucket refills.
const (
	floodCalls, floodModels             = 100, 40 // that acme's limits allow
	floodCallsAtOnce, floodModelsAtOnce = 8, 4
	floodTimes                          = 10
	floodShare                          = 512 << 10 // of the store, for each tenant
	floodMemory                         = 64 << 20  // for all callers; a tenant may have half in large requests
	floodBody                           = 1 << 20   // of a large request
	floodUploads                        = 24        // of each of acme's two subjects: less than its share alone, more than it together
)

// floodText is the n-th long text of a tenant. It does not compress.
func floodText(who string, n int) string {
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", who, n))
	random := make([]byte, 60)
	source := rand.NewChaCha8(seed)
	var b strings.Builder
	for range 200 {
		_, _ = source.Read(random)
		b.WriteString(base64.StdEncoding.EncodeToString(random) + "\n")
	}
	return b.String()
}

// gauge counts what was served for a tenant, and the most at once.
type gauge struct{ now, most, all atomic.Int64 }

func (g *gauge) enter() (leave func()) {
	g.all.Add(1)
	n := g.now.Add(1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
	return func() { g.now.Add(-1) }
}

// floodUpstream is a tool server and a provider of models. What acme asks for takes a while, so that it fills its slots.
type floodUpstream struct{ calls, models gauge }

const floodWork = 10 * time.Millisecond

func (u *floodUpstream) serveTools(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Arguments struct {
				Who    string
				N      int
				IsLong bool
			}
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&m)
	result := "{}"
	switch m.Method {
	case "initialize":
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
	case "tools/list":
		result = `{"tools":[{"name":"read","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		args := m.Params.Arguments
		if args.Who == "acme" {
			defer u.calls.enter()()
			time.Sleep(floodWork)
		}
		text := "short"
		if args.IsLong {
			text = floodText(args.Who, args.N)
		}
		quoted, _ := json.Marshal(text)
		result = `{"content":[{"type":"text","text":` + string(quoted) + `}]}`
	}
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

func (u *floodUpstream) serveModels(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if strings.Contains(string(body), "from acme") {
		defer u.models.enter()()
		time.Sleep(floodWork)
	}
	_, _ = io.WriteString(w, `{"id":"1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`)
}

// floodClient sends requests of one subject, on connections of its own.
type floodClient struct {
	*http.Client
	url, token string
}

func newFloodClient(t *testing.T, r *running, token string) *floodClient {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(transport.CloseIdleConnections)
	return &floodClient{&http.Client{Transport: transport, Timeout: 2 * time.Minute}, r.main, token}
}

const (
	floodToolPath  = "/api/mcp-gateway/s/rpc"
	floodModelPath = "/v1/chat/completions"
)

func (c *floodClient) post(ctx context.Context, path string, body string) (status int, reply string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for k, v := range map[string]string{"Authorization": "Bearer " + c.token, "Content-Type": "application/json"} {
		req.Header.Set(k, v)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
		err = errors.Join(err, errors.New("429 without Retry-After"))
	}
	return resp.StatusCode, string(b), err
}

func floodCall(who string, n int, isLong bool, padding int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","arguments":{"who":%q,"n":%d,"isLong":%t,"padding":%q}}}`,
		who, n, isLong, strings.Repeat("x", padding))
}

func floodModelRequest(who string) string {
	return `{"model":"m","messages":[{"role":"user","content":"from ` + who + `"}]}`
}

// neighbour is the tenant whose calls must not suffer, and what it saw.
type neighbour struct {
	*floodClient
	read  func(arguments string) string
	ids   map[string]int // of its long texts, by id
	calls int
	times []time.Duration
}

// use makes the i-th of its calls: of five one has a long result, which it reads back, one asks a model, one is large.
func (b *neighbour) use(t *testing.T, i int) {
	t.Helper()
	path, body := floodToolPath, floodCall("beta", i, false, 0)
	switch i % 5 {
	case 1:
		body = floodCall("beta", i, true, 0)
	case 2:
		path, body = floodModelPath, floodModelRequest("beta")
	case 3:
		if i%4 == 0 {
			body = floodCall("beta", i, false, floodBody)
		}
	}
	start := time.Now()
	status, reply, err := b.post(t.Context(), path, body)
	b.times = append(b.times, time.Since(start))
	if err != nil || status != http.StatusOK || path == floodToolPath && !served(t, reply) {
		t.Errorf("call %d of beta: %d %.200s, %v", i, status, reply, err)
		return
	}
	b.calls++
	if i%5 != 1 {
		return
	}
	id := shownID.FindStringSubmatch(reply)
	if id == nil {
		t.Errorf("call %d of beta: the result was not cut: %.200s", i, reply)
		return
	}
	b.ids[id[1]] = i
	b.readBack(t, id[1])
}

// readBack reads one of its texts back, whole.
func (b *neighbour) readBack(t *testing.T, id string) {
	t.Helper()
	var m struct {
		Result struct{ Content []struct{ Text string } }
	}
	reply := b.read(`{"prune_id":"` + id + `"}`)
	if at := strings.Index(reply, "data: {"); at >= 0 { // an event stream
		reply = reply[at+len("data: "):]
	}
	err := json.NewDecoder(strings.NewReader(reply)).Decode(&m)
	if err != nil || len(m.Result.Content) != 1 || m.Result.Content[0].Text != floodText("beta", b.ids[id]) {
		t.Errorf("text %d of beta does not read back: %.200s, %v", b.ids[id], reply, err)
	}
}

// flood is what acme sends, and what became of it.
type flood struct {
	sent, served, refused atomic.Int64
	wg                    sync.WaitGroup
}

// run sends so many requests, one at each tick whether or not earlier ones were answered, as long as at most 128 wait.
func (f *flood) run(t *testing.T, c *floodClient, total int, next func(n int) (path, body string)) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	slots := make(chan struct{}, 128)
	for n := range total {
		<-tick.C
		slots <- struct{}{}
		f.wg.Go(func() {
			defer func() { <-slots }()
			path, body := next(n)
			status, reply, err := c.post(t.Context(), path, body)
			switch {
			case err == nil && status == http.StatusOK:
				f.served.Add(1)
			case err == nil && status == http.StatusTooManyRequests:
				f.refused.Add(1)
			default:
				t.Errorf("request %d of acme to %s: %d %.200s, %v", n, path, status, reply, err)
			}
		})
		f.sent.Add(1)
	}
}

// openUploads starts large requests whose bodies never arrive, and returns how many of them were refused so far.
func openUploads(ctx context.Context, t *testing.T, wg *sync.WaitGroup, c *floodClient, n int) *atomic.Int64 {
	t.Helper()
	refused := new(atomic.Int64)
	host := strings.TrimPrefix(c.url, "http://")
	for range n {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
			floodToolPath, host, c.token, floodBody); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			switch {
			case err == nil && resp.StatusCode == http.StatusServiceUnavailable:
				refused.Add(1)
			case ctx.Err() == nil:
				t.Errorf("an upload of acme: %v, %v", resp, err)
			}
			if err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	return refused
}

// awaitThat waits until something is so.
func awaitThat(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !isSo(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// A tenant that sends ten times what its limits allow, fills its share of the store and holds its share of memory costs
// another no error, no text and no room: all calls of the other are served, and all that it was shown reads back.
func TestTenantFloodCostsOthersNothing(t *testing.T) {
	up := &floodUpstream{}
	tools := httptest.NewServer(http.HandlerFunc(up.serveTools))
	defer tools.Close()
	models := httptest.NewServer(http.HandlerFunc(up.serveModels))
	defer models.Close()
	tokens := ""
	for name, tenant := range map[string]string{"ann": "acme", "ada": "acme", "eve": "beta"} {
		tokens += fmt.Sprintf("[[tokens]]\nname = '%s'\nsha256 = '%x'\ntenant = '%s'\n", name, sha256.Sum256([]byte("token-of-"+name+"-0123456789")), tenant)
	}
	limits := ""
	for _, tenant := range []string{"acme", "beta"} { // beta's are the same, and it keeps to them
		limits += fmt.Sprintf("[[limits]]\ntenant = '%[1]s'\nserver = 's'\nrate = %[2]d\nevery = '8760h'\nconcurrency = %[3]d\n"+
			"[[limits]]\ntenant = '%[1]s'\nmodel = '*'\nrate = %[4]d\nevery = '8760h'\nconcurrency = %[5]d\n", tenant, floodCalls, floodCallsAtOnce, floodModels, floodModelsAtOnce)
	}
	// spare = 0: no text is safe because it is new.
	r, a := startApp(t, load(t, t.TempDir(), fmt.Sprintf("memory_budget = %d\n%s%s%s[[providers]]\nname = 'p'\nkind = 'openai'\nbase_url = '%s'\n"+
		"[http]\nbody_timeout = '10m'\n[state]\ndriver = 'memory'\nmax_bytes = %d\ntenant_share = 0.5\nspare = '0s'\n",
		floodMemory, tokens, limits, server("s", tools.URL), models.URL, 2*floodShare)))
	a.hub.AwaitServers(t.Context())
	ann, ada := newFloodClient(t, r, "token-of-ann-0123456789"), newFloodClient(t, r, "token-of-ada-0123456789")
	eve := &neighbour{floodClient: newFloodClient(t, r, "token-of-eve-0123456789"), ids: map[string]int{}, read: func(arguments string) string { return callRecover(t, r, "/mcp", "token-of-eve-0123456789", arguments) }}

	const calls = 50 // of beta, alone and then beside the flood
	for i := range calls {
		eve.use(t, i)
	}
	alone := eve.times
	eve.times = nil

	// acme's two subjects hold all the memory that their tenant may have.
	ctx, stop := context.WithCancel(t.Context())
	var uploads sync.WaitGroup
	defer uploads.Wait()
	defer stop()
	byAnn, byAda := openUploads(ctx, t, &uploads, ann, floodUploads), openUploads(ctx, t, &uploads, ada, floodUploads)
	const held = floodMemory / 2 / floodBody // uploads that fit into the share of a tenant
	awaitThat(t, "acme holds more memory than its share", func() bool { return 2*floodUploads-byAnn.Load()-byAda.Load() <= held })

	var called, asked flood
	var senders sync.WaitGroup
	senders.Go(func() {
		called.run(t, ann, floodTimes*floodCalls, func(n int) (string, string) { return floodToolPath, floodCall("acme", n, true, 0) })
	})
	senders.Go(func() {
		asked.run(t, ada, floodTimes*floodModels, func(int) (string, string) { return floodModelPath, floodModelRequest("acme") })
	})
	var mostHeld int64
	for i := range calls { // spread over the whole flood
		awaitThat(t, "the flood stands still", func() bool { return called.sent.Load() >= int64(i*floodTimes*floodCalls/calls) })
		eve.use(t, calls+i)
		mostHeld = max(mostHeld, a.budget.Stats().Held)
	}
	senders.Wait()
	called.wg.Wait()
	asked.wg.Wait()

	if eve.calls != 2*calls || len(eve.ids) != 2*calls/5 {
		t.Errorf("%d calls of beta were served and %d texts shown, want %d and %d", eve.calls, len(eve.ids), 2*calls, 2*calls/5)
	}
	for id := range eve.ids {
		eve.readBack(t, id)
	}
	for name, f := range map[string]struct {
		*flood
		*gauge
		limit, atOnce int64
	}{"calls": {&called, &up.calls, floodCalls, floodCallsAtOnce}, "model requests": {&asked, &up.models, floodModels, floodModelsAtOnce}} {
		if n := f.served.Load(); n == 0 || n > f.limit || n != f.all.Load() || f.most.Load() > f.atOnce || n+f.refused.Load() != f.sent.Load() {
			t.Errorf("%s of acme: %d served, %d refused, of %d; %d reached the server, %d at once; the limits are %d and %d",
				name, n, f.refused.Load(), f.sent.Load(), f.all.Load(), f.most.Load(), f.limit, f.atOnce)
		}
		t.Logf("%s of acme: %d sent, %d served (limit %d), %d refused, at most %d at once (limit %d)", name, f.sent.Load(), f.served.Load(), f.limit, f.refused.Load(), f.most.Load(), f.atOnce)
	}
	if n := 2*floodUploads - byAnn.Load() - byAda.Load(); n < held/2 || n > held {
		t.Errorf("acme still holds %d uploads, its share is %d: it did not hold it all along", n, held)
	}
	if mostHeld > floodMemory*3/4+4*floodBody { // half in large and a quarter in small requests, and what is beta's
		t.Errorf("%d bytes of memory were held", mostHeld)
	}
	owners, err := a.storage.Store.Owners(t.Context(), "")
	if err != nil || len(owners) < 2 {
		t.Fatalf("owners: %v, %v", owners, err)
	}
	for _, o := range owners {
		if o.Bytes > floodShare {
			t.Errorf("%q has %d bytes of the store, its share is %d", o.Owner, o.Bytes, floodShare)
		}
	}
	slices.Sort(alone)
	slices.Sort(eve.times)
	t.Logf("beta: median %s alone, %s beside the flood; longest %s and %s; memory held %d MiB of %d", alone[calls/2], eve.times[calls/2], alone[calls-1], eve.times[calls-1], mostHeld>>20, floodMemory>>20)
	// Both clients and both servers share the processor with the gateway, so the bound is wide, and on the median.
	if got, most := eve.times[calls/2], 10*alone[calls/2]+250*time.Millisecond; got > most {
		t.Errorf("half of beta's calls took longer than %s beside the flood, want at most %s", got, most)
	}
	stop()
	uploads.Wait()
	r.end(t)
}
