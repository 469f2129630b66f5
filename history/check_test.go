package history

import (
	"bytes"
	"encoding/json"
	"fmt"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/jsonscan"
)

var shapes = []Shape{Chat, Messages, Responses}

// object is decoded JSON.
type object = map[string]any

// decode is an independent reading of a request's messages.
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

// pairs lists the calls and results of a request, with roles and places, so that two requests
// with the same list are the same to a provider but for texts (T27).
func pairs(t rapid.TB, body []byte) []string {
	t.Helper()
	var out []string
	note := func(i int, what string, v any) { out = append(out, fmt.Sprintf("%d %s %v", i, what, v)) }
	for i, m := range decode(t, body) {
		note(i, "role", m["role"])
		note(i, "type", m["type"])
		note(i, "answers", m["tool_call_id"])
		note(i, "call_id", m["call_id"])
		note(i, "calls", m["tool_calls"])
		for _, key := range []string{"content", "output"} {
			blocks, _ := m[key].([]any)
			note(i, key, len(blocks))
			for _, b := range blocks {
				o, _ := b.(map[string]any)
				note(i, "block", fmt.Sprint(o["type"], o["id"], o["name"], o["input"], o["tool_use_id"], o["cache_control"], o["source"], o["is_error"]))
				inner, _ := o["content"].([]any)
				for _, x := range inner {
					p, _ := x.(map[string]any)
					note(i, "inner", fmt.Sprint(p["type"], p["source"]))
					if p["type"] == "text" && p["text"] == "" {
						note(i, "EMPTY", o["tool_use_id"])
					}
				}
			}
		}
	}
	return out
}

// paired says whether every call has its result and every result its call, as providers demand.
func paired(t rapid.TB, body []byte) error {
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
			return fmt.Errorf("call %s: %+d", id, n)
		}
	}
	return nil
}

func mustRead(t rapid.TB, shape Shape, body []byte) *Dialogue {
	t.Helper()
	d, err := Read(shape, body, 0)
	if err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	return d
}

const someID = "prn_00000000000000000000000001"

// masked is a request as it would be sent, with its plan.
func masked(t rapid.TB, shape Shape, body []byte, p Policy, c Cache, events []Event) ([]byte, *Plan) {
	t.Helper()
	return maskedBy(t, mustRead(t, shape, body), p, c, events)
}

func maskedBy(t rapid.TB, d *Dialogue, p Policy, c Cache, events []Event) ([]byte, *Plan) {
	t.Helper()
	plan := d.Plan(p, c, events)
	var edits []jsonscan.Edit
	for i := range plan.Cuts {
		edits = append(edits, plan.Edits(i, someID)...)
	}
	checkEdits(t, d.body, edits, plan.short)
	return jsonscan.AppendSpliced(nil, d.body, edits), plan
}

// checkEdits holds edits to order, and to being shorter in sum (I5) where short results are not to be
// masked too (H2).
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
		t.Fatal("masking made the request longer")
	}
}

// laws are what holds of every masked request: same messages, same ids, same bytes elsewhere.
func laws(t rapid.TB, before, after []byte) {
	t.Helper()
	a, b := pairs(t, before), pairs(t, after)
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Fatalf("messages, blocks or ids changed:\n%v\n%v", a, b)
	}
	if err := paired(t, before); err == nil {
		if err := paired(t, after); err != nil {
			t.Fatal(err)
		}
	}
}

// common is how many bytes two requests begin with alike.
func common(a, b []byte) int {
	n := 0
	for size := min(len(a), len(b)); size > 0; size /= 2 { // halves: byte by byte is slow under -race
		for n+size <= min(len(a), len(b)) && bytes.Equal(a[n:n+size], b[n:n+size]) {
			n += size
		}
	}
	return n
}

// listOf is a request up to the end of its last message.
func listOf(body []byte) []byte {
	end := bytes.LastIndexByte(body, ']')
	return body[:end]
}
