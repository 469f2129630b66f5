package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ctxgate/ctxgate/config"
)

// The files of all secrets are listed, wherever they are, also after they were resolved.
func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token, header := write("token", "right"), write("header", "Bearer x")
	file := write("ctxgate.toml", "auth_token = 'file:"+token+"'\n[[servers]]\nid = 'a'\nurl = 'http://127.0.0.1:1'\nheaders = { Authorization = 'file:"+
		header+"', X = 'env:X' }\n[[servers]]\nid = 'b'\ncommand = ['x']\nenv = { T = 'file:"+token+"' }\n")
	env := config.Env{"X=1", "HOME=" + dir}
	loaded, problems := config.Load(file, env)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if problems := loaded.ResolveSecrets(env); len(problems) > 0 {
		t.Fatal(problems)
	}
	want := []string{token, header}
	slices.Sort(want)
	if got := loaded.SecretFiles(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
