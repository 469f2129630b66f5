package config

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const referring = `
[[servers]]
id = "docs"
url = "https://docs.example/mcp?key=env:DOCS_KEY"
headers = { Authorization = "Bearer env:DOCS_TOKEN", X-Team = "team-${TEAM:-none}" }

[[servers]]
id = "paths"
url = "https://paths.example/${DOCS_KEY}/mcp"
headers = { Authorization = "Bearer ${DOCS_TOKEN}" }

[[servers]]
id = "plain"
rpc = "env:RPC_URL"

[[servers]]
id = "program"
command = ["true"]
env = { NOTE = "see env: and $${HOME}", OPTIONS = "--import file:./x.mjs", URL = "postgres://u:${DOCS_KEY}@db/x" }

[[providers]]
name = "p"
kind = "openai"
base_url = "https://${API_HOST}/v1"
`

var referringEnv = Env{"HOME=/home/u", "DOCS_KEY=k+e/y-123", "DOCS_TOKEN=token-token", "RPC_URL=http://127.0.0.1:9/base", "API_HOST=api.example"}

func loadResolved(t *testing.T, text string, env Env) (Loaded, Problems) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, problems := Load(path, env)
	if len(problems) == 0 {
		problems = loaded.ResolveSecrets(env)
	}
	return loaded, problems
}

// Headers, variables and URLs accept references as users write them, and printing a whole configuration
// reveals none of the values.
func TestReferencesInHeadersVariablesAndURLs(t *testing.T) {
	loaded, problems := loadResolved(t, referring, referringEnv)
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	s := loaded.Upstream.Servers
	for got, want := range map[string]string{
		s[0].URL.Reveal():                              "https://docs.example/mcp?key=k%2Be%2Fy-123",
		s[0].Headers["Authorization"].Reveal():         "Bearer token-token",
		s[0].Headers["X-Team"].Reveal():                "team-none",
		s[1].URL.Reveal():                              "https://paths.example/k%2Be/y-123/mcp",
		s[1].Headers["Authorization"].Reveal() + "!":   "Bearer token-token!",
		s[2].RPC.Reveal():                              "http://127.0.0.1:9/base",
		s[3].Env["NOTE"].Reveal():                      "see env: and ${HOME}",
		s[3].Env["OPTIONS"].Reveal():                   "--import file:./x.mjs",
		s[3].Env["URL"].Reveal():                       "postgres://u:k+e/y-123@db/x",
		loaded.Chat.Providers[0].BaseURL.Reveal() + "": "https://api.example/v1",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if printed := fmt.Sprintf("%v %+v %#v", loaded.Upstream, loaded.Upstream, loaded.Chat); strings.Contains(printed, "token-token") || strings.Contains(printed, "y-123") {
		t.Errorf("printed: %s", printed)
	}
}

// A reference that cannot be resolved, or does not give a URL, is a problem that names the key and repeats
// no secret.
func TestUnresolvedReferencesNameTheirKeys(t *testing.T) {
	_, problems := loadResolved(t, referring, Env{"HOME=/home/u", "API_HOST=api.example", "RPC_URL=ftp://user:hunter2@h"})
	text := problems.Error()
	for _, want := range []string{
		"c.toml:4: servers[0].url: cannot resolve env:DOCS_KEY: environment variable DOCS_KEY is not set",
		"servers[0].headers.Authorization: cannot resolve env:DOCS_TOKEN: ", "servers[1].url: ", "servers[1].headers.Authorization: ", "servers[3].env.URL: ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	_, problems = loadResolved(t, referring, append(Env{"RPC_URL=ftp://user:hunter2@h"}, referringEnv...))
	if text := problems.Error(); !strings.Contains(text, `servers[2].rpc: scheme "ftp" is not http or https`) || strings.Contains(text, "hunter2") {
		t.Errorf("got %s", text)
	}
	for _, bad := range []string{`url = "https://h/?k=env:"`, `url = "https://h/?k=${"`, `headers = { Authorization = "Bearer env:A-B" }`, `headers = { Authorization = "Bearer hunter2" }`} {
		_, problems := loadResolved(t, "[[servers]]\nid = 'a'\n"+bad+"\n", nil)
		if text := problems.Error(); !strings.Contains(text, "c.toml:3: servers[0].") || strings.Contains(text, "hunter2") || strings.Contains(text, "A-B") {
			t.Errorf("%s: %s", bad, text)
		}
	}
}

// A secret file that everybody can write is rejected; one of this user that others can read gives a
// warning.
func TestModesOfSecretFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes mean nothing here")
	}
	for mode, want := range map[os.FileMode]string{
		0o600: "", 0o400: "", 0o640: "", 0o644: "auth_token: secret file .* can be read by everybody (mode 0644)",
		0o660: "auth_token: secret file .* can be changed by its group (mode 0660)", 0o666: "!can be changed by everybody (mode 0666)", 0o602: "!can be changed by everybody",
	} {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte("hush-hush"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		loaded, problems := loadResolved(t, "auth_token = 'file:"+path+"'\n", Env{"HOME=/home/u"})
		warnings := strings.ReplaceAll(strings.Join(loaded.Warnings, "\n"), path, ".*")
		if refusal, refused := strings.CutPrefix(want, "!"); refused {
			if problems.Err() == nil || !strings.Contains(problems.Error(), refusal) {
				t.Errorf("%o: %v", mode, problems)
			}
			continue
		}
		if problems.Err() != nil || !strings.Contains(warnings, want) || want == "" && warnings != "" {
			t.Errorf("%o: %v, warnings %q", mode, problems, warnings)
		}
	}
}
