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

// inspection is a call of the Inspector's command line.
type inspection struct {
	home    string
	dir     string
	era     era
	env     []string // of the server; the Inspector does not pass its own on
	command []string
}

// inspectorLimit is generous for one call, and far less than server-everything stays on after its
// stdin has ended when nobody ends it: a minute.
const inspectorLimit = 25 * time.Second

// ask runs one method and gives the result. It must end soon after.
func (i inspection) ask(t *testing.T, args ...string) json.RawMessage {
	t.Helper()
	all := []string{
		scoped(t, "inspector", "clients", "launcher", "build", "index.js"), "--cli",
		"--format", "json", "--protocol-era", string(i.era),
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
		t.Fatalf("inspector %s: %v\nstdout: %s\nstderr: %s", strings.Join(args, " "), err, cut(string(out), 2000), cut(stderr.String(), 4000))
	}
	var answer struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatalf("inspector %s: %v\n%s", strings.Join(args, " "), err, cut(string(out), 2000))
	}
	return answer.Result
}

// listed is what a list method gives, of which one kind is there.
type listed struct {
	Tools, Prompts, Resources []struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
	}
}

func (i inspection) list(t *testing.T, method string) listed {
	t.Helper()
	var l listed
	if err := json.Unmarshal(i.ask(t, method), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// names holds every name and URI against the form it must have, and looks for one of them.
func (i inspection) names(t *testing.T, prefix, uriPrefix string) {
	t.Helper()
	tools := i.list(t, "tools/list").Tools
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
	prompts := i.list(t, "prompts/list").Prompts
	if len(prompts) == 0 || !strings.HasPrefix(prompts[0].Name, prefix) {
		t.Errorf("prompts %v", prompts)
	}
	resources := i.list(t, "resources/list").Resources
	if len(resources) == 0 || !strings.HasPrefix(resources[0].URI, uriPrefix) {
		t.Errorf("resources %v", resources)
	}
}

func (i inspection) echo(t *testing.T, name string) {
	t.Helper()
	got := string(i.ask(t, "tools/call", "--tool-name", name, "--tool-arg", "message=hi"))
	if !strings.Contains(got, `"Echo: hi"`) {
		t.Errorf("%s gave %s", name, got)
	}
}

// A1: the configuration of the user's document loads and runs as it is, under the Inspector, as
// the document says to check it. A2: what it starts, npx and all, ends with it. A10: if a log line
// were on stdout, the Inspector would not understand a word. A8: the token of that configuration is in
// the environment, in the variable of the document's own example.
func TestDocument002Inspector(t *testing.T) {
	for _, e := range []era{legacy, modern} {
		t.Run(e.version(), func(t *testing.T) {
			t.Parallel() // a call waits for servers to come and go
			// npx finds the package where the working directory has it installed.
			module(t, ".bin", "mcp-server-everything")
			i := inspection{home: t.TempDir(), dir: npm(t), era: e, env: []string{"AUTH_TOKEN=optional-shared-secret"}, command: []string{ctxgate.path(t), "stdio", "--config", document(t)}}
			defer alone(t, i.home)
			i.names(t, "everything::", "proxy://resource/")
			i.echo(t, "everything::echo")
		})
	}
}

// document is the configuration as the user's document has it, which is also an example of ours.
func document(t *testing.T) string {
	t.Helper()
	file, err := filepath.Abs("../../examples/config.everything.json")
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A8 over stdio: each request carries the token, or is refused.
func TestDocument002Token(t *testing.T) {
	t.Parallel()
	const hello = `{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}%s}}`
	got := converse(t,
		fmt.Sprintf(hello, 1, `,"proxy":{"authToken":"guess"}`),
		fmt.Sprintf(hello, 2, ``),
		fmt.Sprintf(hello, 3, `,"proxy":{"authToken":"optional-shared-secret"}`),
		`{"jsonrpc":"2.0","id":4,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":5,"method":"ping","params":{"proxy":{"authToken":"optional-shared-secret"}}}`)
	for i, want := range []string{`"error"`, `"error"`, `"result"`, `"error"`, `"result"`} {
		if !strings.Contains(got[i], want) {
			t.Errorf("answer %d: %s, want %s", i+1, cut(got[i], 500), want)
		}
	}
}

// converse gives lines to a gateway over stdio, and waits for an answer to each.
func converse(t *testing.T, said ...string) []string {
	t.Helper()
	home := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), inspectorLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, ctxgate.path(t), "stdio", "--config", document(t))
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
	for _, line := range said {
		_, _ = in.Write([]byte(line + "\n")) // who does not read does not answer
		answer, _ := answers.ReadString('\n')
		got = append(got, answer)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("ctxgate stdio, after its stdin ended: %v", err)
	}
	alone(t, home)
	return got
}

func TestInspectorDirect(t *testing.T) {
	i := inspection{home: t.TempDir(), dir: npm(t), era: legacy, command: npmEverything(t)}
	i.echo(t, "echo")
	i.era, i.command = modern, npmModern(t)
	i.names(t, "", "demo://")
	i.echo(t, "echo")
}

// A1 says the document's own JSON; this holds that nobody improves it.
func TestDocument002ConfigIsVerbatim(t *testing.T) {
	var c struct {
		Token   string `json:"auth_token"`
		Servers []struct {
			Command []string `json:"command"`
		} `json:"servers"`
	}
	if err := json.Unmarshal(read(t, "../../examples/config.everything.json"), &c); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c); got != "{optional-shared-secret [{[npx @modelcontextprotocol/server-everything]}]}" {
		t.Error(got)
	}
}

// The recipe of docs/documents.md, as a reader copies it: the Inspector in front of the example.
func TestDocument002InspectorRecipe(t *testing.T) {
	t.Parallel()
	_, recipe, ok := strings.Cut(string(read(t, "../../docs/documents.md")), "```sh\nnpx -y @modelcontextprotocol/inspector ")
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
			word = document(t)
		}
		args = append(args, word)
	}
	module(t, ".bin", "mcp-server-everything")
	home := t.TempDir()
	defer alone(t, home)
	ctx, cancel := context.WithTimeout(t.Context(), inspectorLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, node(t), args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = npm(t), environ(home), 2*time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "everything::echo") {
		t.Errorf("%v\n%s", err, cut(string(out), 4000))
	}
}
