package e2e

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The README's start section works line by line in a clean copy of the repository with an empty home.
func TestReadmeStart(t *testing.T) {
	for _, address := range []string{"127.0.0.1:8000", "127.0.0.1:8006", "127.0.0.1:8090"} {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatalf("the README's start needs %s, which is in use: %v", address, err)
		}
		ln.Close()
	}
	repo := copyTrackedFiles(t)
	readme, err := os.ReadFile(filepath.Join(repo, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "<!-- start:")
	_, rest, _ = strings.Cut(rest, "```sh\n")
	script, _, ok := strings.Cut(rest, "```\n<!-- end -->")
	if !ok {
		t.Fatal("README.md has no start section")
	}

	home := t.TempDir()
	cmd := exec.Command("bash")
	cmd.Dir = repo
	cmd.Env = append(goCacheEnv(t), "HOME="+home, "PATH="+os.Getenv("PATH"))
	cmd.Stdin = strings.NewReader(script + "wait\n")
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil && !strings.Contains(err.Error(), "exit status 143") { // the killed gateway
		t.Fatal(err)
	}
	for _, want := range []string{"KIMI_PROXY_OBSERVATION_MASKED original_chars=", "nothing was lost", "│ ", "Derivative Works"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the start did not print %q", want)
		}
	}
}

// copyTrackedFiles copies the tracked files of the working tree.
func copyTrackedFiles(t *testing.T) string {
	t.Helper()
	list, err := exec.Command("git", "-C", "..", "ls-files", "-z").Output()
	if err != nil {
		t.Skip("not a git checkout: ", err)
	}
	dir := t.TempDir()
	for _, name := range strings.Split(strings.TrimRight(string(list), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // removed and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// goCacheEnv lets go build in an empty home with the existing caches.
func goCacheEnv(t *testing.T) []string {
	t.Helper()
	names := []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOFLAGS", "GOSUMDB", "GONOSUMDB"}
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	for i, value := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		env = append(env, names[i]+"="+value)
	}
	return env
}
