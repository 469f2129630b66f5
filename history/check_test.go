package history

import (
	"bytes"
	"encoding/json"
	"fmt"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/gemini"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/responses"
)

var (
	openAIChat        llm.Codec = openaichat.Codec{}
	anthropicMessages llm.Codec = anthropic.Codec{}
	geminiContents    llm.Codec = gemini.Codec{}
	openAIResponses   llm.Codec = responses.Codec{}

	shapes = []llm.Codec{openAIChat, anthropicMessages, openAIResponses, geminiContents}
)

// object is decoded JSON.
type object = map[string]any

// decode reads a request's messages with encoding/json, independently of the code under test.
func decode(t rapid.TB, body []byte) []object {
	t.Helper()
	var top object
	if err := json.Unmarshal(body, &top); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, body)
	}
	list, ok := top["messages"].([]any)
	if !ok {
		list, _ = top["input"].([]any)
	}
	var out []object
	for _, m := range list {
		o, _ := m.(map[string]any)
		out = append(out, o)
	}
	return out
}

// structureOf lists the calls and results of a request with their roles and positions. Two requests with the
// same list differ only in their texts (T27).
func structureOf(t rapid.TB, body []byte) []string {
	t.Helper()
	var out []string
	add := func(i int, what string, v any) { out = append(out, fmt.Sprintf("%d %s %v", i, what, v)) }
	for i, m := range decode(t, body) {
		add(i, "role", m["role"])
		add(i, "type", m["type"])
		add(i, "answers", m["tool_call_id"])
		add(i, "call_id", m["call_id"])
		add(i, "calls", m["tool_calls"])
		for _, key := range []string{"content", "output"} {
			blocks, _ := m[key].([]any)
			add(i, key, len(blocks))
			for _, b := range blocks {
				o, _ := b.(map[string]any)
				add(i, "block", fmt.Sprint(o["type"], o["id"], o["name"], o["input"], o["tool_use_id"], o["cache_control"], o["source"], o["is_error"]))
				inner, _ := o["content"].([]any)
				for _, x := range inner {
					p, _ := x.(map[string]any)
					add(i, "inner", fmt.Sprint(p["type"], p["source"]))
					if p["type"] == "text" && p["text"] == "" {
						add(i, "EMPTY", o["tool_use_id"])
					}
				}
			}
		}
	}
	return out
}

// checkPairing fails unless every call has a result and every result a call, as providers require.
func checkPairing(t rapid.TB, body []byte) error {
	open := map[string]int{}
	change := func(id any, by int) { open[fmt.Sprint(id)] += by }
	for _, m := range decode(t, body) {
		calls, _ := m["tool_calls"].([]any)
		for _, c := range calls {
			o, _ := c.(map[string]any)
			change(o["id"], 1)
		}
		if m["role"] == "tool" {
			change(m["tool_call_id"], -1)
		}
		switch m["type"] {
		case "function_call":
			change(m["call_id"], 1)
		case "function_call_output":
			change(m["call_id"], -1)
		}
		blocks, _ := m["content"].([]any)
		for _, b := range blocks {
			o, _ := b.(map[string]any)
			switch o["type"] {
			case "tool_use":
				change(o["id"], 1)
			case "tool_result":
				change(o["tool_use_id"], -1)
			}
		}
	}
	for id, n := range open {
		if n != 0 {
			return fmt.Errorf("call %s: calls minus results is %+d, want 0", id, n)
		}
	}
	return nil
}

func mustRead(t rapid.TB, shape llm.Codec, body []byte) *Dialogue {
	t.Helper()
	d, err := Read(shape, body, 0)
	if err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	return d
}

const someID = "prn_00000000000000000000000001"

// maskRequest returns a request as it would be sent, and its plan.
func maskRequest(t rapid.TB, shape llm.Codec, body []byte, p Policy, c CachePrices, events []Event) ([]byte, *Plan) {
	t.Helper()
	return maskDialogue(t, mustRead(t, shape, body), p, c, events)
}

func maskDialogue(t rapid.TB, d *Dialogue, p Policy, c CachePrices, events []Event) ([]byte, *Plan) {
	t.Helper()
	plan := d.Plan(p, c, events)
	var edits []jsonscan.Edit
	for i := range plan.Cuts {
		edits = append(edits, plan.Edits(i, someID)...)
	}
	checkEdits(t, d.body, edits, plan.masksShort)
	return jsonscan.AppendSpliced(nil, d.body, edits), plan
}

// checkEdits checks that edits are in order, replace the inside of strings, and make the request shorter (I5)
// unless short results are masked too (H2).
func checkEdits(t rapid.TB, body []byte, edits []jsonscan.Edit, short bool) {
	t.Helper()
	at := 0
	for _, e := range edits {
		if e.Start < at || e.End < e.Start || body[e.Start-1] != '"' || body[e.End] != '"' {
			t.Fatalf("edit %v is not the inside of a string", e.Span)
		}
		at = e.End
	}
	if len(edits) > 0 && !short && jsonscan.SplicedLen(body, edits) >= len(body) {
		t.Fatal("masking did not make the request shorter")
	}
}

// checkStructureKept checks that masking kept all messages, blocks and ids, and the pairing of calls and results.
func checkStructureKept(t rapid.TB, before, after []byte) {
	t.Helper()
	a, b := structureOf(t, before), structureOf(t, after)
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Fatalf("messages, blocks or ids changed:\n%v\n%v", a, b)
	}
	if err := checkPairing(t, before); err == nil {
		if err := checkPairing(t, after); err != nil {
			t.Fatal(err)
		}
	}
}

// commonPrefixLen is the length of the common prefix of two requests.
func commonPrefixLen(a, b []byte) int {
	n := 0
	for size := min(len(a), len(b)); size > 0; size /= 2 { // in halving steps: byte by byte is slow under -race
		for n+size <= min(len(a), len(b)) && bytes.Equal(a[n:n+size], b[n:n+size]) {
			n += size
		}
	}
	return n
}

// throughLastMessage is a request up to the end of its last message.
func throughLastMessage(body []byte) []byte {
	end := bytes.LastIndexByte(body, ']')
	return body[:end]
}
