package app

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// A changed secret file is noticed: written in place, replaced, or swapped with its directory as
// Kubernetes does it; also one that only a reload named.
func TestSecretFilesAreWatched(t *testing.T) {
	dir, mounted := t.TempDir(), t.TempDir()
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// mount is a Secret of Kubernetes: a link to a folder of its version, and a link through it.
	mount := func(version, text string) {
		t.Helper()
		folder := filepath.Join(mounted, version)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		put(filepath.Join(folder, "token"), text)
		link := filepath.Join(mounted, "..tmp")
		if err := os.Symlink(version, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(mounted, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	token, file := filepath.Join(dir, "secrets", "token"), filepath.Join(dir, "ctxgate.toml")
	if err := os.Mkdir(filepath.Dir(token), 0o700); err != nil {
		t.Fatal(err)
	}
	put(token, "first")
	rest := "listen = '127.0.0.1:0'\n[mcp_pruner]\nlisten = ''\n[admin]\nlisten = ''\n" + inMemory
	put(file, "auth_token = 'file:"+token+"'\n"+rest)
	env := config.Env{"HOME=" + dir}
	var secrets atomic.Pointer[[]string]
	read := func() (config.Config, error) {
		loaded, problems := config.Load(file, env)
		if len(problems) == 0 {
			problems = loaded.ResolveSecrets(env)
		}
		files := loaded.SecretFiles()
		secrets.Store(&files)
		return loaded.Config, problems.Err()
	}
	cfg, err := read()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	a, err := New(ctx, cfg, Options{Version: "test", Source: &ConfigSource{File: file, Load: read, SecretFiles: func() []string { return *secrets.Load() }}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	admits := func(token string) func() bool {
		return func() bool {
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.listeners[0].Addr().String()+"/mcp", strings.NewReader(`{}`))
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Content-Type", "application/json")
			res, err := client.Do(r)
			if err != nil {
				return false
			}
			_ = res.Body.Close()
			return res.StatusCode != http.StatusUnauthorized
		}
	}
	wait.For(t, "the first token", admits("first"))

	put(token, "in place")
	wait.For(t, "the token that was written in place", admits("in place"))
	if admits("first")() {
		t.Error("the old token is still good")
	}
	put(token+".new", "renamed")
	if err := os.Rename(token+".new", token); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the token that took the place of the old one", admits("renamed"))

	mount("..v1", "mounted")
	if err := os.Symlink("..data/token", filepath.Join(mounted, "token")); err != nil {
		t.Fatal(err)
	}
	put(file, "auth_token = 'file:"+filepath.Join(mounted, "token")+"'\n"+rest)
	wait.For(t, "the token that another file holds", admits("mounted"))
	mount("..v2", "swapped")
	wait.For(t, "the token whose folder was swapped", admits("swapped"))
	if report, ok := a.LastReload(); !ok || !slices.Equal(report.Applied, []string{"auth_token"}) {
		t.Errorf("the last reload: %+v", report)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
