package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// maskFirst masks the only old result of a conversation and returns its placeholder.
func maskFirst(t *testing.T, name, text string, p Policy, later ...event) string {
	t.Helper()
	full := transcript{{user: "hi"}, {calls: []toolCall{{id: "call_1", name: name, args: "{}", results: []string{text}}}}}
	full = append(full, later...)
	full = append(full, event{calls: []toolCall{{id: "call_9", name: "x", args: "{}", results: []string{"y"}}}})
	p.Advance, p.WindowTurns = AdvanceEachTurn, 1
	body := full.render(openAIChat, renderOptions{})
	after, _ := maskRequest(t, openAIChat, body, p, CachePrices{}, nil)
	checkStructureKept(t, body, after)
	return string(mustRead(t, openAIChat, after).Text(0))
}

func TestH5Placeholder(t *testing.T) {
	text := "é" + strings.Repeat("x", 399)
	got := maskFirst(t, "read_file", text, DefaultPolicy())
	if want := "[Observation masquée: résultat d’outil ancien (tool_call_id=call_1, outil=read_file, chars=400)]"; got != want {
		t.Errorf("got %s", got)
	}
	if got := maskFirst(t, "", text, DefaultPolicy()); !strings.Contains(got, "outil=inconnu,") {
		t.Errorf("got %s", got)
	}
	for template, want := range map[string]string{
		"{prune_id}":                  someID,
		"{tool_name}":                 `a"b\{prune_id}` + "\n",
		"{x}{tool_call_id}{":          "{x}call_1{",
		"{{original_chars}}\"\\":      "{400}\"\\",
		"{prune_id {tool_call_id} }":  "{prune_id call_1 }",
		"{tool_call_id}{tool_call_id": "call_1{tool_call_id",
		"nothing":                     "nothing",
	} {
		p := DefaultPolicy()
		p.Template = template
		if got := maskFirst(t, `a"b\{prune_id}`+"\n", text, p); got != want {
			t.Errorf("%q: got %q, want %q", template, got, want)
		}
	}
}

// I5: a result is kept if its placeholder is not shorter. H2: in profile = "document", a window that moves at
// every turn masks a result of any length.
func TestI5NeverLongerAndH2Short(t *testing.T) {
	for _, n := range []int{0, 1, 50, 99, 100, 101, 102, 103, 104, 105, 106, 110} {
		text := strings.Repeat("x", n)
		p := DefaultPolicy()
		p.Agents = true
		got := maskFirst(t, "f", text, p)
		if len(got) > n || got != text && len(got) == n {
			t.Errorf("%d characters became %d", n, len(got))
		}
		p.Agents = false
		if got, want := maskFirst(t, "f", text, p), fmt.Sprintf("[Observation masquée: résultat d’outil ancien (tool_call_id=call_1, outil=f, chars=%d)]", n); got != want {
			t.Errorf("%d characters became %q, not %q", n, got, want)
		}
	}
}

// H+4: a placeholder names the identifiers that the conversation used later, and no others.
func TestHPlus4Handles(t *testing.T) {
	text := "see /home/ann/src/main.go:12 and /home/ann/src/other.go, commit 3f2a9c1d, prn_00000000000000000000000001,\n" +
		"https://example.org/a?b=1#c. user-4211 550e8400-e29b-41d4-a716-446655440000 plainword 12345678 " + strings.Repeat("filler ", 100)
	mention := event{model: "Now /home/ann/src/main.go, https://example.org/a?b=1#c and 3f2a9c1d plainword 12345678 user-4211"}
	p := DefaultPolicy()
	if got := maskFirst(t, "f", text, p, mention); !strings.HasSuffix(got, " [repères: /home/ann/src/main.go, 3f2a9c1d, https://example.org/a?b=1#c, user-4211]") {
		t.Errorf("got %s", got)
	}
	p.KeepHandles = 1
	if got := maskFirst(t, "f", text, p, mention); !strings.HasSuffix(got, " [repères: /home/ann/src/main.go]") {
		t.Errorf("got %s", got)
	}
	p.KeepHandles = 4
	if got := maskFirst(t, "f", text, p); strings.Contains(got, "repères") {
		t.Errorf("identifiers were named though none was used: %s", got)
	}
	call := event{calls: []toolCall{{id: "call_2", name: "f", args: "{\"cmd\":\"cat\\n/home/ann/src/other.go\"}", results: []string{"/home/ann/src/main.go"}}}}
	p.WindowTurns = 1
	if got := maskFirst(t, "f", text, p, call); !strings.HasSuffix(got, " [repères: /home/ann/src/other.go]") {
		t.Errorf("got %s", got)
	}
}

func TestIdentifiers(t *testing.T) {
	var got []string
	findIdentifiers([]byte(`a\n/usr/bin/x \"src/a.go\" and/or 1/2 v1.2.3 call_abc123 deadbeef 1234567 0x1234567 \u00e9t\u00e9 e.g. http://h/p`), func(token []byte) bool {
		got = append(got, string(token))
		return true
	})
	if want := []string{"/usr/bin/x", "src/a.go", "call_abc123", "0x1234567", "http://h/p"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// H+3: of several blocks the first becomes the placeholder and the others an ellipsis; none is removed or empty.
func TestHPlus3Blocks(t *testing.T) {
	full := transcript{{user: "hi"}}
	for i := range 3 {
		full = append(full, event{calls: []toolCall{{id: fmt.Sprint("c", i), name: "f", args: "{}", results: []string{strings.Repeat("x", 300), "second", "third"}}}})
	}
	p := DefaultPolicy()
	p.Advance, p.WindowTurns = AdvanceEachTurn, 1
	body := full.render(anthropicMessages, renderOptions{})
	after, plan := maskRequest(t, anthropicMessages, body, p, CachePrices{}, nil)
	checkStructureKept(t, body, after)
	d := mustRead(t, anthropicMessages, after)
	if got := string(d.Text(0)); len(plan.Cuts) != 2 || !strings.HasSuffix(got, "chars=313)]\n…\n…") {
		t.Errorf("got %q", got)
	}
	if got := string(plan.d.Text(0)); got != strings.Repeat("x", 300)+"\nsecond\nthird" {
		t.Errorf("the original is %q", got)
	}
	if len(plan.Edits(0, strings.Repeat("i", 9))) != 3 || jsonscan.SplicedLen(body, plan.Edits(0, "i")) >= len(body) {
		t.Error("want three edits that make the request shorter")
	}
}
