package history

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// The three shapes tell the same story of the same conversation (H+3).
func TestHPlus3ShapesAgree(t *testing.T) {
	for seed := range uint64(50) {
		full := makeTalk(seed, 12)
		var told []string
		for _, shape := range shapes {
			d := mustRead(t, shape, full.render(shape, look{thinking: true}))
			if d.Model != "m-1" || !d.Stream || d.Breakpoint != -1 {
				t.Fatalf("%s: model %q, stream %v, breakpoint %d", shape, d.Model, d.Stream, d.Breakpoint)
			}
			story := fmt.Sprint(len(d.Turns))
			for i, r := range d.Results {
				story += fmt.Sprintf(" %s/%s/%d/%d/%s", r.CallID, r.Name, r.Turn, r.since, d.Text(i))
			}
			told = append(told, story)
		}
		if told[0] != told[1] || told[0] != told[2] {
			t.Fatalf("seed %d:\n%s\n%s\n%s", seed, told[0], told[1], told[2])
		}
	}
}

// I7: what is read is read strictly. What is not understood is an error, and goes on as it came.
func TestI7Refused(t *testing.T) {
	for name, tt := range map[string]struct {
		shape  Shape
		body   string
		reason jsonscan.Reason
	}{
		"top":           {Chat, `{"messages":[],"messages":[]}`, jsonscan.DuplicateKey},
		"message":       {Chat, `{"messages":[{"role":"user","role":"tool"}]}`, jsonscan.DuplicateKey},
		"escaped":       {Chat, `{"messages":[{"role":"user","r\u006fle":"tool"}]}`, jsonscan.DuplicateKey},
		"call":          {Chat, `{"messages":[{"role":"assistant","tool_calls":[{"id":"a","id":"b"}]}]}`, jsonscan.DuplicateKey},
		"function":      {Chat, `{"messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"a","name":"b"}}]}]}`, jsonscan.DuplicateKey},
		"part":          {Chat, `{"messages":[{"role":"user","content":[{"type":"text","type":"x"}]}]}`, jsonscan.DuplicateKey},
		"block":         {Messages, `{"messages":[{"role":"user","content":[{"type":"tool_result","content":"a","content":"b"}]}]}`, jsonscan.DuplicateKey},
		"block inside":  {Messages, `{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"a","text":"b"}]}]}]}`, jsonscan.DuplicateKey},
		"item":          {Responses, `{"input":[{"type":"function_call_output","output":"a","output":"b"}]}`, jsonscan.DuplicateKey},
		"folded":        {Chat, `{"Messages":[]}`, jsonscan.FoldedKey},
		"folded inside": {Responses, `{"input":[{"Type":"message"}]}`, jsonscan.FoldedKey},
		"deep":          {Chat, `{"messages":[` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `]}`, jsonscan.TooDeep},
		"trailing":      {Chat, `{"messages":[]} x`, jsonscan.Trailing},
		"truncated":     {Chat, `{"messages":[{"role":"user"`, jsonscan.Truncated},
	} {
		_, err := Read(tt.shape, []byte(tt.body), 64)
		var refused *jsonscan.Error
		if !errors.As(err, &refused) || refused.Reason != tt.reason {
			t.Errorf("%s: got %v, want %s", name, err, tt.reason)
		}
	}
	for _, body := range []string{`{}`, `[]`, `{"messages":{}}`, `{"messages":"hi"}`, `{"messages":["hi"]}`, `{"messages":[null]}`, `{"input":[]}`} {
		for _, shape := range []Shape{Chat, Messages} {
			if _, err := Read(shape, []byte(body), 0); err == nil {
				t.Errorf("%s %s was read", shape, body)
			}
		}
	}
}

// Unknown fields and items, strings for lists, no content: all are left alone.
func TestLeftAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		shape             Shape
		body              string
		turns, res, plain int
	}{
		"input is a string": {Responses, `{"input":"hi"}`, 0, 0, 0},
		"unknown item":      {Responses, `{"input":[{"type":"web_search_call","id":"x"},{"type":"item_reference","id":"y"}]}`, 0, 0, 0},
		"picture":           {Responses, `{"input":[{"type":"function_call","call_id":"c","name":"f"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_image"}]}]}`, 1, 1, 0},
		"no content":        {Messages, `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}]}`, 1, 1, 0},
		"empty list":        {Messages, `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[]}]}]}`, 1, 1, 0},
		"two texts":         {Messages, `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x"},{"text":"y","type":"text"}]}]}]}`, 1, 1, 1},
		"server's own":      {Messages, `{"messages":[{"role":"assistant","content":[{"type":"server_tool_use","id":"a","name":"f"},{"type":"web_search_tool_result","tool_use_id":"a","content":[]}]}]}`, 0, 0, 0},
		"H7 list":           {Chat, `{"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]},{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"x"}]}]}`, 1, 1, 0},
		"H1 no string id":   {Chat, `{"messages":[{"role":"assistant","tool_calls":[{"id":1},null,"x"]},{"role":"tool","tool_call_id":"a","content":"x"}]}`, 0, 1, 1},
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
	full := makeTalk(2, 6)
	d := mustRead(t, Messages, full.render(Messages, look{marks: []int{1, 3}}))
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

// What is weighed and summed does not change when clients move their marks about (H+1).
func TestPrefixIsStable(t *testing.T) {
	for seed := range uint64(40) {
		full := makeTalk(seed, 10)
		for _, shape := range shapes {
			a := mustRead(t, shape, full.render(shape, look{}))
			b := mustRead(t, shape, full.render(shape, look{thinking: true, lists: true, marks: []int{0, 2}}))
			longer := mustRead(t, shape, append(full[:len(full):len(full)], event{user: "more"}).render(shape, look{}))
			other := mustRead(t, shape, makeTalk(seed+1000, 10).render(shape, look{}))
			seen := map[Sum]bool{}
			for turn := 1; turn <= len(a.Turns); turn++ {
				sum := a.Prefix(turn)
				if sum != b.Prefix(turn) || sum != longer.Prefix(turn) {
					t.Fatalf("%s, turn %d: the sum changed", shape, turn)
				}
				if seen[sum] || turn <= len(other.Turns) && sum == other.Prefix(turn) {
					t.Fatalf("%s, turn %d: the sum is another's", shape, turn)
				}
				seen[sum] = true
			}
			if a.Tokens() == 0 || shape == Messages && a.Messages[len(a.Messages)-1].Bytes != b.Messages[len(b.Messages)-1].Bytes {
				t.Fatalf("%s: the weight changed", shape)
			}
		}
	}
}

// What can be read can be masked: JSON stays JSON, messages and ids stay, texts can be kept.
func FuzzRead(f *testing.F) {
	for i, shape := range shapes {
		f.Add(byte(i), makeTalk(uint64(i), 4).render(shape, look{thinking: true, marks: []int{1}}))
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
		d.Prefix(len(d.Turns))
		for _, how := range advances {
			p := advancing(how)
			p.WindowTurns, p.Stride, p.TriggerTokens, p.ClearAtLeast, p.Template = 1, 1, 0, 0, "{tool_name}"
			after, _ := masked(t, shape, body, p, Cache{1, .5}, []Event{d.SweepNow()})
			laws(t, body, after)
			d.Bill(p, Cache{1, .5})
		}
	})
}
