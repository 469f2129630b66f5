package rounds

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// one and two are what a model said in two rounds, in each shape, and mixed in one in which it calls
// a tool of the client's too.
var (
	one = map[history.Shape]string{
		history.Chat:      `{"role":"assistant","content":"Let me see. ","tool_calls":[{"id":"r1","type":"function","function":{"name":"recover_text","arguments":"{}"}}]}`,
		history.Messages:  `[{"type":"thinking","thinking":"hm","signature":"s1"},{"type":"text","text":"Let me see. "},{"type":"tool_use","id":"r1","name":"recover_text","input":{}}]`,
		history.Responses: `[{"type":"reasoning","id":"rs1","summary":[]},{"type":"message","id":"m1","role":"assistant","content":[{"type":"output_text","text":"Let me see. "}]},{"type":"function_call","call_id":"r1","name":"recover_text","arguments":"{}"}]`,
	}
	two = map[history.Shape]string{
		history.Chat:      `{"role":"assistant","content":null,"tool_calls":[{"id":"r2","type":"function","function":{"name":"recover_text","arguments":"{}"}}]}`,
		history.Messages:  `[{"type":"tool_use","id":"r2","name":"recover_text","input":{}}]`,
		history.Responses: `[{"type":"function_call","call_id":"r2","name":"recover_text","arguments":"{}"}]`,
	}
	mixed = map[history.Shape]string{
		history.Chat:      `{"role":"assistant","content":"And now.","tool_calls":[{"id":"r3","type":"function","function":{"name":"recover_text","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"read","arguments":"{}"}}]}`,
		history.Messages:  `[{"type":"text","text":"And now."},{"type":"tool_use","id":"r3","name":"recover_text","input":{}},{"type":"tool_use","id":"c2","name":"read","input":{}}]`,
		history.Responses: `[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"And now."}]},{"type":"function_call","call_id":"r3","name":"recover_text","arguments":"{}"},{"type":"function_call","call_id":"c2","name":"read","arguments":"{}"}]`,
	}
)

func answer(id string) []Answer { return []Answer{{ID: id, Text: "original of " + id}} }

// talk is a request of a shape, made of the conversation's elements.
func talk(shape history.Shape, elements ...string) string {
	return `{"` + listOf(shape) + `":[` + strings.Join(elements, ", ") + `],"x":1}`
}

// begin is a conversation with a tool turn.
var begin = map[history.Shape]string{
	history.Chat:      `{"role":"user","content":"go"}, {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"x"}`,
	history.Messages:  `{"role":"user","content":"go"}, {"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"read","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"x"}]}`,
	history.Responses: `{"role":"user","content":"go"}, {"type":"function_call","call_id":"c1","name":"read","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"x"}`,
}

// mend restores the last reply of a request that is said to be after the second.
func mend(t *testing.T, shape history.Shape, body string, rec *Record) (string, bool) {
	t.Helper()
	rec, err := DecodeRecord(rec.Encode())
	if err != nil {
		t.Fatal(err)
	}
	d := read(t, shape, body)
	replies := d.Replies()
	edits, ok := rec.Restore(d, []byte(body), replies[len(replies)-1])
	got := string(jsonscan.AppendSpliced(nil, []byte(body), edits))
	if !json.Valid([]byte(got)) {
		t.Errorf("%s: not valid: %s", shape, got)
	}
	return got, ok
}

