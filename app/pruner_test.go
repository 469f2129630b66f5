package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/prunerd"
)

// builder is New or NewPruner.
type builder func(context.Context, config.Config, Options) (*App, error)

// run builds a gateway and runs it.
func run(t *testing.T, build builder, cfg config.Config) (*running, *App) {
	t.Helper()
	cfg.Pruner.Listen = "127.0.0.1:0"
	ctx, stop := context.WithCancel(context.Background())
	a, err := build(ctx, cfg, Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	r := &running{stop: stop, done: make(chan error, 1), client: &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}}
	go func() { r.done <- a.Run(ctx) }()
	t.Cleanup(func() { stop(); r.client.CloseIdleConnections() })
	return r, a
}

// pruner is a gateway whose pruner is open, and the pruner's address, which is opened last.
func pruner(t *testing.T, cfg config.Config) (*running, string) {
	t.Helper()
	r, a := run(t, New, cfg)
	return r, last(a)
}

func last(a *App) string { return "http://" + a.listeners[len(a.listeners)-1].Addr().String() }

func pruneCall(text string) string {
	quoted, _ := json.Marshal(text)
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"prune_text","arguments":{"text":` + string(quoted) +
		`,"goal_hint":"needle","source_type":"docs","options":{"max_prune_ratio":0.9,"min_keep_lines":1,"timeout_ms":9000,"annotate_lines":false,"include_markers":true}}}}`
}

func recoverCall(id string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"recover_text","arguments":{"prune_id":"` + id +
		`","ranges":[{"start_line":1,"end_line":100000}],"include_line_numbers":false}}}`
}

// inner is the document in a tool's answer.
func inner(t *testing.T, body string) (d struct {
	PruneID  string `json:"prune_id"`
	Text     string `json:"pruned_text"`
	Raw      string `json:"raw_text"`
	Warnings []string
	Stats    map[string]any
}) {
	t.Helper()
	var reply struct {
		Result struct {
			Doc json.RawMessage `json:"structuredContent"`
		}
	}
	if err := json.Unmarshal([]byte(body), &reply); err != nil || json.Unmarshal(reply.Result.Doc, &d) != nil {
		t.Fatalf("%v: %.300s", err, body)
	}
	return d
}

var hay = strings.Repeat("a line of hay that is long enough to be left out\n", 200) + "the needle\n" + strings.Repeat("more hay, which nobody asked for at all\n", 200)

