package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// ~, $HOME and paths relative to the config file work wherever the file names a path, whatever the working directory is.
func TestPathsOfTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"key", "home/key"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("content of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	home := filepath.Join(dir, "home")
	file := filepath.Join(dir, "ctxgate.toml")
	if err := os.WriteFile(file, []byte(`
data_dir = "~/data"
auth_token = "file:key"

[admin]
token = "file:~/key"

[state]
path = "store/x.db"

[audit]
path = "logs/audit.log"

[[servers]]
id = "a"
command = ["./bin/server", "~/docs", "~", "$HOME", "${HOME}/x", "--dir=~/y", "--root=$HOME/z", "-v", "$HOME/w:/w", "docs", "~other/x", "a~/b", "$HOMEPATH/x", "${file:key}"]
cwd = "work"
env = { A = "~/a", B = "$HOME/b/${KEY}", C = "${KEY}~/c", D = "x:~/d", E = "file:key", F = "~" }

[[servers]]
id = "b"
command = ["~/bin/server"]
cwd = "~"

[[servers]]
id = "c"
command = ["npx", "x"]

[[servers]]
id = "d"
url = "http://127.0.0.1:1/mcp?a=file:key&b=${file:~/key}"
headers = { Authorization = "Bearer file:$HOME/key" }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	env := Env{"HOME=" + home, "KEY=k"}
	loaded, problems := Load(file, env)
	if problems = append(problems, loaded.ResolveSecrets(env)...); len(problems) > 0 {
		t.Fatal(problems)
	}
	at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	s := loaded.Upstream.Servers
	reveal := func(m map[string]secret.Text, name string) string { return m[name].Reveal() }
	for what, pair := range map[string][2]string{
		"data_dir":        {loaded.DataDir, home + "/data"},
		"auth_token":      {loaded.Auth.Token.Reveal(), "content of key"},
		"admin.token":     {loaded.Admin.Token.Reveal(), "content of home/key"},
		"state.path":      {loaded.State.Path, at("store", "x.db")},
		"audit.path":      {loaded.Audit.Path, at("logs", "audit.log")},
		"cwd":             {s[0].Cwd, at("work")},
		"cwd of b":        {s[1].Cwd, home},
		"cwd of c":        {s[2].Cwd, ""},
		"command of b":    {s[1].Command[0], filepath.Join(home, "bin", "server")},
		"command of c":    {s[2].Command[0], "npx"},
		"env A":           {reveal(s[0].Env, "A"), home + "/a"},
		"env B":           {reveal(s[0].Env, "B"), home + "/b/k"},
		"env C":           {reveal(s[0].Env, "C"), "k~/c"},
		"env D":           {reveal(s[0].Env, "D"), "x:~/d"},
		"env E":           {reveal(s[0].Env, "E"), "content of key"},
		"env F":           {reveal(s[0].Env, "F"), home},
		"url":             {s[3].URL.Reveal(), "http://127.0.0.1:1/mcp?a=content+of+key&b=content+of+home%2Fkey"},
		"header":          {reveal(s[3].Headers, "Authorization"), "Bearer content of home/key"},
		"files to watch":  {loaded.SecretFiles()[0], at("home", "key")},
		"files to watch2": {loaded.SecretFiles()[1], at("key")},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: got %q, want %q", what, pair[0], pair[1])
		}
	}
	want := []string{at("bin", "server"), home + "/docs", home, home, home + "/x", "--dir=" + home + "/y", "--root=" + home + "/z", "-v", home + "/w:/w", "docs", "~other/x", "a~/b", "$HOMEPATH/x", "content of key"}
	if !slices.Equal(s[0].Command, want) {
		t.Errorf("command:\n got %q\nwant %q", s[0].Command, want)
	}
}

// A variable of the environment is not the file's: its relative path is relative to the working directory, as a shell's.
func TestPathsOfTheEnvironment(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ctxgate.toml")
	if err := os.WriteFile(file, []byte("[state]\npath = 'x.db'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, problems := Load(file, Env{"HOME=/home/u", "CTXGATE_STATE_PATH=data/y.db"})
	if loaded.State.Path != "data/y.db" || len(problems) > 0 {
		t.Errorf("got %q, %v", loaded.State.Path, problems)
	}
	for _, path := range []string{"-", "syslog:", "syslog:log.sock"} { // no files
		if err := os.WriteFile(file, []byte("[audit]\npath = '"+path+"'\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if loaded, _ := Load(file, Env{"HOME=/home/u"}); loaded.Audit.Path != path {
			t.Errorf("got %q, want %q", loaded.Audit.Path, path)
		}
	}
	loaded, _ = Load("", Env{"CTXGATE_STATE_PATH=~/z.db"})
	if loaded.State.Path != "~/z.db" {
		t.Errorf("got %q", loaded.State.Path)
	}
}
