package config

import (
	"testing"
)

// Credentials of callers are read from a file, resolved, and checked; those of a server that is disabled need not resolve.
func TestServerCredentials(t *testing.T) {
	const file = `
[[servers]]
id = "docs"
url = "https://docs.example/mcp"
credentials = "caller"

[[servers]]
id = "files"
command = ["files"]
[[servers.credentials_for]]
tenant = "acme"
env = { TOKEN = "env:ACME_TOKEN", DIR = "~/acme" }
[[servers.credentials_for]]

[[servers]]
id = "crm"
url = "https://crm.example/mcp"
[servers.token_exchange]
token_url = "https://idp.example/token"
client_id = "ctxgate"
client_secret = "env:EXCHANGE_SECRET"
audience = "crm"

[[servers]]
id = "off"
url = "https://off.example/mcp"
disabled = true
[[servers.credentials_for]]
headers = { Authorization = "env:NOT_SET" }
`
	env := Env{"ACME_TOKEN=a", "EXCHANGE_SECRET=s", "HOME=/home/u"}
	l, problems := LoadBytes("ctxgate.toml", []byte(file), env)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if problems := l.ResolveSecrets(env); len(problems) > 0 {
		t.Fatal(problems)
	}
	docs, files, crm := l.Upstream.Servers[0], l.Upstream.Servers[1], l.Upstream.Servers[2]
	if docs.Credentials != "caller" || files.Credentials != "shared" || crm.TokenExchange.ClientSecret.Reveal() != "s" || crm.TokenExchange.Audience != "crm" {
		t.Errorf("got %+v, %+v", docs, crm)
	}
	rules := files.CredentialsFor
	if len(rules) != 2 || rules[0].Tenant != "acme" || rules[0].Subject != "*" || rules[0].Env["TOKEN"].Reveal() != "a" || rules[0].Env["DIR"].Reveal() != "/home/u/acme" || rules[1].Tenant != "*" || rules[1].Subject != "*" {
		t.Errorf("got %+v", rules)
	}

	// A credential in plain text is refused there, too.
	_, problems = LoadBytes("ctxgate.toml", []byte("[[servers]]\nid = \"x\"\nurl = \"https://x/mcp\"\n[[servers.credentials_for]]\nheaders = { Authorization = \"Bearer plain\" }\n"), env)
	if len(problems) != 1 || problems[0].Key != "servers[0].credentials_for[0].headers.Authorization" {
		t.Errorf("got %v", problems)
	}
}
