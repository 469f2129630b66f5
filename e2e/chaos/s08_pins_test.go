//go:build linux

package chaos

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// docCommands returns the commands of docs/pins.md after a mark.
func docCommands(t *testing.T, mark string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/pins.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "<!-- run: "+mark+" -->\n```sh\n")
	script, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatalf("docs/pins.md has no commands %q", mark)
	}
	return script
}

// runInSite runs a script in the folder of a site, with ctxgate in the path, and returns its output and exit code.
func runInSite(t *testing.T, s *site, script string) (string, int) {
	t.Helper()
	binary, err := ctxgate()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-e")
	cmd.Dir = s.dir
	cmd.Env = append(s.environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "CTXGATE_CONFIG="+s.config, "GIT_CONFIG_GLOBAL=/dev/null")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// rugPull makes the server of a site change a tool: the file that it waits for.
func rugPull(t *testing.T, s *site) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "pulled"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// pinnedSite is a site with the servers files, which changes a tool on request, and other.
func pinnedSite(t *testing.T, mode, state string) *site {
	t.Helper()
	events := mcpserver.NewEventLog(t)
	s := newSite(t, events)
	s.sections, s.state = "[pins]\nmode = \""+mode+"\"", state
	s.servers = []server{stdioServer("files", events, "-rug-pull-file", filepath.Join(s.dir, "pulled")), stdioServer("other", events)}
	if err := s.writeConfig(s.configText()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestS8PinsPage: the commands of docs/pins.md do what the page says, without a gateway.
func TestS8PinsPage(t *testing.T) {
	s := pinnedSite(t, "lock", "")
	if out, code := runInSite(t, s, "git init -q\n"+docCommands(t, "begin")+"git -c user.name=a -c user.email=a@b commit -qm lock\n"); code != 0 || !strings.Contains(out, "nothing is held back") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	first, err := os.ReadFile(filepath.Join(s.dir, "ctxgate.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, code := runInSite(t, s, "ctxgate pin --init"); code != 0 {
		t.Fatal("a second lock could not be written")
	}
	if again, _ := os.ReadFile(filepath.Join(s.dir, "ctxgate.lock")); string(again) != string(first) {
		t.Error("another lock from the same servers")
	}
	rugPull(t, s)
	out, code := runInSite(t, s, docCommands(t, "review"))
	page, _ := os.ReadFile("../../docs/pins.md")
	_, rest, _ := strings.Cut(string(page), "\n```\nfiles::echo")
	shown, _, _ := strings.Cut(rest, "```")
	if code != 1 || !strings.Contains(out, "files::echo"+shown) || strings.Count(out, ": changed\n") != 1 {
		t.Fatalf("exit code %d, and not what the page shows: %s", code, out)
	}
	if out, code := runInSite(t, s, docCommands(t, "approve")); code != 0 || !strings.Contains(out, "approved files::echo") || !strings.Contains(out, "1 file changed") || !strings.Contains(out, "nothing is held back") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	for _, tt := range []struct{ script, want string }{
		{"ctxgate pin --approve files::echo", "nothing of that name waits for approval"},
		{"ctxgate pin --approve x --all", "none of the others can be"},
		{"sed -i 's/first reads/first deletes/' ctxgate.lock; ctxgate check", "pins.file"},
		{"ctxgate pin", "does not have the hash"},
	} {
		if out, code := runInSite(t, s, tt.script); code == 0 || !strings.Contains(out, tt.want) {
			t.Errorf("%s: exit code %d: %s", tt.script, code, out)
		}
	}
}

// listedTools returns the tools that a client sees.
func listedTools(t *testing.T, c mcpclient.Client) []string {
	t.Helper()
	reply, err := c.Call(context.Background(), mcpclient.Request{ID: `"list"`, Method: "tools/list", Params: `{}`})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, part := range strings.Split(string(reply.Result), `{"name":"`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		names = append(names, name)
	}
	return names
}

func callNamed(t *testing.T, c mcpclient.Client, name string) string {
	t.Helper()
	reply, err := c.Call(context.Background(), mcpclient.Request{ID: `"call"`, Method: "tools/call", Params: `{"name":"` + name + `","arguments":{"nonce":"n"}}`})
	if err != nil {
		return err.Error()
	}
	return string(reply.Result) + string(reply.Error)
}

// TestS8RugPull: a running gateway holds the changed tool back at the server's next list, and only that one; it is served when
// it is approved, and that survives a restart.
func TestS8RugPull(t *testing.T) {
	for _, mode := range []string{"first-use", "lock"} {
		t.Run(mode, func(t *testing.T) {
			s := pinnedSite(t, mode, "driver = \"sqlite\"")
			if mode == "lock" {
				if out, code := runInSite(t, s, "ctxgate pin --init"); code != 0 {
					t.Fatal(out)
				}
			}
			g := s.start(t)
			c := g.connect(t, mcpwire.Legacy)
			all := listedTools(t, c)
			if !slices.Contains(all, "files::echo") || !slices.Contains(all, "other::echo") {
				t.Fatalf("got %q", all)
			}
			rugPull(t, s)
			callNamed(t, c, "files::change") // it announces a new list
			isServed := func(c mcpclient.Client) bool { return slices.Contains(listedTools(t, c), "files::echo") }
			wait.For(t, "the changed tool to be held back", func() bool { return !isServed(c) })
			if got := listedTools(t, c); len(got) != len(all)-1 {
				t.Errorf("other tools are affected: %q", got)
			}
			if got := callNamed(t, c, "files::echo"); !strings.Contains(got, "changed since it was approved") {
				t.Errorf("got %s", got)
			}
			if got := callNamed(t, c, "other::echo"); !strings.Contains(got, `\"server\":\"other\"`) {
				t.Errorf("got %s", got)
			}
			if out, code := runInSite(t, s, "ctxgate pin"); code != 1 || !strings.Contains(out, "files::echo: changed\n  description: does echo, [-edition 0-]") {
				t.Errorf("exit code %d: %s", code, out)
			}
			if out, _ := runInSite(t, s, "ctxgate status"); !strings.Contains(out, "1 tool held back") {
				t.Errorf("the status does not say so: %s", out)
			}
			if out, code := runInSite(t, s, "ctxgate pin --all"); code != 0 {
				t.Fatalf("exit code %d: %s", code, out)
			}
			wait.For(t, "the approved tool to be served", func() bool { return isServed(c) })
			if got := callNamed(t, c, "files::echo"); !strings.Contains(got, `\"server\":\"files\"`) {
				t.Errorf("got %s", got)
			}
			g.cleanUp(t)
			if out, code := runInSite(t, s, "ctxgate pin"); code != 0 {
				t.Errorf("after the gateway: exit code %d: %s", code, out)
			}
			if err := os.Remove(filepath.Join(s.dir, "pulled")); err != nil {
				t.Fatal(err)
			}
			if out, code := runInSite(t, s, "ctxgate pin"); code != 1 || !strings.Contains(out, "files::echo: changed") {
				t.Errorf("the old definition is approved no more: exit code %d: %s", code, out)
			}
			if out, code := runInSite(t, s, "ctxgate pin --approve files::echo && ctxgate pin"); code != 0 {
				t.Errorf("approved without a gateway: exit code %d: %s", code, out)
			}
			if again := s.start(t).connect(t, mcpwire.Legacy); !isServed(again) {
				t.Error("not served after a restart")
			}
		})
	}
}
