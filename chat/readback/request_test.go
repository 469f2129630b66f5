package readback

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/gemini"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/responses"
)

// The tool in each shape. Its bytes must not change: they are at the front of every cached prompt.
const (
	toolDescription = `"Reads back text that was taken out of this conversation to save room. Where a tool result was replaced or shortened ` +
		`and names a prune_id (prn_…), the original is kept: call this with that prune_id when you need what it said. Prefer a part: ` +
		`pattern gives the lines that match, ranges gives lines by number, chars gives characters first-last. Without them you get ` +
		`all of it. Several calls at once are fine."`
	toolSchema = `{"type":"object","properties":{` +
		`"prune_id":{"type":"string","description":"The id of the original, such as prn_0123456789abcdefghjkmnpqrs."},` +
		`"ranges":{"type":"array","description":"Lines to read, counted from 1, both ends included.","items":{"type":"object","properties":{` +
		`"start_line":{"type":"integer","minimum":1},"end_line":{"type":"integer","minimum":1}},` +
		`"required":["start_line","end_line"],"additionalProperties":false}},` +
		`"pattern":{"type":"string","description":"Only lines that match this regular expression (RE2)."},` +
		`"chars":{"type":"string","description":"Characters to read, as first-last, counted from 1."},` +
		`"include_line_numbers":{"type":"boolean","description":"Put the number before each line."}},` +
		`"required":["prune_id"],"additionalProperties":false}`

	chatTool      = `{"type":"function","function":{"name":"recover_text","description":` + toolDescription + `,"parameters":` + toolSchema + `}}`
	messagesTool  = `{"name":"recover_text","description":` + toolDescription + `,"input_schema":` + toolSchema + `}`
	geminiTool    = `{"name":"recover_text","description":` + toolDescription + `,"parametersJsonSchema":` + toolSchema + `}`
	responsesTool = `{"type":"function","name":"recover_text","description":` + toolDescription + `,"parameters":` + toolSchema + `,"strict":false}`
)

// mustRead reads a valid request.
func mustRead(t *testing.T, shape llm.ReadbackCodec, body string) *history.Dialogue {
	t.Helper()
	d, err := history.Read(shape, []byte(body), 0)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return d
}

// offer returns the request with the tool offered.
func offer(t *testing.T, shape llm.ReadbackCodec, body string) (string, bool) {
	t.Helper()
	e, ok := OfferTool(mustRead(t, shape, body), []byte(body))
	return body[:e.Start] + string(e.Text) + body[e.End:], ok
}

// H+5: the tool is added to the client's tools, and nothing else changes.
func TestOfferTool(t *testing.T) {
	for shape, c := range map[llm.ReadbackCodec]struct{ body, want string }{
		openaichat.Codec{}: {
			`{"tools":[ {"type":"function","function":{"name":"a"}} ] ,"messages":[],"n":1}`,
			`{"tools":[ {"type":"function","function":{"name":"a"}} ,@] ,"messages":[],"n":1}`,
		},
		anthropic.Codec{}: {
			`{"messages":[],"tools":[ {"name":"a","cache_control":{"type":"ephemeral"}}],"tool_choice":{"type":"none"}}`,
			`{"messages":[],"tools":[ @,{"name":"a","cache_control":{"type":"ephemeral"}}],"tool_choice":{"type":"none"}}`,
		},
		responses.Codec{}: {
			`{"input":"x","tools":[{"type":"web_search"}],"conversation":null,"previous_response_id":"r"}`,
			`{"input":"x","tools":[{"type":"web_search"},@],"conversation":null,"previous_response_id":"r"}`,
		},
		gemini.Codec{}: { // beside the others: Google refuses a second list
			`{"contents":[],"tools":[{"functionDeclarations":[ {"name":"a"}]},{"googleSearch":{}}],"generationConfig":{"candidateCount":1}}`,
			`{"contents":[],"tools":[{"functionDeclarations":[ {"name":"a"},@]},{"googleSearch":{}}],"generationConfig":{"candidateCount":1}}`,
		},
	} {
		tool := map[llm.ReadbackCodec]string{openaichat.Codec{}: chatTool, anthropic.Codec{}: messagesTool, responses.Codec{}: responsesTool, gemini.Codec{}: geminiTool}[shape]
		got, ok := offer(t, shape, c.body)
		if want := strings.Replace(c.want, "@", tool, 1); !ok || got != want || !json.Valid([]byte(got)) {
			t.Errorf("%s: got %v %s", shape, ok, got)
		}
		if again, ok := offer(t, shape, got); ok {
			t.Errorf("%s: offered twice: %s", shape, again)
		}
	}
}

