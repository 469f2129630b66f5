package fakeprovider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// chatFields are the known members of a request.
var chatFields = strings.Fields(`messages model audio frequency_penalty function_call functions logit_bias logprobs
	max_completion_tokens max_tokens metadata modalities moderation n parallel_tool_calls prediction
	presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort
	response_format safety_identifier seed service_tier stop store stream stream_options temperature
	tool_choice tools top_logprobs top_p user verbosity web_search_options`)

var chatRoles = strings.Fields("system assistant user function tool developer")

// readChat parses and validates a chat completion request.
func readChat(p *Provider, _ *http.Request, body []byte) (*request, *apiError) {
	f, ok := parseObject(body)
	if !ok {
		return nil, notJSON()
	}
	if key, odd := f.firstUnknown(chatFields...); odd && !p.opts.AllowUnknownFields {
		return nil, invalid("", "", "Unrecognized request argument supplied: %s", key)
	}
	a := &request{model: f.text("model"), stream: f.isTrue("stream"), cacheTTL: cacheRetention(f)}
	if a.model == "" {
		return nil, invalid("", "", "you must provide a model parameter")
	}
	if apiErr := a.streamOptions(f); apiErr != nil {
		return nil, apiErr
	}
	if apiErr := a.chatTools(f); apiErr != nil {
		return nil, apiErr
	}
	return a, a.chatMessages(f)
}

func notJSON() *apiError {
	return invalid("", "", "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON. If you have trouble figuring out how to fix this, please contact us through our help center at help.openai.com.)")
}

// cacheRetention is the cache TTL that the request sets; 0 if none.
func cacheRetention(f fields) time.Duration {
	if f.text("prompt_cache_retention") == "24h" {
		return 24 * time.Hour
	}
	return 0
}

func (a *request) streamOptions(f fields) *apiError {
	if !f.has("stream_options") {
		return nil
	}
	if !a.stream {
		return invalid("stream_options", "", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	}
	o, _ := parseObject(f["stream_options"])
	a.includeUsage = o.isTrue("include_usage")
	return nil
}

func emptyArray(param string) *apiError {
	return invalid(param, "empty_array", "Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.", param)
}

func missing(param string) *apiError {
	return invalid(param, "missing_required_parameter", "Missing required parameter: '%s'.", param)
}

func wrongType(param, want string, raw json.RawMessage) *apiError {
	article := "a"
	if k := jsonType(raw); k == "array" || k == "object" {
		article = "an"
	}
	return invalid(param, "invalid_type", "Invalid type for '%s': expected %s, but got %s %s instead.", param, want, article, jsonType(raw))
}

func wrongValue(param, got string, allowed []string) *apiError {
	return invalid(param, "invalid_value", "Invalid value: '%s'. Supported values are: %s.", got, joinQuoted(allowed))
}

func (a *request) chatTools(f fields) *apiError {
	if !f.has("tools") {
		return nil
	}
	tools, ok := parseArray(f["tools"])
	if !ok {
		return wrongType("tools", "an array of objects", f["tools"])
	}
	if len(tools) == 0 {
		return emptyArray("tools")
	}
	for i, raw := range tools {
		t, _ := parseObject(raw)
		where := fmt.Sprintf("tools[%d].function", i)
		if t.text("type") == "function" {
			fn, _ := parseObject(t["function"])
			if apiErr := a.addTool(where+".name", fn); apiErr != nil {
				return apiErr
			}
		}
		a.prompt.add("<tool>", compact(raw))
	}
	return nil
}

// maxFunctionName is the longest name of a function.
const maxFunctionName = 64

// addTool records an offered function.
func (a *request) addTool(where string, fn fields) *apiError {
	name := fn.text("name")
	if name == "" {
		return missing(where)
	}
	if len(name) > maxFunctionName {
		return invalid(where, "string_above_max_length", "Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.", where, maxFunctionName, len(name))
	}
	if !isIdentifier(name) {
		return invalid(where, "invalid_value", "Invalid '%s': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.", where)
	}
	a.tools = append(a.tools, name)
	return nil
}

func isIdentifier(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) < 0
}

// pendingCalls are the calls of the last assistant message.
type pendingCalls struct {
	open bool // results are allowed here
	all  []string
	left []string // without a result
}

func (a *request) chatMessages(f fields) *apiError {
	list, ok := parseArray(f["messages"])
	if !f.has("messages") {
		return missing("messages")
	}
	if !ok {
		return wrongType("messages", "an array of objects", f["messages"])
	}
	if len(list) == 0 {
		return emptyArray("messages")
	}
	var wait pendingCalls
	for i, raw := range list {
		m, ok := parseObject(raw)
		if !ok {
			return wrongType(fmt.Sprintf("messages[%d]", i), "an object", raw)
		}
		if apiErr := a.chatMessage(i, m, &wait); apiErr != nil {
			return apiErr
		}
	}
	return wait.checkAnswered(len(list) - 1)
}

