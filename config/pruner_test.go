package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/prunerd"
)

// P10: the environment over the file over the default, for every variable that the document names.
func TestP10EnvironmentOverFileOverDefault(t *testing.T) {
	const file = `[mcp_pruner]
listen = "127.0.0.2:1"
backend = "rerank"
rerank_url = "http://127.0.0.1:1/rerank"
max_input_chars = 11
prune_id_ttl_s = 12
cache_ttl_s = 13
cache_max_entries = 14
deepinfra_url = "https://file.example/x"
deepinfra_timeout_ms = 15
deepinfra_max_docs = 16
`
	for _, tt := range []struct {
		variable           string
		get                func(prunerd.Config) any
		byDefault, inFile  any
		value, wantFromEnv string
	}{
		{"MCP_PRUNER_HOST=::1", func(c prunerd.Config) any { return c.Listen }, "127.0.0.1:8006", "127.0.0.2:1", "[::1]:8006", "[::1]:1"},
		{"MCP_PRUNER_PORT=9", func(c prunerd.Config) any { return c.Listen }, "127.0.0.1:8006", "127.0.0.2:1", "127.0.0.1:9", "127.0.0.2:9"},
		{"MCP_PRUNER_MAX_INPUT_CHARS=3", func(c prunerd.Config) any { return c.MaxInputChars }, 2_000_000, 11, "3", "3"},
		{"MCP_PRUNER_PRUNE_ID_TTL_S=4", func(c prunerd.Config) any { return c.PruneIDTTL }, 0, 12, "4", "4"},
		{"MCP_PRUNER_CACHE_TTL_S=5", func(c prunerd.Config) any { return c.CacheTTL }, 30, 13, "5", "5"},
		{"MCP_PRUNER_CACHE_MAX_ITEMS=6", func(c prunerd.Config) any { return c.CacheMaxEntries }, 256, 14, "6", "6"},
		{"MCP_PRUNER_CACHE_MAX_ENTRIES=7", func(c prunerd.Config) any { return c.CacheMaxEntries }, 256, 14, "7", "7"},
		{"KIMI_PRUNING_BACKEND=deepinfra", func(c prunerd.Config) any { return c.Backend }, "heuristic", "rerank", "deepinfra", "deepinfra"},
		{"DEEPINFRA_API_KEY=k", func(c prunerd.Config) any { return c.DeepInfraKey.Reveal() }, "", "", "k", "k"},
		{"DEEPINFRA_ENDPOINT_URL=http://env.example/y", func(c prunerd.Config) any { return c.DeepInfraURL }, "", "https://file.example/x", "http://env.example/y", "http://env.example/y"},
		{"DEEPINFRA_TIMEOUT_MS=8", func(c prunerd.Config) any { return c.DeepInfraTimeoutMS }, 20000, 15, "8", "8"},
		{"DEEPINFRA_MAX_DOCS=9", func(c prunerd.Config) any { return c.DeepInfraMaxDocs }, 64, 16, "9", "9"},
	} {
		name, _, _ := strings.Cut(tt.variable, "=")
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				text string
				env  Env
				want any
			}{
				{"", nil, tt.byDefault}, {file, nil, tt.inFile}, {file, Env{name + "="}, tt.inFile},
				{"", Env{tt.variable}, tt.value}, {file, Env{tt.variable}, tt.wantFromEnv},
			} {
				if name == "DEEPINFRA_ENDPOINT_URL" && len(c.env) > 0 && c.env[0] == name+"=" {
					c.want = "" // an empty text is a text: the default's own URL
				}
				got, ps := loadText(t, c.text, append(c.env, home...))
				if ps = append(ps, got.ResolveSecrets(append(c.env, home...))...); len(ps) > 0 || len(got.Warnings) > 0 {
					t.Fatal(ps, got.Warnings)
				}
				if fmt.Sprint(tt.get(got.Pruner)) != fmt.Sprint(c.want) {
					t.Errorf("file %t, environment %v: got %v, want %v", c.text != "", c.env, tt.get(got.Pruner), c.want)
				}
			}
		})
	}
}

