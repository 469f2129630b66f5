package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The commands of docs/audit.md print what the page says.
func TestAuditPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "audit.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```sh\n")
	script, _, ok := strings.Cut(rest, "```\n")
	_, rest, _ = strings.Cut(string(page), "```toml\n")
	config, _, hasConfig := strings.Cut(rest, "```\n")
	if !ok || !hasConfig {
		t.Fatal("the page has no commands or no configuration")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	dir := t.TempDir()
	config = "listen = \"" + address + "\"\ndata_dir = \"data\"\nauth_token = \"right\"\n[mcp_pruner]\nlisten = \"\"\n[admin]\nlisten = \"\"\n" + config
	if err := os.WriteFile(filepath.Join(dir, "ctxgate.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	script = strings.ReplaceAll(script, "127.0.0.1:8000", address)
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH")}
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"seq":1,`, `"event":"start"`, `"event":"call"`, `"tool":"health"`, `"decision":"allow"`, `"event":"auth"`, `"event":"stop"`, "OK: lines 1 to 4, none changed or missing", "problem: audit.log:2: line 2 is missing", "FAILED: 1 problems", "exit code 5"} {
		if !strings.Contains(strings.ReplaceAll(string(out), dir+"/", ""), want) {
			t.Errorf("the commands did not print %q", want)
		}
	}
}
