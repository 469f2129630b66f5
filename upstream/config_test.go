package upstream_test

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/upstream"
)

func TestValidate(t *testing.T) {
	ok := upstream.ServerConfig{ID: "ok", RPC: "http://127.0.0.1:1"}
	const oneOf = "servers[0].id: one of command, url and rpc is needed, and only one"
	id := func(s string) string {
		return "servers[0].id: " + s + " must be 1 to 64 letters, digits, dots, dashes or underscores"
	}
	rpc := func(url string) []upstream.ServerConfig {
		return []upstream.ServerConfig{{ID: "a", RPC: secret.URL(url)}}
	}
	for name, tt := range map[string]struct {
		servers []upstream.ServerConfig
		want    string
	}{
		"none":          {nil, ""},
		"good":          {[]upstream.ServerConfig{ok, {ID: "b", URL: "https://h/mcp"}, {ID: "c", Command: []string{"npx"}}}, ""},
		"longest id":    {[]upstream.ServerConfig{{ID: strings.Repeat("a", 64), RPC: ok.RPC}}, ""},
		"dotted id":     {[]upstream.ServerConfig{{ID: "0a.b_c-D", RPC: ok.RPC}}, ""},
		"no id":         {[]upstream.ServerConfig{{RPC: ok.RPC}}, id(`""`)},
		"id too long":   {[]upstream.ServerConfig{{ID: strings.Repeat("a", 65), RPC: ok.RPC}}, id(`"` + strings.Repeat("a", 65) + `"`)},
		"id of a path":  {[]upstream.ServerConfig{{ID: "a/b", RPC: ok.RPC}}, id(`"a/b"`)},
		"id with line":  {[]upstream.ServerConfig{{ID: "a\n", RPC: ok.RPC}}, id(`"a\n"`)},
		"id of a dot":   {[]upstream.ServerConfig{{ID: "..", RPC: ok.RPC}}, id(`".."`)},
		"id of letters": {[]upstream.ServerConfig{{ID: "é", RPC: ok.RPC}}, id(`"é"`)},
		"same id":       {[]upstream.ServerConfig{ok, {ID: "b", RPC: ok.RPC}, ok}, `servers[2].id: "ok" is the id of servers[0] too`},
		"no ids twice":  {[]upstream.ServerConfig{{RPC: ok.RPC}, {RPC: ok.RPC}}, id(`""`) + "\n" + strings.Replace(id(`""`), "[0]", "[1]", 1)},
		"no kind":       {[]upstream.ServerConfig{{ID: "a"}}, oneOf},
		"two kinds":     {[]upstream.ServerConfig{{ID: "a", URL: "http://h", RPC: "http://h"}}, oneOf},
		"three kinds":   {[]upstream.ServerConfig{{ID: "a", Command: []string{"x"}, URL: "http://h", RPC: "http://h"}}, oneOf},
		"no program":    {[]upstream.ServerConfig{{ID: "a", Command: []string{"", "x"}}}, "servers[0].command: the program's name is empty"},
		"no URL":        {rpc("127.0.0.1:8004"), "servers[0].rpc: is not a URL"},
		"a path":        {rpc("/rpc"), "servers[0].rpc: is not a URL"},
		"no host":       {rpc("http:///x"), "servers[0].rpc: is not a URL"},
		"scheme":        {rpc("ftp://h/x"), `servers[0].rpc: scheme "ftp" is not http or https`},
		"scheme of url": {[]upstream.ServerConfig{{ID: "a", URL: "ws://h"}}, `servers[0].url: scheme "ws" is not http or https`},
		"credentials":   {rpc("http://u:p@h"), "servers[0].rpc: credentials do not belong in a URL: use headers"},
		"relative cwd":  {[]upstream.ServerConfig{{ID: "a", Command: []string{"x"}, Cwd: "x"}}, "servers[0].cwd: must be an absolute path, of a server with a command"},
		"cwd of a URL":  {[]upstream.ServerConfig{{ID: "a", URL: "http://h", Cwd: "/"}}, "servers[0].cwd: must be an absolute path, of a server with a command"},
		"fragment":      {rpc("http://h/#x"), "servers[0].rpc: a fragment has no meaning here"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := upstream.Default()
			cfg.Servers = tt.servers
			if got := joinErrors(cfg.Validate()); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	cfg := upstream.Config{}
	if got, want := joinErrors(cfg.Validate()), "response_timeout: must be positive\nmax_reply_bytes: must be positive\nmax_list_bytes: must be positive\nclient_idle_timeout: must be positive\nmax_client_connections: must be positive\nmax_credential_connections: must be positive"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Requests go to <rpc>/rpc, so the base URL has no query.
func TestValidateRefusesQueryInRPC(t *testing.T) {
	for _, url := range []string{"http://h/base?key=1", "http://h?", "http://h/#"} {
		cfg := upstream.Default()
		cfg.Servers = []upstream.ServerConfig{{ID: "a", RPC: secret.URL(url)}}
		if got := cfg.Validate(); len(got) != 1 || !strings.HasPrefix(got[0].Error(), "servers[0].rpc: ") {
			t.Errorf("%s: got %v, want one problem of servers[0].rpc", url, got)
		}
	}
}

func TestDefaultsAreValid(t *testing.T) {
	var s upstream.ServerConfig
	s.SetDefaults()
	s.ID, s.RPC = "a", "http://h"
	cfg := upstream.Default()
	cfg.Servers = []upstream.ServerConfig{s}
	if got := cfg.Validate(); got != nil || s.Transport != "http" || s.StartupTimeout <= 0 || s.ShutdownGrace <= 0 {
		t.Errorf("got %v for %+v", got, s)
	}
}

func joinErrors(errs []error) string {
	var lines []string
	for _, err := range errs {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}
