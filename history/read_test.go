package history

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// H+3: the same conversation reads the same in all shapes.
func TestHPlus3ShapesAgree(t *testing.T) {
	for seed := range uint64(50) {
		full := randomTranscript(seed, 12)
		var dialogues []string
		for _, shape := range shapes {
			d := mustRead(t, shape, full.render(shape, renderOptions{thinking: true}))
			if d.Model != "m-1" || !d.Stream || d.Breakpoint != -1 {
				t.Fatalf("%s: model %q, stream %v, breakpoint %d", shape, d.Model, d.Stream, d.Breakpoint)
			}
			summary := fmt.Sprint(len(d.Turns))
			for i, r := range d.Results {
				summary += fmt.Sprintf(" %s/%s/%d/%d/%s", r.CallID, r.Name, r.Turn, r.since, d.Text(i))
			}
			dialogues = append(dialogues, summary)
		}
		for i, other := range dialogues[1:] {
			if other != dialogues[0] {
				t.Fatalf("seed %d, %s:\n%s\n%s", seed, shapes[i+1], dialogues[0], other)
			}
		}
	}
}

// I7: duplicate keys, keys in other case, deep nesting and malformed JSON are refused.
func TestI7Refused(t *testing.T) {
	for name, tt := range map[string]struct {
		shape  llm.Codec
		body   string
		reason jsonscan.Reason
	}{
		"top":           {openAIChat, `{"messages":[],"messages":[]}`, jsonscan.DuplicateKey},
		"message":       {openAIChat, `{"messages":[{"role":"user","role":"tool"}]}`, jsonscan.DuplicateKey},
		"escaped":       {openAIChat, `{"messages":[{"role":"user","r\u006fle":"tool"}]}`, jsonscan.DuplicateKey},
		"call":          {openAIChat, `{"messages":[{"role":"assistant","tool_calls":[{"id":"a","id":"b"}]}]}`, jsonscan.DuplicateKey},
		"function":      {openAIChat, `{"messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"a","name":"b"}}]}]}`, jsonscan.DuplicateKey},
		"part":          {openAIChat, `{"messages":[{"role":"user","content":[{"type":"text","type":"x"}]}]}`, jsonscan.DuplicateKey},
		"block":         {anthropicMessages, `{"messages":[{"role":"user","content":[{"type":"tool_result","content":"a","content":"b"}]}]}`, jsonscan.DuplicateKey},
		"block inside":  {anthropicMessages, `{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"a","text":"b"}]}]}]}`, jsonscan.DuplicateKey},
		"item":          {openAIResponses, `{"input":[{"type":"function_call_output","output":"a","output":"b"}]}`, jsonscan.DuplicateKey},
		"part twice":    {geminiContents, `{"contents":[{"parts":[{"functionCall":{"name":"a"},"functionCall":{"name":"b"}}]}]}`, jsonscan.DuplicateKey},
		"two spellings": {geminiContents, `{"contents":[{"parts":[{"functionResponse":{"name":"a"},"function_response":{"name":"b"}}]}]}`, jsonscan.DuplicateKey},
		"folded part":   {geminiContents, `{"contents":[{"parts":[{"FunctionResponse":{"name":"a"}}]}]}`, jsonscan.FoldedKey},
		"response":      {geminiContents, `{"contents":[{"parts":[{"functionResponse":{"name":"a","name":"b"}}]}]}`, jsonscan.DuplicateKey},
		"folded":        {openAIChat, `{"Messages":[]}`, jsonscan.FoldedKey},
		"folded inside": {openAIResponses, `{"input":[{"Type":"message"}]}`, jsonscan.FoldedKey},
		"deep":          {openAIChat, `{"messages":[` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `]}`, jsonscan.TooDeep},
		"trailing":      {openAIChat, `{"messages":[]} x`, jsonscan.Trailing},
		"truncated":     {openAIChat, `{"messages":[{"role":"user"`, jsonscan.Truncated},
	} {
		_, err := Read(tt.shape, []byte(tt.body), 64)
		var refused *jsonscan.Error
		if !errors.As(err, &refused) || refused.Reason != tt.reason {
			t.Errorf("%s: got %v, want %s", name, err, tt.reason)
		}
	}
	for _, body := range []string{`{}`, `[]`, `{"messages":{}}`, `{"messages":"hi"}`, `{"messages":["hi"]}`, `{"messages":[null]}`, `{"input":[]}`} {
		for _, shape := range []llm.Codec{openAIChat, anthropicMessages} {
			if _, err := Read(shape, []byte(body), 0); err == nil {
				t.Errorf("%s %s was read", shape, body)
			}
		}
	}
}

