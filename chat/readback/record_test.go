package readback

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/gemini"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/responses"
)

// one and two are the outputs of a model in two rounds, by shape; mixed also calls a tool of the client.
var (
	one = map[llm.ReadbackCodec]string{
		openaichat.Codec{}: `{"role":"assistant","content":"Let me see. ","tool_calls":[{"id":"r1","type":"function","function":{"name":"recover_text","arguments":"{}"}}]}`,
		anthropic.Codec{}:  `[{"type":"thinking","thinking":"hm","signature":"s1"},{"type":"text","text":"Let me see. "},{"type":"tool_use","id":"r1","name":"recover_text","input":{}}]`,
		responses.Codec{}:  `[{"type":"reasoning","id":"rs1","summary":[]},{"type":"message","id":"m1","role":"assistant","content":[{"type":"output_text","text":"Let me see. "}]},{"type":"function_call","call_id":"r1","name":"recover_text","arguments":"{}"}]`,
		gemini.Codec{}:     `[{"text":"hm","thought":true},{"text":"Let me see. "},{"functionCall":{"id":"r1","name":"recover_text","args":{}},"thoughtSignature":"s1"}]`,
	}
	two = map[llm.ReadbackCodec]string{
		openaichat.Codec{}: `{"role":"assistant","content":null,"tool_calls":[{"id":"r2","type":"function","function":{"name":"recover_text","arguments":"{}"}}]}`,
		anthropic.Codec{}:  `[{"type":"tool_use","id":"r2","name":"recover_text","input":{}}]`,
		responses.Codec{}:  `[{"type":"function_call","call_id":"r2","name":"recover_text","arguments":"{}"}]`,
		gemini.Codec{}:     `[{"functionCall":{"id":"r2","name":"recover_text","args":{}}}]`,
	}
	mixed = map[llm.ReadbackCodec]string{
		openaichat.Codec{}: `{"role":"assistant","content":"And now.","tool_calls":[{"id":"r3","type":"function","function":{"name":"recover_text","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"read","arguments":"{}"}}]}`,
		anthropic.Codec{}:  `[{"type":"text","text":"And now."},{"type":"tool_use","id":"r3","name":"recover_text","input":{}},{"type":"tool_use","id":"c2","name":"read","input":{}}]`,
		responses.Codec{}:  `[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"And now."}]},{"type":"function_call","call_id":"r3","name":"recover_text","arguments":"{}"},{"type":"function_call","call_id":"c2","name":"read","arguments":"{}"}]`,
		gemini.Codec{}:     `[{"text":"And now."},{"functionCall":{"id":"r3","name":"recover_text","args":{}}},{"functionCall":{"id":"c2","name":"read","args":{}},"thoughtSignature":"s2"}]`,
	}
)

func answer(id string) []llm.Answer { return []llm.Answer{{ID: id, Text: "original of " + id}} }

// requestOf is a request of a shape, made of the elements of its conversation.
func requestOf(shape llm.ReadbackCodec, elements ...string) string {
	return `{"` + shape.Wire().MessagesKey + `":[` + strings.Join(elements, ", ") + `],"x":1}`
}

// opening is a conversation with one tool turn.
var opening = map[llm.ReadbackCodec]string{
	openaichat.Codec{}: `{"role":"user","content":"go"}, {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"x"}`,
	anthropic.Codec{}:  `{"role":"user","content":"go"}, {"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"read","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"x"}]}`,
	responses.Codec{}:  `{"role":"user","content":"go"}, {"type":"function_call","call_id":"c1","name":"read","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"x"}`,
	gemini.Codec{}:     `{"role":"user","parts":[{"text":"go"}]}, {"role":"model","parts":[{"functionCall":{"name":"read","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"read","response":{"output":"x"}}}]}`,
}

