package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// inspectorRun runs the Inspector's command line.
type inspectorRun struct {
	home     string
	dir      string
	revision revision
	env      []string // of the server: the Inspector does not pass on its own
	command  []string
}

// inspectorLimit is long for one call, but far less than the minute for which server-everything stays after
// the end of its stdin.
const inspectorLimit = 25 * time.Second

// callMethod runs one method and returns the result. The Inspector must exit soon after.
func (i inspectorRun) callMethod(t *testing.T, args ...string) json.RawMessage {
	t.Helper()
	all := []string{
		scoped(t, "inspector", "clients", "launcher", "build", "index.js"), "--cli",
		"--format", "json", "--protocol-era", string(i.revision),
	}
	for _, kv := range i.env {
		all = append(all, "-e", kv)
	}
	all = append(all, "--method")
	all = append(append(append(all, args...), "--"), i.command...)
	ctx, cancel := context.WithTimeout(t.Context(), inspectorLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, node(t), all...)
	cmd.Dir, cmd.Env = i.dir, environ(i.home)
	cmd.WaitDelay = 2 * time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("inspector %s: %v\nstdout: %s\nstderr: %s", strings.Join(args, " "), err, truncate(string(out), 2000), truncate(stderr.String(), 4000))
	}
	var answer struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatalf("inspector %s: %v\n%s", strings.Join(args, " "), err, truncate(string(out), 2000))
	}
	return answer.Result
}

// listed is the result of any list method.
type listed struct {
	Tools, Prompts, Resources []struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
	}
}

