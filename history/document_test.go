package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// documentPlaceholders implements the document's pseudocode (§9) line by line over decoded JSON. It returns the
// placeholders by message index. By §5.1 an id is not empty.
func documentPlaceholders(messages []object, p Policy) map[int]string {
	out := map[int]string{}
	if !p.Enabled || p.WindowTurns <= 0 {
		return out
	}
	// A) Extraire les tours tool (dans l’ordre)
	var turns []map[string]bool
	toolName := map[string]string{}
	turnIndex := map[string]int{}
	for _, m := range messages {
		calls, isList := m["tool_calls"].([]any)
		if m["role"] != "assistant" || !isList {
			continue
		}
		ids := map[string]bool{}
		for _, tc := range calls {
			if o, ok := tc.(map[string]any); ok {
				if id, ok := o["id"].(string); ok {
					ids[id] = true
				}
			}
		}
		if len(ids) == 0 {
			continue
		}
		turns = append(turns, ids)
		for _, tc := range calls {
			o, _ := tc.(map[string]any)
			id, ok := o["id"].(string)
			if !ok {
				continue
			}
			f, _ := o["function"].(map[string]any)
			if name, ok := f["name"].(string); ok && name != "" {
				toolName[id] = name
			}
			turnIndex[id] = len(turns) - 1
		}
	}
	nameOf := func(id string) string {
		if n, ok := toolName[id]; ok {
			return n
		}
		return "inconnu"
	}
	// B) Calculer le set d’IDs à conserver (fenêtre)
	keep := map[string]bool{}
	for _, ids := range turns[max(0, len(turns)-p.WindowTurns):] {
		for id := range ids {
			keep[id] = true
		}
	}
	// C) Option keep_last_k_per_tool
	count := map[string]int{}
	for _, m := range slices.Backward(messages) {
		id, _ := m["tool_call_id"].(string)
		if _, known := turnIndex[id]; m["role"] != "tool" || id == "" || !known {
			continue
		}
		if count[nameOf(id)] < p.KeepLastK {
			count[nameOf(id)]++
			keep[id] = true
		}
	}
	// D) Construire une nouvelle liste de messages
	for i, m := range messages {
		id, isStr := m["tool_call_id"].(string)
		content, isText := m["content"].(string)
		if m["role"] != "tool" || !isStr || id == "" {
			continue
		}
		if _, known := turnIndex[id]; !known || keep[id] {
			continue
		}
		if p.KeepErrors && isText && isDocumentError(content) {
			continue
		}
		if !isText {
			continue
		}
		out[i] = "[Observation masquée: résultat d’outil ancien (tool_call_id=" + id + ", outil=" + nameOf(id) +
			", chars=" + strconv.Itoa(len([]rune(content))) + ")]"
	}
	return out
}

// isDocumentError implements §6 of the document, rule by rule, over decoded JSON. Where the document leaves a
// choice (case, the start of the text as the start of a line), the text counts as an error.
func isDocumentError(content string) bool {
	// 1) la string contient
	for _, word := range []string{"Traceback", "Exception", "\nError", `"error"`, "timeout", "connect_error", "connection refused"} {
		if strings.Contains(content, word) {
			return true
		}
	}
	// 2) du JSON : un dict avec la clé "error", ou "status" == "error"
	var dict map[string]any
	if strings.HasPrefix(content, "{") && json.Unmarshal([]byte(content), &dict) == nil {
		_, has := dict["error"]
		return has || dict["status"] == "error"
	}
	return strings.HasPrefix(content, "Error")
}

