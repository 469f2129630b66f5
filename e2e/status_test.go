package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/admin"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// TestStatusOfServers: a person sees which server is up, starting or down, and why, what was cut and read back, and that
// the count outlives the gateway.
func TestStatusOfServers(t *testing.T) {
	up, err := startFakeServer(func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, c rpcCall) {
		replyText(w, c, quoteJSON(strings.Repeat("a line of the result\n", 2000)))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer up.close()
	s := newSite(t, up.url, `[[servers]]
id = "slow"
command = ["sh", "-c", "sleep 600"]
startup_timeout = "10m"

[[servers]]
id = "broken"
command = ["sh", "-c", "echo 'Error: no such database' >&2; exit 1"]
`)
	if _, note := s.run(t, 3, "status"); !strings.Contains(note, "no gateway runs for ") || !strings.Contains(note, filepath.Base(s.config)) || !strings.Contains(note, "ctxgate serve") {
		t.Errorf("without a gateway: %s", note)
	}
	g := s.start(t)
	client, done := newClient()
	defer done()
	status, reply, err := post(client, g.RPC("up"), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{}}}`, nil)
	if err != nil || status != http.StatusOK || !strings.Contains(string(reply), "prn_") {
		t.Fatalf("%d %.200s %v", status, reply, err)
	}
	read := func() (got admin.Status) {
		out, _ := s.run(t, 0, "status", "--json")
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		return got
	}
	var got admin.Status
	states := map[string]admin.Server{}
	err = wait.Until(startLimit, "the broken server is not shown as down", func() (bool, error) {
		got = read()
		for _, srv := range got.Servers {
			states[srv.ID] = srv
		}
		return states["broken"].State == "down" && states["broken"].LastStderr != "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if states["slow"].State != "starting" || states["broken"].LastStderr != "Error: no such database" || states["broken"].Since.IsZero() {
		t.Errorf("%+v", states)
	}
	if got.Today.TextsCut != 1 || got.Today.CharsCut < 30_000 || got.Today.TokensCut < 5000 || got.Store.Items == 0 || got.Store.Driver != "sqlite" || got.Config != s.config || got.PID == 0 {
		t.Errorf("%+v", got)
	}
	if len(got.Listeners) != 2 || got.Listeners[0].Name != "main" || !strings.HasSuffix(g.URL, got.Listeners[0].Address) {
		t.Errorf("listeners %+v", got.Listeners)
	}
	text, _ := s.run(t, 0, "status")
	for _, want := range []string{"● up ", "◌ slow", "✗ broken", "Error: no such database", "1 text ", s.config} {
		if !strings.Contains(text, want) && !strings.Contains(text, want[max(0, len(want)-20):]) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("colours where there is no terminal:\n%q", text)
	}
	// A mistake in the file, made while the gateway runs, does not hide it.
	s.replaceInConfig(t, "data_dir", "data_dri")
	if read().PID != got.PID {
		t.Error("another gateway answers")
	}
	s.replaceInConfig(t, "data_dri", "data_dir")
	g.stop(t)
	if _, note := s.run(t, 3, "status", "--json"); !strings.Contains(note, "no gateway runs") {
		t.Errorf("after the stop: %s", note)
	}
	g = s.start(t)
	err = wait.Until(startLimit, "what was cut before the restart is not counted", func() (bool, error) { return read().Today.TextsCut == 1, nil })
	if err != nil {
		t.Error(err)
	}
	g.stop(t)
}

// TestStatusWithoutASocket: where the gateway's socket cannot be reached, as from outside a container, its admin listener
// answers; a gateway of another data directory at that address is not shown as this one.
func TestStatusWithoutASocket(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	s := newSite(t, "http://127.0.0.1:1", "")
	s.replaceInConfig(t, "[admin]\nlisten = \"127.0.0.1:0\"", fmt.Sprintf("[admin]\nlisten = %q", address))
	g := s.start(t)
	elsewhere := t.TempDir()
	if err := os.Chmod(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	status := func(config string) (string, int) {
		cmd := exec.CommandContext(t.Context(), binary, "status", "--config", config)
		cmd.Dir, cmd.Env = s.dir, append(s.environ(), "XDG_RUNTIME_DIR="+elsewhere)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := status(s.config); code != 0 || !strings.Contains(out, address) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	other := newSite(t, "http://127.0.0.1:1", "")
	other.replaceInConfig(t, "[admin]\nlisten = \"127.0.0.1:0\"", fmt.Sprintf("[admin]\nlisten = %q", address))
	if err := os.MkdirAll(other.data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other.data, "admin-token"), []byte(strings.Repeat("x", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := status(other.config); code != 3 || !strings.Contains(out, "no gateway runs") {
		t.Errorf("of another gateway: exit code %d\n%s", code, out)
	}
	g.stop(t)
}
