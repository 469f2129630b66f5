package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/access"
)

var docBlock = regexp.MustCompile("(?s)```(toml|console)\n(.*?)```")

// words splits a command line, with single quotes.
func words(line string) []string {
	var out []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}

// runRoot runs a command and returns what it prints.
func runRoot(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// accessExample writes the example of docs/access.md and returns the commands of the page with their output.
func accessExample(t *testing.T) (file string, commands [][2]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "ctxgate.toml")
	for _, block := range docBlock.FindAllStringSubmatch(string(page), -1) {
		if block[1] == "toml" {
			if err := os.WriteFile(file, []byte(block[2]), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		command, want, _ := strings.Cut(strings.TrimPrefix(block[2], "$ ctxgate "), "\n")
		commands = append(commands, [2]string{command, want})
	}
	return file, commands
}

// The commands of docs/access.md print what the page says.
func TestAccessPage(t *testing.T) {
	file, commands := accessExample(t)
	if len(commands) < 3 {
		t.Fatalf("%d commands", len(commands))
	}
	for _, c := range commands {
		got, err := runRoot(t, append(words(c[0]), "--config", file)...)
		if err != nil || got != c[1] {
			t.Errorf("%s: %v\ngot:\n%s\nwant:\n%s", c[0], err, got, c[1])
		}
	}
}

func TestCheckAs(t *testing.T) {
	file, _ := accessExample(t)
	for _, c := range []struct{ command, want string }{
		{`--as bob@x@acme --resource file:///srv/a --server fs --json`, `"effect": "allow"`}, // the subject is an address
		{`--as bob@acme --tool crm__find --arguments {} --json`, `"effect": "redact"`},
		{`--as bob@acme --tool find --server crm --arguments {}`, `takes out arguments /api_key`},
		{`--as bob --prompt fs::p`, "deny: denied whatever the arguments are\nIt is not shown in lists."},
		{`--as bob --model small-1`, "allow: rule 4"},
		{`--as bob --model small-1 --method model/path`, "deny: no rule matches"},
		{`--as bob@acme --json --claims {"a":1}`, `"fs": true`},
		{`--as bob@x`, `default: deny`},
	} {
		if got, err := runRoot(t, append(words("check "+c.command), "--config", file)...); err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: %v\n%s", c.command, err, got)
		}
	}
	for _, c := range []struct{ command, want string }{
		{`--tool x`, "--tool needs --as SUBJECT@TENANT"},
		{`--as @acme`, "--as: the subject must be"},
		{`--as bob --claims []`, "--claims: want a JSON object"},
		{`--as bob --tool x --arguments []`, "--arguments: want a JSON object"},
		{`--as bob --tool x --annotations {`, "--annotations: want a JSON object"},
		{`--as bob --tool x --model y`, "want one of --tool, --resource, --prompt and --model"},
	} {
		if _, err := runRoot(t, append(words("check "+c.command), "--config", file)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.command, err)
		}
	}
	got, _ := runRoot(t, "check", "--as", "bob@acme", "--tool", "crm::find", "--arguments", "{}", "--json", "--config", file)
	var x access.Explanation
	if err := json.Unmarshal([]byte(got), &x); err != nil || len(x.Steps) != 4 || x.Rule != 2 || len(x.Redaction) != 3 {
		t.Errorf("%v: %s", err, got)
	}
}
