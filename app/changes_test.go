package app

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/ctxgate/ctxgate/changes"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// reloadable is a gateway whose configuration has the nesting limit that depth says.
type reloadable struct {
	*App
	requests chan struct{}
	depth    atomic.Int64
	loads    atomic.Int64
}

func startReloadable(t *testing.T, shared state.Shared) *reloadable {
	t.Helper()
	cfg := load(t, t.TempDir(), inMemory)
	cfg.Admin.Token = secret.Literal("the operator's token")
	file := filepath.Join(t.TempDir(), "ctxgate.toml")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &reloadable{requests: make(chan struct{})}
	r.depth.Store(50)
	ctx, stop := context.WithCancel(context.Background())
	var err error
	r.App, err = New(ctx, cfg, Options{Version: "test", Source: &ConfigSource{File: file, ReloadRequests: r.requests, Load: func() (config.Config, error) {
		r.loads.Add(1)
		next := cfg
		if next.Hub.MaxDepth = int(r.depth.Load()); next.Hub.MaxDepth == 0 {
			return next, errors.New("line 1: bad")
		}
		return next, nil
	}}})
	if err != nil {
		stop()
		t.Fatal(err)
	}
	// As with a store that replicas share.
	r.reloadHints = make(chan struct{}, 1)
	r.feed = changes.New(shared, r.topics, r.applyChange)
	r.runFeed(ctx)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return r
}

func (r *reloadable) depthInForce() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cfg.Hub.MaxDepth
}

func (r *reloadable) postReload(t *testing.T) (report ReloadReport) {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.listeners[1].Addr().String()+"/api/v1/reload", http.NoBody)
	req.Header.Set("Authorization", "Bearer the operator's token")
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&report); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("HTTP %d, %v", resp.StatusCode, err)
	}
	return report
}

// A reload that one replica is asked for, by a signal or by the operator's API, happens at all of them, once; each reads its own file.
func TestReloadReachesAllReplicas(t *testing.T) {
	driver := memory.New()
	t.Cleanup(func() { _ = driver.Close() })
	a, b, c := startReloadable(t, driver), startReloadable(t, driver), startReloadable(t, driver)
	all := []*reloadable{a, b, c}
	for _, r := range all {
		r.depth.Store(60)
	}
	if report := a.postReload(t); len(report.Applied) != 1 || report.Failed != "" || a.depthInForce() != 60 {
		t.Errorf("the reload: %+v", report)
	}
	for _, r := range all {
		wait.For(t, "the reload at all replicas", func() bool { return r.depthInForce() == 60 })
	}
	for _, r := range all {
		r.depth.Store(70)
	}
	b.requests <- struct{}{}
	for _, r := range all {
		wait.For(t, "the second reload at all replicas", func() bool { return r.depthInForce() == 70 })
	}
	if n := c.loads.Load(); n != 2 {
		t.Errorf("a replica that was not asked loaded its file %d times", n)
	}
	a.depth.Store(0)
	if report := a.postReload(t); report.Failed != partLoad || a.depthInForce() != 70 {
		t.Errorf("a file with a mistake: %+v", report)
	}
}
