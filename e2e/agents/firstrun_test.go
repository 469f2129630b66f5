//go:build unix

package agents_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// firstRunServers are four servers that people start with.
var firstRunServers = map[string][]string{
	"everything": {"@modelcontextprotocol/server-everything"},
	"memory":     {"@modelcontextprotocol/server-memory"},
	"files":      {"@modelcontextprotocol/server-filesystem", "."},
	"thinking":   {"@modelcontextprotocol/server-sequential-thinking"},
}

// writeFirstRun writes a configuration whose servers npx has to fetch into an empty cache.
func writeFirstRun(t *testing.T) (config string) {
	t.Helper()
	dir := t.TempDir()
	text := "profile = \"agents\"\ndata_dir = \"data\"\nlisten = \"\"\n"
	for id, args := range firstRunServers {
		text += fmt.Sprintf("[[servers]]\nid = %q\ncommand = [\"npx\", \"-y\", \"%s\"]\nenv = { npm_config_cache = %q }\n", id, strings.Join(args, `", "`), filepath.Join(dir, "npm"))
	}
	config = filepath.Join(dir, "ctxgate.toml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// The first run with an empty npm cache, with real packages: every server is waited for, none is said to have no tools, whatever
// takes long shows its progress, and the first call works. It needs the npm registry, so it runs only with CTXGATE_FIRST_RUN=1.
func TestFirstRunWithAnEmptyCache(t *testing.T) {
	if os.Getenv("CTXGATE_FIRST_RUN") == "" {
		t.Skip("needs the npm registry: make first-run")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()

	config := writeFirstRun(t)
	cmd := exec.CommandContext(ctx, binary, "check", "--servers", "--config", config)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	t.Logf("check --servers took %s\n%s%s", took, stderr.String(), stdout.String())
	if err != nil || regexp.MustCompile(`\b0 tools`).MatchString(stdout.String()) {
		t.Errorf("%v", err)
	}
	for id := range firstRunServers {
		if !regexp.MustCompile(`(?m)^` + id + `: MCP [0-9-]+, \d+ tools?\b`).MatchString(stdout.String()) {
			t.Errorf("%s is missing", id)
		}
		if took > 10*time.Second && !strings.Contains(stderr.String(), id+": npx is installing, ") {
			t.Errorf("%s shows no progress", id)
		}
	}

	// The first call of a client that does not wait for anything.
	session, err := mcp.NewClient(&mcp.Implementation{Name: "first", Version: "1"}, nil).Connect(ctx,
		&mcp.CommandTransport{Command: exec.CommandContext(ctx, binary, "stdio", "--alone", "--config", writeFirstRun(t))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	began = time.Now()
	for {
		_, err = session.CallTool(ctx, &mcp.CallToolParams{Name: "memory__read_graph", Arguments: map[string]any{}})
		if err == nil || !strings.Contains(err.Error(), "npx is still installing it") {
			break
		}
		t.Logf("after %s: %v", time.Since(began), err) // it says why, and may be called again
	}
	t.Logf("the first call took %s", time.Since(began))
	if err != nil {
		t.Errorf("the first call: %v", err)
	}
}