// P10: which backend is chosen. Naming heuristic in the environment is the document's way back from
// DeepInfra; an unknown name counts as unset.
func TestP10Backend(t *testing.T) {
	kimi := func(name string) Env { return Env{"KIMI_PRUNING_BACKEND=" + name} }
	for _, tt := range []struct {
		env                 Env
		file, want, warning string
	}{
		{nil, "", "heuristic", ""},
		{nil, "deepinfra", "deepinfra", ""},
		{nil, "cloud", "cloud", ""},
		{kimi("cloud"), "", "cloud", ""},
		{kimi(" DeepInfra "), "", "deepinfra", ""},
		{kimi("heuristic"), "deepinfra", "heuristic", ""},
		{kimi("onnx"), "", "heuristic", `KIMI_PRUNING_BACKEND: unknown backend "onnx"; the backend stays "heuristic"`},
		{kimi("onnx"), "deepinfra", "deepinfra", `KIMI_PRUNING_BACKEND: unknown backend "onnx"; the backend stays "deepinfra"`},
		{append(kimi("deepinfra"), "CTXGATE_MCP_PRUNER_BACKEND=heuristic"), "", "heuristic", ""},
	} {
		text := ""
		if tt.file != "" {
			text = "[mcp_pruner]\nbackend = '" + tt.file + "'\n"
		}
		got, ps := loadText(t, text, append(tt.env, home...))
		if len(ps) > 0 || got.Pruner.Backend != tt.want || strings.Join(got.Warnings, "\n") != tt.warning || got.Pruner.EnvBackend != "" {
			t.Errorf("%q over %q: got %q, %v, %q; want %q, %q", tt.env, tt.file, got.Pruner.Backend, ps, got.Warnings, tt.want, tt.warning)
		}
	}
}

// P10: the address is composed of host and port, and the CTXGATE_ variable overrides it.
func TestP10Listen(t *testing.T) {
	for _, tt := range []struct {
		file string
		env  Env
		want string
	}{
		{"", Env{"MCP_PRUNER_HOST=0.0.0.0", "MCP_PRUNER_PORT=0"}, "0.0.0.0:0"},
		{"listen = ''", nil, ""},
		{"listen = ''", Env{"MCP_PRUNER_PORT=8106"}, "127.0.0.1:8106"},
		{"", Env{"MCP_PRUNER_PORT=8106", "CTXGATE_MCP_PRUNER_LISTEN=127.0.0.1:1"}, "127.0.0.1:1"},
		{"", Env{"MCP_PRUNER_PORT=8106", "CTXGATE_MCP_PRUNER_LISTEN="}, ""},
	} {
		got, ps := loadText(t, "[mcp_pruner]\n"+tt.file, append(tt.env, home...))
		if len(ps) > 0 || got.Pruner.Listen != tt.want {
			t.Errorf("%q, %v: got %q, %v; want %q", tt.file, tt.env, got.Pruner.Listen, ps, tt.want)
		}
		if want := map[bool]string{true: "127.0.0.1:8006", false: tt.want}[tt.want == ""]; got.Pruner.ListenAddress() != want {
			t.Errorf("alone it listens at %s, want %s", got.Pruner.ListenAddress(), want)
		}
	}
}

// P10: a secret in the file is rejected; the message says where it belongs and does not repeat it.
func TestP10SecretInTheFile(t *testing.T) {
	_, ps := loadText(t, `[mcp_pruner]
backend = "deepinfra"
deepinfra_api_key = "sk-canary"
rerank_key = "sk-canary"
host = "127.0.0.1"
`, home)
	want := `c.toml:3: mcp_pruner.deepinfra_api_key: cannot be set in a file: set DEEPINFRA_API_KEY in the environment
c.toml:4: mcp_pruner.rerank_key: a secret must not be written in the file: write "env:NAME" or "file:PATH"
c.toml:5: mcp_pruner.host: cannot be set in a file: set MCP_PRUNER_HOST in the environment`
	if short(ps) != want {
		t.Errorf("got %s\nwant %s", short(ps), want)
	}
}

// Impossible values are reported, whether from a file or from a variable.
func TestP10Problems(t *testing.T) {
	_, ps := loadText(t, `[mcp_pruner]
backend = "onnx"
max_input_chars = 0
deepinfra_url = "api.deepinfra.com"
rerank_url = "ftp://x"
`, append(Env{"MCP_PRUNER_PORT=eighty", "MCP_PRUNER_CACHE_TTL_S=-1", "DEEPINFRA_MAX_DOCS=0"}, home...))
	want := `c.toml:2: mcp_pruner.backend: want one of "heuristic", "deepinfra", "cloud", "rerank", found "onnx"
c.toml:3: mcp_pruner.max_input_chars: must be at least 1, found 0
c.toml:4: mcp_pruner.deepinfra_url: is not a URL such as https://host/path
c.toml:5: mcp_pruner.rerank_url: is not a URL such as https://host/path
DEEPINFRA_MAX_DOCS: must be at least 1, found 0
MCP_PRUNER_CACHE_TTL_S: must be at least 0, found -1
MCP_PRUNER_PORT: want a number, found text "eighty"`
	if short(ps) != want {
		t.Errorf("got %s\nwant %s", short(ps), want)
	}
	if _, ps := loadText(t, "[mcp_pruner]\nbackend = 'rerank'\n", home); short(ps) != `c.toml:1: mcp_pruner.rerank_url: is missing, and the backend "rerank" needs it` {
		t.Errorf("got %s", short(ps))
	}
}
