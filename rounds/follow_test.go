package rounds

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/history"
)

// read reads a request that must be good.
func read(t *testing.T, shape history.Shape, body string) *history.Dialogue {
	t.Helper()
	d, err := history.Read(shape, []byte(body), 0)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return d
}

// spliced makes the edit.
func offered(t *testing.T, shape history.Shape, body string) (string, bool) {
	t.Helper()
	e, ok := Offer(read(t, shape, body), []byte(body))
	return body[:e.Start] + string(e.Text) + body[e.End:], ok
}

// H+5: the tool is added to the tools that are there, and nothing else changes.
func TestOffer(t *testing.T) {
	for shape, c := range map[history.Shape]struct{ body, want string }{
		history.Chat: {
			`{"tools":[ {"type":"function","function":{"name":"a"}} ] ,"messages":[],"n":1}`,
			`{"tools":[ {"type":"function","function":{"name":"a"}} ,@] ,"messages":[],"n":1}`,
		},
		history.Messages: {
			`{"messages":[],"tools":[ {"name":"a","cache_control":{"type":"ephemeral"}}],"tool_choice":{"type":"none"}}`,
			`{"messages":[],"tools":[ @,{"name":"a","cache_control":{"type":"ephemeral"}}],"tool_choice":{"type":"none"}}`,
		},
		history.Responses: {
			`{"input":"x","tools":[{"type":"web_search"}],"conversation":null,"previous_response_id":"r"}`,
			`{"input":"x","tools":[{"type":"web_search"},@],"conversation":null,"previous_response_id":"r"}`,
		},
	} {
		tool := map[history.Shape]string{history.Chat: chatTool, history.Messages: messagesTool, history.Responses: responsesTool}[shape]
		got, ok := offered(t, shape, c.body)
		if want := strings.Replace(c.want, "@", tool, 1); !ok || got != want || !json.Valid([]byte(got)) {
			t.Errorf("%s: got %v %s", shape, ok, got)
		}
		if again, ok := offered(t, shape, got); ok {
			t.Errorf("%s: offered twice: %s", shape, again)
		}
	}
}

// H+5, H10: where it makes no sense, or the client has it, nothing is added.
func TestNoOffer(t *testing.T) {
	const tool = `{"type":"function","function":{"name":"a"}}`
	for _, c := range []struct {
		shape history.Shape
		body  string
	}{
		{history.Chat, `{"messages":[]}`},
		{history.Chat, `{"messages":[],"tools":[ ]}`},
		{history.Chat, `{"messages":[],"tools":null}`},
		{history.Chat, `{"messages":[],"n":2,"tools":[` + tool + `]}`},
		{history.Chat, `{"messages":[],"tools":[{"type":"function","function":{"name":"x__recover_text","parameters":{"prune_id":1}}}]}`},
		{history.Chat, `{"messages":[],"tools":[{"type":"function","function":{"name":"recover_text"}}]}`},
		{history.Messages, `{"messages":[],"tools":[]}`},
		{history.Messages, `{"messages":[],"tools":[{"name":"recover_text"}]}`},
		{history.Responses, `{"input":"x","conversation":"c","tools":[` + tool + `]}`},
		{history.Responses, `{"input":"x","background":true,"tools":[` + tool + `]}`},
	} {
		if got, ok := offered(t, c.shape, c.body); ok {
			t.Errorf("%s became %s", c.body, got)
		}
	}
}