// restoreLast restores the last reply of a request.
func restoreLast(t *testing.T, shape llm.ReadbackCodec, body string, rec *Record) (string, bool) {
	t.Helper()
	rec, err := DecodeRecord(rec.Encode())
	if err != nil {
		t.Fatal(err)
	}
	d := mustRead(t, shape, body)
	replies := d.Replies()
	edits, ok := rec.Restore(d, []byte(body), replies[len(replies)-1])
	got := string(jsonscan.AppendSpliced(nil, []byte(body), edits))
	if !json.Valid([]byte(got)) {
		t.Errorf("%s: not valid: %s", shape, got)
	}
	return got, ok
}

// H+5: two hidden rounds are restored before the reply that the client repeats.
func TestRestoreRounds(t *testing.T) {
	replies := map[llm.ReadbackCodec][2]string{ // as the client sends it, as the provider receives it
		openaichat.Codec{}: {
			`{"role":"assistant","content":"Let me see. It is 7.","x":2}`,
			`{"role":"assistant","content":"It is 7.","x":2}`,
		},
		anthropic.Codec{}: {
			`{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s1"}, {"type":"text","text":"Let me see. "},{"type":"thinking","thinking":"so","signature":"s2"} ,{"type":"text","text":"It is 7.","cache_control":{"type":"ephemeral"}}]}`,
			`{"role":"assistant","content":[{"type":"thinking","thinking":"so","signature":"s2"} ,{"type":"text","text":"It is 7.","cache_control":{"type":"ephemeral"}}]}`,
		},
		responses.Codec{}: {
			`{"type":"reasoning","id":"rs1","summary":[]}, {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me see. "}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"It is 7."}]}`,
			`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"It is 7."}]}`,
		},
		gemini.Codec{}: { // Gemini CLI joins texts
			`{"role":"model","parts":[{"text":"hm","thought":true},{"text":"Let me see. It is 7.","thoughtSignature":"s2"},{"text":"","thoughtSignature":"s3"}]}`,
			`{"role":"model","parts":[{"text":"It is 7.","thoughtSignature":"s2"},{"text":"","thoughtSignature":"s3"}]}`,
		},
	}
	for shape, s := range replies {
		rec := &Record{}
		sent := []byte(requestOf(shape, opening[shape]))
		for i, round := range []string{one[shape], two[shape]} {
			r := &llm.Round{Said: []byte(round)}
			answers := answer([]string{"r1", "r2"}[i])
			rec.Add(r, answers)
			var err error
			if sent, err = NextRequest(shape, sent, r, answers); err != nil {
				t.Fatal(err)
			}
		}
		const user = `{"role":"user","content":"thanks"}`
		got, ok := restoreLast(t, shape, requestOf(shape, opening[shape], s[0], user), rec)
		prefix := strings.TrimSuffix(string(sent), `],"x":1}`)
		if want := prefix + "," + s[1] + ", " + user + `],"x":1}`; !ok || strings.ReplaceAll(got, ", {", ",{") != strings.ReplaceAll(want, ", {", ",{") {
			t.Errorf("%s: %v\n got %s\nwant %s", shape, ok, got, want)
		}
	}
}