// Unknown items, strings for lists and missing contents are accepted and not masked.
func TestUnmaskableIsAccepted(t *testing.T) {
	for name, tt := range map[string]struct {
		shape             llm.Codec
		body              string
		turns, res, plain int
	}{
		"input is a string": {openAIResponses, `{"input":"hi"}`, 0, 0, 0},
		"unknown item":      {openAIResponses, `{"input":[{"type":"web_search_call","id":"x"},{"type":"item_reference","id":"y"}]}`, 0, 0, 0},
		"image":             {openAIResponses, `{"input":[{"type":"function_call","call_id":"c","name":"f"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_image"}]}]}`, 1, 1, 0},
		"no content":        {anthropicMessages, `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}]}`, 1, 1, 0},
		"empty list":        {anthropicMessages, `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[]}]}]}`, 1, 1, 0},
		"two texts":         {anthropicMessages, `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x"},{"text":"y","type":"text"}]}]}]}`, 1, 1, 1},
		"server tool":       {anthropicMessages, `{"messages":[{"role":"assistant","content":[{"type":"server_tool_use","id":"a","name":"f"},{"type":"web_search_tool_result","tool_use_id":"a","content":[]}]}]}`, 0, 0, 0},
		"no response":       {geminiContents, `{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"}}]},{"role":"user","parts":[{"functionResponse":{"name":"f"}}]}]}`, 1, 1, 0},
		"numbers":           {geminiContents, `{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"}}]},{"role":"function","parts":[{"functionResponse":{"name":"f","response":{"rows":[1,2]}}}]}]}`, 1, 1, 0},
		"short strings":     {geminiContents, `{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"}}]},{"parts":[{"functionResponse":{"name":"f","response":{"a":"x","b":"y"}}}]}]}`, 1, 1, 0},
		"one string":        {geminiContents, `{"contents":[{"role":"model","parts":{"function_call":{"name":"f"}}},{"parts":{"function_response":{"name":"f","response":{"a":"x","b":7}}}}]}`, 1, 1, 1},
		"H7 list":           {openAIChat, `{"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]},{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"x"}]}]}`, 1, 1, 0},
		"H1 no string id":   {openAIChat, `{"messages":[{"role":"assistant","tool_calls":[{"id":1},null,"x"]},{"role":"tool","tool_call_id":"a","content":"x"}]}`, 0, 1, 1},
	} {
		d := mustRead(t, tt.shape, []byte(tt.body))
		plain := 0
		for _, r := range d.Results {
			if r.Maskable {
				plain++
			}
		}
		if len(d.Turns) != tt.turns || len(d.Results) != tt.res || plain != tt.plain {
			t.Errorf("%s: %d turns, %d results, %d maskable", name, len(d.Turns), len(d.Results), plain)
		}
	}
}

func TestBreakpoint(t *testing.T) {
	full := randomTranscript(2, 6)
	d := mustRead(t, anthropicMessages, full.render(anthropicMessages, renderOptions{marks: []int{1, 3}}))
	want := 0
	for i, m := range d.Messages {
		if bytes.Contains(m.Of(d.body), []byte("cache_control")) {
			want = i
		}
	}
	if d.Breakpoint != want {
		t.Errorf("got %d, want %d", d.Breakpoint, want)
	}
}

// H+1: weights and prefix hashes do not change when clients move their marks.
func TestPrefixIsStable(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	for seed := range uint64(40) {
		full := randomTranscript(seed, 10)
		for _, shape := range shapes {
			a := mustRead(t, shape, full.render(shape, renderOptions{}))
			b := mustRead(t, shape, full.render(shape, renderOptions{thinking: true, lists: true, marks: []int{0, 2}}))
			longer := mustRead(t, shape, append(full[:len(full):len(full)], event{user: "more"}).render(shape, renderOptions{}))
			other := mustRead(t, shape, randomTranscript(seed+1000, 10).render(shape, renderOptions{}))
			seen := map[Hash]bool{}
			for turn := 1; turn <= len(a.Turns); turn++ {
				hash := a.PrefixHash(turn)
				if hash != b.PrefixHash(turn) || hash != longer.PrefixHash(turn) {
					t.Fatalf("%s, turn %d: the prefix hash changed", shape, turn)
				}
				if seen[hash] || turn <= len(other.Turns) && hash == other.PrefixHash(turn) {
					t.Fatalf("%s, turn %d: the prefix hash is not unique", shape, turn)
				}
				seen[hash] = true
			}
			if a.Tokens() == 0 || shape == anthropicMessages && a.Messages[len(a.Messages)-1].Bytes != b.Messages[len(b.Messages)-1].Bytes {
				t.Fatalf("%s: the weight changed", shape)
			}
		}
	}
}

// Any request that can be read can be masked: it stays valid JSON with the same messages and ids.
func FuzzRead(f *testing.F) {
	for i, shape := range shapes {
		f.Add(byte(i), randomTranscript(uint64(i), 4).render(shape, renderOptions{thinking: true, marks: []int{1}}))
	}
	f.Add(byte(0), []byte(`{"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]},{"role":"tool","tool_call_id":"a","content":"\ud834\udd1e"}]}`))
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		shape := shapes[int(which)%len(shapes)]
		d, err := Read(shape, body, 0)
		if err != nil {
			return
		}
		for i := range d.Results {
			d.Text(i)
		}
		d.PrefixHash(len(d.Turns))
		for _, how := range advances {
			p := policyWithAdvance(how)
			p.WindowTurns, p.Stride, p.TriggerTokens, p.ClearAtLeast, p.Template = 1, 1, 0, 0, "{tool_name}"
			after, _ := maskRequest(t, shape, body, p, CachePrices{Write: 1, Read: .5}, []Event{d.SweepEvent()})
			checkStructureKept(t, body, after)
			d.Bill(p, CachePrices{Write: 1, Read: .5})
		}
	})
}
