package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
)

// The commands of 003 §10, §13 and §14 as they stand there, and the rows of §15, are in
// pruner_curl_test.go.

func documentFile(t *testing.T, name string) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("testdata", "documents", name))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// P1, 003 §3.2 and §4.0: the methods of the document, and the schemas as it prints them.
func TestDocument003Section4Schemas(t *testing.T) {
	t.Parallel()
	g, _ := startPruner(t, t.TempDir())
	client, done := newClient()
	defer done()
	ask := func(method, params string) (out struct {
		Result map[string]json.RawMessage
		Error  *struct {
			Code    int
			Message string
			Data    map[string]any
		}
	},
	) {
		t.Helper()
		_, body, err := post(client, g.URL+"/rpc", fmt.Sprintf(`{"jsonrpc":"2.0","id":12,"method":%q,"params":%s}`, method, params), nil)
		if err == nil {
			err = json.Unmarshal(body, &out)
		}
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		return out
	}
	schemas := map[string]json.RawMessage{}
	var tools []struct {
		Name   string
		Schema json.RawMessage `json:"inputSchema"`
	}
	if err := json.Unmarshal(ask("tools/list", "{}").Result["tools"], &tools); err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		schemas[tool.Name] = tool.Schema
	}
	for _, name := range []string{"prune_text", "recover_text"} {
		text, err := os.ReadFile(documentFile(t, "003-"+name+".schema.json"))
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if json.Unmarshal(schemas[name], &got) != nil || json.Unmarshal(text, &want) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %s, want %s", name, schemas[name], text)
		}
	}
	for method, key := range map[string]string{"resources/list": "resources", "resources/templates/list": "resourceTemplates", "prompts/list": "prompts"} {
		if got := string(ask(method, "{}").Result[key]); got != "[]" {
			t.Errorf("%s: %s", method, got)
		}
	}
	if health := ask("health", "{}").Result; string(health["status"]) != `"healthy"` || string(health["server"]) != `"mcp-pruner"` {
		t.Errorf("health: %s", health)
	}
	// §8: the errors, and what they carry.
	call := func(name, args string) string { return fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args) }
	for _, tt := range []struct {
		method, params string
		code           int
		message, data  string
	}{
		{"nothing", "{}", -32601, "", ""},
		{"tools/call", call("prune_text", `{"text":"x"}`), -32602, "", ""},
		{"tools/call", call("recover_text", `{"prune_id":"prn_...","ranges":[{"start_line":1,"end_line":50}],"include_line_numbers":true}`), -32004, "prune_id_not_found", "prune_id_not_found"},
	} {
		e := ask(tt.method, tt.params).Error
		if e == nil || e.Code != tt.code || tt.message != "" && e.Message != tt.message || tt.data != "" && e.Data["code"] != tt.data {
			t.Errorf("%s %s: %+v", tt.method, tt.params, e)
		}
	}
}

// P4–P7, 003 §5, §6 and §9: what annotate_lines and include_markers do, the marker by the document's own
// expression, and what a fallback looks like.
func TestDocument003Section6Markers(t *testing.T) {
	t.Parallel()
	g, _ := startPruner(t, t.TempDir(), "MCP_PRUNER_MAX_INPUT_CHARS=50000")
	// §6.2, with the names as Go spells them.
	marker := regexp.MustCompile(`^⟦PRUNÉ: prune_id=(?P<prune_id>[^\s]+) lignes (?P<start>\d+)-(?P<end>\d+) \((?P<count>\d+)\) raison=(?P<reason>.*)⟧$`)
	numbered := regexp.MustCompile(`^\d+│ `)
	prune := func(annotate, markers bool) pruneResult {
		return g.callTool(t, "prune_text", map[string]any{"text": haystackText(300), "goal_hint": "needle", "source_type": "logs", "options": map[string]any{
			"max_prune_ratio": 0.55, "min_keep_lines": 40, "timeout_ms": 10_000, "annotate_lines": annotate, "include_markers": markers,
		}})
	}
	for _, annotate := range []bool{false, true} {
		for _, markers := range []bool{false, true} {
			d := prune(annotate, markers)
			seen := 0
			for line := range strings.SplitSeq(strings.TrimSuffix(d.Text, "\n"), "\n") {
				switch {
				case marker.MatchString(line):
					if line != d.Annotations[seen]["marker"] {
						t.Errorf("marker %q, annotation %v", line, d.Annotations[seen])
					}
					seen++
				case numbered.MatchString(line) != annotate:
					t.Errorf("annotate_lines=%v: %q", annotate, line)
				}
			}
			if len(d.Annotations) == 0 || seen != len(d.Annotations) && markers || seen > 0 && !markers {
				t.Errorf("include_markers=%v: %d markers for %d annotations", markers, seen, len(d.Annotations))
			}
			if cut, _ := d.Stats["pruned_lines"].(float64); cut > 165 || cut == 0 { // 0.55 of 300
				t.Errorf("pruned %v lines", cut)
			}
			before, _ := d.Stats["tokens_est_before"].(float64)
			after, _ := d.Stats["tokens_est_after"].(float64)
			if before < after || d.Stats["used_fallback"] != false {
				t.Errorf("stats %v", d.Stats)
			}
		}
	}
	large := haystackText(2000)
	d := g.pruneText(t, large, "needle")
	if d.Text != large || len(d.Annotations) != 0 || d.Stats["used_fallback"] != true || fmt.Sprint(d.Warnings) != "[input_too_large]" {
		t.Errorf("too large: %v %v", d.Stats, d.Warnings)
	}
	if got := g.recoverText(t, d.PruneID, 1001, 1001); got.Raw != "here is the needle that was lost" {
		t.Errorf("recovered %q %v", got.Raw, got.Warnings)
	}
}

