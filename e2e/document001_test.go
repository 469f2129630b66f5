package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// chatMessage is a message of a conversation.
type chatMessage = map[string]any

// assistantCalls is an assistant message with a tool call for each id.
func assistantCalls(tool string, ids ...string) chatMessage {
	var calls []any
	for _, id := range ids {
		calls = append(calls, chatMessage{"id": id, "type": "function", "function": chatMessage{"name": tool, "arguments": "{}"}})
	}
	return chatMessage{"role": "assistant", "content": nil, "tool_calls": calls}
}

// toolResult is a tool message.
func toolResult(id string, content any) chatMessage {
	return chatMessage{"role": "tool", "tool_call_id": id, "content": content}
}

// sendDocument001 sends a conversation through a gateway with the default configuration to a provider without
// a cache discount, and returns the messages that the provider received.
func sendDocument001(t *testing.T, policy, path string, messages []chatMessage) []chatMessage {
	t.Helper()
	p := startLLMServer(t)
	s := newSite(t, "http://127.0.0.1:1", fmt.Sprintf("%s\n[[providers]]\nname = \"kimi\"\nkind = \"openai\"\nbase_url = %q\n", policy, p.URL))
	g := s.start(t)
	defer g.Kill()
	body, err := json.Marshal(chatMessage{"model": "kimi-k2", "messages": messages})
	if err != nil {
		t.Fatal(err)
	}
	client, done := newClient()
	defer done()
	if status, answer, err := post(client, g.URL+path, string(body), nil); err != nil || status != http.StatusOK || string(answer) != llmReply {
		t.Fatalf("%d %s %v", status, answer, err)
	}
	got, _ := p.lastRequest()
	_, got, _ = strings.Cut(got, " ")
	var request struct{ Messages []chatMessage }
	if err := json.Unmarshal([]byte(got), &request); err != nil {
		t.Fatal(err)
	}
	checkDocument001Invariants(t, messages, request.Messages)
	return request.Messages
}

// checkDocument001Invariants checks the first part of the test plan (§10, §3): as many messages, in the same
// order, with the same tool_call_id and the same tool_calls; only the content of tool messages may change.
func checkDocument001Invariants(t *testing.T, before, after []chatMessage) {
	t.Helper()
	if len(before) != len(after) {
		t.Fatalf("%d messages became %d", len(before), len(after))
	}
	for i := range before {
		a, b := chatMessage{}, chatMessage{}
		for k, v := range before[i] {
			a[k] = v
		}
		for k, v := range after[i] {
			b[k] = v
		}
		if a["role"] == "tool" {
			delete(a, "content")
			delete(b, "content")
		}
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		if string(x) != string(y) {
			t.Errorf("message %d was %s and is %s", i, x, y)
		}
	}
}

// findMasked reports for each tool_call_id whether its result was masked, and checks the placeholder (§4.2).
func findMasked(t *testing.T, tool string, before, after []chatMessage) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for i, m := range after {
		id, _ := m["tool_call_id"].(string)
		if m["role"] != "tool" {
			continue
		}
		old, _ := before[i]["content"].(string)
		text, _ := m["content"].(string)
		out[id] = text != old
		want := fmt.Sprintf("[Observation masquée: résultat d’outil ancien (tool_call_id=%s, outil=%s, chars=%d)]", id, tool, len([]rune(old)))
		if out[id] && text != want {
			t.Errorf("%s became %q, not %q", id, text, want)
		}
	}
	return out
}

// H1–H3, H5, 001 §10 "Fenêtre": with ten tool turns the results of the two oldest are masked, of both calls
// where a turn has two, short ones as well; those of the last eight stay. Both paths.
func TestDocument001Section10Window(t *testing.T) {
	t.Parallel()
	messages := []chatMessage{{"role": "system", "content": "Tu es un agent."}, {"role": "user", "content": "Corrige le bug."}}
	for i := range 10 {
		a, b := fmt.Sprintf("call_%da", i), fmt.Sprintf("call_%db", i)
		messages = append(messages, assistantCalls("read_file", a, b), toolResult(a, strings.Repeat("contenu du fichier\n", 40)), toolResult(b, "ok"))
	}
	for _, path := range []string{"/chat/completions", "/v1/chat/completions"} {
		got := findMasked(t, "read_file", messages, sendDocument001(t, "", path, messages))
		for i := range 10 {
			for _, id := range []string{fmt.Sprintf("call_%da", i), fmt.Sprintf("call_%db", i)} {
				if got[id] != (i < 2) {
					t.Errorf("%s: result %s masked: %v", path, id, got[id])
				}
			}
		}
	}
}

