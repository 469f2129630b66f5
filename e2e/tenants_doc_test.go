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

// Every command of docs/tenants.md works, in order, and prints what the page says.
func TestTenantsDocument(t *testing.T) {
	page, err := os.ReadFile("../docs/tenants.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, address := range []string{"127.0.0.1:8000", "127.0.0.1:8090"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		text = strings.ReplaceAll(text, address, ln.Addr().String())
		if strings.HasSuffix(address, "8090") {
			text = strings.Replace(text, "[access]\n", "[admin]\nlisten = \""+ln.Addr().String()+"\"\n\n[mcp_pruner]\nlisten = \"\"\n\n[access]\n", 1)
		}
		ln.Close()
	}
	script := "set -e\n"
	for _, block := range strings.Split(text, "```sh\n")[1:] {
		code, _, _ := strings.Cut(block, "```")
		script += code
	}
	dir := t.TempDir()
	notes := filepath.Join(dir, "notes-server")
	if err := os.WriteFile(notes, []byte(notesServer), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash")
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH"), "NOTES_SERVER=" + notes}
	cmd.Stdin = strings.NewReader(script)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"the file is right", "deny: rule 1 (nobody deletes)", "allow: rule 2 (tenants)", "deny: no rule matches",
		`"name": "add_note"`, "a valid bearer token is required", "noted: from CI", "notes\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the commands did not print %q", want)
		}
	}
	if strings.Contains(string(out), `"name": "delete_note"`) {
		t.Error("a denied tool is listed")
	}
}

// notesServer is a small MCP server in python3, which the tests need anyway.
const notesServer = `#!/usr/bin/env python3
import json, sys
tools = [{"name": n, "inputSchema": {"type": "object"}} for n in ("add_note", "delete_note")]
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    method, params = m["method"], m.get("params", {})
    if method == "initialize":
        r = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "notes", "version": "1"}}
    elif method == "tools/list":
        r = {"tools": tools}
    elif method == "tools/call":
        r = {"content": [{"type": "text", "text": "noted: " + params["arguments"].get("text", "")}]}
    elif method == "ping":
        r = {}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "Method not found"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
`