// H+5: what the client sends after two rounds that it did not see goes out as those rounds did, and
// then what it said itself.
func TestRestoreRounds(t *testing.T) {
	said := map[history.Shape][2]string{ // what the client sends, what goes out
		history.Chat: {
			`{"role":"assistant","content":"Let me see. It is 7.","x":2}`,
			`{"role":"assistant","content":"It is 7.","x":2}`,
		},
		history.Messages: {
			`{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s1"}, {"type":"text","text":"Let me see. "},{"type":"thinking","thinking":"so","signature":"s2"} ,{"type":"text","text":"It is 7.","cache_control":{"type":"ephemeral"}}]}`,
			`{"role":"assistant","content":[{"type":"thinking","thinking":"so","signature":"s2"} ,{"type":"text","text":"It is 7.","cache_control":{"type":"ephemeral"}}]}`,
		},
		history.Responses: {
			`{"type":"reasoning","id":"rs1","summary":[]}, {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me see. "}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"It is 7."}]}`,
			`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"It is 7."}]}`,
		},
	}
	for shape, s := range said {
		rec := &Record{}
		sent := []byte(talk(shape, begin[shape]))
		for i, round := range []string{one[shape], two[shape]} {
			r := &Round{Said: []byte(round)}
			answers := answer([]string{"r1", "r2"}[i])
			rec.Add(r, answers)
			var err error
			if sent, err = Follow(shape, sent, r, answers); err != nil {
				t.Fatal(err)
			}
		}
		const user = `{"role":"user","content":"thanks"}`
		got, ok := mend(t, shape, talk(shape, begin[shape], s[0], user), rec)
		prefix := strings.TrimSuffix(string(sent), `],"x":1}`)
		if want := prefix + "," + s[1] + ", " + user + `],"x":1}`; !ok || strings.ReplaceAll(got, ", {", ",{") != strings.ReplaceAll(want, ", {", ",{") {
			t.Errorf("%s: %v\n got %s\nwant %s", shape, ok, got, want)
		}
	}
}

// H+5: a call of the client's own beside one that it did not see: both are there again, answered.
func TestRestoreMixed(t *testing.T) {
	said := map[history.Shape][2]string{ // the reply, and the results
		history.Chat: {
			`{"role":"assistant","content":"Let me see. And now.","tool_calls":[{"id":"c2","type":"function","function":{"name":"read","arguments":"{}"}}]}`,
			`{"role":"tool","tool_call_id":"c2","content":"y"}`,
		},
		history.Messages: {
			`{"role":"assistant","content":[{"type":"text","text":"Let me see. "},{"type":"text","text":"And now."},{"type":"tool_use","id":"c2","name":"read","input":{}}]}`,
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2","content":"y"},{"type":"text","text":"reminder"}]}`,
		},
		history.Responses: {
			`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me see. "}]}, {"type":"message","role":"assistant","content":[{"type":"output_text","text":"And now."}]},{"type":"function_call","call_id":"c2","name":"read","arguments":"{}"}`,
			`{"type":"function_call_output","call_id":"c2","output":"y"}`,
		},
	}
	for shape, s := range said {
		rec := &Record{}
		rec.Add(&Round{Said: []byte(one[shape])}, answer("r1"))
		rec.Add(&Round{Said: []byte(mixed[shape]), Mixed: true, Others: []string{"c2"}}, answer("r3"))
		first, err := Follow(shape, []byte(talk(shape, begin[shape])), &Round{Said: []byte(one[shape])}, answer("r1"))
		if err != nil {
			t.Fatal(err)
		}
		want := strings.TrimSuffix(string(first), `],"x":1}`) + "," + string(spoken(nil, shape, []byte(mixed[shape]))) + ","
		hidden := string(results(nil, shape, answer("r3")))
		if shape == history.Messages {
			want += strings.Replace(s[1], `[`, `[`+hidden+`,`, 1)
		} else {
			want += hidden + "," + s[1]
		}
		got, ok := mend(t, shape, talk(shape, begin[shape], s[0], s[1]), rec)
		if want += `],"x":1}`; !ok || strings.ReplaceAll(got, ", {", ",{") != strings.ReplaceAll(want, ", {", ",{") {
			t.Errorf("%s: %v\n got %s\nwant %s", shape, ok, got, want)
		}
	}
}

