package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

// startPruner runs `ctxgate pruner`, configured by its environment only, and returns how long it took to
// become healthy.
func startPruner(t *testing.T, dir string, env ...string) (*testGateway, time.Duration) {
	t.Helper()
	address, err := process.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(binary, "pruner")
	cmd.Dir, cmd.Env = dir, gateway.Environment(dir, append(env, "MCP_PRUNER_PORT="+port)...)
	began := time.Now()
	p, err := process.Start(cmd, filepath.Join(dir, "pruner.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	url := "http://" + address
	if err := p.WaitStatus(url+"/health", http.StatusOK); err != nil {
		t.Fatal(err)
	}
	return &testGateway{&gateway.Gateway{Process: p, URL: url}}, time.Since(began)
}

// pruneResult is the result of prune_text and recover_text.
type pruneResult struct {
	PruneID     string           `json:"prune_id"`
	Text        string           `json:"pruned_text"`
	Raw         string           `json:"raw_text"`
	Annotations []map[string]any `json:"annotations"`
	Stats       map[string]any   `json:"stats"`
	Warnings    []string         `json:"warnings"`
}

// callTool calls a tool and decodes its result.
func (g *testGateway) callTool(t *testing.T, name string, args map[string]any) (d pruneResult) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": name, "arguments": args}})
	if err != nil {
		t.Fatal(err)
	}
	client, done := newClient()
	defer done()
	status, answer, err := post(client, g.URL+"/rpc", string(body), nil)
	if err != nil {
		t.Fatal(err)
	}
	var reply struct {
		Result struct{ Content []struct{ Text string } }
		Error  *struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(answer, &reply); err != nil || status != http.StatusOK {
		t.Fatalf("HTTP %d, %v: %.300s", status, err, answer)
	}
	if reply.Error != nil {
		return pruneResult{Warnings: []string{fmt.Sprint(reply.Error.Code, " ", reply.Error.Message)}}
	}
	if err := json.Unmarshal([]byte(reply.Result.Content[0].Text), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func (g *testGateway) pruneText(t *testing.T, text, goal string) pruneResult {
	t.Helper()
	return g.callTool(t, "prune_text", map[string]any{"text": text, "goal_hint": goal, "source_type": "docs", "options": map[string]any{
		"max_prune_ratio": 0.8, "min_keep_lines": 1, "timeout_ms": 10_000, "annotate_lines": false, "include_markers": true,
	}})
}

func (g *testGateway) recoverText(t *testing.T, id string, first, last int) pruneResult {
	t.Helper()
	return g.callTool(t, "recover_text", map[string]any{"prune_id": id, "include_line_numbers": false, "ranges": []map[string]int{{"start_line": first, "end_line": last}}})
}

// haystackText is a long text with one relevant line.
func haystackText(lines int) string {
	all := make([]string, lines)
	for i := range all {
		all[i] = fmt.Sprintf("%05d: a line of hay, dry and yellow, as there are so many of", i)
	}
	all[lines/2] = "here is the needle that was lost"
	return strings.Join(all, "\n") + "\n"
}

// P13: healthy within a second of its start, with an empty and a filled store.
func TestP13PrunerStartsFast(t *testing.T) {
	dir := t.TempDir()
	for n := range 4 {
		g, took := startPruner(t, dir)
		t.Logf("start %d: healthy after %s", n+1, took.Round(time.Millisecond))
		if took > time.Second {
			t.Errorf("start %d took %s", n+1, took)
		}
		g.pruneText(t, haystackText(1000+n), "needle")
		g.stop(t)
		output := g.Output()
		if !regexp.MustCompile(`msg=listening listener=pruner address=127\.0\.0\.1:\d+`).MatchString(output) || !strings.Contains(output, "msg=stopped") {
			t.Errorf("the log says\n%s", output)
		}
	}
}

// P+4, I1: the original of a prune_id can be read after the process was killed, by the next process and by
// `ctxgate recover`; P+3: the next process returns the same bytes.
func TestPPlus4RecoveryAfterKill(t *testing.T) {
	dir := t.TempDir()
	g, _ := startPruner(t, dir)
	texts := map[string]pruneResult{}
	for n := range 20 {
		text := haystackText(50 + 997*n)
		d := g.pruneText(t, text, "needle")
		if !strings.Contains(d.Text, "the needle") || len(d.Annotations) == 0 {
			t.Fatalf("%v %v", d.Stats, d.Warnings)
		}
		texts[text] = d
	}
	g.Kill()
	next, _ := startPruner(t, dir)
	for text, d := range texts {
		if got := next.recoverText(t, d.PruneID, 1, 1<<40); got.Raw != text {
			t.Errorf("%s: %d of %d bytes, %v", d.PruneID, len(got.Raw), len(text), got.Warnings)
		}
		if again := next.pruneText(t, text, "needle"); again.Text != d.Text || again.PruneID != d.PruneID {
			t.Error("the same text was pruned differently")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for text, d := range texts {
		cmd := exec.CommandContext(ctx, binary, "recover", d.PruneID)
		cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir}
		if out, err := cmd.Output(); err != nil || string(out) != text {
			t.Errorf("ctxgate recover: %d of %d bytes, %v", len(out), len(text), err)
		}
		break
	}
}

// P10: lifetime of originals and maximum input from the environment.
func TestP10PrunerLimits(t *testing.T) {
	g, _ := startPruner(t, t.TempDir(), "MCP_PRUNER_PRUNE_ID_TTL_S=1", "MCP_PRUNER_MAX_INPUT_CHARS=5000")
	text := haystackText(80)
	d := g.pruneText(t, text, "needle")
	if len(d.Annotations) == 0 {
		t.Fatal(d.Warnings)
	}
	if got := g.recoverText(t, d.PruneID, 1, 81); got.Raw != text {
		t.Errorf("%v", got.Warnings)
	}
	time.Sleep(1200 * time.Millisecond)
	if got := g.recoverText(t, d.PruneID, 1, 81); fmt.Sprint(got.Warnings) != "[-32004 prune_id_not_found]" {
		t.Errorf("after its lifetime: %v", got.Warnings)
	}
	long := haystackText(200)
	if d := g.pruneText(t, long, "needle"); d.Text != long || fmt.Sprint(d.Warnings) != "[input_too_large]" || d.Stats["used_fallback"] != true || len(d.Annotations) != 0 {
		t.Errorf("%v %v", d.Warnings, d.Stats)
	}
}

// The pruner in `serve` has its own address and the gateway's token and store.
func TestPrunerInServe(t *testing.T) {
	address, err := process.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, "http://127.0.0.1:1", "auth_token = \"hush\"")
	env := append([]string{"CTXGATE_MCP_PRUNER_LISTEN=" + address}, s.environ()...)
	g, err := startGateway(s.dir, filepath.Join(s.dir, "ctxgate.log"), env, "--config", s.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Kill)
	client, done := newClient()
	defer done()
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	if status, _, err := post(client, "http://"+address+"/rpc", ping, nil); status != 401 || err != nil {
		t.Errorf("without the token: %d, %v", status, err)
	}
	status, body, err := post(client, "http://"+address+"/rpc", ping, http.Header{"Authorization": {"Bearer hush"}})
	if status != 200 || err != nil || string(body) != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("%d %s, %v", status, body, err)
	}
	g.stop(t)
}
