package app

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/secret"
)

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestConfiguredSecretIsPreferred(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	got, err := loadOrGenerate(secret.Parse("configured"), path)
	if err != nil || got.Reveal() != "configured" {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("an unneeded file was created")
	}
}

func TestGeneratedSecretIsReadableByTheUserOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "data", "secret")
	first, err := loadOrGenerate(secret.Text{}, path)
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Reveal()) < 43 { // 32 bytes in base64
		t.Errorf("the secret has %d characters", len(first.Reveal()))
	}
	if m := mode(t, path); m != 0o600 {
		t.Errorf("the file has mode %o", m)
	}
	if m := mode(t, filepath.Dir(path)); m != 0o700 {
		t.Errorf("the folder has mode %o", m)
	}
	again, err := loadOrGenerate(secret.Text{}, path)
	if err != nil || again.Reveal() != first.Reveal() {
		t.Errorf("the second start got another secret, or %v", err)
	}
	other, err := loadOrGenerate(secret.Text{}, filepath.Join(filepath.Dir(path), "other"))
	if err != nil || other.Reveal() == first.Reveal() {
		t.Errorf("two secrets are the same, or %v", err)
	}
}

func TestConcurrentStartsShareOneSecret(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		var wg sync.WaitGroup
		got := make([]string, 8)
		begin := make(chan struct{})
		for i := range got {
			wg.Go(func() {
				<-begin
				s, err := loadOrGenerate(secret.Text{}, filepath.Join(dir, "secret"))
				if err != nil {
					t.Error(err)
				}
				got[i] = s.Reveal()
			})
		}
		close(begin)
		wg.Wait()
		for _, s := range got {
			if s == "" || s != got[0] {
				t.Fatal("two starts have different secrets")
			}
		}
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 1 {
			t.Errorf("left behind: %v, %v", files, err)
		}
	}
}

func TestBadSecretFiles(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "blank": strings.Repeat(" ", 40) + "\n", "short": strings.Repeat("x", 31) + "\n",
	} {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := loadOrGenerate(secret.Text{}, path)
		if err == nil || got.IsSet() || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error that names the file", name, err)
		}
		if after, _ := os.ReadFile(path); string(after) != text {
			t.Errorf("%s: the file was changed", name)
		}
	}
	folder := filepath.Join(t.TempDir(), "secret")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := loadOrGenerate(secret.Text{}, folder); err == nil {
		t.Error("a folder where the file should be: want an error")
	}
}

// A secret file holds the secret itself, even if it looks like a reference: a token that cannot be checked
// must not count as no token.
func TestStoredSecretIsNotAReference(t *testing.T) {
	for _, text := range []string{"env:" + strings.Repeat("A", 40), "file:/" + strings.Repeat("a", 40)} {
		path := filepath.Join(t.TempDir(), "admin-token")
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := loadOrGenerate(secret.Text{}, path); err == nil && got.Reveal() != text {
			t.Errorf("%q came back as %q", text, got.Reveal())
		}
	}
}

func TestOpenStorageErrors(t *testing.T) {
	for name, mend := range map[string]func(*config.Config){
		"a short secret": func(c *config.Config) { c.Secret = secret.Parse("short") },
		"redis":          func(c *config.Config) { c.State.Driver = "redis" },
		"a path that is a folder": func(c *config.Config) {
			c.State.Path = c.DataDir
		},
	} {
		cfg := config.Default()
		cfg.DataDir = t.TempDir()
		mend(&cfg)
		if v, err := OpenStorage(context.Background(), cfg); err == nil {
			t.Errorf("%s: want an error", name)
			v.Close()
		}
	}
}

// What was found out about a server is known to the next process.
func TestFactsAboutServersAreKept(t *testing.T) {
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	for _, want := range []string{"", "clients-answer roots/list"} {
		storage, err := OpenStorage(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := storage.loadFacts("k"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		storage.saveFacts("k", "clients-answer roots/list")
		if err := storage.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A share of the store is the default where callers can belong to several tenants.
func TestTenantsCanBeSeveral(t *testing.T) {
	token := secret.Literal("a token of a caller")
	for name, c := range map[string]struct {
		auth auth.Config
		want bool
	}{
		"nobody is named":            {auth.Config{}, false},
		"one token":                  {auth.Config{Token: token}, false},
		"tokens of the same tenant":  {auth.Config{Token: token, Tokens: []auth.Token{{Name: "a"}, {Name: "b", Tenant: auth.DefaultTenant}}}, false},
		"tokens of one other tenant": {auth.Config{Tokens: []auth.Token{{Name: "a", Tenant: "x"}, {Name: "b", Tenant: "x"}}}, false},
		"two tenants":                {auth.Config{Tokens: []auth.Token{{Name: "a", Tenant: "x"}, {Name: "b", Tenant: "y"}}}, true},
		"another tenant and a token": {auth.Config{Token: token, Tokens: []auth.Token{{Name: "a", Tenant: "x"}}}, true},
	} {
		if got := canHaveTenants(c.auth); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
