package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// runScript runs one of testdata/pruner/*.sh, the verbatim commands of the specification, against a pruner on
// another port, and returns the JSON documents that they print.
func (g *testGateway) runScript(t *testing.T, name string, replace ...string) []json.RawMessage {
	t.Helper()
	for _, tool := range []string{"bash", "curl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("the commands of the specification need %s: %v", tool, err)
		}
	}
	script, err := os.ReadFile(filepath.Join("testdata", "pruner", name))
	if err != nil {
		t.Fatal(err)
	}
	port := g.URL[strings.LastIndex(g.URL, ":"):]
	text := strings.NewReplacer(append(replace, ":8006", port)...).Replace(string(script))
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", text)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "NO_PROXY=*"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	var docs []json.RawMessage
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var doc json.RawMessage
		if err := dec.Decode(&doc); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		docs = append(docs, doc)
	}
	return docs
}

func decodeJSON[T any](t *testing.T, doc json.RawMessage) (v T) {
	t.Helper()
	if err := json.Unmarshal(doc, &v); err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
	return v
}

// P1, P2, P6, P13: every command of the specification.
func TestDocument003Section10And14Commands(t *testing.T) {
	g, _ := startPruner(t, t.TempDir())
	t.Run("10.1", func(t *testing.T) {
		list := decodeJSON[struct {
			ID     int
			Result struct {
				Tools []struct {
					Name   string
					Schema map[string]any `json:"inputSchema"`
				}
			}
		}](t, g.runScript(t, "10.1-tools-list.sh")[0])
		if len(list.Result.Tools) != 3 || list.ID != 1 || list.Result.Tools[0].Name != "prune_text" || list.Result.Tools[0].Schema["additionalProperties"] != false {
			t.Errorf("%+v", list)
		}
	})
	var id string
	t.Run("10.2", func(t *testing.T) {
		d := decodeJSON[pruneResult](t, g.runScript(t, "10.2-prune-text.sh")[0])
		if id = d.PruneID; d.Stats["original_lines"] != 4. || d.Stats["used_fallback"] != false || len(d.Warnings) != 0 || !strings.HasPrefix(d.Text, "1│ L1") {
			t.Errorf("%+v", d)
		}
	})
	t.Run("10.3", func(t *testing.T) {
		d := decodeJSON[pruneResult](t, g.runScript(t, "10.3-recover-text.sh", "prn_...", id)[0])
		if d.Raw != "1│ L1\n2│ L2\n3│ L3\n4│ L4" {
			t.Errorf("%+v", d)
		}
	})
	type health struct{ Status, Server string }
	well := health{"healthy", "mcp-pruner"}
	t.Run("13.1", func(t *testing.T) {
		if got := decodeJSON[health](t, g.runScript(t, "13.1-health.sh")[0]); got != well {
			t.Errorf("%+v", got)
		}
	})
	t.Run("14", func(t *testing.T) {
		docs := g.runScript(t, "14-diagnosis.sh")
		if len(docs) != 2 || decodeJSON[health](t, docs[0]) != well {
			t.Fatalf("%s", docs)
		}
		hello := decodeJSON[struct {
			Result struct {
				Version string                `json:"protocolVersion"`
				Info    struct{ Name string } `json:"serverInfo"`
			}
		}](t, docs[1])
		if hello.Result.Version != "2025-11-25" || hello.Result.Info.Name != "mcp-pruner" {
			t.Errorf("%+v", hello)
		}
	})
}

// fakeCloud is a fake DeepInfra.
type fakeCloud struct {
	*httptest.Server
	requestCount atomic.Int64
	failWith     atomic.Pointer[func(http.ResponseWriter, *http.Request)]
}