// The pruner is served beside everything else, by the same rules: a token, no foreign pages, draining; and
// its originals are in the gateway's store.
func TestPrunerInServe(t *testing.T) {
	before := runtime.NumGoroutine()
	dir := filepath.Join(t.TempDir(), "data")
	cfg := load(t, dir, "auth_token = 'hush'\n")
	r, url := pruner(t, cfg)
	if status, body := r.do(t, "POST", url+"/rpc", "", pruneCall(hay)); status != 401 || !strings.Contains(body, `"error"`) {
		t.Errorf("without a token: %d %s", status, body)
	}
	status, body := r.do(t, "POST", url+"/rpc", "hush", pruneCall(hay))
	d := inner(t, body)
	if status != 200 || len(d.Text) > len(hay)/2 || !strings.Contains(d.Text, "the needle") {
		t.Errorf("%d %.300s", status, body)
	}
	if status, body := r.do(t, "GET", url+"/health", "", ""); status != 200 || !strings.Contains(body, `"version":"test"`) {
		t.Errorf("health: %d %s", status, body)
	}
	for path, want := range map[string]int{"/": 404, "/mcp": 404, "/rpc": 405} {
		if status, body := r.do(t, "GET", url+path, "hush", ""); status != want {
			t.Errorf("GET %s: %d %s", path, status, body)
		}
	}
	req, _ := http.NewRequest(http.MethodPost, url+"/rpc", strings.NewReader(pruneCall(hay)))
	req.Host = "evil.example"
	if resp, err := r.client.Do(req); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("another host's name: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	r.end(t)
	settles(t, before)

	// P+4: it is there after the end, for any reader of the store.
	storage, err := OpenStorage(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer storage.Close()
	var text strings.Builder
	original, err := storage.Recall.Open(context.Background(), "default", d.PruneID)
	if err == nil {
		err = original.WriteText(context.Background(), &text)
	}
	if err != nil || text.String() != hay {
		t.Errorf("read back %d bytes, %v", text.Len(), err)
	}
}

// I9: a body as large as the longest text may need is accepted, though the limit of other endpoints is
// lower.
func TestPrunerAdmitsItsLongestText(t *testing.T) {
	cfg := load(t, t.TempDir(), "[state]\ndriver = 'memory'\n[http]\nmax_request_bytes = '4KiB'\n[mcp_pruner]\nmax_input_chars = 20000\n")
	r, url := pruner(t, cfg)
	escaped := strings.Repeat(`\ud83d\ude00`, 20_000) // twelve bytes each
	call := strings.Replace(pruneCall("@"), "@", escaped, 1)
	if status, body := r.do(t, "POST", url+"/rpc", "", call); status != 200 || len(inner(t, body).Warnings) != 0 {
		t.Errorf("%d %.300s", status, body)
	}
	if status, body := r.do(t, "POST", url+"/rpc", "", strings.Replace(call, "@", "", 1)+strings.Repeat(" ", 2<<20)); status != 413 || !strings.Contains(body, `"error"`) {
		t.Errorf("%d %.300s", status, body)
	}
	r.end(t)
}

// P10: prune_id_ttl_s is the lifetime of the pruner's originals, and of nothing else.
func TestP10PruneIDTTL(t *testing.T) {
	cfg := load(t, t.TempDir(), "[state]\ndriver = 'memory'\n[mcp_pruner]\nprune_id_ttl_s = 1\n")
	r, url := pruner(t, cfg)
	_, body := r.do(t, "POST", url+"/rpc", "", pruneCall(hay))
	id := inner(t, body).PruneID
	if _, body := r.do(t, "POST", url+"/rpc", "", recoverCall(id)); inner(t, body).Raw != hay {
		t.Errorf("%.300s", body)
	}
	time.Sleep(1100 * time.Millisecond)
	if _, body := r.do(t, "POST", url+"/rpc", "", recoverCall(id)); !strings.Contains(body, `"code":-32004`) {
		t.Errorf("after its time: %.300s", body)
	}
	r.end(t)
}

// A reload changes the backend, the limits and the token; the address stays open throughout.
func TestPrunerReload(t *testing.T) {
	var asked atomic.Int64
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer far.Close()
	cfg := load(t, t.TempDir(), "[state]\ndriver = 'memory'\n")
	for name, build := range map[string]builder{"serve": New, "pruner": NewPruner} {
		t.Run(name, func(t *testing.T) {
			asked.Store(0)
			r, a := run(t, build, cfg)
			url := last(a) + "/rpc"
			if _, body := r.do(t, "POST", url, "", pruneCall(hay)); len(inner(t, body).Warnings) != 0 || asked.Load() != 0 {
				t.Errorf("%.300s", body)
			}
			next := cfg
			next.Pruner.Listen, next.Pruner.Backend, next.Pruner.DeepInfraURL, next.Pruner.DeepInfraKey = "127.0.0.1:1", "deepinfra", far.URL, secret.Literal("k")
			next.Auth.Token = secret.Literal("hush")
			a.Reload(next)
			if status, _ := r.do(t, "POST", url, "", pruneCall(hay)); status != 401 {
				t.Errorf("without the new token: %d", status)
			}
			_, body := r.do(t, "POST", url, "hush", pruneCall(hay))
			if d := inner(t, body); fmt.Sprint(d.Warnings) != "[deepinfra_error deepinfra_http_error]" || d.Stats["deepinfra_http_status"] != 403. || asked.Load() != 1 {
				t.Errorf("%v %v", d.Warnings, d.Stats)
			}
			r.end(t)
		})
	}
}

// The pruner alone has no other listener, and listens by default where the document says.
func TestPrunerAlone(t *testing.T) {
	before := runtime.NumGoroutine()
	r, a := run(t, NewPruner, load(t, t.TempDir(), ""))
	if len(a.listeners) != 1 {
		t.Errorf("%d listeners", len(a.listeners))
	}
	if status, body := r.do(t, "POST", last(a)+"/rpc", "", pruneCall(hay)); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	r.end(t)
	settles(t, before)
}

// The pruner is also one of the gateway's servers: its tools under its id, its failures with their own
// codes.
func TestPrunerBehindTheGateway(t *testing.T) {
	r := start(t, load(t, t.TempDir(), "[state]\ndriver = 'memory'\n"))
	url := r.main + "/api/mcp-gateway/pruner/rpc"
	_, body := r.do(t, "POST", url, "", pruneCall(hay))
	d := inner(t, body)
	if len(d.Text) > len(hay)/2 || !strings.Contains(d.Text, "the needle") {
		t.Errorf("%.300s", body)
	}
	if _, body := r.do(t, "POST", url, "", recoverCall(d.PruneID)); inner(t, body).Raw != hay {
		t.Errorf("%.300s", body)
	}
	want := `"error":{"code":-32004,"message":"prune_id_not_found","data":{"code":"prune_id_not_found","prune_id":"prn_x"}}`
	if _, body := r.do(t, "POST", url, "", recoverCall("prn_x")); !strings.Contains(body, want) {
		t.Errorf("%.300s", body)
	}
	r.end(t)
}

// If another program uses the pruner's default address, only its listener is missing; if it uses a
// configured address, the start fails.
func TestPrunerAddressInUse(t *testing.T) {
	var lc net.ListenConfig
	at := prunerd.Default().Listen
	if l, err := lc.Listen(t.Context(), "tcp", at); err == nil { // else it is taken already
		defer l.Close()
	}
	cfg := load(t, t.TempDir(), "")
	cfg.Pruner.Listen = at
	a, err := New(t.Context(), cfg, Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.release(); err != nil {
		t.Error(err)
	}
	other, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	cfg.Pruner.Listen = other.Addr().String()
	if a, err := New(t.Context(), cfg, Options{Version: "test"}); err == nil {
		_ = a.release()
		t.Error("it opened an address that is in use")
	}
}
