package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/setup"
)

// Claude Code writes its state while init waits for an answer: the plan holds, and the new state stays. A new server
// does not go unseen.
func TestInitWhileTheAgentWritesItsFile(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, ".claude.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opts := setup.Options{
		GOOS: runtime.GOOS, Home: home, Cwd: home, Env: config.Env{"HOME=" + home}, Config: filepath.Join(home, "ctxgate.toml"),
		Secrets: filepath.Join(home, "secrets"), Program: "/usr/bin/ctxgate", Time: time.Now(),
	}
	backups := setup.Backups{Dir: filepath.Join(home, "backups")}
	newPlan := func() *setup.Plan {
		t.Helper()
		write(`{"numStartups": 1, "mcpServers": {"a": {"type": "stdio", "command": "a"}}}`)
		plan, err := setup.NewPlan(opts)
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}

	plan := newPlan()
	write(`{"numStartups": 1, "mcpServers": {"a": {"type": "stdio", "command": "a"}, "b": {"type": "stdio", "command": "b"}}}`)
	if _, err := applyPlan(plan, backups); err == nil || !strings.Contains(err.Error(), "run the command again") {
		t.Errorf("with a new server: %v", err)
	}
	plan = newPlan()
	write(`{"numStartups": 2, "mcpServers": {"a": {"type": "stdio", "command": "a"}}}`)
	if _, err := applyPlan(plan, backups); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(file); !strings.Contains(string(data), `"numStartups": 2`) || !strings.Contains(string(data), "ctxgate") {
		t.Errorf("got %s", data)
	}
}