// H+5, H10: the tool is not added where it cannot work or the client already offers it.
func TestNoToolOffered(t *testing.T) {
	const tool = `{"type":"function","function":{"name":"a"}}`
	for _, c := range []struct {
		shape llm.ReadbackCodec
		body  string
	}{
		{openaichat.Codec{}, `{"messages":[]}`},
		{openaichat.Codec{}, `{"messages":[],"tools":[ ]}`},
		{openaichat.Codec{}, `{"messages":[],"tools":null}`},
		{openaichat.Codec{}, `{"messages":[],"n":2,"tools":[` + tool + `]}`},
		{openaichat.Codec{}, `{"messages":[],"tools":[{"type":"function","function":{"name":"x__recover_text","parameters":{"prune_id":1}}}]}`},
		{openaichat.Codec{}, `{"messages":[],"tools":[{"type":"function","function":{"name":"recover_text"}}]}`},
		{anthropic.Codec{}, `{"messages":[],"tools":[]}`},
		{anthropic.Codec{}, `{"messages":[],"tools":[{"name":"recover_text"}]}`},
		{responses.Codec{}, `{"input":"x","conversation":"c","tools":[` + tool + `]}`},
		{responses.Codec{}, `{"input":"x","background":true,"tools":[` + tool + `]}`},
		{gemini.Codec{}, `{"contents":[],"tools":[{"googleSearch":{}}]}`},
		{gemini.Codec{}, `{"contents":[],"tools":[{"functionDeclarations":[]}]}`},
		{gemini.Codec{}, `{"contents":[],"tools":[{"function_declarations":[{"name":"recover_text"}]}]}`},
		{gemini.Codec{}, `{"contents":[],"tools":[{"functionDeclarations":[{"name":"a"}]}],"generationConfig":{"candidateCount":2}}`},
		{gemini.Codec{}, `{"contents":[],"tools":[{"functionDeclarations":[{"name":"a"}]}],"generation_config":{"candidate_count":"2"}}`},
		{gemini.Codec{}, `{"contents":[],"tools":[{"functionDeclarations":[{"name":"a"}]}],"toolConfig":{"functionCallingConfig":{"streamFunctionCallArguments":true}}}`},
	} {
		if got, ok := offer(t, c.shape, c.body); ok {
			t.Errorf("%s became %s", c.body, got)
		}
	}
}

