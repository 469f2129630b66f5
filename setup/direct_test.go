package setup

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/setup/clientfile"
)

// A file that is really a client's is loaded as it is; ctxgate's own files are not taken for one.
func TestClientFilesAreLoadedDirectly(t *testing.T) {
	dir := t.TempDir()
	vars := config.Env{"HOME=" + dir, "TOKEN=t0ken"}
	env := clientfile.Env{GOOS: "linux", Home: dir, Lookup: vars.Lookup}
	for name, tt := range map[string]struct{ file, text, want string }{
		"mcpServers":       {"mcp.json", `{"mcpServers": {"a": {"command": "npx", "args": ["x", "${TOKEN}"], "env": {"K": "${TOKEN}-${OTHER:-y}"}}, "b c": {"url": "http://h/mcp", "headers": {"Authorization": "Bearer lit"}}}}`, "a: npx x t0ken K=t0ken-y\nb-c: http://h/mcp Authorization=Bearer lit\n"},
		"with comments":    {"mcp.json", "{ // mine\n\"mcpServers\": {\"a\": {\"command\": \"x\", \"env\": {\"K\": \"${env:TOKEN}\"}},} }", "a: x K=t0ken\n"},
		"VS Code":          {"mcp.json", `{"servers": {"a": {"type": "http", "url": "http://h/mcp"}, "b": {"command": "x", "env": {"K": "${input:k}"}}}}`, "a: http://h/mcp\n"},
		"Codex":            {"config.toml", "model = \"x\"\n[mcp_servers.a]\ncommand = \"x\"\nenv_vars = [\"TOKEN\"]\n", "a: x TOKEN=t0ken\n"},
		"opencode":         {"opencode.jsonc", `{"mcp": {"a": {"type": "local", "command": ["x", "y"]}}}`, "a: x y\n"},
		"Continue":         {"config.yaml", "mcpServers:\n  - name: a\n    command: x\n", "a: x\n"},
		"a missing one":    {"mcp.json", `{"mcpServers": {"a": {"command": "x", "env": {"K": "${MISSING}"}}}}`, "a: x K= (environment variable MISSING is not set)\n"},
		"ctxgate's JSON":   {"ctxgate.json", `{"servers": [{"id": "a", "url": "http://h"}]}`, ""},
		"ctxgate's TOML":   {"ctxgate.toml", "[[servers]]\nid = \"a\"\nurl = \"http://h\"\n", ""},
		"not even parsing": {"ctxgate.json", `{"mcpServers": `, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, tt.file)
			loaded, ok, problems := LoadClientFile(path, []byte(tt.text), env, vars)
			if ok != (tt.want != "") || len(problems) > 0 {
				t.Fatal(ok, problems)
			}
			if !ok {
				return
			}
			if problems := loaded.ResolveSecrets(vars); len(problems) > 0 || loaded.Profile != "agents" || loaded.File.Path != path {
				t.Error(problems, loaded.Profile)
			}
			var got strings.Builder
			for _, s := range loaded.Upstream.Servers {
				got.WriteString(s.ID + ": " + strings.Join(s.Command, " ") + s.URL.Reveal())
				for _, m := range []map[string]string{revealed(s.Env), revealed(s.Headers)} {
					for k, v := range m {
						got.WriteString(" " + k + "=" + v)
					}
				}
				if s.Fault != "" {
					got.WriteString(" (" + s.Fault + ")")
				}
				got.WriteString("\n")
			}
			if got.String() != tt.want {
				t.Errorf("got %s", got.String())
			}
		})
	}
}