// H+5: a hidden call beside a call of the client's tool is restored with its answer.
func TestRestoreMixed(t *testing.T) {
	replies := map[llm.ReadbackCodec][2]string{ // the reply, and the results
		openaichat.Codec{}: {
			`{"role":"assistant","content":"Let me see. And now.","tool_calls":[{"id":"c2","type":"function","function":{"name":"read","arguments":"{}"}}]}`,
			`{"role":"tool","tool_call_id":"c2","content":"y"}`,
		},
		anthropic.Codec{}: {
			`{"role":"assistant","content":[{"type":"text","text":"Let me see. "},{"type":"text","text":"And now."},{"type":"tool_use","id":"c2","name":"read","input":{}}]}`,
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2","content":"y"},{"type":"text","text":"reminder"}]}`,
		},
		responses.Codec{}: {
			`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me see. "}]}, {"type":"message","role":"assistant","content":[{"type":"output_text","text":"And now."}]},{"type":"function_call","call_id":"c2","name":"read","arguments":"{}"}`,
			`{"type":"function_call_output","call_id":"c2","output":"y"}`,
		},
		gemini.Codec{}: {
			`{"role":"model","parts":[{"text":"Let me see. And now."},{"functionCall":{"id":"c2","name":"read","args":{}},"thoughtSignature":"s2"}]}`,
			`{"role":"user","parts":[{"functionResponse":{"id":"c2","name":"read","response":{"output":"y"}}},{"text":"reminder"}]}`,
		},
	}
	for shape, s := range replies {
		rec := &Record{}
		rec.Add(&llm.Round{Said: []byte(one[shape])}, answer("r1"))
		rec.Add(&llm.Round{Said: []byte(mixed[shape]), Mixed: true, Others: []string{"c2"}}, answer("r3"))
		first, err := NextRequest(shape, []byte(requestOf(shape, opening[shape])), &llm.Round{Said: []byte(one[shape])}, answer("r1"))
		if err != nil {
			t.Fatal(err)
		}
		want := strings.TrimSuffix(string(first), `],"x":1}`) + "," + string(shape.AppendSaid(nil, []byte(mixed[shape]))) + ","
		hidden := string(shape.AppendAnswers(nil, answer("r3")))
		if before, inside, isBlocks := strings.Cut(hidden, `[`); isBlocks && strings.HasPrefix(before, `{"role":"user",`) {
			hidden = strings.TrimSuffix(inside, `]}`)
			want += strings.Replace(s[1], `[`, `[`+hidden+`,`, 1)
		} else {
			want += hidden + "," + s[1]
		}
		got, ok := restoreLast(t, shape, requestOf(shape, opening[shape], s[0], s[1]), rec)
		if want += `],"x":1}`; !ok || strings.ReplaceAll(got, ", {", ",{") != strings.ReplaceAll(want, ", {", ",{") {
			t.Errorf("%s: %v\n got %s\nwant %s", shape, ok, got, want)
		}
	}
}

// H+5: a different reply in the same place, as after a repeated request, is not changed.
func TestRestoreOnlyItsOwn(t *testing.T) {
	for shape, reply := range map[llm.ReadbackCodec]string{
		openaichat.Codec{}: `{"role":"assistant","content":"It is 7."}`,
		anthropic.Codec{}:  `{"role":"assistant","content":"It is 7."}`,
		responses.Codec{}:  `{"role":"assistant","content":"It is 7."}`,
		gemini.Codec{}:     `{"role":"model","parts":[{"text":"It is 7."}]}`,
	} {
		body := requestOf(shape, opening[shape], reply)
		d := mustRead(t, shape, requestOf(shape, opening[shape]))
		for text, want := range map[string]bool{"It is 7.\n": true, "It is 8.": false} {
			own := d.Next(d.Replies())
			own.Text = text
			rec := &Record{Reply: own.Identity()}
			rec.Add(&llm.Round{Said: []byte(two[shape])}, answer("r2"))
			if got, ok := restoreLast(t, shape, body, rec); ok != want {
				t.Errorf("%s: %q: got %s", shape, text, got)
			}
		}
	}
}