// H+5: the next round's request goes on where the last one ended.
func TestFollow(t *testing.T) {
	answers := []Answer{{ID: "r1", Text: "one \"é\"\n"}, {ID: "r2", Text: "no", Failed: true}}
	for name, c := range map[string]struct {
		shape            history.Shape
		body, said, want string
	}{
		"chat": {
			history.Chat, `{"messages":[ {"role":"user","content":"x"} ], "n":1}`, `{"role":"assistant","tool_calls":[]}`,
			`{"messages":[ {"role":"user","content":"x"} ,{"role":"assistant","tool_calls":[]},{"role":"tool","tool_call_id":"r1","content":"one \"é\"\n"},{"role":"tool","tool_call_id":"r2","content":"no"}], "n":1}`,
		},
		"empty": {
			history.Chat, `{"messages":[ ]}`, `{}`,
			`{"messages":[ {},{"role":"tool","tool_call_id":"r1","content":"one \"é\"\n"},{"role":"tool","tool_call_id":"r2","content":"no"}]}`,
		},
		"messages": {
			history.Messages, `{"messages":[{"role":"user","content":"x"}]}`, `[{"type":"tool_use"}]`,
			`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"r1","content":"one \"é\"\n"},{"type":"tool_result","tool_use_id":"r2","is_error":true,"content":"no"}]}]}`,
		},
		"responses": {
			history.Responses, `{"input":[{"role":"user","content":"x"}]}`, `[ {"type":"reasoning"}, {"type":"function_call"}]`,
			`{"input":[{"role":"user","content":"x"},{"type":"reasoning"}, {"type":"function_call"},{"type":"function_call_output","call_id":"r1","output":"one \"é\"\n"},{"type":"function_call_output","call_id":"r2","output":"no"}]}`,
		},
		"text": {
			history.Responses, `{"input":"a \u00e9","x":1}`, `[{"type":"function_call"}]`,
			`{"input":[{"role":"user","content":"a \u00e9"},{"type":"function_call"},{"type":"function_call_output","call_id":"r1","output":"one \"é\"\n"},{"type":"function_call_output","call_id":"r2","output":"no"}],"x":1}`,
		},
	} {
		got, err := Follow(c.shape, []byte(c.body), &Round{Said: []byte(c.said)}, answers)
		if err != nil || string(got) != c.want || !json.Valid(got) {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
	for _, body := range []string{`{}`, `{"messages":7}`} {
		if got, err := Follow(history.Chat, []byte(body), &Round{Said: []byte(`{}`)}, answers); err == nil {
			t.Errorf("%s became %s", body, got)
		}
	}
}

// H+5: a round is cached as the messages before it are, where the request may have one more mark.
func TestMark(t *testing.T) {
	const marked = `"cache_control":{"type":"ephemeral"}`
	answers := []Answer{{ID: "r1", Text: "}]}"}, {ID: "r2", Text: "no"}}
	user := func(marks int) string {
		return `{"role":"user","content":[{"type":"text","text":"x"}` + strings.Repeat(`,{"type":"text","text":"y",`+marked+`}`, marks) + `]}`
	}
	for body, more := range map[string]bool{
		`{"messages":[` + user(1) + `],"model":"m"}`:                                          true,
		`{"messages":[` + user(3) + ` ] }`:                                                    true,
		`{"messages":[` + user(4) + `]}`:                                                      false,
		`{"system":[{"type":"text","text":"s",` + marked + `}],"messages":[` + user(3) + `]}`: false,
		`{"messages":[` + user(1) + `],` + marked + `}`:                                       false,
	} {
		round := &Round{Said: []byte(`[{"type":"tool_use"}]`)}
		plain, err := Follow(history.Messages, []byte(body), round, answers)
		if err != nil || MayMark([]byte(body)) != more {
			t.Fatalf("%s became %s, %v, and may have one more: %v", body, plain, err, !more)
		}
		got := Mark(plain)
		if !json.Valid(got) || !bytes.Contains(got, []byte(`"tool_use_id":"r2","content":"no",`+marked+`}]}`)) {
			t.Errorf("the last answer is not marked: %s", got)
		}
		if back := bytes.Replace(got, []byte(`"no",`+marked), []byte(`"no"`), 1); !bytes.Equal(back, plain) {
			t.Errorf("more than a mark is different: %s", got)
		}
	}
	for _, other := range []string{`{}`, `{"messages":"}]}]"}`, `{"messages":[]}`, `no`} {
		if got := Mark([]byte(other)); string(got) != other {
			t.Errorf("%s became %s", other, got)
		}
	}
}