// malformedMessage generates chat messages that no client should write but some may.
func malformedMessage() *rapid.Generator[object] {
	return rapid.Custom(func(t *rapid.T) object {
		id := rapid.SampledFrom([]any{"a", "b", "c", "d", "e", "f", "", nil, 7.0})
		content := rapid.SampledFrom([]any{"ok", strings.Repeat("long text\n", 40), "Error: no", `{"error":"x"}`, `{"error":null}`, `{"status":"error"}`, "def f(timeout=3): raise MyException()", "", nil, []any{}, []any{object{"type": "text", "text": "t"}}, "é" + strings.Repeat("𝄞", 200)})
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return object{"role": "user", "content": "hi", "tool_call_id": "a"}
		case 1, 2:
			var calls []any
			for range rapid.IntRange(0, 3).Draw(t, "calls") {
				c := object{"type": "function", "id": id.Draw(t, "id")}
				if rapid.IntRange(0, 4).Draw(t, "named") > 0 {
					c["function"] = object{"name": rapid.SampledFrom([]any{"x", "y", "", 3.0}).Draw(t, "name"), "arguments": "{}"}
				}
				calls = append(calls, c)
			}
			m := object{"role": rapid.SampledFrom([]string{"assistant", "assistant", "assistant", "user"}).Draw(t, "role"), "tool_calls": calls}
			if calls == nil {
				m["tool_calls"] = rapid.SampledFrom([]any{nil, "no", []any{}, []any{"a", nil}}).Draw(t, "odd")
			}
			return m
		default:
			m := object{"role": "tool", "content": content.Draw(t, "content")}
			if v := id.Draw(t, "id"); v != nil {
				m["tool_call_id"] = v
			}
			return m
		}
	})
}

// H1–H9: the rolling window masks what the document's pseudocode masks, for any messages.
func TestH1toH9AreTheDocument(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		messages := rapid.SliceOfN(malformedMessage(), 0, 30).Draw(t, "messages")
		p := DefaultPolicy()
		p.Advance, p.KeepHandles = AdvanceEachTurn, 0
		p.WindowTurns = rapid.IntRange(-1, 4).Draw(t, "window")
		p.KeepErrors = rapid.Bool().Draw(t, "errors")
		p.KeepLastK = rapid.IntRange(0, 2).Draw(t, "k")
		p.Enabled = rapid.IntRange(0, 9).Draw(t, "on") > 0
		body, _ := json.Marshal(object{"messages": messages, "model": "m"})
		d, err := Read(openAIChat, body, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := documentPlaceholders(messages, p)
		got := map[int]bool{}
		for _, i := range RollingWindow(d, p) {
			got[d.Results[i].Message] = true
		}
		if len(got) != len(want) {
			t.Fatalf("masked %v, the document masks %v\n%s", got, want, body)
		}
		plan := d.Plan(p, CachePrices{}, nil)
		shown := map[int]string{}
		for i, c := range plan.Cuts {
			edits := plan.Edits(i, "")
			shown[d.Results[c.Result].Message] = string(jsonscan.AppendDecoded(nil, edits[0].Text))
		}
		for i, text := range want {
			if !got[i] {
				t.Fatalf("message %d is not masked\n%s", i, body)
			}
			if shown[i] != text { // H2: short results too
				t.Fatalf("got %s, want %s", shown[i], text)
			}
		}
		if len(shown) != len(want) {
			t.Fatalf("placeholders %v, the document's are %v\n%s", shown, want, body)
		}
	})
}

// §10 of the document lists these tests.
func TestTheDocumentsPlanOfTests(t *testing.T) {
	var list []string
	for i := range 12 {
		list = append(list, fmt.Sprintf(`{"role":"assistant","tool_calls":[{"id":"a%d","function":{"name":"f"}},{"id":"b%d","function":{"name":"g"}}]}`, i, i))
		for _, id := range []string{"a", "b"} {
			text := strings.Repeat("text ", 60)
			switch {
			case i == 1 && id == "a":
				text = "Traceback (most recent call last):" + text
			case i == 1:
				text = `{ "error": {"code": 5}, "x": "` + text + `"}`
			}
			list = append(list, fmt.Sprintf(`{"role":"tool","tool_call_id":"%s%d","content":%s}`, id, i, quote(text)))
		}
	}
	list = append(list, `{"role":"tool","tool_call_id":"nobody","content":`+quote(strings.Repeat("x", 500))+`}`)
	body := []byte(`{"messages":[` + strings.Join(list, ",") + `]}`)
	p := DefaultPolicy()
	p.Advance = AdvanceEachTurn
	after, plan := maskRequest(t, openAIChat, body, p, CachePrices{}, nil)
	checkStructureKept(t, body, after)
	var ids []string
	for _, c := range plan.Cuts {
		ids = append(ids, plan.d.Results[c.Result].CallID)
	}
	if got := strings.Join(ids, " "); got != "a0 b0 a2 b2 a3 b3" {
		t.Errorf("masked the wrong results: %s", got)
	}
}
