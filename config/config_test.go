package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/upstream"
)

// bySource compares secrets by their reference, and literals by value.
var bySource = cmp.Comparer(func(a, b secret.Text) bool { return a.Source() == b.Source() && a.Reveal() == b.Reveal() })

var home = Env{"HOME=/home/nobody"}

// loadText loads a TOML text as if it were a file.
func loadText(t *testing.T, text string, env Env) (Loaded, Problems) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path, env)
}

// short lists the problems without the directory of their file.
func short(ps Problems) string {
	var lines []string
	for _, p := range ps {
		if p.File != "" {
			p.File = filepath.Base(p.File)
		}
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// All fixed keys load from each format into the same configuration.
func TestA1FullConfigInEveryFormat(t *testing.T) {
	want, ps := Load("testdata/compose-full.toml", home)
	if err := ps.Err(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"testdata/compose-full.json", "testdata/compose-full.yaml"} {
		got, ps := Load(path, home)
		if err := ps.Err(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Config, got.Config, bySource); diff != "" {
			t.Errorf("%s differs from the TOML:\n%s", path, diff)
		}
	}
	if n := len(want.Upstream.Servers); n != 3 || want.Upstream.Servers[1].Headers["Authorization"].Source() != "env:DOCS_TOKEN" {
		t.Errorf("%d servers: %+v", n, want.Upstream.Servers)
	}
	if want.DataDir != filepath.Join("/home/nobody", ".local/share/ctxgate") && !strings.HasPrefix(want.DataDir, "/home/nobody/") {
		t.Errorf("data_dir is %s", want.DataDir)
	}
}

// The aggregator's config, as its document shows it.
func TestA1AggregatorConfig(t *testing.T) {
	got, ps := Load("testdata/compose-aggregator.json", home)
	if err := ps.Err(); err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.DataDir = got.DataDir
	want.Log = Log{Level: "INFO", Structured: true}
	want.Auth.Token = secret.Parse("optional-shared-secret")
	want.Limit.PerMinute = 60
	s := upstream.ServerConfig{ID: "everything", Command: []string{"npx", "@modelcontextprotocol/server-everything"}, Env: map[string]secret.Text{}}
	s.SetDefaults()
	want.Upstream.Servers = []upstream.ServerConfig{s}
	if diff := cmp.Diff(want, got.Config, bySource); diff != "" {
		t.Error(diff)
	}
	if ps := got.ResolveSecrets(home); len(ps) > 0 {
		t.Error(ps)
	}
}

func TestDefaultIsValid(t *testing.T) {
	got, ps := Load("", home)
	if len(ps) > 0 || got.Warnings != nil || got.File != nil {
		t.Errorf("problems %v, warnings %v", ps, got.Warnings)
	}
	want := Default()
	want.DataDir = got.DataDir
	if diff := cmp.Diff(want, got.Config, bySource); diff != "" {
		t.Error(diff)
	}
}

func TestFindFile(t *testing.T) {
	here, user := t.TempDir(), t.TempDir()
	t.Chdir(here)
	env := Env{"HOME=" + user, "XDG_CONFIG_HOME=" + user, "AppData=" + user}
	check := func(named string, env Env, want string) {
		t.Helper()
		got, err := FindFile(named, env)
		if got != want || (err != nil) != (want == "") || err != nil && !errors.Is(err, ErrNoFile) {
			t.Errorf("Find(%q) = %q, %v; want %q", named, got, err, want)
		}
	}
	touch := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("", env, "")
	inHome := filepath.Join(user, "ctxgate", "ctxgate.toml")
	touch(inHome)
	check("", env, inHome)
	check("", nil, "")
	touch("ctxgate.toml")
	check("", env, "ctxgate.toml")
	named := append(Env{"CTXGATE_CONFIG=/nowhere/x.toml"}, env...)
	check("", named, "/nowhere/x.toml") // named is named: whether it is there, the load says
	check("flag.json", named, "flag.json")
	check("", append(Env{"CTXGATE_CONFIG="}, env...), "ctxgate.toml")
}

func TestEnvironmentOverridesTheFile(t *testing.T) {
	const file = "listen = '127.0.0.1:1'\nsecret = 'env:ELSEWHERE'\n[masking]\nmax_chars = 5000\n"
	env := append(Env{
		"CTXGATE_LISTEN=127.0.0.1:2", "CTXGATE_MASKING_MAX_CHARS=6000", "CTXGATE_SECRET=" + strings.Repeat("s", 32),
		"CTXGATE_HTTP_MAX_REQUEST_BYTES=1MiB", "CTXGATE_CONFIG=c.toml",
	}, home...)
	got, ps := loadText(t, file, env)
	if err := ps.Err(); err != nil {
		t.Fatal(err)
	}
	if ps := got.ResolveSecrets(env); len(ps) > 0 {
		t.Error(ps)
	}
	if got.Front.Listen != "127.0.0.1:2" || got.Hub.Masking.MaxChars != 6000 || got.Front.HTTP.MaxRequestBytes != unit.Bytes(1<<20) {
		t.Errorf("got %+v, %+v", got.Front, got.Hub.Masking)
	}
	if got.Secret.Reveal() != strings.Repeat("s", 32) {
		t.Error("the secret is not that of the environment")
	}
	if got.Warnings != nil {
		t.Errorf("warnings %v", got.Warnings)
	}
	off, ps := loadText(t, file, append(Env{"CTXGATE_LISTEN="}, home...))
	if len(ps) > 0 || off.Front.Listen != "" {
		t.Errorf("an empty CTXGATE_LISTEN: got %q, %v", off.Front.Listen, ps)
	}
}

// A variable that is set twice in the environment has the same value wherever it is read.
func TestVariableTwice(t *testing.T) {
	env := append(Env{"CTXGATE_ADMIN_LISTEN=127.0.0.1:1", "CTXGATE_ADMIN_LISTEN=127.0.0.1:2"}, home...)
	got, ps := Load("", env)
	if err := ps.Err(); err != nil {
		t.Fatal(err)
	}
	if looked, _ := env.Lookup("CTXGATE_ADMIN_LISTEN"); looked != got.Admin.Listen {
		t.Errorf("Lookup gives %s, Load %s", looked, got.Admin.Listen)
	}
}

func TestLoadedResolveSecrets(t *testing.T) {
	long := strings.Repeat("s", 32)
	const both = "secret = 'env:CTXGATE_SECRET'\nauth_token = 'env:TOKEN'\n[admin]\ntoken = 'env:CTXGATE_ADMIN_TOKEN'\n"
	for name, tt := range map[string]struct {
		file string
		env  Env
		want string
	}{
		"none set":                 {both, nil, "c.toml:2: auth_token: cannot resolve env:TOKEN: environment variable TOKEN is not set"},
		"the self-made ones unset": {both, Env{"TOKEN=t"}, ""},
		"the self-made ones empty": {both, Env{"TOKEN=t", "CTXGATE_SECRET=", "CTXGATE_ADMIN_TOKEN="}, ""},
		"all set":                  {both, Env{"TOKEN=t", "CTXGATE_SECRET=" + long, "CTXGATE_ADMIN_TOKEN=a"}, ""},
		"another variable unset":   {"secret = 'env:MY_SECRET'", nil, "c.toml:1: secret: cannot resolve env:MY_SECRET: environment variable MY_SECRET is not set"},
		"admin's elsewhere":        {"[admin]\ntoken = 'env:MY_TOKEN'", nil, "c.toml:2: admin.token: cannot resolve env:MY_TOKEN: environment variable MY_TOKEN is not set"},
		"a short secret":           {"\nsecret = 'env:S'", Env{"S=" + long[1:]}, "c.toml:2: secret: must have at least 32 bytes"},
		"a secret just long":       {"secret = 'env:S'", Env{"S=" + long}, ""},
		"a short old secret":       {"old_secrets = ['env:L', 'env:S']", Env{"S=" + long[1:], "L=" + long}, "c.toml:1: old_secrets[1]: must have at least 32 bytes"},
		"old secrets just long":    {"old_secrets = ['env:L', 'env:L']", Env{"L=" + long}, ""},
		"too many old secrets":     {"old_secrets = [" + strings.Repeat("'env:L',", 9) + "]", Env{"L=" + long}, "c.toml:1: old_secrets: at most 8 secrets, because every unknown id is looked up under each"},
		"a file that is not there": {"auth_token = 'file:/nowhere/t'", nil, "c.toml:1: auth_token: cannot resolve file:/nowhere/t: reading a secret: open /nowhere/t: no such file or directory"},
		"a header": {"[[servers]]\nid = 'a'\nrpc = 'http://h'\nheaders = { Authorization = 'env:H' }", nil,
			"c.toml:4: servers[0].headers.Authorization: cannot resolve env:H: environment variable H is not set"},
		"a short secret from the environment": {"", Env{"CTXGATE_SECRET=short"}, "c.toml: secret: must have at least 32 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			env := append(tt.env, home...)
			l, ps := loadText(t, tt.file, env)
			if err := ps.Err(); err != nil {
				t.Fatal(err)
			}
			got := l.ResolveSecrets(env)
			if short(got) != tt.want {
				t.Errorf("got %s, want %s", short(got), tt.want)
			}
			if strings.Contains(got.Error(), long[1:]) {
				t.Error("a problem shows a secret")
			}
		})
	}
	t.Run("no home", func(t *testing.T) {
		l, ps := loadText(t, "", nil)
		if err := ps.Err(); err != nil {
			t.Fatal(err)
		}
		if got, want := short(l.ResolveSecrets(nil)), "c.toml: data_dir: there is no home directory for the default; set data_dir"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// Settings without effect that were probably meant to have one are reported.
func TestWarnings(t *testing.T) {
	l, ps := Load("testdata/compose-full.toml", append(Env{"CTXGATE_MASKNG_MAX_CHARS=1"}, home...))
	if err := ps.Err(); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(strings.Join(l.Warnings, "\n"), "testdata/", "")
	want := `CTXGATE_MASKNG_MAX_CHARS: unknown variable, ignored; did you mean "CTXGATE_MASKING_MAX_CHARS"?`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	l, _ = Load("testdata/compose-aggregator.json", home)
	if got := strings.Join(l.Warnings, "\n"); got != "" {
		t.Errorf("got %s, want nothing", got)
	}
}

// The errors of each package's Validate are reported with their lines, all at once.
func TestValidateProblems(t *testing.T) {
	_, ps := loadText(t, `listen = "8000"
response_timeout = 0
max_depth = 9

[[servers]]
id = "a"

[[servers]]
id = "a"
rpc = "ftp://h"

[masking]
max_chars = 3999

[[policies]]
tool = "x"
max_chars = 10

[recall]
spill_bytes = "1MiB"

[state]
driver = "redis"
ttl = 0

[admin]
listen = "nowhere"

[mcp_pruner]
listen = "8006"

[[providers]]
name = "p"
kind = "openai"

[http]
body_timeout = 0
`, home)
	want := `c.toml:1: listen: "8000" is not an address such as 127.0.0.1:8000
c.toml:2: response_timeout: must be positive
c.toml:6: servers[0].id: one of command, url and rpc is needed, and only one
c.toml:9: servers[1].id: "a" is the id of servers[0] too
c.toml:10: servers[1].rpc: scheme "ftp" is not http or https
c.toml:13: masking.max_chars: 3999 is less than head_chars + tail_chars (2000 + 2000), so a cut could leave nothing out
c.toml:17: policies[0].max_chars: 10 is less than head_chars + tail_chars (2000 + 2000), so a cut could leave nothing out
c.toml:20: recall.spill_bytes: must be at least 4MiB
c.toml:22: state.url: is required with driver = "redis"
c.toml:24: state.ttl: must be positive
c.toml:27: admin.listen: "nowhere" is not an address such as 127.0.0.1:8000
c.toml:30: mcp_pruner.listen: "8006" is not an address such as 127.0.0.1:8000
c.toml:32: providers[0].base_url: is missing
c.toml:37: http.body_timeout: must be positive`
	if diff := cmp.Diff(want, short(ps)); diff != "" {
		t.Error(diff)
	}
}

func TestHeadAndTailOverMax(t *testing.T) {
	for name, tt := range map[string]struct {
		head, tail, max string
		bad             bool
	}{
		"just":     {"2000", "2000", "4000", false},
		"over":     {"2000", "2001", "4000", true},
		"none":     {"0", "0", "1", false},
		"head all": {"10", "0", "10", false},
		"zero max": {"0", "0", "0", true},
		"minus":    {"-1", "0", "10", true},
		"huge":     {"9223372036854775807", "9223372036854775807", "4000", true},
	} {
		t.Run(name, func(t *testing.T) {
			_, ps := loadText(t, "[masking]\nhead_chars = "+tt.head+"\ntail_chars = "+tt.tail+"\nmax_chars = "+tt.max+"\n", home)
			if (len(ps) > 0) != tt.bad {
				t.Errorf("head %s, tail %s, max %s: got %v", tt.head, tt.tail, tt.max, ps)
			}
		})
	}
}

func TestA1UnknownKeySuggestsTheNearest(t *testing.T) {
	_, ps := loadText(t, "lisen = 'x'\n[masking]\nmax_char = 1\n[[servers]]\nid = 'a'\nrpc = 'http://h'\ncomand = ['x']\n", home)
	want := `c.toml:1: lisen: unknown key "lisen"; did you mean "listen"?
c.toml:3: masking.max_char: unknown key "max_char"; did you mean "max_chars"?
c.toml:7: servers[0].comand: unknown key "comand"; did you mean "command"?`
	if diff := cmp.Diff(want, short(ps)); diff != "" {
		t.Error(diff)
	}
}