// H+5: a message that differs from what the client was shown is not changed.
func TestRestoreFailsOpen(t *testing.T) {
	for shape, replies := range map[llm.ReadbackCodec][]string{
		openaichat.Codec{}: {
			`{"role":"assistant","content":"Let me look. It is 7."}`,
			`{"role":"assistant","content":null}`,
			`{"role":"assistant"}`,
			`{"role":"assistant","content":[{"type":"text","text":"Let me see. "},{"type":"text","text":"It is 7."}]}`,
		},
		anthropic.Codec{}: {
			`{"role":"assistant","content":"Let me"}`,
			`{"role":"assistant","content":[{"type":"text","text":"It is 7."}]}`,
			`{"role":"assistant","content":[]}`,
			`{"role":"assistant"}`,
		},
		responses.Codec{}: {
			`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"It is 7."}]}`,
			`{"type":"function_call","call_id":"c3","name":"x","arguments":""}`,
		},
		gemini.Codec{}: {
			`{"role":"model","parts":[{"text":"Let me"}]}`,
			`{"role":"model","parts":[{"text":"Let me see"},{"text":" it. "}]}`,
			`{"role":"model","parts":[{"functionCall":{"name":"x"}}]}`,
			`{"role":"model","parts":[]}`,
			`{"role":"model"}`,
		},
	} {
		rounds := &Record{}
		rounds.Add(&llm.Round{Said: []byte(one[shape])}, answer("r1"))
		calls := &Record{}
		calls.Add(&llm.Round{Said: []byte(mixed[shape]), Mixed: true, Others: []string{"c2"}}, answer("r3"))
		for _, reply := range replies {
			body := requestOf(shape, opening[shape], reply)
			for name, rec := range map[string]*Record{"rounds": rounds, "mixed": calls, "nothing": {}} {
				if got, ok := restoreLast(t, shape, body, rec); ok || got != body {
					t.Errorf("%s: %s: %s became %s", shape, name, body, got)
				}
			}
		}
	}
}

// A reply whose text is all in hidden rounds leaves no empty message.
func TestRestoreNothingLeft(t *testing.T) {
	for shape, reply := range map[llm.ReadbackCodec]string{
		openaichat.Codec{}: `{"role":"assistant","content":"Let me see. "}`,
		anthropic.Codec{}:  `{"role":"assistant","content":"Let me see. "}`,
		responses.Codec{}:  `{"type":"message","role":"assistant","content":"Let me see. "}`,
		gemini.Codec{}:     `{"role":"model","parts":[{"text":"Let me "},{"text":"hm","thought":true},{"text":"see. "},{"text":""}]}`,
	} {
		rec := &Record{}
		rec.Add(&llm.Round{Said: []byte(one[shape])}, answer("r1"))
		want, _ := NextRequest(shape, []byte(requestOf(shape, opening[shape])), &llm.Round{Said: []byte(one[shape])}, answer("r1"))
		got, ok := restoreLast(t, shape, requestOf(shape, opening[shape], reply), rec)
		if !ok || strings.ReplaceAll(got, ", {", ",{") != strings.ReplaceAll(string(want), ", {", ",{") {
			t.Errorf("%s: got %s", shape, got)
		}
	}
}

func TestRecord(t *testing.T) {
	rec := &Record{Reply: history.Hash{7}, Steps: []llm.Step{
		{Said: []byte("a"), Answers: []llm.Answer{{ID: "r", Text: "text", Failed: true}, {ID: "", Text: "", Failed: false}}},
		{Said: []byte{}, Mixed: true, Others: []string{"", "é"}},
	}}
	raw := rec.Encode()
	got, err := DecodeRecord(raw)
	if err != nil || !reflect.DeepEqual(got, rec) {
		t.Errorf("got %+v, %v", got, err)
	}
	for n := range raw {
		if got, err := DecodeRecord(raw[:n]); err == nil && len(got.Steps) == 2 {
			t.Errorf("cut at %d: got %+v", n, got)
		}
	}
	none := strings.Repeat("\x00", len(history.Hash{}))
	for _, bad := range []string{"", "\x02", "\x01" + none + "\x00\xff\xff\xff\xff\x7f", "\x01" + none + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		if got, err := DecodeRecord([]byte(bad)); err == nil {
			t.Errorf("%q: got %+v", bad, got)
		}
	}
}

