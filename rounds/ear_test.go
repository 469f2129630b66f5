package rounds

import (
	"slices"
	"testing"

	"github.com/ctxgate/ctxgate/history"
)

// What a client is shown is heard as the client will send it again, in whatever pieces it comes.
func TestEar(t *testing.T) {
	for name, c := range map[string]struct {
		shape  history.Shape
		stream bool
		shown  string
	}{
		"chat": {history.Chat, false, `{"choices":[{"message":{"role":"assistant","content":"It is é.","tool_calls":[{"id":"a"},{"id":"b"}]}}]}`},
		"chat stream": {history.Chat, true, `data: {"choices":[{"delta":{"role":"assistant","content":"It "}}]}` + "\n\n" +
			`data: {"choices":[{"delta":{"content":"is \u00e9."}}]}` + "\n\n: ping\n\n" +
			`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a"}]}}]}` + "\n\n" +
			`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}}]}` + "\n\n" +
			`data: {"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b"}]}}]}` + "\r\n\r\n" +
			`data: {"choices":[],"usage":{}}` + "\n\ndata: [DONE]\n\n"},
		"messages": {history.Messages, false, `{"content":[{"type":"thinking","thinking":"no"},{"type":"text","text":"It is é."},{"type":"tool_use","id":"a"},{"type":"tool_use","id":"b"}]}`},
		"messages stream": {history.Messages, true, "event: content_block_start\n" + `data: {"type":"content_block_start","content_block":{"type":"text","text":"It"}}` + "\n\n" +
			`data: {"type":"content_block_delta","delta":{"type":"text_delta","text":" is é."}}` + "\n\n" +
			`data: {"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"no"}}` + "\n\n" +
			`data: {"type":"content_block_start","content_block":{"type":"tool_use","id":"a"}}` + "\n\n" +
			`data: {"type":"content_block_start","content_block":{"type":"tool_use","id":"b"}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n"},
		"responses": {history.Responses, false, `{"output":[{"type":"reasoning","content":[]},{"type":"message","content":[{"type":"output_text","text":"It is é."}]},{"type":"function_call","call_id":"a"},{"type":"function_call","call_id":"b"}]}`},
		"responses stream": {history.Responses, true, `data: {"type":"response.output_text.delta","delta":"It is"}` + "\n\n" +
			`data: {"type":"response.output_item.done","item":{"type":"message","content":[{"type":"output_text","text":"It is é."}]}}` + "\n\n" +
			`data: {"type":"response.output_item.done","item":{"type":"function_call","call_id":"a"}}` + "\n\n" +
			`data: {"type":"response.output_item.done","item":{"type":"function_call","call_id":"b"}}` + "\n\n" +
			`data: {"type":"response.completed","response":{}}` + "\n\n"},
	} {
		for _, size := range []int{1, 7, len(c.shown)} {
			ear := NewEar(c.shape, c.stream)
			for piece := range slices.Chunk([]byte(c.shown), size) {
				ear.Write(piece)
			}
			if ear.Over() != c.stream {
				t.Errorf("%s: over %v", name, ear.Over())
			}
			var got history.Reply
			if ok := ear.Heard(&got); !ok || got.Text != "It is é." || !slices.Equal(got.Calls, []string{"a", "b"}) {
				t.Errorf("%s in pieces of %d: got %v %+v", name, size, ok, got)
			}
		}
	}
	ear := NewEar(history.Chat, true)
	ear.Write([]byte("data: {\n\n"))
	if ear.Heard(&history.Reply{}) {
		t.Error("what is no JSON was understood")
	}
	ear = nil
	if ear.Write([]byte("x")); ear.Heard(&history.Reply{}) {
		t.Error("nothing was heard")
	}
}
