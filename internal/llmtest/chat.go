package llmtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// chatFields are the members of a request that OpenAI knows.
var chatFields = words(`messages model audio frequency_penalty function_call functions logit_bias logprobs
	max_completion_tokens max_tokens metadata modalities moderation n parallel_tool_calls prediction
	presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort
	response_format safety_identifier seed service_tier stop store stream stream_options temperature
	tool_choice tools top_logprobs top_p user verbosity web_search_options`)

var chatRoles = words("system assistant user function tool developer")

// readChat reads and checks a request for a chat completion.
func readChat(p *Provider, _ *http.Request, body []byte) (*ask, *refusal) {
	f, ok := fieldsOf(body)
	if !ok {
		return nil, notJSON()
	}
	if key, odd := f.unknown(chatFields...); odd && !p.opts.Lenient {
		return nil, invalid("", "", "Unrecognized request argument supplied: %s", key)
	}
	a := &ask{model: f.text("model"), stream: f.is("stream"), life: retention(f)}
	if a.model == "" {
		return nil, invalid("", "", "you must provide a model parameter")
	}
	if bad := a.streamOptions(f); bad != nil {
		return nil, bad
	}
	if bad := a.chatTools(f); bad != nil {
		return nil, bad
	}
	return a, a.chatMessages(f)
}

func notJSON() *refusal {
	return invalid("", "", "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON. If you have trouble figuring out how to fix this, please contact us through our help center at help.openai.com.)")
}

// retention is how long the request wants its prefix kept; 0 when it does not say.
func retention(f fields) time.Duration {
	if f.text("prompt_cache_retention") == "24h" {
		return 24 * time.Hour
	}
	return 0
}

func (a *ask) streamOptions(f fields) *refusal {
	if !f.given("stream_options") {
		return nil
	}
	if !a.stream {
		return invalid("stream_options", "", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	}
	o, _ := fieldsOf(f["stream_options"])
	a.usage = o.is("include_usage")
	return nil
}

func tooFew(param string) *refusal {
	return invalid(param, "empty_array", "Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.", param)
}

func missing(param string) *refusal {
	return invalid(param, "missing_required_parameter", "Missing required parameter: '%s'.", param)
}

func wrongKind(param, want string, raw json.RawMessage) *refusal {
	article := "a"
	if k := kindOf(raw); k == "array" || k == "object" {
		article = "an"
	}
	return invalid(param, "invalid_type", "Invalid type for '%s': expected %s, but got %s %s instead.", param, want, article, kindOf(raw))
}

func wrongValue(param, got string, allowed []string) *refusal {
	return invalid(param, "invalid_value", "Invalid value: '%s'. Supported values are: %s.", got, quoted(allowed))
}

func (a *ask) chatTools(f fields) *refusal {
	if !f.given("tools") {
		return nil
	}
	tools, ok := listOf(f["tools"])
	if !ok {
		return wrongKind("tools", "an array of objects", f["tools"])
	}
	if len(tools) == 0 {
		return tooFew("tools")
	}
	for i, raw := range tools {
		t, _ := fieldsOf(raw)
		where := fmt.Sprintf("tools[%d].function", i)
		if t.text("type") == "function" {
			fn, _ := fieldsOf(t["function"])
			if bad := a.offer(where+".name", fn); bad != nil {
				return bad
			}
		}
		a.prompt.add("<tool>", compact(raw))
	}
	return nil
}

// offer notes a function that the model may call.
func (a *ask) offer(where string, fn fields) *refusal {
	name := fn.text("name")
	if name == "" {
		return missing(where)
	}
	if !plainName(name) {
		return invalid(where, "invalid_value", "Invalid '%s': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.", where)
	}
	a.tools = append(a.tools, name)
	return nil
}

func plainName(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) < 0
}

// pending are the calls that wait for their results.
type pending struct {
	open bool // a result may come now
	all  []string
	left []string
}

func (a *ask) chatMessages(f fields) *refusal {
	list, ok := listOf(f["messages"])
	if !f.given("messages") {
		return missing("messages")
	}
	if !ok {
		return wrongKind("messages", "an array of objects", f["messages"])
	}
	if len(list) == 0 {
		return tooFew("messages")
	}
	var wait pending
	for i, raw := range list {
		m, ok := fieldsOf(raw)
		if !ok {
			return wrongKind(fmt.Sprintf("messages[%d]", i), "an object", raw)
		}
		if bad := a.chatMessage(i, m, &wait); bad != nil {
			return bad
		}
	}
	return wait.settled(len(list) - 1)
}

