//go:build unix

package hub_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/testkit/cputime"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/reduce"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/upstream"
)

// manyServers answers for any number of modern servers, without a socket. Each offers five tools.
type manyServers struct{ tools string }

func newManyServers() manyServers {
	var tools []string
	for i := range 5 {
		tools = append(tools, fmt.Sprintf(`{"name":"tool_%d","description":%q,"inputSchema":{"type":"object"}}`, i, strings.Repeat("what it does ", 10)))
	}
	return manyServers{strings.Join(tools, ",")}
}

func (s manyServers) RoundTrip(r *http.Request) (*http.Response, error) {
	var msg struct {
		ID     json.RawMessage
		Method string
	}
	if r.Body != nil {
		if err := json.NewDecoder(r.Body).Decode(&msg); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
	}
	var result string
	switch msg.Method {
	case mcp.ServerDiscover:
		result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
	case mcp.ToolsList:
		result = `{"resultType":"complete","tools":[` + s.tools + `],"ttlMs":3600000,"cacheScope":"public"}`
	default:
		return nil, fmt.Errorf("unexpected %s %s", r.Method, msg.Method)
	}
	body := `{"jsonrpc":"2.0","id":` + string(msg.ID) + `,"result":` + result + `}`
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// startupCost starts so many servers, waits until all their tools are listed, and returns how many bytes were
// allocated and how much CPU time was used.
func startupCost(t *testing.T, servers int) (allocated uint64, cpu time.Duration) {
	t.Helper()
	set := hub.Settings{Hub: hub.Default(), HTTP: front.Default().HTTP, Upstream: upstream.Default()}
	set.Hub.ListWait = unit.Duration(time.Minute)
	set.Upstream.HealthcheckInterval = 0
	for i := range servers {
		var s upstream.ServerConfig
		s.SetDefaults()
		s.ID, s.URL = fmt.Sprintf("s%04d", i), secret.URL(fmt.Sprintf("http://servers.invalid/s%04d", i))
		set.Upstream.Servers = append(set.Upstream.Servers, s)
	}
	store := state.New(memory.New(), state.Default(), time.Now)
	defer store.Close()
	recaller, err := recall.New(store, rootSecret, recall.Default())
	if err != nil {
		t.Fatal(err)
	}
	metrics := meter.New("test", func() (meter.StoreStats, bool) { return meter.StoreStats{}, true })

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used := cputime.Used()
	h, err := hub.New(set, hub.Deps{Transport: newManyServers(), Recall: recaller, Meter: metrics, Secret: rootSecret, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	h.Start()
	found, clashes := probeServers(t, h)
	cpu = cputime.Used() - used
	runtime.ReadMemStats(&after)
	for _, f := range found {
		if f.Err != nil || !strings.Contains(f.Summary, "5 tools") {
			t.Fatalf("%s: %v %s", f.Server, f.Err, f.Summary)
		}
	}
	if len(found) != servers || len(clashes) > 0 {
		t.Fatalf("%d servers, clashes %q", len(found), clashes)
	}
	return after.TotalAlloc - before.TotalAlloc, cpu
}

// A thousand servers start in linear time: they cost at most thirteen times the memory and the CPU time of a
// hundred, because the catalog is not rebuilt for each of them.
func TestStartupIsLinearInServers(t *testing.T) { // not parallel: it measures the process
	const few, many, most = 100, 1000, 13
	startupCost(t, few) // pools and tables of the process
	var bytes, cpu float64
	for range 5 { // other work on the machine may slow one run down
		runtime.GC()
		var a, b uint64
		var c, d time.Duration
		for range many / few { // the mean of several: one alone may end before the collector runs at all
			bytes, cpu := startupCost(t, few)
			a, c = a+bytes*few/many, c+cpu*few/many
		}
		runtime.GC()
		b, d = startupCost(t, many)
		bytes, cpu = float64(b)/float64(a), float64(d)/float64(c)
		t.Logf("%d servers: %d KiB, %v; %d servers: %d KiB, %v; %.1f times the bytes, %.1f times the time",
			few, a>>10, c, many, b>>10, d, bytes, cpu)
		if bytes <= most && cpu <= most {
			return
		}
	}
	t.Errorf("%d times the servers cost %.1f times the bytes and %.1f times the processor time, want at most %d", many/few, bytes, cpu, most)
}

func TestG7TimeIsLinear(t *testing.T) {
	took := func(n int) time.Duration {
		body := wrap(`{"big":"` + strings.Repeat(`caf\u00e9 é `, n/12) + `","rest":` + texts(n/17) + `}`)
		return fastest(7, func() time.Duration {
			start := cputime.Used()
			for range 20 {
				checkMask(t, body, reduce.DefaultMask())
			}
			return cputime.Used() - start
		})
	}
	if one, four := took(256<<10), took(1<<20); four > 8*one {
		t.Errorf("four times the body took %v instead of %v: %.1f times", four, one, float64(four)/float64(one))
	}
}
