package peers

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// S8: real servers are pinned: two locks have the same bytes, and a gateway that serves only what the lock has holds nothing
// back, from a client that can answer requests either.
func TestS8NpmServersArePinned(t *testing.T) {
	home := t.TempDir()
	s, err := newSite(home, []server{{ID: "everything", Command: npmEverything(t)}, {ID: "files", Command: npmFilesystem(t, home)}, {ID: "memory", Command: npmMemory(t)}})
	if err != nil {
		t.Fatal(err)
	}
	var settings map[string]any
	if err := json.Unmarshal(readFile(t, s.config), &settings); err != nil {
		t.Fatal(err)
	}
	settings["pins"] = map[string]string{"mode": "lock"}
	text, _ := json.Marshal(settings)
	if err := os.WriteFile(s.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	pin := func(args ...string) string {
		cmd := exec.Command(ctxgate.path(t), append([]string{"pin", "--config", s.config}, args...)...)
		cmd.Env = environ(home)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("ctxgate pin %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	lock := filepath.Join(home, "ctxgate.lock")
	// server-everything adds tools a while after it is initialized, when the machine is busy also after its list was read.
	pin("--init")
	first := readFile(t, lock)
	for try := 0; ; try++ {
		pin("--init")
		again := readFile(t, lock)
		if string(again) == string(first) {
			break
		}
		if first = again; try == 5 {
			t.Fatal("another lock from the same servers, each time")
		}
	}
	url := serveSite(t, s).URL + "/mcp"
	for _, capabilities := range []*mcp.ClientCapabilities{{}, {Sampling: &mcp.SamplingCapabilities{}, Elicitation: &mcp.ElicitationCapabilities{}}} { //nolint:staticcheck // legacy clients have it
		session, err := connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, legacy, &mcp.ClientOptions{Capabilities: capabilities})
		if err != nil {
			t.Fatal(err)
		}
		listed := 0
		for _, err := range session.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			listed++
		}
		if listed < 36 {
			t.Errorf("%d tools are listed", listed)
		}
		_ = session.Close()
	}
	if out := pin(); !strings.Contains(out, "nothing is held back") {
		t.Errorf("got %s", out)
	}
}
