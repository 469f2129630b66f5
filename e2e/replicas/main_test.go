// Package replicas runs three real replicas of ctxgate behind a real HAProxy, with a real Redis Cluster and a real S3 server as their store, and checks what an operator
// does with them: rolling restarts and upgrades under load, reloads, the files in the folder deploy, and the commands of docs/replicas.md.
//
// Files: main_test.go builds the binaries; site_test.go starts the store, the replicas and HAProxy; load_test.go makes calls and counts what fails;
// rolling_test.go is the rolling restart and upgrade; deploy_test.go checks the files in deploy; doc_test.go runs the page.
package replicas

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
)

// The binaries under test. The old one is that of an earlier version, if CTXGATE_OLD_BINARY names it; else it is of the same source with another
// version, since no release before this one can share a store between machines.
var newBinary, oldBinary string

const oldVersion = "v0.0.1-old"

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "ctxgate-replicas-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if newBinary, err = gateway.Build(dir); err == nil {
		oldBinary, err = buildOld(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func buildOld(dir string) (string, error) {
	if path := os.Getenv("CTXGATE_OLD_BINARY"); path != "" {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	path := filepath.Join(dir, "old", "ctxgate")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-X main.release="+oldVersion, "-o", path, "github.com/ctxgate/ctxgate/cmd/ctxgate")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the old version: %w\n%s", err, out)
	}
	return path, nil
}

// requireProgram skips a test on a machine without a program; in CI it fails.
func requireProgram(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("%v: install %s", err, name)
	}
}