// P10, 003 §13 "Activation": a key in the TOML is refused, the TOML fallback loads, and the recommended
// variables switch DeepInfra on.
func TestDocument003Section13Activation(t *testing.T) {
	t.Parallel()
	check := func(name string) (string, error) {
		home := t.TempDir()
		cmd := exec.CommandContext(t.Context(), binary, "check", "--config", documentFile(t, name))
		cmd.Dir, cmd.Env = home, gateway.Environment(home)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := check("003-avoid.toml"); err == nil || !strings.Contains(out, "deepinfra_api_key") || strings.Contains(out, "sk-...") {
		t.Errorf("a secret in the file: %v %s", err, out)
	}
	if out, err := check("003-fallback.toml"); err != nil {
		t.Errorf("the fallback: %v %s", err, out)
	}
	script, err := os.Open(documentFile(t, "003-recommended.sh"))
	if err != nil {
		t.Fatal(err)
	}
	defer script.Close()
	var env []string
	for lines := bufio.NewScanner(script); lines.Scan(); {
		if set, ok := strings.CutPrefix(lines.Text(), "export "); ok {
			env = append(env, strings.ReplaceAll(set, `"`, ""))
		}
	}
	c := startCloud(t)
	g, _ := startPruner(t, t.TempDir(), append(env, "DEEPINFRA_ENDPOINT_URL="+c.URL)...)
	d := g.pruneText(t, haystackText(300), "needle")
	for _, key := range []string{
		"backend", "deepinfra_latency_ms", "deepinfra_docs_scored", "deepinfra_docs_total", "deepinfra_http_status", "deepinfra_cached", "tokens_saved_est", "cost_estimated_usd",
	} {
		if _, has := d.Stats[key]; !has {
			t.Errorf("stats lack %s: %v", key, d.Stats)
		}
	}
	saved, _ := d.Stats["tokens_saved_est"].(float64)
	cost, _ := d.Stats["cost_estimated_usd"].(float64)
	if d.Stats["backend"] != "deepinfra" || c.requestCount.Load() == 0 || saved < 0 || cost < 0 {
		t.Errorf("%v, asked %d times", d.Stats, c.requestCount.Load())
	}
}

// P13, 003 §14: the runbook's preferred probes succeed within its 12 seconds, and the log names a port that
// is in use.
func TestDocument003Section14Runbook(t *testing.T) {
	t.Parallel()
	g, took := startPruner(t, t.TempDir())
	if took.Seconds() > 12 {
		t.Errorf("ready after %s", took)
	}
	client, done := newClient()
	defer done()
	status, body, err := post(client, g.URL+"/rpc", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"diag","version":"1.0.0"}}}`, nil)
	if err != nil || status != http.StatusOK || !strings.Contains(string(body), "mcp-pruner") {
		t.Errorf("%d %s %v", status, body, err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), binary, "pruner")
	cmd.Dir, cmd.Env = home, gateway.Environment(home, "MCP_PRUNER_PORT="+g.URL[strings.LastIndex(g.URL, ":")+1:])
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "address already in use") {
		t.Errorf("a second one on the same port: %v %s", err, out)
	}
}