func startCloud(t *testing.T) *fakeCloud {
	t.Helper()
	c := &fakeCloud{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.requestCount.Add(1)
		body, _ := io.ReadAll(r.Body) // read all of it, or a disconnect is not noticed
		if fail := c.failWith.Load(); fail != nil {
			(*fail)(w, r)
			return
		}
		if r.Header.Get("Authorization") != "Bearer sk_deepinfra_..." {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var q struct{ Queries, Documents []string }
		if err := json.Unmarshal(body, &q); err != nil || len(q.Documents) == 0 {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		scores := make([]float64, len(q.Documents))
		for i, d := range q.Documents {
			if scores[i] = 0.1; strings.Contains(d, "trouvaille") {
				scores[i] = 0.9
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"scores": scores})
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *fakeCloud) setFailure(f func(http.ResponseWriter, *http.Request)) { c.failWith.Store(&f) }

func (c *fakeCloud) env(more ...string) []string {
	return append(more, "KIMI_PRUNING_BACKEND=deepinfra", "DEEPINFRA_API_KEY=sk_deepinfra_...", "DEEPINFRA_ENDPOINT_URL="+c.URL)
}

// P11: the specification's command for DeepInfra, and a text whose relevant line only a reranker finds; P10:
// enabled by the environment alone.
func TestDocument003Section13Command(t *testing.T) {
	c := startCloud(t)
	g, _ := startPruner(t, t.TempDir(), c.env()...)
	d := decodeJSON[pruneResult](t, g.runScript(t, "13.2-prune-deepinfra.sh")[0])
	for key, want := range map[string]any{
		"backend": "deepinfra", "used_fallback": false, "deepinfra_docs_scored": 4., "deepinfra_docs_total": 4., "deepinfra_http_status": 200., "deepinfra_cached": false,
	} {
		if d.Stats[key] != want {
			t.Errorf("stats.%s is %v, want %v", key, d.Stats[key], want)
		}
	}
	if len(d.Warnings) != 0 {
		t.Errorf("warnings %v", d.Warnings)
	}
	again := decodeJSON[pruneResult](t, g.runScript(t, "13.2-prune-deepinfra.sh")[0])
	if fmt.Sprint(again.Warnings) != "[cache_hit]" || again.Stats["deepinfra_latency_ms"] != 0. || c.requestCount.Load() != 1 {
		t.Errorf("%v %v, asked %d times", again.Warnings, again.Stats, c.requestCount.Load())
	}
	lines := strings.Split(haystackText(300), "\n")
	lines[250] = "une trouvaille que personne ne cherche"
	if d := g.pruneText(t, strings.Join(lines, "\n"), "needle"); !strings.Contains(d.Text, "trouvaille") {
		t.Errorf("the reranker's scores are not used: %v", d.Stats)
	}
}

// P11: the rows of the specification's troubleshooting table with their symptoms.
func TestDocument003Section15Troubles(t *testing.T) {
	c := startCloud(t)
	g, _ := startPruner(t, t.TempDir(), c.env("DEEPINFRA_TIMEOUT_MS=300", "MCP_PRUNER_CACHE_TTL_S=0")...)
	local, _ := startPruner(t, t.TempDir(), "KIMI_PRUNING_BACKEND=onnx", "DEEPINFRA_API_KEY=x", "DEEPINFRA_ENDPOINT_URL="+c.URL)
	text := haystackText(300)
	if d := local.pruneText(t, text, "needle"); d.Stats["backend"] != "heuristic" || c.requestCount.Load() != 0 {
		t.Errorf("1) not switched on: %v", d.Stats)
	}
	status := func(n int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) }
	}
	for _, tt := range []struct {
		row    string
		fail   func(http.ResponseWriter, *http.Request)
		status any
		code   string
	}{
		{"2) 401", status(http.StatusUnauthorized), 401., "deepinfra_http_error"},
		{"3) 429", status(http.StatusTooManyRequests), 429., "deepinfra_http_error"},
		{"4) timeout", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil, "deepinfra_http_error"},
		{"5) parse error", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"other":"shape"}`) }, 200., "deepinfra_parse_error"},
	} {
		c.setFailure(tt.fail)
		d := g.pruneText(t, text, "needle")
		if fmt.Sprint(d.Warnings) != "[deepinfra_error "+tt.code+"]" || d.Stats["deepinfra_http_status"] != tt.status || d.Stats["used_fallback"] != true ||
			len(d.Annotations) == 0 || !strings.Contains(d.Text, "the needle") {
			t.Errorf("%s: %v %v", tt.row, d.Warnings, d.Stats)
		}
	}
	keyless, _ := startPruner(t, t.TempDir(), "KIMI_PRUNING_BACKEND=cloud", "DEEPINFRA_ENDPOINT_URL="+c.URL)
	before := c.requestCount.Load()
	if d := keyless.pruneText(t, text, "needle"); fmt.Sprint(d.Warnings) != "[deepinfra_error deepinfra_config_error]" || len(d.Annotations) == 0 || c.requestCount.Load() != before {
		t.Errorf("no key: %v", d.Warnings)
	}
	// 6) Rollback: the environment overrides a file that enables DeepInfra.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ctxgate.toml"), []byte("[mcp_pruner]\nbackend = \"deepinfra\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ variable, want string }{{"KIMI_PRUNING_BACKEND=heuristic", "heuristic"}, {"OTHER=1", "deepinfra"}} {
		back, _ := startPruner(t, dir, tt.variable, "DEEPINFRA_API_KEY=x", "DEEPINFRA_ENDPOINT_URL="+c.URL)
		if d := back.pruneText(t, text, "needle"); d.Stats["backend"] != tt.want {
			t.Errorf("%s: %v", tt.variable, d.Stats)
		}
		back.Kill()
	}
}
