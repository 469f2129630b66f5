package fakeprovider

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// post sends a body as a client of the shape.
func post(t *testing.T, p *Provider, shape Shape, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+shape.Path(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer k")
	if shape == Messages {
		req.Header.Set("Anthropic-Version", "2023-06-01")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// requestWith returns a request with the given messages or items.
func requestWith(shape Shape, list string) string {
	switch shape {
	case Messages:
		return `{"model":"m","max_tokens":10,"messages":[` + list + `]}`
	case Responses:
		return `{"model":"m","input":[` + list + `]}`
	}
	return `{"model":"m","messages":[` + list + `]}`
}

const (
	chatUser   = `{"role":"user","content":"hi"}`
	chatUse    = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	chatA      = `{"role":"tool","tool_call_id":"a","content":"x"}`
	chatB      = `{"role":"tool","tool_call_id":"b","content":""}`
	msgUser    = `{"role":"user","content":"hi"}`
	msgUse     = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"f","input":{}}]}`
	msgResults = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"},{"type":"tool_result","tool_use_id":"b"}]}`
	itemUser   = `{"role":"user","content":"hi"}`
	itemCall   = `{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`
	itemOutput = `{"type":"function_call_output","call_id":"a","output":"x"}`
)

// Invalid requests get the providers' own error texts (R23, T27).
func TestInvalidMessages(t *testing.T) {
	p := New(t, Options{})
	marked := `{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}`
	for _, c := range []struct {
		shape      Shape
		list, want string // empty: accepted
	}{
		{Chat, chatUser, ""},
		{Chat, chatUser + "," + chatUse + "," + chatB + "," + chatA, ""},
		{Chat, chatUser + "," + chatUse + "," + chatA, "The following tool_call_ids did not have response messages: b"},
		{Chat, chatUser + "," + chatUse + "," + chatUser, "must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: a, b"},
		{Chat, chatUser + "," + chatA, "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."}, //nolint:misspell // their spelling
		{Chat, chatUser + "," + chatUse + "," + chatA + "," + chatB + "," + chatUser + "," + chatA, "messages with role 'tool' must be a response to a"},
		{Chat, chatUser + "," + chatUse + `,{"role":"tool","tool_call_id":"z","content":"x"}`, "'tool_call_id' of 'z' not found in 'tool_calls' of previous message."},
		{Chat, chatUser + "," + chatUse + "," + chatA + "," + chatA, "Duplicate value for 'tool_call_id' of 'a'"},
		{Chat, `{"role":"robot","content":"x"}`, "Invalid value: 'robot'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'."},
		{Chat, `{"role":"user","content":null}`, "Invalid value for 'content': expected a string, got null."},
		{Chat, `{"role":"user","content":""}`, ""},
		{Chat, `{"role":"user","content":[]}`, "Invalid 'messages[0].content': empty array."},
		{Chat, `{"role":"user","content":[{"type":"input_text","text":"x"}]}`, "Invalid value: 'input_text'."},
		{Chat, `{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:,"}}]}`, ""},
		{Chat, `{"role":"assistant","content":"x","tool_calls":[]}`, "Invalid 'messages[0].tool_calls': empty array."},
		{Chat, ``, "Invalid 'messages': empty array."},

		{Messages, msgUser, ""},
		{Messages, msgUser + "," + msgUse + "," + msgResults, ""},
		{Messages, msgUser + "," + msgUse, "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a, b. Each `tool_use` block must have a corresponding `tool_result` block in the next message."},
		{Messages, msgUser + "," + msgUse + "," + msgUser, "messages.1: `tool_use` ids were found without"},
		{Messages, msgUser + "," + msgUse + `,{"role":"user","content":[{"type":"text","text":"first"},{"type":"tool_result","tool_use_id":"a"},{"type":"tool_result","tool_use_id":"b"}]}`, "immediately after: a, b"},
		{Messages, msgUser + "," + msgResults, "messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."},
		{Messages, msgUser + "," + msgUse + "," + msgResults + "," + msgUse + "," + msgResults, "`tool_use` ids must be unique"},
		{Messages, `{"role":"system","content":"x"}`, "Unexpected role \\\"system\\\""},
		{Messages, `{"role":"user","content":"x","name":"bob"}`, "messages.0.name: Extra inputs are not permitted"},
		{Messages, `{"role":"user","content":[{"type":"text","text":"x","foo":1}]}`, "messages.0.content.0.text.foo: Extra inputs are not permitted"},
		{Messages, `{"role":"user","content":""}`, "messages.0: all messages must have non-empty content except for the optional final assistant message"},
		{Messages, msgUser + `,{"role":"assistant","content":""}`, ""},
		{Messages, `{"role":"user","content":[{"type":"text","text":""}]}`, "text content blocks must be non-empty"},
		{Messages, `{"role":"user","content":" \n"}`, "text content blocks must contain non-whitespace text"},
		{Messages, ``, "messages: at least one message is required"},
		{Messages, msgUser + `,{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"forged"},{"type":"text","text":"x"}]}`, "messages.1.content.0: Invalid `signature` in `thinking` block"},
		{Messages, `{"role":"user","content":[` + strings.Repeat(marked+",", 4) + marked + `]}`, "A maximum of 4 blocks with cache_control may be provided. Found 5."},
		{Messages, `{"role":"user","content":[` + marked + `,{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}]}`, "a ttl='1h' cache_control block must not come after a ttl='5m'"},

		{Responses, itemUser, ""},
		{Responses, itemUser + "," + itemCall + "," + itemUser + "," + itemOutput, ""},
		{Responses, itemUser + "," + itemCall, "No tool output found for function call a."},
		{Responses, itemUser + "," + itemOutput, "No tool call found for function call output with call_id a."},
		{Responses, `{"type":"function_call","call_id":"","name":"f","arguments":"{}"}`, "Invalid 'input[0].call_id': empty string."},
		{Responses, `{"role":"tool","content":"x"}`, "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and 'user'."},
		{Responses, `{"role":"user","content":[{"type":"text","text":"x"}]}`, "Invalid value: 'text'. Supported values are: 'input_text'"},
		{Responses, `{"role":"user","content":"x","foo":1}`, "Unknown parameter: 'input[0].foo'."},
	} {
		resp, body := post(t, p, c.shape, requestWith(c.shape, c.list))
		want := http.StatusOK
		if c.want != "" {
			want = http.StatusBadRequest
		}
		if resp.StatusCode != want || !strings.Contains(body, c.want) || !json.Valid([]byte(body)) {
			t.Errorf("%s %s:\n%d %s\nwant %s", c.shape, c.list, resp.StatusCode, body, c.want)
		}
	}
	if n, bills := len(p.Requests()), len(p.Bill()); bills >= n || n == 0 {
		t.Errorf("%d requests, %d on the bill", n, bills)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestInvalidRequests(t *testing.T) {
	p, lenient := New(t, Options{ContextWindow: 50}), New(t, Options{AllowUnknownFields: true})
	long := strings.Repeat("long ", 100)
	for _, c := range []struct {
		shape      Shape
		body, want string
	}{
		{Chat, `{"model":"m","messages":[` + chatUser + `],"foo":1}`, "Unrecognized request argument supplied: foo"},
		{Chat, `{"model":"m"}`, "Missing required parameter: 'messages'."},
		{Chat, `{"messages":[` + chatUser + `]}`, "you must provide a model parameter"},
		{Chat, `{"model":"m","messages":[` + chatUser + `],"stream_options":{"include_usage":true}}`, "only allowed when 'stream' is enabled"},
		{Chat, `{"model":"m","messages":[` + chatUser + `],"tools":[{"type":"function","function":{"name":"a::b"}}]}`, "Invalid 'tools[0].function.name': string does not match pattern."},
		{Chat, `{"model":"m","messages":[` + chatUser + `],"tools":[{"type":"function","function":{"name":"` + strings.Repeat("a", 65) + `"}}]}`, "maximum length 64, but got a string with length 65"},
		{Chat, `{`, "We could not parse the JSON body of your request."},
		{Chat, `{"model":"m","messages":[{"role":"user","content":"` + long + `"}]}`, "maximum context length is 50 tokens"},
		{Messages, `{"model":"m","max_tokens":1,"messages":[` + msgUser + `],"foo":1}`, "foo: Extra inputs are not permitted"},
		{Messages, `{"model":"m","messages":[` + msgUser + `]}`, "max_tokens: Field required"},
		{Messages, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"` + long + `"}]}`, "prompt is too long: 127 tokens > 50 maximum"},
		{Messages, `{"model":"m","max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[` + msgUser + "," + msgUse + "," + msgResults + `]}`, "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."},
		{Messages, `{"model":"m","max_tokens":1,"messages":[` + msgUser + `],"tools":[{"name":"a::b","input_schema":{}}]}`, "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"},
		{Messages, `{"model":"m","max_tokens":1,"messages":[` + msgUser + `],"tools":[{"name":"` + strings.Repeat("a", 129) + `","input_schema":{}}]}`, "tools.0.custom.name: String should match pattern"},
		{Responses, `{"model":"m","input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"a::b"}]}]}`, "Invalid 'tools[0].tools[0].name': string does not match pattern."},
		{Responses, `{"model":"m","input":"x","foo":1}`, "Unknown parameter: 'foo'."},
		{Responses, `{"model":"m"}`, "Missing required parameter: 'input'."},
		{Responses, `{"model":"m","input":"x","previous_response_id":"resp_0"}`, "Previous response with id 'resp_0' not found."},
		{Responses, `{"model":"m","input":"` + long + `"}`, "Your input exceeds the context window"},
	} {
		if resp, body := post(t, p, c.shape, c.body); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, c.want) {
			t.Errorf("%s %s:\n%d %s", c.shape, c.body, resp.StatusCode, body)
		}
		if strings.Contains(c.body, "foo") {
			if resp, body := post(t, lenient, c.shape, c.body); resp.StatusCode != http.StatusOK {
				t.Errorf("lenient: %s", body)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestAPIKeys(t *testing.T) {
	p := New(t, Options{Key: "right"})
	for _, c := range []struct {
		header, value string
		status        int
	}{
		{"Authorization", "Bearer right", 200}, {"X-Api-Key", "right", 200},
		{"Authorization", "Bearer wrong", 401}, {"X-Api-Key", "wrong", 401}, {"X-Other", "right", 401},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+"/models", http.NoBody)
		req.Header.Set(c.header, c.value)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s %s: %d", c.header, c.value, resp.StatusCode)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
