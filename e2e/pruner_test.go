package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startPruner runs `ctxgate pruner` with nothing but its environment, on a port nobody uses, and
// says how long it took to its first healthy answer.
func startPruner(t *testing.T, dir string, env ...string) (*gateway, time.Duration) {
	t.Helper()
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	log, err := os.Create(filepath.Join(dir, "pruner.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	g := &gateway{url: "http://" + address, log: log.Name(), ended: make(chan struct{}), cmd: exec.Command(binary, "pruner")}
	g.cmd.Dir, g.cmd.Stderr = dir, log
	g.cmd.Env = append(env, "HOME="+dir, "PATH="+os.Getenv("PATH"), "MCP_PRUNER_PORT="+port)
	began := time.Now()
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.cmd.Wait(); close(g.ended) }()
	t.Cleanup(g.kill)
	client, done := newClient()
	defer done()
	err = within(startLimit, "the pruner did not become healthy", func() (bool, error) {
		if g.hasEnded() {
			said, _ := os.ReadFile(g.log)
			return false, fmt.Errorf("it ended at once: %s\n%s", g.cmd.ProcessState, said)
		}
		resp, err := client.Get(g.url + "/health")
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return g, time.Since(began)
}

// pruned is what prune_text and recover_text answer with.
type pruned struct {
	PruneID     string           `json:"prune_id"`
	Text        string           `json:"pruned_text"`
	Raw         string           `json:"raw_text"`
	Annotations []map[string]any `json:"annotations"`
	Stats       map[string]any   `json:"stats"`
	Warnings    []string         `json:"warnings"`
}

// call makes one call of a tool and opens its answer.
func (g *gateway) callTool(t *testing.T, name string, args map[string]any) (d pruned) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": name, "arguments": args}})
	if err != nil {
		t.Fatal(err)
	}
	client, done := newClient()
	defer done()
	status, answer, err := post(client, g.url+"/rpc", string(body), nil)
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
		return pruned{Warnings: []string{fmt.Sprint(reply.Error.Code, " ", reply.Error.Message)}}
	}
	if err := json.Unmarshal([]byte(reply.Result.Content[0].Text), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func (g *gateway) pruneText(t *testing.T, text, goal string) pruned {
	t.Helper()
	return g.callTool(t, "prune_text", map[string]any{"text": text, "goal_hint": goal, "source_type": "docs", "options": map[string]any{
		"max_prune_ratio": 0.8, "min_keep_lines": 1, "timeout_ms": 10_000, "annotate_lines": false, "include_markers": true,
	}})
}

func (g *gateway) recoverText(t *testing.T, id string, first, last int) pruned {
	t.Helper()
	return g.callTool(t, "recover_text", map[string]any{"prune_id": id, "include_line_numbers": false, "ranges": []map[string]int{{"start_line": first, "end_line": last}}})
}

// haystack is a long text with one line that matters.
func haystack(lines int) string {
	all := make([]string, lines)
	for i := range all {
		all[i] = fmt.Sprintf("%05d: a line of hay, dry and yellow, as there are so many of", i)
	}
	all[lines/2] = "here is the needle that was lost"
	return strings.Join(all, "\n") + "\n"
}

// P13: ready within a second of its start, the first time and when there is something in its store.
func TestP13PrunerIsReadyAtOnce(t *testing.T) {
	dir := t.TempDir()
	for n := range 4 {
		g, took := startPruner(t, dir)
		t.Logf("start %d: healthy after %s", n+1, took.Round(time.Millisecond))
		if took > time.Second {
			t.Errorf("start %d took %s", n+1, took)
		}
		g.pruneText(t, haystack(1000+n), "needle")
		if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code, err := g.exit(); code != 0 || err != nil {
			t.Errorf("exit code %d, %v", code, err)
		}
		said, _ := os.ReadFile(g.log)
		if !regexp.MustCompile(`msg=listening listener=pruner address=127\.0\.0\.1:\d+`).Match(said) || !bytes.Contains(said, []byte("msg=stopped")) {
			t.Errorf("the log says\n%s", said)
		}
	}
}

// P+4, I1: who has a prune_id can have the original, though the process was killed. Here by its own
// successor and by `ctxgate recover`; P+3: the successor gives the same bytes.
func TestPPlus4RecoveryAfterKill(t *testing.T) {
	dir := t.TempDir()
	g, _ := startPruner(t, dir)
	texts := map[string]pruned{}
	for n := range 20 {
		text := haystack(50 + 997*n)
		d := g.pruneText(t, text, "needle")
		if !strings.Contains(d.Text, "the needle") || len(d.Annotations) == 0 {
			t.Fatalf("%v %v", d.Stats, d.Warnings)
		}
		texts[text] = d
	}
	g.kill()
	next, _ := startPruner(t, dir)
	for text, d := range texts {
		if got := next.recoverText(t, d.PruneID, 1, 1<<40); got.Raw != text {
			t.Errorf("%s: %d of %d bytes, %v", d.PruneID, len(got.Raw), len(text), got.Warnings)
		}
		if again := next.pruneText(t, text, "needle"); again.Text != d.Text || again.PruneID != d.PruneID {
			t.Error("the same text gave other bytes")
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

// P10: what an original's lifetime and the longest text are, from the environment alone.
func TestP10PrunerLimits(t *testing.T) {
	g, _ := startPruner(t, t.TempDir(), "MCP_PRUNER_PRUNE_ID_TTL_S=1", "MCP_PRUNER_MAX_INPUT_CHARS=5000")
	text := haystack(80)
	d := g.pruneText(t, text, "needle")
	if len(d.Annotations) == 0 {
		t.Fatal(d.Warnings)
	}
	if got := g.recoverText(t, d.PruneID, 1, 81); got.Raw != text {
		t.Errorf("%v", got.Warnings)
	}
	time.Sleep(1200 * time.Millisecond)
	if got := g.recoverText(t, d.PruneID, 1, 81); fmt.Sprint(got.Warnings) != "[-32004 prune_id_not_found]" {
		t.Errorf("after its time: %v", got.Warnings)
	}
	long := haystack(200)
	if d := g.pruneText(t, long, "needle"); d.Text != long || fmt.Sprint(d.Warnings) != "[input_too_large]" || d.Stats["used_fallback"] != true || len(d.Annotations) != 0 {
		t.Errorf("%v %v", d.Warnings, d.Stats)
	}
}

// The pruner is part of serve: its own address, the gateway's token, the gateway's store.
func TestPrunerInServe(t *testing.T) {
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	s := settle(t, "http://127.0.0.1:1", "auth_token = \"hush\"")
	env := append([]string{"CTXGATE_MCP_PRUNER_LISTEN=" + address}, s.environ()...)
	g, err := launch(s.dir, filepath.Join(s.dir, "ctxgate.log"), env, "--config", s.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.kill)
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
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, err := g.exit(); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
}