// H8, 001 §10 "keepErrors" and §6: what looks like an error by the document's list is not masked.
func TestDocument001Section10KeepErrors(t *testing.T) {
	t.Parallel()
	errors := []string{
		"Traceback (most recent call last):\n  File \"x.py\", line 1", `{ "error": {"code": 5} }`, `{ "error": null }`, `{"status": "error"}`,
		"java.lang.Exception: no", "résultat\nError: file not found", "the request hit a timeout", "connect_error", "connection refused", `not JSON: {"error"`,
	}
	messages := []chatMessage{{"role": "user", "content": "go"}}
	for i, text := range errors {
		messages = append(messages, assistantCalls("run", fmt.Sprint("err_", i)), toolResult(fmt.Sprint("err_", i), text))
	}
	messages = append(messages, assistantCalls("run", "fine"), toolResult("fine", "tout va bien"))
	for i := range 8 {
		messages = append(messages, assistantCalls("run", fmt.Sprint("new_", i)), toolResult(fmt.Sprint("new_", i), "récent"))
	}
	got := findMasked(t, "run", messages, sendDocument001(t, "", "/chat/completions", messages))
	for i, text := range errors {
		if got[fmt.Sprint("err_", i)] {
			t.Errorf("an error was masked: %q", text)
		}
	}
	if !got["fine"] {
		t.Error("a result without an error was not masked")
	}
	got = findMasked(t, "run", messages, sendDocument001(t, "[observation_masking.schema1]\nkeep_errors = false\n", "/chat/completions", messages))
	for i, text := range errors {
		if !got[fmt.Sprint("err_", i)] {
			t.Errorf("not masked with keep_errors = false: %q", text)
		}
	}
}

// H6, H7, 001 §10 "Orphelins" and §5.2: a tool message that no call asked for, and content that is no string,
// are left alone.
func TestDocument001Section10Orphans(t *testing.T) {
	t.Parallel()
	list := []any{chatMessage{"type": "text", "text": "une image"}}
	messages := []chatMessage{assistantCalls("look", "a"), toolResult("orphelin", "personne ne l’a demandé"), toolResult("a", list)}
	for i := range 8 {
		messages = append(messages, assistantCalls("look", fmt.Sprint("new_", i)), toolResult(fmt.Sprint("new_", i), "récent"))
	}
	after := sendDocument001(t, "", "/chat/completions", messages)
	if after[1]["content"] != "personne ne l’a demandé" || fmt.Sprint(after[2]["content"]) != fmt.Sprint(list) {
		t.Errorf("got %v and %v", after[1], after[2])
	}
}

// H4, H9, 001 §4.1 and §7: the policy's keys by their names.
func TestDocument001Section4Policy(t *testing.T) {
	t.Parallel()
	var messages []chatMessage
	for i := range 4 {
		messages = append(messages, assistantCalls("read", fmt.Sprint("r", i)), toolResult(fmt.Sprint("r", i), fmt.Sprintf("texte numéro %d", i)))
	}
	masked := func(policy string) (ids string) {
		t.Helper()
		after := sendDocument001(t, "[observation_masking.schema1]\n"+policy, "/chat/completions", messages)
		for i, m := range after {
			if m["role"] == "tool" && m["content"] != messages[i]["content"] {
				ids += fmt.Sprint(m["tool_call_id"], "=", m["content"], " ")
			}
		}
		return ids
	}
	const bref = "placeholder_template = \"[{tool_call_id} {tool_name} {original_chars}]\"\n"
	for policy, want := range map[string]string{
		"enabled = false\nwindow_turns = 1\n":                 "",
		"window_turns = 0\n":                                  "",
		bref + "window_turns = 2\n":                           "r0=[r0 read 14] r1=[r1 read 14] ",
		bref + "window_turns = 1\nkeep_errors = true\n":       "r0=[r0 read 14] r1=[r1 read 14] r2=[r2 read 14] ",
		bref + "window_turns = 1\nkeep_last_k_per_tool = 3\n": "r0=[r0 read 14] ",
	} {
		if got := masked(policy); got != want {
			t.Errorf("%s: masked %q, want %q", policy, got, want)
		}
	}
}
