package upstream_test

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/upstream"
)

func TestValidate(t *testing.T) {
	ok := upstream.Server{ID: "ok", RPC: "http://127.0.0.1:1"}
	const oneOf = "servers[0].id: one of command, url and rpc is needed, and only one"
	id := func(s string) string {
		return "servers[0].id: " + s + " must be 1 to 64 letters, digits, dots, dashes or underscores"
	}
	rpc := func(url string) []upstream.Server { return []upstream.Server{{ID: "a", RPC: secret.URL(url)}} }
	for name, tt := range map[string]struct {
		servers []upstream.Server
		want    string
	}{
		"none":          {nil, ""},
		"good":          {[]upstream.Server{ok, {ID: "b", URL: "https://h/mcp"}, {ID: "c", Command: []string{"npx"}}}, ""},
		"longest id":    {[]upstream.Server{{ID: strings.Repeat("a", 64), RPC: ok.RPC}}, ""},
		"dotted id":     {[]upstream.Server{{ID: "0a.b_c-D", RPC: ok.RPC}}, ""},
		"no id":         {[]upstream.Server{{RPC: ok.RPC}}, id(`""`)},
		"id too long":   {[]upstream.Server{{ID: strings.Repeat("a", 65), RPC: ok.RPC}}, id(`"` + strings.Repeat("a", 65) + `"`)},
		"id of a path":  {[]upstream.Server{{ID: "a/b", RPC: ok.RPC}}, id(`"a/b"`)},
		"id with line":  {[]upstream.Server{{ID: "a\n", RPC: ok.RPC}}, id(`"a\n"`)},
		"id of a dot":   {[]upstream.Server{{ID: "..", RPC: ok.RPC}}, id(`".."`)},
		"id of letters": {[]upstream.Server{{ID: "é", RPC: ok.RPC}}, id(`"é"`)},
		"same id":       {[]upstream.Server{ok, {ID: "b", RPC: ok.RPC}, ok}, `servers[2].id: "ok" is the id of servers[0] too`},
		"no ids twice":  {[]upstream.Server{{RPC: ok.RPC}, {RPC: ok.RPC}}, id(`""`) + "\n" + strings.Replace(id(`""`), "[0]", "[1]", 1)},
		"no kind":       {[]upstream.Server{{ID: "a"}}, oneOf},
		"two kinds":     {[]upstream.Server{{ID: "a", URL: "http://h", RPC: "http://h"}}, oneOf},
		"three kinds":   {[]upstream.Server{{ID: "a", Command: []string{"x"}, URL: "http://h", RPC: "http://h"}}, oneOf},
		"no program":    {[]upstream.Server{{ID: "a", Command: []string{"", "x"}}}, "servers[0].command: the program's name is empty"},
		"no URL":        {rpc("127.0.0.1:8004"), "servers[0].rpc: is not a URL"},
		"a path":        {rpc("/rpc"), "servers[0].rpc: is not a URL"},
		"no host":       {rpc("http:///x"), "servers[0].rpc: is not a URL"},
		"scheme":        {rpc("ftp://h/x"), `servers[0].rpc: scheme "ftp" is not http or https`},
		"scheme of url": {[]upstream.Server{{ID: "a", URL: "ws://h"}}, `servers[0].url: scheme "ws" is not http or https`},
		"credentials":   {rpc("http://u:p@h"), "servers[0].rpc: credentials do not belong in a URL: use headers"},
		"fragment":      {rpc("http://h/#x"), "servers[0].rpc: a fragment has no meaning here"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := upstream.Default()
			cfg.Servers = tt.servers
			if got := joined(cfg.Validate()); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	cfg := upstream.Config{}
	if got, want := joined(cfg.Validate()), "response_timeout: must be positive\nmax_reply_bytes: must be positive\nmax_list_bytes: must be positive\nclient_idle_timeout: must be positive\nmax_client_connections: must be positive"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Requests go to <rpc>/rpc, and nothing can be put behind a query.
func TestValidateRefusesAQueryInABase(t *testing.T) {
	for _, url := range []string{"http://h/base?key=1", "http://h?", "http://h/#"} {
		cfg := upstream.Default()
		cfg.Servers = []upstream.Server{{ID: "a", RPC: secret.URL(url)}}
		if got := cfg.Validate(); len(got) != 1 || !strings.HasPrefix(got[0].Error(), "servers[0].rpc: ") {
			t.Errorf("%s: got %v, want one problem of servers[0].rpc", url, got)
		}
	}
}

func TestDefaultsAreValid(t *testing.T) {
	var s upstream.Server
	s.SetDefaults()
	s.ID, s.RPC = "a", "http://h"
	cfg := upstream.Default()
	cfg.Servers = []upstream.Server{s}
	if got := cfg.Validate(); got != nil || s.Transport != "http" || s.StartupTimeout <= 0 || s.ShutdownGrace <= 0 {
		t.Errorf("got %v for %+v", got, s)
	}
}

func joined(errs []error) string {
	var lines []string
	for _, err := range errs {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}
