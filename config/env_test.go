package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
)

func TestApplyEnv(t *testing.T) {
	got := sampleDefaults()
	problems, warnings := ApplyEnv(&got, []string{
		"HOME=/root",
		"CTXGATE_LISTEN=",
		"CTXGATE_LOG_LEVEL=DEBUG",
		"CTXGATE_STRUCTURED_LOGGING=1",
		"CTXGATE_AUTH_TOKEN=hush",
		"CTXGATE_SECRET=file:/run/secret",
		"CTXGATE_RATE_LIMIT_PER_MINUTE=7",
		"CTXGATE_RATE_LIMIT_PER_MINUTE=8",
		"CTXGATE_OFFSET=",
		"CTXGATE_SHARE=0.25",
		"CTXGATE_MAX_BODY=2MiB",
		"CTXGATE_TAGS= a, b,,c ",
		"CTXGATE_TURNS=2",
		"CTXGATE_MASKING_MAX_CHARS=1",
		"CTXGATE_HEALTHCHECK_INTERVAL=2m",
		"CTXGATE_RESPONSE_TIMEOUT=12",
		"KIMI_PRUNING_BACKEND=rerank",
		"CTXGATE_MCP_PRUNER_BACKEND=deepinfra",
		"MCP_PRUNER_CACHE_MAX_ENTRIES=9",
		"DEEPINFRA_API_KEY=di",
	})
	if problems != nil || warnings != nil {
		t.Errorf("problems %v, warnings %v", problems, warnings)
	}
	turns := 2
	want := sampleDefaults()
	want.Listen = ""
	want.Level = "DEBUG"
	want.JSONLogs = true
	want.Token = secret.Parse("hush")
	want.Secret = secret.Parse("file:/run/secret")
	want.Rate = 7
	want.Share = 0.25
	want.Body = 2 << 20
	want.Tags = []string{"a", "b", "c"}
	want.Turns = &turns
	want.Masking.MaxChars = 1
	want.Health.Interval = seconds(120)
	want.Response = seconds(12)
	want.Pruner = pruner{Backend: "deepinfra", MaxEntries: 9, APIKey: secret.Parse("di")}
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Error(diff)
	}
}

func TestApplyEnvProblems(t *testing.T) {
	dst := sampleDefaults()
	dst.Servers = []server{{Keys: map[string]secret.Text{"k": secret.Parse("env:CTXGATE_DOCS_TOKEN")}}}
	problems, warnings := ApplyEnv(&dst, []string{
		"CTXGATE_LOG_LEVEL=LOUD",
		"CTXGATE_STRUCTURED_LOGGING=maybe",
		"CTXGATE_RATE_LIMIT_PER_MINUTE=many",
		"CTXGATE_OFFSET=1.5",
		"CTXGATE_SHARE=2",
		"CTXGATE_MAX_BODY=lots",
		"CTXGATE_TURNS=0",
		"CTXGATE_MASKING_MAX_CHARS=-1",
		"CTXGATE_HEALTHCHECK_TIMEOUT=soon",
		"DEEPINFRA_API_KEY=env:canary-no-name",
		"CTXGATE_MASKNG_MAX_CHARS=1",
		"CTXGATE_SERVERS=a",
		"CTXGATE_CONFIG=/etc/ctxgate.toml",
		"CTXGATE_DOCS_TOKEN=canary",
	}, "CTXGATE_CONFIG")
	want := `CTXGATE_LOG_LEVEL: want one of "DEBUG", "INFO", "WARN", "ERROR", found "LOUD"
CTXGATE_STRUCTURED_LOGGING: want true or false, found text "maybe"
CTXGATE_RATE_LIMIT_PER_MINUTE: want a number, found text "many"
CTXGATE_OFFSET: want a whole number, found 1.5
CTXGATE_SHARE: must be at most 1, found 2
CTXGATE_MAX_BODY: "lots" is not a size: write bytes, or a number with its unit such as "64KiB", "32MiB", "1GiB"
CTXGATE_TURNS: must be at least 1, found 0
CTXGATE_MASKING_MAX_CHARS: must be at least 0, found -1
DEEPINFRA_API_KEY: "env:" wants the name of an environment variable after it
CTXGATE_HEALTHCHECK_TIMEOUT: "soon" is not a duration: write seconds, or a number with its unit such as "30s", "5m", "7d"`
	if diff := cmp.Diff(want, problems.Error()); diff != "" {
		t.Error(diff)
	}
	want = `CTXGATE_MASKNG_MAX_CHARS: unknown variable, ignored; did you mean "CTXGATE_MASKING_MAX_CHARS"?
CTXGATE_SERVERS: unknown variable, ignored`
	if diff := cmp.Diff(want, warnings.Error()); diff != "" {
		t.Error(diff)
	}
	kept := sampleDefaults()
	kept.Servers = dst.Servers
	if diff := cmp.Diff(kept, dst, compare); diff != "" {
		t.Errorf("what does not fit must leave the value alone:\n%s", diff)
	}
}

func TestResolveSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("from file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dst := struct {
		sample `key:",inline"`
		Extra  *secret.Text `key:"extra"`
		None   *secret.Text `key:"none"`
	}{sample: sampleDefaults(), Extra: new(secret.Parse("env:EXTRA"))}
	dst.Token = secret.Parse("literal")
	dst.Secret = secret.Parse("env:ROOT")
	dst.Pruner.APIKey = secret.Parse("file:/does/not/exist")
	dst.Servers = []server{{}, {Keys: map[string]secret.Text{
		"b": secret.Parse("env:B"), "a b": secret.Parse("env:A"), "f": secret.Parse("file:" + file),
	}}}
	ps := ResolveSecrets(&dst, func(name string) (string, bool) {
		v, ok := map[string]string{"ROOT": "from env", "EXTRA": "more"}[name]
		return v, ok
	})
	want := `mcp_pruner.api_key: cannot resolve file:/does/not/exist: reading a secret: open /does/not/exist: no such file or directory
servers[1].keys."a b": cannot resolve env:A: environment variable A is not set
servers[1].keys.b: cannot resolve env:B: environment variable B is not set`
	if diff := cmp.Diff(want, ps.Error()); diff != "" {
		t.Error(diff)
	}
	for want, got := range map[string]secret.Text{
		"literal": dst.Token, "from env": dst.Secret, "more": *dst.Extra, "from file": dst.Servers[1].Keys["f"],
	} {
		if got.Reveal() != want {
			t.Errorf("got %q, want %q", got.Reveal(), want)
		}
	}
	f, _ := ReadBytes("a.json", []byte("{\n\"mcp_pruner\": {}}"))
	if got := f.Locate(ps[:1]); !strings.HasPrefix(got.Error(), "a.json:2: mcp_pruner.api_key: ") {
		t.Error(got)
	}
}

// A default that several configs share is not changed by a load that adds to it.
func TestDefaultsAreNotShared(t *testing.T) {
	shared := map[string]obs{"schema1": {Window: 1}}
	dst := sample{Schemas: shared}
	f, _ := ReadBytes("a.json", []byte(`{"observation_masking": {"schema1": {"window_turns": 2}, "b": {}}}`))
	if ps := f.Decode(&dst); ps != nil {
		t.Fatal(ps)
	}
	if shared["schema1"].Window != 1 || len(shared) != 1 || dst.Schemas["schema1"].Window != 2 {
		t.Errorf("shared %v, loaded %v", shared, dst.Schemas)
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"max_chars", "maxChars", 0}, {"max_char", "max_chars", 1},
		{"haed", "head", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3}, {"url", "uri", 1}, {"a", "abcdef", 1 << 10},
	} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if distance(tt.a, tt.b) != distance(tt.b, tt.a) {
			t.Errorf("distance(%q, %q) depends on the order", tt.a, tt.b)
		}
	}
}

type nested struct {
	Leaf  string   `key:"leaf"`
	Inner []nested `key:"inner"`
}

func TestSuggestionsInRecursiveTypes(t *testing.T) {
	var dst struct {
		Empty struct{} `key:"empty"`
		Tree  nested   `key:"tree"`
	}
	f, _ := ReadBytes("a.toml", []byte("leaf = 1\n[empty]\nx = 1"))
	want := `a.toml:1: leaf: unknown key "leaf"; it belongs under [tree]
a.toml:3: empty.x: unknown key "x"; this table has no keys`
	if diff := cmp.Diff(want, f.Decode(&dst).Error()); diff != "" {
		t.Error(diff)
	}
}

func TestCheckTags(t *testing.T) {
	type fields struct {
		Good  int           `key:"good" min:"0"`
		Float *float64      `key:"float" max:"0.5"`
		Span  unit.Duration `key:"span" min:"1s"`
		None  string        `key:"none"`
		Int   int           `key:"bad" min:"0.5"`
		Size  unit.Bytes    `key:"bad" max:"lots"`
		Real  float64       `key:"bad" min:""`
		Text  string        `key:"bad" max:"9"`
	}
	for _, f := range Fields(reflect.TypeFor[fields]()) {
		if err := f.CheckTags(); (err != nil) != (f.Key == "bad") {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}
