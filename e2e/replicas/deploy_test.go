package replicas

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

func readDeployFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The variables that the chart and the Dockerfile set are keys of the configuration.
func TestDeployVariablesExist(t *testing.T) {
	reference, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"helm/ctxgate/templates/deployment.yaml", "docker/Dockerfile", "systemd/ctxgate.service"} {
		for _, m := range regexp.MustCompile(`(?:name: |ENV |Environment=|^ +)(CTXGATE_[A-Z_]+)`).FindAllStringSubmatch(readDeployFile(t, file), -1) {
			if m[1] != "CTXGATE_CONFIG" && !strings.Contains(string(reference), "`"+m[1]+"`") {
				t.Errorf("%s sets %s, which is no key", file, m[1])
			}
		}
	}
}

// The root file system that the Dockerfile describes, made by its own commands, runs ctxgate as the user that it names and without anything else, and its
// health check works. Only the build of an image is not tested: that needs a daemon.
func TestDockerfile(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("changing the root directory needs root")
		}
		t.Skip("changing the root directory needs root")
	}
	text := strings.ReplaceAll(readDeployFile(t, "docker/Dockerfile"), "\\\n", "")
	_, final, ok := strings.Cut(text, "\nFROM scratch\n")
	if !ok {
		t.Fatal("the last stage is not from scratch")
	}
	dir, err := os.MkdirTemp("", "image") // a directory of another user's may not be reachable for the image's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root-fs")
	for _, m := range regexp.MustCompile(`(?m)^RUN (mkdir .*)$`).FindAllStringSubmatch(text, -1) {
		script := strings.NewReplacer("/root-fs", root, "/out/ctxgate", newBinary).Replace(m[1])
		if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	address, err := process.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/ctxgate/ctxgate.toml"), []byte("[mcp_pruner]\nlisten = ''\n[admin]\nlisten = ''\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	environment := []string{"CTXGATE_AUTH_TOKEN=a token"}
	for _, m := range regexp.MustCompile(`([A-Z_]+)=(\S+)`).FindAllStringSubmatch(regexp.MustCompile(`(?m)^ENV .*$`).FindString(final), -1) {
		environment = append(environment, m[1]+"="+m[2])
	}
	environment = append(environment, "CTXGATE_LISTEN="+address)
	command := func(instruction string) *exec.Cmd {
		found := regexp.MustCompile(`(?m)^` + instruction + `.*\[(.*)\]$`).FindStringSubmatch(final)
		if found == nil {
			t.Fatalf("no %s", instruction)
		}
		words := regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(found[1], -1)
		cmd := &exec.Cmd{Path: words[0][1], Args: []string{words[0][1]}, Env: environment, Dir: "/"}
		for _, w := range words[1:] {
			cmd.Args = append(cmd.Args, w[1])
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		return cmd
	}
	if !strings.Contains(final, "USER 65532:65532") || !strings.Contains(final, `CMD ["serve"]`) {
		t.Error("not the user or the command that this test runs")
	}
	server := command("ENTRYPOINT")
	server.Args = append(server.Args, "serve")
	g, err := gateway.Start(server, filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Kill)
	if out, err := command("HEALTHCHECK").CombinedOutput(); err != nil {
		t.Errorf("the health check: %v\n%s", err, out)
	}
	if err := g.Terminate(time.Minute); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the health check fails", func() bool { return command("HEALTHCHECK").Run() != nil })
}

// systemd accepts the unit, and HAProxy its configuration.
func TestUnitAndBalancer(t *testing.T) {
	requireProgram(t, "haproxy")
	if out, err := exec.Command("haproxy", "-c", "-f", "../../deploy/haproxy/haproxy.cfg").CombinedOutput(); err != nil || strings.Contains(string(out), "WARNING") {
		t.Errorf("haproxy: %v\n%s", err, out)
	}
	requireProgram(t, "systemd-analyze")
	unit := filepath.Join(t.TempDir(), "ctxgate.service")
	text := strings.Replace(readDeployFile(t, "systemd/ctxgate.service"), "/usr/bin/ctxgate", newBinary, 1)
	if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil || strings.Contains(string(out), "ctxgate.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