// H+5: the next round's request extends the last one.
func TestNextRequest(t *testing.T) {
	answers := []llm.Answer{{ID: "r1", Text: "one \"é\"\n"}, {ID: "r2", Text: "no", Failed: true}}
	for name, c := range map[string]struct {
		shape            llm.ReadbackCodec
		body, said, want string
	}{
		"chat": {
			openaichat.Codec{}, `{"messages":[ {"role":"user","content":"x"} ], "n":1}`, `{"role":"assistant","tool_calls":[]}`,
			`{"messages":[ {"role":"user","content":"x"} ,{"role":"assistant","tool_calls":[]},{"role":"tool","tool_call_id":"r1","content":"one \"é\"\n"},{"role":"tool","tool_call_id":"r2","content":"no"}], "n":1}`,
		},
		"empty": {
			openaichat.Codec{}, `{"messages":[ ]}`, `{}`,
			`{"messages":[ {},{"role":"tool","tool_call_id":"r1","content":"one \"é\"\n"},{"role":"tool","tool_call_id":"r2","content":"no"}]}`,
		},
		"messages": {
			anthropic.Codec{}, `{"messages":[{"role":"user","content":"x"}]}`, `[{"type":"tool_use"}]`,
			`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"r1","content":"one \"é\"\n"},{"type":"tool_result","tool_use_id":"r2","is_error":true,"content":"no"}]}]}`,
		},
		"responses": {
			responses.Codec{}, `{"input":[{"role":"user","content":"x"}]}`, `[ {"type":"reasoning"}, {"type":"function_call"}]`,
			`{"input":[{"role":"user","content":"x"},{"type":"reasoning"}, {"type":"function_call"},{"type":"function_call_output","call_id":"r1","output":"one \"é\"\n"},{"type":"function_call_output","call_id":"r2","output":"no"}]}`,
		},
		"gemini": {
			gemini.Codec{}, `{"contents":[{"parts":[{"text":"x"}]}]}`, `[{"functionCall":{}}]`,
			`{"contents":[{"parts":[{"text":"x"}]},{"role":"model","parts":[{"functionCall":{}}]},{"role":"user","parts":[{"functionResponse":{"id":"r1","name":"recover_text","response":{"output":"one \"é\"\n"}}},{"functionResponse":{"id":"r2","name":"recover_text","response":{"error":"no"}}}]}]}`,
		},
		"text": {
			responses.Codec{}, `{"input":"a \u00e9","x":1}`, `[{"type":"function_call"}]`,
			`{"input":[{"role":"user","content":"a \u00e9"},{"type":"function_call"},{"type":"function_call_output","call_id":"r1","output":"one \"é\"\n"},{"type":"function_call_output","call_id":"r2","output":"no"}],"x":1}`,
		},
	} {
		got, err := NextRequest(c.shape, []byte(c.body), &llm.Round{Said: []byte(c.said)}, answers)
		if err != nil || string(got) != c.want || !json.Valid(got) {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
	for _, body := range []string{`{}`, `{"messages":7}`} {
		if got, err := NextRequest(openaichat.Codec{}, []byte(body), &llm.Round{Said: []byte(`{}`)}, answers); err == nil {
			t.Errorf("%s became %s", body, got)
		}
	}
}

// H+5: a round gets a cache_control if the messages before it have one and the request may have one more.
func TestMarkLast(t *testing.T) {
	const marked = `"cache_control":{"type":"ephemeral"}`
	answers := []llm.Answer{{ID: "r1", Text: "}]}"}, {ID: "r2", Text: "no"}}
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
		round := &llm.Round{Said: []byte(`[{"type":"tool_use"}]`)}
		plain, err := NextRequest(anthropic.Codec{}, []byte(body), round, answers)
		if err != nil || (anthropic.Codec{}).MayMark([]byte(body)) != more {
			t.Fatalf("%s became %s, error %v, want MayMark %v", body, plain, err, more)
		}
		got := (anthropic.Codec{}).MarkLast(plain)
		if !json.Valid(got) || !bytes.Contains(got, []byte(`"tool_use_id":"r2","content":"no",`+marked+`}]}`)) {
			t.Errorf("the last answer is not marked: %s", got)
		}
		if back := bytes.Replace(got, []byte(`"no",`+marked), []byte(`"no"`), 1); !bytes.Equal(back, plain) {
			t.Errorf("the requests differ in more than the mark: %s", got)
		}
	}
	for _, other := range []string{`{}`, `{"messages":"}]}]"}`, `{"messages":[]}`, `no`} {
		if got := (anthropic.Codec{}).MarkLast([]byte(other)); string(got) != other {
			t.Errorf("%s became %s", other, got)
		}
	}
}