// settled says that no call is left without its result when message i comes, or the end.
func (w *pending) settled(i int) *refusal {
	if len(w.left) == 0 {
		return nil
	}
	return invalid(fmt.Sprintf("messages.[%d].role", i), "", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: %s", strings.Join(w.left, ", "))
}

func (a *ask) chatMessage(i int, m fields, w *pending) *refusal {
	role := m.text("role")
	if !slices.Contains(chatRoles, role) {
		if !m.given("role") {
			return missing(fmt.Sprintf("messages[%d].role", i))
		}
		return wrongValue(fmt.Sprintf("messages[%d].role", i), role, chatRoles)
	}
	if role == "tool" {
		return a.chatResult(i, m, w)
	}
	if bad := w.settled(i); bad != nil {
		return bad
	}
	*w = pending{}
	calls, bad := chatCalls(i, role, m)
	if bad != nil {
		return bad
	}
	text, bad := chatContent(i, m, role == "assistant" && (len(calls) > 0 || m.given("function_call") || m.given("refusal")))
	if bad != nil {
		return bad
	}
	a.prompt.add("<", role, " ", m.text("name"), ">", text, m.text("reasoning_content"))
	for _, c := range calls {
		a.prompt.add("<call ", c.ID, " ", c.Name, ">", c.Args)
		w.all, w.left, w.open = append(w.all, c.ID), append(w.left, c.ID), true
	}
	if len(calls) > 0 {
		a.turns++
	}
	return nil
}

func (a *ask) chatResult(i int, m fields, w *pending) *refusal {
	id := m.text("tool_call_id")
	where := fmt.Sprintf("messages.[%d].tool_call_id", i)
	switch {
	case !m.given("tool_call_id"):
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
	text, bad := chatContent(i, m, false)
	if bad != nil {
		return bad
	}
	a.results = append(a.results, Result{id, text})
	a.prompt.add("<tool ", id, ">", text)
	return nil
}

func chatCalls(i int, role string, m fields) ([]Call, *refusal) {
	if role != "assistant" || !m.given("tool_calls") {
		return nil, nil
	}
	where := fmt.Sprintf("messages[%d].tool_calls", i)
	list, ok := listOf(m["tool_calls"])
	if !ok {
		return nil, wrongKind(where, "an array of objects", m["tool_calls"])
	}
	if len(list) == 0 {
		return nil, tooFew(where)
	}
	var calls []Call
	for j, raw := range list {
		here := fmt.Sprintf("%s[%d]", where, j)
		c, _ := fieldsOf(raw)
		fn, _ := fieldsOf(c["function"])
		args, isText := textOf(fn["arguments"])
		switch {
		case !c.given("id"):
			return nil, missing(here + ".id")
		case c.text("type") != "function":
			return nil, wrongValue(here+".type", c.text("type"), []string{"function"})
		case fn.text("name") == "":
			return nil, missing(here + ".function.name")
		case !isText:
			return nil, wrongKind(here+".function.arguments", "a string", fn["arguments"])
		}
		calls = append(calls, Call{c.text("id"), fn.text("name"), args})
	}
	return calls, nil
}

var chatParts = words("text image_url input_audio refusal audio file")

// chatContent is the message's text. Only where the message calls tools may it have none.
func chatContent(i int, m fields, mayLack bool) (string, *refusal) {
	raw := m["content"]
	if !m.given("content") {
		if mayLack {
			return "", nil
		}
		return "", invalid(fmt.Sprintf("messages.[%d].content", i), "", "Invalid value for 'content': expected a string, got null.")
	}
	where := fmt.Sprintf("messages[%d].content", i)
	if s, ok := textOf(raw); ok {
		return s, nil
	}
	parts, ok := listOf(raw)
	if !ok {
		return "", wrongKind(where, "one of a string or array of objects", raw)
	}
	if len(parts) == 0 {
		return "", tooFew(where)
	}
	var b strings.Builder
	for j, raw := range parts {
		part, _ := fieldsOf(raw)
		switch kind := part.text("type"); {
		case kind == "text" || kind == "refusal":
			b.WriteString(part.text(kind))
		case slices.Contains(chatParts, kind):
			b.WriteString(picture(raw))
		default:
			return "", wrongValue(fmt.Sprintf("%s[%d].type", where, j), kind, chatParts)
		}
	}
	return b.String(), nil
}
