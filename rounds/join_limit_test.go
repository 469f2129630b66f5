package rounds

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/history"
)

func limited(shape history.Shape, stream bool, limit int) *Join {
	return &Join{reply: newReply(shape, stream, limit)}
}

func chunkOf(delta string) string {
	return `data: {"id":"1","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}` + "\n\n"
}

const (
	callChunk = `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"r","function":{"name":"recover_text","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}` + "\n\n"
	callWhole = `{"choices":[{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"r","function":{"name":"recover_text","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`
)

// What is kept of a reply has a limit; see [Join.Write].
func TestLimit(t *testing.T) {
	long := chunkOf(`{"content":"` + strings.Repeat("x", 2000) + `"}`)
	many := strings.Repeat(chunkOf(`{"content":"many words"}`), 200)
	for name, c := range map[string]struct {
		stream        bool
		first, second string
		fails, asks   bool
	}{
		"a long first document":         {first: `{"a":"` + strings.Repeat("x", 2000) + `"}`},
		"a long second document":        {first: callWhole, second: strings.Repeat(" ", 1001), asks: true, fails: true},
		"a long event":                  {stream: true, first: chunkOf(`{"content":"a"}`) + long + callChunk},
		"a long event of a later round": {stream: true, first: callChunk, second: long, asks: true, fails: true},
		"many events":                   {stream: true, first: many + callChunk},
		"much to be held back":          {stream: true, first: callChunk + many, fails: true},
		"many calls":                    {stream: true, first: manyCalls(maxNumbered + 1)},
	} {
		t.Run(name, func(t *testing.T) {
			j := limited(history.Chat, c.stream, 1000)
			out, err := writeAll(j, c.first)
			r := j.End()
			if c.asks != (r != nil) && !c.fails {
				t.Errorf("%v", r)
			}
			if c.asks {
				_, err = writeAll(j, c.second)
			}
			if c.fails != errors.Is(err, ErrTooLong) {
				t.Fatalf("%v", err)
			}
			if c.fails || name == "many events" {
				return
			}
			if out = append(out, j.Finish()...); string(out) != c.first {
				t.Errorf("%d bytes became %d", len(c.first), len(out))
			}
		})
	}
}

func manyCalls(n int) string {
	var b bytes.Buffer
	for i := range n {
		b.WriteString(chunkOf(fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":"i%d","function":{"name":"a"}}]}`, i, i)))
	}
	return b.String()
}

func writeAll(j *Join, s string) (out []byte, err error) {
	for len(s) > 0 && err == nil {
		n := min(len(s), 700)
		var more []byte
		more, err = j.Write([]byte(s[:n]))
		out, s = append(out, more...), s[n:]
	}
	return out, err
}

// What a reply costs that asks nothing back.
func BenchmarkJoin(b *testing.B) {
	for name, c := range map[string]struct {
		shape history.Shape
		event string
	}{
		"chat":      {history.Chat, `data: {"id":"chatcmpl-000000000000000000000001","object":"chat.completion.chunk","created":1767323045,"model":"m","choices":[{"index":0,"delta":{"content":"Some text that is shown."},"logprobs":null,"finish_reason":null}],"usage":null,"service_tier":"default","system_fingerprint":"fp_llmtest"}` + "\n\n"},
		"messages":  {history.Messages, "event: content_block_delta\n" + `data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Some text that is shown."}}` + "\n\n"},
		"responses": {history.Responses, "event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","sequence_number":9,"item_id":"msg_000000000000000000000004","output_index":1,"content_index":0,"delta":"Some text that is shown.","logprobs":[]}` + "\n\n"},
	} {
		b.Run(name, func(b *testing.B) {
			j := NewJoin(c.shape, true)
			start := []byte(`data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}` + "\n\n")
			if c.shape == history.Messages {
				_, _ = j.Write(start)
			}
			event := []byte(c.event)
			b.SetBytes(int64(len(event)))
			b.ReportAllocs()
			for b.Loop() {
				if out, err := j.Write(event); err != nil || len(out) != len(event) {
					b.Fatal(err)
				}
			}
		})
	}
}
