package readback

import (
	"slices"
	"testing"

	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/gemini"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/responses"
)

// The observer reads the text and calls of a reply that the client will repeat, however the reply is chunked.
func TestReplyObserver(t *testing.T) {
	for name, c := range map[string]struct {
		shape  llm.ReadbackCodec
		stream bool
		shown  string
	}{
		"chat": {openaichat.Codec{}, false, `{"choices":[{"message":{"role":"assistant","content":"It is é.","tool_calls":[{"id":"a"},{"id":"b"}]}}]}`},
		"chat stream": {openaichat.Codec{}, true, `data: {"choices":[{"delta":{"role":"assistant","content":"It "}}]}` + "\n\n" +
			`data: {"choices":[{"delta":{"content":"is \u00e9."}}]}` + "\n\n: ping\n\n" +
			`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a"}]}}]}` + "\n\n" +
			`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}}]}` + "\n\n" +
			`data: {"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b"}]}}]}` + "\r\n\r\n" +
			`data: {"choices":[],"usage":{}}` + "\n\ndata: [DONE]\n\n"},
		"messages": {anthropic.Codec{}, false, `{"content":[{"type":"thinking","thinking":"no"},{"type":"text","text":"It is é."},{"type":"tool_use","id":"a"},{"type":"tool_use","id":"b"}]}`},
		"messages stream": {anthropic.Codec{}, true, "event: content_block_start\n" + `data: {"type":"content_block_start","content_block":{"type":"text","text":"It"}}` + "\n\n" +
			`data: {"type":"content_block_delta","delta":{"type":"text_delta","text":" is é."}}` + "\n\n" +
			`data: {"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"no"}}` + "\n\n" +
			`data: {"type":"content_block_start","content_block":{"type":"tool_use","id":"a"}}` + "\n\n" +
			`data: {"type":"content_block_start","content_block":{"type":"tool_use","id":"b"}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n"},
		"responses": {responses.Codec{}, false, `{"output":[{"type":"reasoning","content":[]},{"type":"message","content":[{"type":"output_text","text":"It is é."}]},{"type":"function_call","call_id":"a"},{"type":"function_call","call_id":"b"}]}`},
		"responses stream": {responses.Codec{}, true, `data: {"type":"response.output_text.delta","delta":"It is"}` + "\n\n" +
			`data: {"type":"response.output_item.done","item":{"type":"message","content":[{"type":"output_text","text":"It is é."}]}}` + "\n\n" +
			`data: {"type":"response.output_item.done","item":{"type":"function_call","call_id":"a"}}` + "\n\n" +
			`data: {"type":"response.output_item.done","item":{"type":"function_call","call_id":"b"}}` + "\n\n" +
			`data: {"type":"response.completed","response":{}}` + "\n\n"},
		"gemini": {gemini.Codec{}, false, `{"candidates":[{"content":{"parts":[{"text":"no","thought":true},{"text":"It is é."},{"functionCall":{"id":"a"}},{"functionCall":{"id":"b"}}]}}]}`},
		"gemini stream": {gemini.Codec{}, true, `data: {"candidates":[{"content":{"parts":[{"text":"It"}]}}]}` + "\n\n" +
			`data: {"candidates":[{"content":{"parts":[{"text":" is \u00e9."},{"functionCall":{"id":"a"}}]}}]}` + "\n\n" +
			`data: {"candidates":[{"content":{"parts":[{"functionCall":{"id":"b"}}]},"finishReason":"STOP"}]}` + "\n\n"},
	} {
		for _, size := range []int{1, 7, len(c.shown)} {
			observer := NewReplyObserver(c.shape, c.stream)
			for piece := range slices.Chunk([]byte(c.shown), size) {
				observer.Write(piece)
			}
			if observer.IsComplete() != c.stream {
				t.Errorf("%s: IsComplete is %v, want %v", name, observer.IsComplete(), c.stream)
			}
			var got llm.Statement
			if ok := observer.AddTo(&got); !ok || got.Text != "It is é." || !slices.Equal(got.Calls, []string{"a", "b"}) {
				t.Errorf("%s in chunks of %d: got %v %+v", name, size, ok, got)
			}
		}
	}
	observer := NewReplyObserver(openaichat.Codec{}, true)
	observer.Write([]byte("data: {\n\n"))
	if observer.AddTo(&llm.Statement{}) {
		t.Error("invalid JSON was accepted")
	}
	observer = nil
	if observer.Write([]byte("x")); observer.AddTo(&llm.Statement{}) {
		t.Error("a nil observer has read something")
	}
}
