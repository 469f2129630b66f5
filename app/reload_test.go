package app

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/internal/unit"
)

const inMemory = "[state]\ndriver = 'memory'\n"

// startApp is start with the gateway itself.
func startApp(t *testing.T, cfg config.Config) (*running, *App) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	a, err := New(ctx, cfg, Options{Version: "test"})
	if err != nil {
		stop()
		t.Fatal(err)
	}
	r := &running{
		main: "http://" + a.listeners[0].Addr().String(), admin: "http://" + a.listeners[1].Addr().String(),
		stop: stop, done: make(chan error, 1), client: &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second},
	}
	go func() { r.done <- a.Run(ctx) }()
	t.Cleanup(func() { stop(); r.client.CloseIdleConnections() })
	return r, a
}

// Reloads continue while Run serves, drains and ends, without a data race.
func TestReloadWhileRunEndsIsNoRace(t *testing.T) {
	cfg := load(t, t.TempDir(), server("a", upstreamOf(t, `"1"`))+inMemory)
	r, a := startApp(t, cfg)
	var reloads sync.WaitGroup
	var refused atomic.Bool
	for n := range 2 {
		reloads.Go(func() {
			for i := 0; !refused.Load(); i++ {
				next := cfg
				next.Front.HTTP.DrainDelay = unit.Duration(50*time.Millisecond) + unit.Duration(i%2+n)
				if report := a.Reload(next); report.Failed != "" {
					refused.Store(true)
				} else if i == 5 {
					r.stop()
				}
			}
		})
	}
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	reloads.Wait()
	if report, ok := a.LastReload(); !ok || report.Failed != "gateway" {
		t.Errorf("the last reload: %+v", report)
	}
}

