package app

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/child"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/state/sqlite"
)

func TestMain(m *testing.M) {
	child.RunIfShim()
	if len(os.Args) == 2 && os.Args[1] == "run:counter" {
		runCounter()
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// load writes a config file and loads it as the command does.
func load(t *testing.T, dir, text string) config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ctxgate.toml")
	text = "listen = '127.0.0.1:0'\ndata_dir = '" + dir + "'\n" + text + "\n[admin]\nlisten = '127.0.0.1:0'\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// The pruner's listener is opened by the tests that ask for it.
	loaded, problems := config.Load(path, config.Env{"CTXGATE_MCP_PRUNER_LISTEN="})
	if problems == nil {
		problems = loaded.ResolveSecrets(nil)
	}
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return loaded.Config
}

// running is a gateway that was started.
type running struct {
	main, admin string
	stop        context.CancelFunc
	done        chan error
	client      *http.Client
}

func start(t *testing.T, cfg config.Config) *running {
	t.Helper()
	return startWith(t, cfg, Options{Version: "test"})
}

func startWith(t *testing.T, cfg config.Config, opts Options) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	a, err := New(ctx, cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	r := &running{
		main: "http://" + a.listeners[0].Addr().String(), admin: "http://" + a.listeners[1].Addr().String(),
		stop: stop, done: make(chan error, 1), client: &http.Client{Transport: transport, Timeout: 20 * time.Second},
	}
	go func() { r.done <- a.Run(ctx) }()
	t.Cleanup(func() { stop(); transport.CloseIdleConnections() })
	return r
}

// end stops the gateway and waits for it.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.client.CloseIdleConnections()
	r.stop()
	select {
	case err := <-r.done:
		if err != nil {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Run does not end")
	}
}

func (r *running) do(t *testing.T, method, url, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func upstreamOf(t *testing.T, result string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":`+result+`}`)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func server(id, url string) string { return "[[servers]]\nid = '" + id + "'\nrpc = '" + url + "'\n" }

// settles waits until no more goroutines run than before.
func settles(t *testing.T, before int) {
	t.Helper()
	var now int
	for range 200 {
		if now = runtime.NumGoroutine(); now <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	t.Errorf("%d goroutines before, %d after:\n%s", before, now, stacks[:runtime.Stack(stacks, true)])
}

const ask = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read"}}`

var pruneID = regexp.MustCompile(`prune_id=(prn_[0-9a-z]+)`)

// A gateway starts, serves, stops, and starts again with what it stored.
func TestRunAndStartAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	long := strings.Repeat("a long line of text\n", 1000)
	quoted, _ := json.Marshal(long)
	up := upstreamOf(t, string(quoted))
	before := runtime.NumGoroutine()

	cfg := load(t, dir, server("a", up))
	r := start(t, cfg)
	status, first := r.do(t, "POST", r.main+"/api/mcp-gateway/a/rpc", "", ask)
	id := pruneID.FindStringSubmatch(first)
	if status != 200 || id == nil {
		t.Fatalf("got %d %.300s", status, first)
	}
	for path, want := range map[string]string{"/healthz": `{"status":"ok"}`, "/readyz": `{"status":"ready","store":"ok"}`} {
		if status, body := r.do(t, "GET", r.main+path, "", ""); status != 200 || strings.TrimSpace(body) != want {
			t.Errorf("%s: got %d %s, want %s", path, status, body, want)
		}
	}
	kept, err := os.ReadFile(filepath.Join(dir, "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(kept))
	if status, body := r.do(t, "GET", r.admin+"/metrics", token, ""); status != 200 || !strings.Contains(body, `ctxgate_originals_kept_total{server="a"} 1`) {
		t.Errorf("metrics: got %d %.300s", status, body)
	}
	for _, wrong := range []string{"", "wrong"} {
		if status, body := r.do(t, "GET", r.admin+"/metrics", wrong, ""); status != 401 || strings.Contains(body, "ctxgate_") {
			t.Errorf("metrics with token %q: got %d %.100s", wrong, status, body)
		}
	}
	r.end(t)

	if m := mode(t, dir); m != 0o700 {
		t.Errorf("the data directory has mode %o", m)
	}
	files, _ := os.ReadDir(dir)
	names := map[string]bool{}
	for _, f := range files {
		names[f.Name()] = true
		if m := mode(t, filepath.Join(dir, f.Name())); m != 0o600 {
			t.Errorf("%s has mode %o", f.Name(), m)
		}
	}
	if !names["secret"] || !names["admin-token"] || !names["ctxgate.db"] {
		t.Errorf("the data directory holds %v", names)
	}

	r = start(t, cfg)
	if _, second := r.do(t, "POST", r.main+"/api/mcp-gateway/a/rpc", "", ask); second != first {
		t.Error("the second start answers other bytes: the secret was not reused")
	}
	r.end(t)

	storage, err := OpenStorage(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	original, err := storage.Recall.Open(context.Background(), "default", id[1])
	if err == nil {
		err = original.WriteText(context.Background(), &text)
	}
	if err != nil || text.String() != long {
		t.Errorf("read back %d bytes, %v; want %d", text.Len(), err, len(long))
	}
	if err := storage.Close(); err != nil {
		t.Error(err)
	}
	settles(t, before)
}

// A server is added by an entry in the file, and by nothing else.
func TestG6ServerAddedInTheFile(t *testing.T) {
	two := server("one", upstreamOf(t, `"1"`)) + server("two", upstreamOf(t, `"2"`))
	three := two + server("three", upstreamOf(t, `"3"`))
	for _, tt := range []struct{ file, want string }{{two, "1 2 404"}, {three, "1 2 3"}} {
		r := start(t, load(t, t.TempDir(), tt.file+"[state]\ndriver = 'memory'\n"))
		var got []string
		for _, id := range []string{"one", "two", "three"} {
			status, body := r.do(t, "POST", r.main+"/api/mcp-gateway/"+id+"/rpc", "", ask)
			if status == 404 {
				got = append(got, "404")
				continue
			}
			var reply struct{ Result string }
			_ = json.Unmarshal([]byte(body), &reply)
			got = append(got, reply.Result)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("got %v, want %s", got, tt.want)
		}
		r.end(t)
	}
}

// With a token, only health needs no credentials.
func TestTokenOnTheMainListener(t *testing.T) {
	r := start(t, load(t, t.TempDir(), "auth_token = 'hush'\n[state]\ndriver = 'memory'\n"))
	for _, tt := range []struct {
		method, path, token string
		want                int
	}{
		{"GET", "/healthz", "", 200}, {"GET", "/readyz", "", 200},
		{"POST", "/healthz", "", 401}, {"GET", "/", "", 401}, {"POST", "/api/mcp-gateway/a/rpc", "", 401},
		{"POST", "/api/mcp-gateway/a/rpc", "wrong", 401}, {"POST", "/api/mcp-gateway/a/rpc", "hush", 404},
		{"GET", "/metrics", "", 401}, {"GET", "/metrics", "hush", 404},
	} {
		if status, body := r.do(t, tt.method, r.main+tt.path, tt.token, ask); status != tt.want {
			t.Errorf("%s %s with %q: got %d %s, want %d", tt.method, tt.path, tt.token, status, body, tt.want)
		}
	}
	r.end(t)
}

// While it drains, a gateway reports that it is not ready, still serves new calls, and finishes the calls
// in flight.
func TestDraining(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) != ask { // the gateway's own greeting
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}`)
			return
		}
		close(entered)
		<-release
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":"slow"}`)
	}))
	defer slow.Close()
	cfg := load(t, t.TempDir(), server("slow", slow.URL)+server("fast", upstreamOf(t, `"fast"`))+"[state]\ndriver = 'memory'\n")
	cfg.Front.HTTP.DrainDelay = unit.Duration(time.Second)
	r := start(t, cfg)
	called := make(chan string, 1)
	go func() {
		_, body := r.do(t, "POST", r.main+"/api/mcp-gateway/slow/rpc", "", ask)
		called <- body
	}()
	<-entered
	r.stop()
	deadline := time.Now().Add(900 * time.Millisecond)
	for {
		if status, _ := r.do(t, "GET", r.main+"/readyz", "", ""); status == 503 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("readiness is not withdrawn")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if status, body := r.do(t, "POST", r.main+"/api/mcp-gateway/fast/rpc", "", ask); status != 200 {
		t.Errorf("a call during the delay: got %d %s", status, body)
	}
	time.AfterFunc(1200*time.Millisecond, func() { close(release) })
	if body := <-called; !strings.Contains(body, `"slow"`) {
		t.Errorf("the call under way got %s", body)
	}
	if err := <-r.done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// A start that fails leaves nothing behind: no open store, no goroutine.
func TestBusyPortReleasesTheStore(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for name, mend := range map[string]func(*config.Config){
		"main":  func(c *config.Config) { c.Front.Listen = busy.Addr().String() },
		"admin": func(c *config.Config) { c.Admin.Listen = busy.Addr().String() },
		"pruner": func(c *config.Config) {
			c.Pruner.Listen, c.Pruner.PruneIDTTL = busy.Addr().String(), 60
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			cfg := load(t, t.TempDir(), "")
			mend(&cfg)
			if _, err := New(context.Background(), cfg, Options{Version: "test"}); err == nil || !strings.Contains(err.Error(), name+": ") {
				t.Fatalf("got %v, want an error of the %s listener", err, name)
			}
			settles(t, before)
			db, err := sqlite.Open(context.Background(), filepath.Join(cfg.DataDir, "ctxgate.db"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Stat(context.Background()); err != nil {
				t.Error(err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBusyAdminPortReleasesTheMainOne(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	cfg := load(t, t.TempDir(), "[state]\ndriver = 'memory'\n")
	cfg.Front.Listen, cfg.Admin.Listen = free.Addr().String(), busy.Addr().String()
	if _, err := New(context.Background(), cfg, Options{Version: "test"}); err == nil {
		t.Fatal("want an error")
	}
	again, err := net.Listen("tcp", cfg.Front.Listen)
	if err != nil {
		t.Fatalf("the main address is still held: %v", err)
	}
	again.Close()
}

func TestBadSecretFileIsRefused(t *testing.T) {
	for _, name := range []string{"secret", "admin-token"} {
		cfg := load(t, t.TempDir(), "[state]\ndriver = 'memory'\n")
		if err := os.WriteFile(filepath.Join(cfg.DataDir, name), []byte("short\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(context.Background(), cfg, Options{Version: "test"}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want an error that names the file", name, err)
		}
	}
}

// A listener that fails ends the gateway, in order and with its error.
func TestListenerThatFails(t *testing.T) {
	cfg := load(t, t.TempDir(), "[state]\ndriver = 'memory'\n")
	a, err := New(context.Background(), cfg, Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(context.Background()) }()
	a.listeners[1].Close()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "serving ") {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Run continues without its listener")
	}
	if conn, err := net.Dial("tcp", a.listeners[0].Addr().String()); err == nil {
		conn.Close()
		t.Error("the other listener still takes connections")
	}
}

func TestNoListeners(t *testing.T) {
	cfg := load(t, t.TempDir(), "[state]\ndriver = 'memory'\n")
	cfg.Front.Listen, cfg.Admin.Listen = "", ""
	ctx, cancel := context.WithCancel(context.Background())
	a, err := New(ctx, cfg, Options{Version: "test"})
	if err != nil || len(a.listeners) != 0 {
		t.Fatal(err)
	}
	cancel()
	if err := a.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestLogger(t *testing.T) {
	for _, tt := range []struct {
		cfg  config.Log
		want string
	}{
		{config.Log{Level: "INFO", Structured: true}, `{"level":"INFO","msg":"info"}`},
		{config.Log{Level: "WARN", Structured: true}, ""},
		{config.Log{Level: "DEBUG"}, "level=DEBUG msg=debug level=INFO msg=info"},
		{config.Log{Level: "ERROR"}, ""},
	} {
		var buf bytes.Buffer
		log := NewLogger(&buf, tt.cfg)
		log.Debug("debug")
		log.Info("info")
		got := regexp.MustCompile(`"time":"[^"]*",|time=\S+ `).ReplaceAllString(buf.String(), "")
		if got = strings.Join(strings.Fields(got), " "); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.cfg, got, tt.want)
		}
	}
}
