package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const faultyServers = `
[[servers]]
id = "github"
command = ["github", "--token=${env:GITHUB_TOKEN}"]

[[servers]]
id = "docs"
url = "https://docs.example.com/mcp"
headers = { Authorization = "Bearer env:DOCS_TOKEN" }

[[servers]]
id = "files"
command = ["files", "${file:KEYFILE}", "${PWD}"]

[[servers]]
id = "off"
disabled = true
command = ["off", "${env:OFF_TOKEN}"]
env = { OFF = "env:OFF_TOKEN" }
`

// A variable that is missing for one server stops the gateway with profile document; with profile agents only that server
// is down, and says why.
func TestMissingSecretOfOneServer(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte("k3y-in-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(faultyServers, "KEYFILE", key)
	env := Env{"HOME=" + dir, "DOCS_TOKEN=d0cs"}
	for profile, want := range map[string]int{"document": 1, "agents": 0} {
		loaded, problems := LoadBytes("x.toml", []byte(`profile = "`+profile+`"`+text), env)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		if files := loaded.SecretFiles(); len(files) != 1 || files[0] != key {
			t.Errorf("the files of secrets are %q", files)
		}
		if problems = loaded.TolerateServers(loaded.ResolveSecrets(env)); len(problems) != want {
			t.Errorf("%s: %v", profile, problems)
		}
		servers := loaded.Upstream.Servers
		if profile == "agents" && servers[0].Fault != "command: cannot resolve env:GITHUB_TOKEN: environment variable GITHUB_TOKEN is not set" {
			t.Errorf("the fault is %q", servers[0].Fault)
		}
		if got := strings.Join(servers[2].Command, " "); got != "files k3y-in-a-file ${PWD}" || servers[1].Fault+servers[2].Fault+servers[3].Fault != "" {
			t.Errorf("the command is %q; faults %+v", got, servers)
		}
	}
}
