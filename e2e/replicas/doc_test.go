package replicas

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

// Every command of docs/replicas.md works, in order, and prints what the page says.
func TestReplicasDocument(t *testing.T) {
	for _, program := range []string{"redis-server", "haproxy", "curl"} {
		requireProgram(t, program)
	}
	page, err := os.ReadFile("../../docs/replicas.md")
	if err != nil {
		t.Fatal(err)
	}
	balancer, err := os.ReadFile("../../deploy/haproxy/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	script := "set -e\n"
	for _, block := range strings.Split(string(page), "```sh\n")[1:] {
		code, _, _ := strings.Cut(block, "```")
		script += code
	}
	dir := t.TempDir()
	notes := filepath.Join(dir, "notes-server")
	ports := []string{`drain_delay = "3s"`, `drain_delay = "1s"`, "maxconn 8000", "maxconn 1000", `"env:NOTES_SERVER"`, `"` + notes + `"`}
	for _, port := range []string{"6379", "8000", "8001", "8002", "8003"} {
		address, err := process.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port, address[strings.LastIndex(address, ":")+1:])
	}
	local := strings.NewReplacer(ports...)
	for path, text := range map[string]string{notes: notesServer, filepath.Join(dir, "haproxy.cfg"): local.Replace(string(balancer))} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("bash")
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "PATH=" + filepath.Dir(newBinary) + ":" + os.Getenv("PATH")}
	cmd.Stdin = strings.NewReader(local.Replace(script))
	cmd.WaitDelay = 10 * time.Second
	defer killLeft(t, dir)
	timer := time.AfterFunc(3*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		for _, name := range []string{"8001", "8002", "8003"} {
			log, _ := os.ReadFile(filepath.Join(dir, local.Replace(name)+".log"))
			t.Logf("%s", log)
		}
		t.Fatal(err)
	}
	for _, want := range []string{"the file is right", `"status":"ready"`, "noted: from three replicas", "reloaded by all", "noted: while "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the commands did not print %q", want)
		}
	}
}

// killLeft ends what the script started and did not end itself, because it failed.
func killLeft(t *testing.T, dir string) {
	t.Helper()
	if !t.Failed() {
		return
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.pid"))
	for _, file := range append(files, filepath.Join(dir, "store/pid")) {
		text, _ := os.ReadFile(file)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// notesServer is a small MCP server in python3, which the tests need anyway.
const notesServer = `#!/usr/bin/env python3
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    method, params = m["method"], m.get("params", {})
    if method == "initialize":
        r = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "notes", "version": "1"}}
    elif method == "tools/list":
        r = {"tools": [{"name": "add_note", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        r = {"content": [{"type": "text", "text": "noted: " + params["arguments"].get("text", "")}]}
    elif method == "ping":
        r = {}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "Method not found"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
`