// H+5: calls that are pending at the provider are answered first.
func TestAnswerPending(t *testing.T) {
	rec := &Record{}
	rec.Add(&llm.Round{}, answer("r1"))
	const first = `{"type":"function_call_output","call_id":"r1","output":"original of r1"}`
	for body, want := range map[string]string{
		`{"previous_response_id":"p","input":"go \u00e9"}`: `{"previous_response_id":"p","input":[` + first + `,{"role":"user","content":"go \u00e9"}]}`,
		`{"previous_response_id":"p","input":[ {"a":1}]}`:  `{"previous_response_id":"p","input":[ ` + first + `,{"a":1}]}`,
		`{"previous_response_id":"p","input":[ ]}`:         `{"previous_response_id":"p","input":[ ` + first + `]}`,
	} {
		edits, err := rec.AnswerPending(responses.Codec{}, []byte(body))
		got := jsonscan.AppendSpliced(nil, []byte(body), edits)
		if err != nil || string(got) != want || !json.Valid(got) || (responses.Codec{}).PreviousReplyID(mustRead(t, responses.Codec{}, string(got)).Other) != "p" {
			t.Errorf("%s became %s, %v", body, got, err)
		}
	}
	for _, body := range []string{`{}`, `{"input":7}`, `[`} {
		if edits, err := rec.AnswerPending(responses.Codec{}, []byte(body)); err == nil {
			t.Errorf("%s: got %v", body, edits)
		}
	}
}

func TestReplyID(t *testing.T) {
	for _, c := range []struct {
		end    string
		stream bool
		want   string
	}{
		{`{"id":"r1","output":[]}`, false, "r1"},
		{`[`, false, ""},
		{"event: x\ndata: {\"type\":\"x\",\"item\":{\"id\":\"no\"}}\n\nevent: response.completed\r\ndata: {\"response\":{\"id\":\"r2\"}}\r\n\r\n", true, "r2"},
		{"data: [DONE]\n\n", true, ""},
		{"", true, ""},
	} {
		if got := (responses.Codec{}).ReplyID([]byte(c.end), c.stream); got != c.want {
			t.Errorf("%q: got %q", c.end, got)
		}
	}
}

// H+5: Google's SDKs repeat a streamed reply as one content for each of its events.
func TestRestoreContentsOfEvents(t *testing.T) {
	shape := gemini.Codec{}
	said := func(parts string) string { return `{"role":"model","parts":[` + parts + `]}` }
	rec := &Record{}
	rec.Add(&llm.Round{Said: []byte(one[shape])}, answer("r1"))
	hidden, err := NextRequest(shape, []byte(requestOf(shape, opening[shape])), &llm.Round{Said: []byte(one[shape])}, answer("r1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		shown []string
		left  string
	}{
		{[]string{said(`{"text":"Let "}`), said(`{"text":"me see. "}`), said(`{"text":"It is 7."}`)}, said(`{"text":"It is 7."}`)},
		{[]string{said(`{"text":"Let me "}`), said(`{"text":"see. It"}`), said(`{"text":" is 7."}`)}, said(`{"text":"It"}`) + "," + said(`{"text":" is 7."}`)},
		{[]string{said(`{"text":"hm","thought":true},{"text":"Let me see. "},{"text":"It is"}`), said(`{"text":" 7."}`)}, said(`{"text":"It is"}`) + "," + said(`{"text":" 7."}`)},
		{[]string{said(`{"text":"Let me see. "}`), said(`{"text":"","thoughtSignature":"s"}`)}, ""},
	} {
		want := strings.TrimSuffix(string(hidden), `],"x":1}`)
		if c.left != "" {
			want += "," + c.left
		}
		got, ok := restoreLast(t, shape, requestOf(shape, append([]string{opening[shape]}, c.shown...)...), rec)
		if want += `],"x":1}`; !ok || strings.ReplaceAll(got, ", {", ",{") != strings.ReplaceAll(want, ", {", ",{") {
			t.Errorf("%v\n got %s\nwant %s", ok, got, want)
		}
	}
}