// checkAnswered returns an error if a call has no result before message i, or before the end.
func (w *pendingCalls) checkAnswered(i int) *apiError {
	if len(w.left) == 0 {
		return nil
	}
	return invalid(fmt.Sprintf("messages.[%d].role", i), "", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: %s", strings.Join(w.left, ", "))
}

func (a *request) chatMessage(i int, m fields, w *pendingCalls) *apiError {
	role := m.text("role")
	if !slices.Contains(chatRoles, role) {
		if !m.has("role") {
			return missing(fmt.Sprintf("messages[%d].role", i))
		}
		return wrongValue(fmt.Sprintf("messages[%d].role", i), role, chatRoles)
	}
	if role == "tool" {
		return a.chatResult(i, m, w)
	}
	if apiErr := w.checkAnswered(i); apiErr != nil {
		return apiErr
	}
	*w = pendingCalls{}
	calls, apiErr := chatCalls(i, role, m)
	if apiErr != nil {
		return apiErr
	}
	text, apiErr := chatContent(i, m, role == "assistant" && (len(calls) > 0 || m.has("function_call") || m.has("refusal")))
	if apiErr != nil {
		return apiErr
	}
	a.prompt.add("<", role, " ", m.text("name"), ">", text, m.text("reasoning_content"))
	for _, c := range calls {
		a.prompt.add("<call ", c.ID, " ", c.Name, ">", c.Args)
		w.all, w.left, w.open = append(w.all, c.ID), append(w.left, c.ID), true
	}
	if len(calls) > 0 {
		a.toolTurns++
	}
	return nil
}

func (a *request) chatResult(i int, m fields, w *pendingCalls) *apiError {
	id := m.text("tool_call_id")
	where := fmt.Sprintf("messages.[%d].tool_call_id", i)
	switch {
	case !m.has("tool_call_id"):
		return invalid(where, "", "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.")
	case !w.open:
		return invalid(fmt.Sprintf("messages.[%d].role", i), "", "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.") //nolint:misspell // their spelling
	case !slices.Contains(w.all, id):
		return invalid(where, "", "Invalid parameter: 'tool_call_id' of '%s' not found in 'tool_calls' of previous message.", id)
	}
	at := slices.Index(w.left, id)
	if at < 0 {
		return invalid(where, "", "Invalid parameter: Duplicate value for 'tool_call_id' of '%s'.", id)
	}
	w.left = slices.Delete(w.left, at, at+1)
	text, apiErr := chatContent(i, m, false)
	if apiErr != nil {
		return apiErr
	}
	a.results = append(a.results, Result{id, text})
	a.prompt.add("<tool ", id, ">", text)
	return nil
}

func chatCalls(i int, role string, m fields) ([]Call, *apiError) {
	if role != "assistant" || !m.has("tool_calls") {
		return nil, nil
	}
	where := fmt.Sprintf("messages[%d].tool_calls", i)
	list, ok := parseArray(m["tool_calls"])
	if !ok {
		return nil, wrongType(where, "an array of objects", m["tool_calls"])
	}
	if len(list) == 0 {
		return nil, emptyArray(where)
	}
	var calls []Call
	for j, raw := range list {
		here := fmt.Sprintf("%s[%d]", where, j)
		c, _ := parseObject(raw)
		fn, _ := parseObject(c["function"])
		args, isText := parseString(fn["arguments"])
		switch {
		case !c.has("id"):
			return nil, missing(here + ".id")
		case c.text("type") != "function":
			return nil, wrongValue(here+".type", c.text("type"), []string{"function"})
		case fn.text("name") == "":
			return nil, missing(here + ".function.name")
		case !isText:
			return nil, wrongType(here+".function.arguments", "a string", fn["arguments"])
		}
		calls = append(calls, Call{c.text("id"), fn.text("name"), args})
	}
	return calls, nil
}

var chatParts = strings.Fields("text image_url input_audio refusal audio file")

// chatContent returns the message's text. It may be missing only if mayLack.
func chatContent(i int, m fields, mayLack bool) (string, *apiError) {
	raw := m["content"]
	if !m.has("content") {
		if mayLack {
			return "", nil
		}
		return "", invalid(fmt.Sprintf("messages.[%d].content", i), "", "Invalid value for 'content': expected a string, got null.")
	}
	where := fmt.Sprintf("messages[%d].content", i)
	if s, ok := parseString(raw); ok {
		return s, nil
	}
	parts, ok := parseArray(raw)
	if !ok {
		return "", wrongType(where, "one of a string or array of objects", raw)
	}
	if len(parts) == 0 {
		return "", emptyArray(where)
	}
	var b strings.Builder
	for j, raw := range parts {
		part, _ := parseObject(raw)
		switch kind := part.text("type"); {
		case kind == "text" || kind == "refusal":
			b.WriteString(part.text(kind))
		case slices.Contains(chatParts, kind):
			b.WriteString(imagePlaceholder(raw))
		default:
			return "", wrongValue(fmt.Sprintf("%s[%d].type", where, j), kind, chatParts)
		}
	}
	return b.String(), nil
}