// H+5: another reply in the same place, as when a client asks twice, gets nothing that is not its own.
func TestRestoreOnlyItsOwn(t *testing.T) {
	for shape, reply := range map[history.Shape]string{
		history.Chat:      `{"role":"assistant","content":"It is 7."}`,
		history.Messages:  `{"role":"assistant","content":"It is 7."}`,
		history.Responses: `{"role":"assistant","content":"It is 7."}`,
	} {
		body := talk(shape, begin[shape], reply)
		d := read(t, shape, talk(shape, begin[shape]))
		for text, want := range map[string]bool{"It is 7.\n": true, "It is 8.": false} {
			own := d.Next(d.Replies())
			own.Text = text
			rec := &Record{Reply: own.Name()}
			rec.Add(&Round{Said: []byte(two[shape])}, answer("r2"))
			if got, ok := mend(t, shape, body, rec); ok != want {
				t.Errorf("%s: %q: got %s", shape, text, got)
			}
		}
	}
}

// H+5: a message that is not what the client was shown stays as it came.
func TestRestoreFailsOpen(t *testing.T) {
	for shape, replies := range map[history.Shape][]string{
		history.Chat: {
			`{"role":"assistant","content":"Let me look. It is 7."}`,
			`{"role":"assistant","content":null}`,
			`{"role":"assistant"}`,
			`{"role":"assistant","content":[{"type":"text","text":"Let me see. "},{"type":"text","text":"It is 7."}]}`,
		},
		history.Messages: {
			`{"role":"assistant","content":"Let me"}`,
			`{"role":"assistant","content":[{"type":"text","text":"It is 7."}]}`,
			`{"role":"assistant","content":[]}`,
			`{"role":"assistant"}`,
		},
		history.Responses: {
			`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"It is 7."}]}`,
			`{"type":"function_call","call_id":"c3","name":"x","arguments":""}`,
		},
	} {
		rounds := &Record{}
		rounds.Add(&Round{Said: []byte(one[shape])}, answer("r1"))
		calls := &Record{}
		calls.Add(&Round{Said: []byte(mixed[shape]), Mixed: true, Others: []string{"c2"}}, answer("r3"))
		for _, reply := range replies {
			body := talk(shape, begin[shape], reply)
			for name, rec := range map[string]*Record{"rounds": rounds, "mixed": calls, "nothing": {}} {
				if got, ok := mend(t, shape, body, rec); ok || got != body {
					t.Errorf("%s: %s: %s became %s", shape, name, body, got)
				}
			}
		}
	}
}

// A reply of which all was said in hidden rounds leaves nothing behind that would be empty.
func TestRestoreNothingLeft(t *testing.T) {
	for shape, reply := range map[history.Shape]string{
		history.Chat:      `{"role":"assistant","content":"Let me see. "}`,
		history.Messages:  `{"role":"assistant","content":"Let me see. "}`,
		history.Responses: `{"type":"message","role":"assistant","content":"Let me see. "}`,
	} {
		rec := &Record{}
		rec.Add(&Round{Said: []byte(one[shape])}, answer("r1"))
		want, _ := Follow(shape, []byte(talk(shape, begin[shape])), &Round{Said: []byte(one[shape])}, answer("r1"))
		got, ok := mend(t, shape, talk(shape, begin[shape], reply), rec)
		if !ok || strings.ReplaceAll(got, ", {", ",{") != strings.ReplaceAll(string(want), ", {", ",{") {
			t.Errorf("%s: got %s", shape, got)
		}
	}
}

func TestRecord(t *testing.T) {
	rec := &Record{Reply: history.Sum{7}, Steps: []Step{
		{Said: []byte("a"), Answers: []Answer{{"r", "text", true}, {"", "", false}}},
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
	none := strings.Repeat("\x00", len(history.Sum{}))
	for _, bad := range []string{"", "\x02", "\x01" + none + "\x00\xff\xff\xff\xff\x7f", "\x01" + none + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		if got, err := DecodeRecord([]byte(bad)); err == nil {
			t.Errorf("%q: got %+v", bad, got)
		}
	}
}
