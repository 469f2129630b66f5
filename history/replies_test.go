package history

import (
	"slices"
	"testing"

	"github.com/ctxgate/ctxgate/llm"
)

// The place of a reply is the same before it is made and when the next request repeats it. Its identity does not
// depend on how the client writes it, and differs for another place or another text.
func TestReplies(t *testing.T) {
	read := func(shape llm.Codec, body string) *Dialogue {
		d, err := Read(shape, []byte(body), 0)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return d
	}
	for shape, c := range map[llm.Codec]struct {
		begin string
		same  []string // one reply
		other string
	}{
		openAIChat: {
			`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"x"}}]},{"role":"tool","tool_call_id":"1","content":"r"}`,
			[]string{
				`{"role":"assistant","content":"yes ","tool_calls":[{"id":"2","function":{"name":"x"}},{"id":"3"}]}`,
				`{"role":"assistant","reasoning_content":"hm","content":[{"type":"text","text":"y"},{"type":"text","text":"es","cache_control":{}}],"tool_calls":[{"id":"2"},{"id":"3"}]}`,
			},
			`{"role":"assistant","content":"yes","tool_calls":[{"id":"2"}]}`,
		},
		anthropicMessages: {
			`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"x","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"}]}`,
			[]string{
				`{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"yes"},{"type":"tool_use","id":"2"},{"type":"tool_use","id":"3"}]}`,
				`{"role":"assistant","content":[{"type":"text","text":"yes\n"},{"type":"tool_use","id":"2"},{"type":"tool_use","id":"3","cache_control":{}}]}`,
			},
			`{"role":"assistant","content":"no"}`,
		},
		openAIResponses: {
			`{"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"1","name":"x","arguments":""},{"type":"function_call_output","call_id":"1","output":"r"}`,
			[]string{
				`{"type":"reasoning"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"yes"}]},{"type":"function_call","call_id":"2"},{"type":"function_call","call_id":"3"}`,
				`{"role":"assistant","content":"yes"},{"type":"function_call","call_id":"2"},{"type":"function_call","call_id":"3"}`,
			},
			`{"type":"function_call","call_id":"2"}`,
		},
		geminiContents: {
			`{"contents":[{"role":"user","parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"name":"x"}}]},{"role":"user","parts":[{"functionResponse":{"name":"x","response":{"output":"r"}}}]}`,
			[]string{
				`{"role":"model","parts":[{"text":"hm","thought":true},{"text":"y"},{"text":"es"},{"functionCall":{"id":"2","name":"x"}},{"functionCall":{"id":"3","name":"x"}}]}`,
				`{"parts":[{"text":"yes\n","thoughtSignature":"s"},{"functionCall":{"id":"2","name":"x"},"thoughtSignature":"s"},{"functionCall":{"id":"3","name":"x"}}],"role":"model"}`,
			},
			`{"role":"model","parts":[{"text":"yes"},{"functionCall":{"id":"2","name":"x"}}]}`,
		},
	} {
		d := read(shape, c.begin+`]}`)
		next := d.Next(d.Replies())
		for _, reply := range append(slices.Clone(c.same), c.other) {
			got := read(shape, c.begin+`,`+reply+`,{"role":"user","content":"b"},`+reply+`]}`).Replies()
			if len(got) != 3 || got[1].Place() != next.Place() || got[2].Place() == next.Place() || got[1].Identity() == got[2].Identity() {
				t.Fatalf("%s: %s: got %+v", shape, reply, got)
			}
			next.Text, next.Calls = "yes", []string{"2", "3"}
			if same := got[1].Identity() == next.Identity(); same != (reply != c.other) {
				t.Errorf("%s: %s: got %+v", shape, reply, got[1])
			}
		}
	}
}

// ReadSaid reads the text and calls of a round.
func TestReadSaid(t *testing.T) {
	for shape, reply := range map[llm.Codec]string{
		openAIChat:        `{"role":"assistant","content":"yes","tool_calls":[{"id":"2"}]}`,
		anthropicMessages: `[{"type":"thinking","thinking":"hm"},{"type":"text","text":"yes"},{"type":"tool_use","id":"2"}]`,
		openAIResponses:   `[{"type":"reasoning"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"yes"}]},{"type":"function_call","call_id":"2"}]`,
		geminiContents:    `[{"text":"hm","thought":true},{"text":"yes"},{"functionCall":{"id":"2"}}]`,
	} {
		var got Reply
		shape.(llm.ReadbackCodec).ReadSaid(&got.Statement, []byte(reply))
		if got.Text != "yes" || !slices.Equal(got.Calls, []string{"2"}) {
			t.Errorf("%s: got %+v", shape, got)
		}
		shape.(llm.ReadbackCodec).ReadSaid(&got.Statement, nil)
	}
}
