package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// run runs ctxgate with a site's configuration and returns what it prints.
func (s site) run(t *testing.T, wantCode int, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, append(args, "--config", s.config)...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, s.environ(), &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != wantCode {
		t.Fatalf("ctxgate %s: %v, want exit code %d\n%s%s", strings.Join(args, " "), err, wantCode, &out, &errs)
	}
	return out.String(), errs.String()
}

// TestMaskedResultsAreFoundWithoutHub: a placeholder of an old tool result names a tool_call_id and nothing
// else. Each of them leads to the original, byte for byte, while the gateway runs and after it was stopped,
// and no MCP hub or recover_text is needed.
func TestMaskedResultsAreFoundWithoutHub(t *testing.T) {
	provider := fakeprovider.New(t, fakeprovider.Options{NoCache: true})
	provider.ScriptFunc(func(fakeprovider.Request) fakeprovider.Step { return fakeprovider.ReplyText("Done.") })
	s := newSite(t, "http://127.0.0.1:1", fmt.Sprintf("[[providers]]\nname = \"anthropic\"\nkind = \"anthropic\"\nbase_url = %q\n", provider.URL))
	g := s.start(t)
	client, done := newClient()
	defer done()

	originals := map[string]string{}
	messages := []map[string]any{{"role": "user", "content": "Look around."}}
	for i := range 14 {
		id, text := fmt.Sprintf("toolu_%02d", i), fmt.Sprintf("{\n  \"file\": \"é%d.go\",\n%s}", i, strings.Repeat(fmt.Sprintf("line of file %d\n", i), 200))
		if i == 3 {
			text = originals["toolu_02"] // two calls with one text
		}
		originals[id] = text
		messages = append(messages,
			map[string]any{"role": "assistant", "content": []any{map[string]any{"type": "tool_use", "id": id, "name": "Read", "input": map[string]any{"path": fmt.Sprint(i)}}}},
			map[string]any{"role": "user", "content": []any{map[string]any{"type": "tool_result", "tool_use_id": id, "content": text}}})
	}
	body, err := json.Marshal(map[string]any{"model": "claude-test", "max_tokens": 100, "messages": messages,
		"tools": []any{map[string]any{"name": "Read", "input_schema": map[string]any{"type": "object"}}}})
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"X-Api-Key": {"sk-x"}, "Anthropic-Version": {"2023-06-01"}}
	if status, reply, err := post(client, g.URL+"/v1/messages", string(body), header); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s %v", status, reply, err)
	}
	sent := provider.Requests()[0].Body
	var named []string
	for _, m := range regexp.MustCompile(`tool_call_id=([a-z0-9_]+),`).FindAllStringSubmatch(string(sent), -1) {
		named = append(named, m[1])
	}
	if len(named) < 4 {
		t.Fatalf("%d placeholders in %s", len(named), sent)
	}

	checkFound := func() {
		t.Helper()
		for _, call := range named {
			if got, _ := s.run(t, 0, "recover", "--call", call); got != originals[call] {
				t.Errorf("recover --call %s printed %.80q, not the original", call, got)
			}
		}
		got, _ := s.run(t, 0, "recover", "--list", "--json")
		var listed []string
		for line := range strings.Lines(got) {
			var e struct {
				ID, Server, Tool, Text string
				Call                   string `json:"tool_call_id"`
				Chars                  int
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			want := originals[e.Call]
			if e.Server != "llm:anthropic" || e.Tool != "Read" || e.Chars != len([]rune(want)) || !strings.Contains(want, e.Text) || !strings.Contains(e.Text, "file") {
				t.Errorf("%s", line)
			}
			listed = append(listed, e.Call)
			if text, _ := s.run(t, 0, "recover", e.ID); text != want {
				t.Errorf("recover %s: %.80q", e.ID, text)
			}
		}
		if len(listed) != len(named) {
			t.Errorf("listed %v, not %v", listed, named)
		}
	}
	checkFound()
	g.stop(t)
	checkFound()

	grep, _ := s.run(t, 0, "recover", "--list", "--grep", `file (1|4)$`)
	if n := strings.Count(grep, "prn_"); n != 2 || !strings.Contains(grep, "toolu_01  3: line of file 1") {
		t.Errorf("--grep listed\n%s", grep)
	}
	for line := range strings.Lines(grep) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if out, note := s.run(t, 0, "recover", "--list", "--limit", "1"); strings.Count(out, "prn_") != 1 || !strings.Contains(note, "There is more") {
		t.Errorf("--limit 1 printed %s%s", out, note)
	}
	if out, note := s.run(t, 4, "recover", "--call", "toolu_never"); out != "" || !strings.Contains(note, "nothing is stored for the call") {
		t.Errorf("an unknown call printed %s%s", out, note)
	}
	if out, note := s.run(t, 0, "recover", "--list", "--since", "2020-01-01", "--call", "toolu_never"); out != "" || !strings.Contains(note, "Nothing that is stored matches") {
		t.Errorf("%s%s", out, note)
	}
}

// TestToolUseIDOfAnMCPCall: Claude Code names its tool call in _meta, so that what was cut of its result is found
// by the same id as an old result of the conversation.
func TestToolUseIDOfAnMCPCall(t *testing.T) {
	long := strings.Repeat("a line of the result\n", 2000)
	up, err := startFakeServer(func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, c rpcCall) {
		replyText(w, c, quoteJSON(long))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer up.close()
	s := newSite(t, up.url, "")
	g := s.start(t)
	client, done := newClient()
	defer done()
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{},"_meta":{"claudecode/toolUseId":"toolu_mcp"}}}`
	status, reply, err := post(client, g.RPC("up"), call, nil)
	if err != nil || status != http.StatusOK || !bytes.Contains(reply, []byte("prn_")) {
		t.Fatalf("%d %.300s %v", status, reply, err)
	}
	if got, _ := s.run(t, 0, "recover", "--call", "toolu_mcp"); got != long {
		t.Errorf("recover --call printed %.80q", got)
	}
	if got, _ := s.run(t, 0, "recover", "--list"); !strings.Contains(got, "up/read") || !strings.Contains(got, "toolu_mcp  a line of the result") {
		t.Errorf("--list printed\n%s", got)
	}
}