func (i inspectorRun) callList(t *testing.T, method string) listed {
	t.Helper()
	var l listed
	if err := json.Unmarshal(i.callMethod(t, method), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// checkNames checks the form of every name and URI, and that one of them is there.
func (i inspectorRun) checkNames(t *testing.T, prefix, uriPrefix string) {
	t.Helper()
	tools := i.callList(t, "tools/list").Tools
	found := false
	for _, tool := range tools {
		found = found || tool.Name == prefix+"echo"
		if !strings.HasPrefix(tool.Name, prefix) && tool.Name != "recover_text" && !strings.HasPrefix(tool.Name, "pruner::") {
			t.Errorf("tool %q", tool.Name)
		}
	}
	if !found {
		t.Errorf("no %secho in %v", prefix, tools)
	}
	prompts := i.callList(t, "prompts/list").Prompts
	if len(prompts) == 0 || !strings.HasPrefix(prompts[0].Name, prefix) {
		t.Errorf("prompts %v", prompts)
	}
	resources := i.callList(t, "resources/list").Resources
	if len(resources) == 0 || !strings.HasPrefix(resources[0].URI, uriPrefix) {
		t.Errorf("resources %v", resources)
	}
}

func (i inspectorRun) checkEcho(t *testing.T, name string) {
	t.Helper()
	got := string(i.callMethod(t, "tools/call", "--tool-name", name, "--tool-arg", "message=hi"))
	if !strings.Contains(got, `"Echo: hi"`) {
		t.Errorf("%s gave %s", name, got)
	}
}

// A1: the configuration of the user's document works unchanged under the Inspector, as the document says to
// check it. A2: all its processes, npx included, end with it. A10: a log line on stdout would break the
// Inspector. A8: the token is in the environment variable of the document's example.
func TestDocument002Inspector(t *testing.T) {
	for _, e := range []revision{legacy, modern} {
		t.Run(e.version(), func(t *testing.T) {
			t.Parallel() // a call waits for servers to start and stop
			// npx finds the package installed in the working directory.
			module(t, ".bin", "mcp-server-everything")
			i := inspectorRun{home: t.TempDir(), dir: npm(t), revision: e, env: []string{"AUTH_TOKEN=optional-shared-secret"}, command: []string{ctxgate.path(t), "stdio", "--alone", "--config", documentConfig(t)}}
			defer requireNoSurvivors(t, i.home)
			i.checkNames(t, "everything::", "proxy://resource/")
			i.checkEcho(t, "everything::echo")
		})
	}
}

// documentConfig is the path of the document's configuration, which is also one of the examples.
func documentConfig(t *testing.T) string {
	t.Helper()
	file, err := filepath.Abs("../../examples/config.everything.json")
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A8 over stdio: a request without the token is refused.
func TestDocument002Token(t *testing.T) {
	t.Parallel()
	const hello = `{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}%s}}`
	got := sendLines(t,
		fmt.Sprintf(hello, 1, `,"proxy":{"authToken":"guess"}`),
		fmt.Sprintf(hello, 2, ``),
		fmt.Sprintf(hello, 3, `,"proxy":{"authToken":"optional-shared-secret"}`),
		`{"jsonrpc":"2.0","id":4,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":5,"method":"ping","params":{"proxy":{"authToken":"optional-shared-secret"}}}`)
	for i, want := range []string{`"error"`, `"error"`, `"result"`, `"error"`, `"result"`} {
		if !strings.Contains(got[i], want) {
			t.Errorf("answer %d: %s, want %s", i+1, truncate(got[i], 500), want)
		}
	}
}

// sendLines sends lines to `ctxgate stdio` and waits for a response to each.
func sendLines(t *testing.T, requests ...string) []string {
	t.Helper()
	home := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), inspectorLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, ctxgate.path(t), "stdio", "--alone", "--config", documentConfig(t))
	cmd.Dir, cmd.Env, cmd.WaitDelay = npm(t), environ(home), 2*time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(out)
	var got []string
	for _, line := range requests {
		_, _ = in.Write([]byte(line + "\n")) // an error shows as a missing response
		answer, _ := answers.ReadString('\n')
		got = append(got, answer)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("ctxgate stdio, after its stdin ended: %v", err)
	}
	requireNoSurvivors(t, home)
	return got
}

func TestInspectorDirect(t *testing.T) {
	i := inspectorRun{home: t.TempDir(), dir: npm(t), revision: legacy, command: npmEverything(t)}
	i.checkEcho(t, "echo")
	i.revision, i.command = modern, npmModern(t)
	i.checkNames(t, "", "demo://")
	i.checkEcho(t, "echo")
}

// A1: the example is the document's JSON, verbatim.
func TestDocument002ConfigIsVerbatim(t *testing.T) {
	var c struct {
		Token   string `json:"auth_token"`
		Servers []struct {
			Command []string `json:"command"`
		} `json:"servers"`
	}
	if err := json.Unmarshal(readFile(t, "../../examples/config.everything.json"), &c); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c); got != "{optional-shared-secret [{[npx @modelcontextprotocol/server-everything]}]}" {
		t.Error(got)
	}
}

// The Inspector command in docs/documents.md works as written.
func TestDocument002InspectorRecipe(t *testing.T) {
	t.Parallel()
	_, recipe, ok := strings.Cut(string(readFile(t, "../../docs/documents.md")), "```sh\nnpx -y @modelcontextprotocol/inspector ")
	recipe, _, closed := strings.Cut(recipe, "```")
	if !ok || !closed {
		t.Fatal("docs/documents.md has no recipe for the Inspector")
	}
	args := []string{scoped(t, "inspector", "clients", "launcher", "build", "index.js")}
	for _, word := range strings.Fields(strings.ReplaceAll(recipe, "\\\n", " ")) {
		switch word {
		case "ctxgate":
			word = ctxgate.path(t)
		case "examples/config.everything.json":
			word = documentConfig(t)
		case "--method": // however busy the machine is
			args = append(args, "-e", "CTXGATE_LIST_WAIT=1m")
		}
		args = append(args, word)
	}
	module(t, ".bin", "mcp-server-everything")
	home := t.TempDir()
	defer requireNoSurvivors(t, home)
	ctx, cancel := context.WithTimeout(t.Context(), inspectorLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, node(t), args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = npm(t), environ(home), 2*time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "everything::echo") {
		t.Errorf("%v\n%s", err, truncate(string(out), 4000))
	}
}
