package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ctxgate/ctxgate/internal/secret"
)

var compare = cmp.Options{
	cmp.AllowUnexported(sample{}),
	cmpopts.IgnoreFields(sample{}, "hidden"),
	cmp.Comparer(func(a, b secret.Text) bool { return a == b }),
}

// The same config in three formats decodes to the same struct.
func TestGood(t *testing.T) {
	turns := 3
	want := sampleDefaults()
	want.Listen = ""
	want.Level = "WARN"
	want.JSONLogs = true
	want.Token = secret.Parse("optional-shared-secret")
	want.Secret = secret.Parse("env:CTXGATE_SECRET")
	want.Rate = 60
	want.Offset = -5
	want.Share = 0.5
	want.Body = 32 << 20
	want.Tags = []string{"x", "y"}
	want.Turns = &turns
	want.Masking.MaxChars = 8000
	want.Health.Interval = seconds(90)
	want.Response = seconds(1.5)
	want.Servers = []server{{
		ID: "everything", Command: []string{"npx", "@modelcontextprotocol/server-everything"},
		Env: map[string]string{"a.b": "c"}, Startup: seconds(60), Grace: seconds(3),
	}, {
		ID: "docs", URL: "http://127.0.0.1:9001/mcp", Startup: seconds(20), Grace: seconds(3),
		Headers: map[string]secret.Text{"Authorization": secret.Parse("env:DOCS_TOKEN"), "X-Team": secret.Parse("core")},
		Keys:    map[string]secret.Text{"k": secret.Parse("file:/run/k")},
	}}
	want.Schemas = map[string]obs{"schema1": {Window: 8}, "schema2": {Enabled: true, Window: 8}}

	for _, path := range glob(t, "testdata/good.*") {
		t.Run(filepath.Ext(path), func(t *testing.T) {
			got := sampleDefaults()
			f, ps := ReadFile(path)
			ps = append(ps, f.Decode(&got)...)
			if err := ps.Err(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, compare); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The aggregator's first config format: seconds are plain numbers, the token is in the file.
func TestAggregatorJSON(t *testing.T) {
	got, ps := load("config.json", []byte(`{
  "log_level": "INFO",
  "auth_token": "optional-shared-secret",
  "rate_limit_per_minute": 60,
  "structured_logging": true,
  "healthcheck_interval": 30,
  "healthcheck_timeout": 5,
  "response_timeout": 30,
  "servers": [
    {
      "id": "everything",
      "command": ["npx", "@modelcontextprotocol/server-everything"],
      "env": {},
      "startup_timeout": 20,
      "shutdown_grace": 3
    }
  ]
}`))
	if ps != nil {
		t.Fatal(ps)
	}
	want := sampleDefaults()
	want.Token = secret.Parse("optional-shared-secret")
	want.Rate, want.JSONLogs = 60, true
	want.Servers = []server{{
		ID: "everything", Command: []string{"npx", "@modelcontextprotocol/server-everything"},
		Env: map[string]string{}, Startup: seconds(20), Grace: seconds(3),
	}}
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Error(diff)
	}
}

// Every testdata/bad-* file holds the mistakes of one rule and lists all expected problems, in "# want:"
// lines or in a .want file beside it.
func TestBad(t *testing.T) {
	for _, path := range glob(t, "testdata/bad-*") {
		if filepath.Ext(path) == ".want" {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			dst := sampleDefaults()
			f, ps := ReadBytes(filepath.Base(path), data)
			ps = append(ps, f.Decode(&dst)...)
			ps.Sort()
			if diff := cmp.Diff(wants(t, path, string(data)), strings.Split(ps.Error(), "\n")); diff != "" {
				t.Error(diff)
			}
			if strings.Contains(ps.Error(), "canary") {
				t.Error("a message repeats a secret")
			}
		})
	}
}

func wants(t *testing.T, path, data string) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(data) {
		if want, ok := strings.CutPrefix(line, "# want: "); ok {
			lines = append(lines, strings.TrimSpace(want))
		}
	}
	if lines == nil {
		sidecar, err := os.ReadFile(path + ".want")
		if err != nil {
			t.Fatal(err)
		}
		lines = strings.Split(strings.TrimSpace(string(sidecar)), "\n")
	}
	return lines
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v, %v", pattern, paths, err)
	}
	return paths
}