// Run does not return while a configuration is being loaded, and one that was loaded too late is not
// applied to a closed hub.
func TestWatcherEndsBeforeShutdown(t *testing.T) {
	before := runtime.NumGoroutine()
	var met atomic.Int64
	late := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { met.Add(1) }))
	cfg := load(t, t.TempDir(), inMemory)
	next := load(t, t.TempDir(), server("late", late.URL)+inMemory)
	file := filepath.Join(t.TempDir(), "ctxgate.toml")
	if err := os.WriteFile(file, []byte("#"), 0o600); err != nil {
		t.Fatal(err)
	}
	entered, release, asked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	a, err := New(ctx, cfg, Options{Version: "test", Source: &ConfigSource{File: file, ReloadRequests: asked, Load: func() (config.Config, error) {
		close(entered)
		<-release
		return next, nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	asked <- struct{}{}
	<-entered
	stop()
	select {
	case <-done:
		t.Error("Run returned while the watcher was loading a configuration")
	case <-time.After(200 * time.Millisecond):
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if report, ok := a.LastReload(); ok {
		t.Errorf("a configuration was applied during shutdown: %+v", report)
	}
	if report := a.Reload(next); report.Failed == "" || len(report.Applied) != 0 {
		t.Errorf("a closed gateway took a configuration: %+v", report)
	}
	if err := a.hub.Apply(a.hubSettings(next)); err == nil {
		t.Error("a closed hub took a configuration")
	}
	late.Close()
	settles(t, before)
	if n := met.Load(); n > 0 {
		t.Errorf("a server was started after the end: %d requests", n)
	}
}

// A reload reports the applied keys and those that need a restart, in the report and in one log line, and
// never prints a secret.
func TestReloadReport(t *testing.T) {
	log := captureLog(t)
	dir := t.TempDir()
	cfg := load(t, dir, "auth_token = 'old-secret'\n"+server("a", upstreamOf(t, `"1"`))+inMemory)
	r, a := startApp(t, cfg)
	next := load(t, dir, "auth_token = 'new-secret'\nmax_depth = 64\n"+server("b", upstreamOf(t, `"2"`))+
		"[http]\nheader_timeout = '3s'\nidle_timeout = '4s'\nmax_header_bytes = '32KiB'\ndrain_grace = '5s'\ndrain_delay = '1ms'\n"+inMemory)
	next.Front.Listen = "127.0.0.1:9"
	next.Admin.Token = secret.Literal("an admin's secret")
	report := a.Reload(next)
	if want := []string{"http.drain_delay", "http.drain_grace", "auth_token", "servers.a", "servers.b", "max_depth", "admin.token"}; !slices.Equal(report.Applied, want) {
		t.Errorf("applied %v, want %v", report.Applied, want)
	}
	want := []string{"listen", "http.max_header_bytes", "http.header_timeout", "http.idle_timeout"}
	if !slices.Equal(report.NeedsRestart, want) || report.Failed != "" {
		t.Errorf("needs restart %v, want %v; failed %q", report.NeedsRestart, want, report.Failed)
	}
	if last, ok := a.LastReload(); !ok || !slices.Equal(last.Applied, report.Applied) || last.At.IsZero() {
		t.Errorf("the last report is %+v", last)
	}
	line := `msg="configuration reloaded" applied="[http.drain_delay http.drain_grace auth_token servers.a servers.b max_depth admin.token]" ` +
		`needs_restart="[listen http.max_header_bytes http.header_timeout http.idle_timeout]"`
	if text := log.String(); strings.Count(text, line) != 1 || strings.Contains(text, "secret") {
		t.Errorf("the log says %s", text)
	}
	// It is in force.
	if status, _ := r.do(t, "POST", r.main+"/api/mcp-gateway/b/rpc", "new-secret", ask); status != 200 {
		t.Errorf("the new server: %d", status)
	}
	if status, _ := r.do(t, "GET", r.admin+"/metrics", "an admin's secret", ""); status != 200 {
		t.Errorf("the new admin token: %d", status)
	}
	// The same again changes nothing, and what needs a restart still does.
	if again := a.Reload(next); len(again.Applied) != 0 || !slices.Equal(again.NeedsRestart, want) {
		t.Errorf("again: %+v", again)
	}
	r.end(t)
}

// The drain settings of the last reload count at shutdown: a call that never ends is cut after the new
// grace period.
func TestReloadedDrainSettingsHold(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) == ask {
			close(entered)
			<-release
		}
	}))
	defer slow.Close()
	defer close(release)
	cfg := load(t, t.TempDir(), server("slow", slow.URL)+inMemory)
	cfg.Front.HTTP.DrainGrace = unit.Duration(time.Hour)
	r, a := startApp(t, cfg)
	called := make(chan struct{})
	go func() {
		defer close(called)
		resp, err := r.client.Post(r.main+"/api/mcp-gateway/slow/rpc", "application/json", strings.NewReader(ask))
		if err == nil {
			resp.Body.Close()
		}
	}()
	<-entered
	next := cfg
	next.Front.HTTP.DrainGrace = unit.Duration(50 * time.Millisecond)
	a.Reload(next)
	r.stop()
	select {
	case err := <-r.done:
		if err == nil || !strings.Contains(err.Error(), "calls were cut after 50ms") {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Run waits for the old grace")
	}
	<-called
}

// When a part fails, the whole old configuration stays in force, and the report names the part.
func TestReloadThatFailsChangesNothing(t *testing.T) {
	log := captureLog(t)
	dir := t.TempDir()
	cfg := load(t, dir, server("a", upstreamOf(t, `"1"`))+inMemory)
	cfg.Admin.Token = secret.Literal("configured")
	r, a := startApp(t, cfg)
	if err := os.WriteFile(filepath.Join(dir, "admin-token"), []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	next := load(t, dir, server("b", upstreamOf(t, `"2"`))+inMemory) // whose admin token is the one in the file
	report := a.Reload(next)
	if report.Failed != "admin" || !strings.Contains(report.Error, "does not hold a secret of at least") || len(report.Applied) != 0 {
		t.Errorf("got %+v", report)
	}
	if text := log.String(); !strings.Contains(text, `msg="configuration not reloaded: the old one stays in force" failed=admin`) {
		t.Errorf("the log says %s", text)
	}
	for id, want := range map[string]int{"a": 200, "b": 404} {
		if status, _ := r.do(t, "POST", r.main+"/api/mcp-gateway/"+id+"/rpc", "", ask); status != want {
			t.Errorf("%s: got %d, want %d", id, status, want)
		}
	}
	if status, _ := r.do(t, "GET", r.admin+"/metrics", "configured", ""); status != 200 {
		t.Errorf("the old admin token: %d", status)
	}
	r.end(t)
}

// When a part fails or panics after others were applied, all go back to the old configuration.
func TestReloadTakesBackWhatWasApplied(t *testing.T) {
	old, next := config.Default(), config.Default()
	next.Hub.MaxDepth = 77
	var got []string
	part := func(name string, then func() error) reloadPart {
		return reloadPart{name, func(c config.Config) error {
			if c.Hub.MaxDepth != 77 {
				got = append(got, name+" old")
				return nil
			}
			got = append(got, name+" new")
			return then()
		}}
	}
	fine := func() error { return nil }
	for name, bad := range map[string]func() error{
		"fails":  func() error { return errors.New("no") },
		"panics": func() error { panic("no") },
	} {
		got = nil
		failed, err := applyParts([]reloadPart{part("a", fine), part("b", fine), part("c", bad), part("d", fine)}, old, next)
		if want := "a new b new c new c old b old a old"; failed != "c" || err == nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %s %v: %v", name, failed, err, got)
		}
	}
}

// A file that changes is loaded again; one that cannot be loaded is reported and changes nothing.
func TestSourceIsWatched(t *testing.T) {
	log := captureLog(t)
	file := filepath.Join(t.TempDir(), "ctxgate.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	cfg := load(t, t.TempDir(), inMemory)
	var depth atomic.Int64 // of the configuration that is loaded
	depth.Store(77)
	asked := make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	a, err := New(ctx, cfg, Options{Version: "test", Source: &ConfigSource{File: file, ReloadRequests: asked, Load: func() (config.Config, error) {
		if text, _ := os.ReadFile(file); string(text) == "bad" {
			return config.Config{}, errors.New("line 1: bad")
		}
		next := cfg
		next.Hub.MaxDepth = int(depth.Load())
		return next, nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	reported := func(ok func(ReloadReport) bool) func() bool {
		return func() bool {
			r, there := a.LastReload()
			return there && ok(r)
		}
	}
	wait.For(t, "the first reload", func() bool { // Run has begun to watch
		asked <- struct{}{}
		return reported(func(r ReloadReport) bool { return r.Failed == "" })()
	})
	write("bad")
	wait.For(t, "the report of a bad file", reported(func(r ReloadReport) bool { return r.Failed == partLoad && r.Error == "line 1: bad" }))
	write("")
	wait.For(t, "the report of an empty file", reported(func(r ReloadReport) bool { return r.Error == "the file is empty" }))
	depth.Store(78)
	write("good")
	wait.For(t, "the reload", func() bool { // a file that is written in two steps may be loaded twice: the last report does not tell
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.cfg.Hub.MaxDepth == 78
	})
	if text := log.String(); !strings.Contains(text, "failed=load") {
		t.Errorf("the log says %s", text)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
