package readback

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/responses"
)

func newLimited(shape llm.ReadbackCodec, stream bool, limit int) *Merger {
	return newMerger(shape, stream, limit)
}

func chunkOf(delta string) string {
	return `data: {"id":"1","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}` + "\n\n"
}

const (
	callChunk = `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"r","function":{"name":"recover_text","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}` + "\n\n"
	callWhole = `{"choices":[{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"r","function":{"name":"recover_text","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`
)

// The merger buffers at most its limit; see [Merger.Write].
func TestLimit(t *testing.T) {
	long := chunkOf(`{"content":"` + strings.Repeat("x", 2000) + `"}`)
	many := strings.Repeat(chunkOf(`{"content":"many words"}`), 200)
	for name, c := range map[string]struct {
		stream                    bool
		first, second             string
		isTooLong, hasSecondRound bool
	}{
		"a long first document":         {first: `{"a":"` + strings.Repeat("x", 2000) + `"}`},
		"a long second document":        {first: callWhole, second: strings.Repeat(" ", 1001), hasSecondRound: true, isTooLong: true},
		"a long event":                  {stream: true, first: chunkOf(`{"content":"a"}`) + long + callChunk},
		"a long event of a later round": {stream: true, first: callChunk, second: long, hasSecondRound: true, isTooLong: true},
		"many events":                   {stream: true, first: many + callChunk},
		"too many held events":          {stream: true, first: callChunk + many, isTooLong: true},
		"many calls":                    {stream: true, first: manyCalls(4096 + 1)},
	} {
		t.Run(name, func(t *testing.T) {
			m := newLimited(openaichat.Codec{}, c.stream, 1000)
			out, err := writeAll(m, c.first)
			r := m.EndRound()
			if c.hasSecondRound != (r != nil) && !c.isTooLong {
				t.Errorf("got round %v, want one: %v", r, c.hasSecondRound)
			}
			if c.hasSecondRound {
				_, err = writeAll(m, c.second)
			}
			if c.isTooLong != errors.Is(err, ErrTooLong) {
				t.Fatalf("got error %v, want ErrTooLong: %v", err, c.isTooLong)
			}
			if c.isTooLong || name == "many events" {
				return
			}
			if out = append(out, m.Finish()...); string(out) != c.first {
				t.Errorf("the reply of %d bytes was forwarded as %d others", len(c.first), len(out))
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

func writeAll(m *Merger, s string) (out []byte, err error) {
	for len(s) > 0 && err == nil {
		n := min(len(s), 700)
		var more []byte
		more, err = m.Write([]byte(s[:n]))
		out, s = append(out, more...), s[n:]
	}
	return out, err
}

// BenchmarkMerger measures the cost of an event of a reply without a call of recover_text.
func BenchmarkMerger(b *testing.B) {
	for name, c := range map[string]struct {
		shape llm.ReadbackCodec
		event string
	}{
		"chat":      {openaichat.Codec{}, `data: {"id":"chatcmpl-000000000000000000000001","object":"chat.completion.chunk","created":1767323045,"model":"m","choices":[{"index":0,"delta":{"content":"Some text that is shown."},"logprobs":null,"finish_reason":null}],"usage":null,"service_tier":"default","system_fingerprint":"fp_llmtest"}` + "\n\n"},
		"messages":  {anthropic.Codec{}, "event: content_block_delta\n" + `data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Some text that is shown."}}` + "\n\n"},
		"responses": {responses.Codec{}, "event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","sequence_number":9,"item_id":"msg_000000000000000000000004","output_index":1,"content_index":0,"delta":"Some text that is shown.","logprobs":[]}` + "\n\n"},
	} {
		b.Run(name, func(b *testing.B) {
			m := NewMerger(c.shape, true)
			start := []byte(`data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}` + "\n\n")
			if c.shape == (anthropic.Codec{}) {
				_, _ = m.Write(start)
			}
			event := []byte(c.event)
			b.SetBytes(int64(len(event)))
			b.ReportAllocs()
			for b.Loop() {
				if out, err := m.Write(event); err != nil || len(out) != len(event) {
					b.Fatal(err)
				}
			}
		})
	}
}
