package llmtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// responsesFields are the members of a request that OpenAI knows.
var responsesFields = words(`access_programs background context_management conversation include input instructions
	max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls previous_response_id
	prompt prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier
	service_tier store stream stream_options temperature text tool_choice tools top_logprobs top_p
	truncation user verbosity`)

// itemFields are the members of the items that matter here; other kinds are taken as they come.
var itemFields = map[string][]string{
	"message":              words("type role content id status phase"),
	"function_call":        words("type id call_id name arguments status namespace async caller"),
	"function_call_output": words("type id call_id output status caller name namespace"),
	"reasoning":            words("type id summary content encrypted_content status"),
	"item_reference":       words("type id"),
}

var otherItems = words(`file_search_call computer_call computer_call_output web_search_call image_generation_call
	code_interpreter_call local_shell_call local_shell_call_output shell_call shell_call_output
	apply_patch_call apply_patch_call_output mcp_list_tools mcp_approval_request mcp_approval_response
	mcp_call custom_tool_call custom_tool_call_output compaction`)

var responsesRoles = words("assistant system developer user")

// item is one of the input as far as later requests and the pairing need it.
type item struct {
	kind, call string
	text       string // what the model reads
	result     string
	ours       bool // the model's own
}

// readResponses reads and checks a request for a response.
func readResponses(p *Provider, _ *http.Request, body []byte) (*ask, *refusal) {
	f, ok := fieldsOf(body)
	if !ok {
		return nil, notJSON()
	}
	if key, odd := f.unknown(responsesFields...); odd && !p.opts.Lenient {
		return nil, unknownParameter(key)
	}
	a := &ask{model: f.text("model"), stream: f.is("stream"), usage: true, life: retention(f)}
	a.store = !f.given("store") || f.is("store")
	a.echoTools, a.echoInstructions = json.RawMessage("[]"), f["instructions"]
	if a.model == "" {
		return nil, missing("model")
	}
	if bad := a.responsesTools(f); bad != nil {
		return nil, bad
	}
	a.prompt.add("<instructions>", f.text("instructions"))
	if bad := p.continued(a, f); bad != nil {
		return nil, bad
	}
	if bad := a.input(f, p.opts.Lenient); bad != nil {
		return nil, bad
	}
	return a, a.pairItems()
}

func unknownParameter(path string) *refusal {
	return invalid(path, "unknown_parameter", "Unknown parameter: '%s'.", path)
}

func (a *ask) responsesTools(f fields) *refusal {
	tools, ok := listOf(f["tools"])
	if ok {
		a.echoTools = f["tools"]
	}
	for i, raw := range tools {
		t, _ := fieldsOf(raw)
		if !t.given("type") {
			return missing(fmt.Sprintf("tools[%d].type", i))
		}
		if t.text("type") == "function" {
			if bad := a.offer(fmt.Sprintf("tools[%d].name", i), t); bad != nil {
				return bad
			}
		}
		a.prompt.add("<tool>", compact(raw))
	}
	return nil
}

// continued puts the items of the response that this one continues before its own.
func (p *Provider) continued(a *ask, f fields) *refusal {
	if !f.given("previous_response_id") {
		return nil
	}
	id := f.text("previous_response_id")
	p.mu.Lock()
	items, ok := p.stored[id]
	p.mu.Unlock()
	if !ok {
		return invalid("previous_response_id", "previous_response_not_found", "Previous response with id '%s' not found.", id)
	}
	a.items = slices.Clone(items)
	return nil
}

// keep stores a response so that it can be continued.
func (p *Provider) keep(a answer) {
	items := slices.Clone(a.items)
	if a.Text != "" {
		items = append(items, item{kind: "message", ours: true, text: "<assistant>" + a.Text})
	}
	for _, c := range a.Calls {
		items = append(items, callItem(c))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stored[a.id] = items
}

func callItem(c Call) item {
	return item{kind: "function_call", call: c.ID, ours: true, text: "<call " + c.ID + " " + c.Name + ">" + c.Args}
}

func (a *ask) input(f fields, lenient bool) *refusal {
	if s, ok := textOf(f["input"]); ok {
		a.items = append(a.items, item{kind: "message", text: "<user>" + s})
		return nil
	}
	if !f.given("input") {
		if f.given("previous_response_id") || f.given("prompt") || f.given("conversation") {
			return nil
		}
		return missing("input")
	}
	list, ok := listOf(f["input"])
	if !ok {
		return wrongKind("input", "one of an array of objects or string", f["input"])
	}
	for i, raw := range list {
		it, bad := readItem(fmt.Sprintf("input[%d]", i), raw, lenient)
		if bad != nil {
			return bad
		}
		a.items = append(a.items, it)
	}
	return nil
}

func readItem(path string, raw json.RawMessage, lenient bool) (item, *refusal) {
	f, ok := fieldsOf(raw)
	if !ok {
		return item{}, wrongKind(path, "an object", raw)
	}
	kind := f.text("type")
	if !f.given("type") {
		kind = "message"
	}
	known, ok := itemFields[kind]
	if !ok {
		if slices.Contains(otherItems, kind) {
			return item{kind: kind, text: compact(raw), ours: strings.HasSuffix(kind, "_call")}, nil
		}
		return item{}, wrongValue(path, kind, append(slices.Sorted(maps.Keys(itemFields)), otherItems...))
	}
	if key, odd := f.unknown(known...); odd && !lenient {
		return item{}, unknownParameter(path + "." + key)
	}
	switch kind {
	case "message":
		return messageItem(path, f)
	case "function_call":
		return functionCall(path, f)
	case "function_call_output":
		return functionOutput(path, f)
	case "reasoning":
		return item{kind: kind, text: "<reasoning>" + compact(f["summary"]), ours: true}, nil
	}
	return item{kind: kind, text: compact(raw)}, nil
}

func messageItem(path string, f fields) (item, *refusal) {
	role := f.text("role")
	if !f.given("role") {
		return item{}, missing(path + ".role")
	}
	if !slices.Contains(responsesRoles, role) {
		return item{}, wrongValue(path+".role", role, responsesRoles)
	}
	if !f.given("content") {
		return item{}, missing(path + ".content")
	}
	text, bad := itemText(path+".content", f["content"])
	return item{kind: "message", ours: role == "assistant", text: "<" + role + ">" + text}, bad
}

var itemParts = words("input_text input_image output_text refusal input_file computer_screenshot summary_text")

// itemText is the text of a content that is a string or a list of parts.
func itemText(path string, raw json.RawMessage) (string, *refusal) {
	if s, ok := textOf(raw); ok {
		return s, nil
	}
	parts, ok := listOf(raw)
	if !ok {
		return "", wrongKind(path, "one of an array of objects or string", raw)
	}
	var b strings.Builder
	for i, raw := range parts {
		part, _ := fieldsOf(raw)
		switch kind := part.text("type"); kind {
		case "input_text", "output_text", "summary_text":
			b.WriteString(part.text("text"))
		case "refusal":
			b.WriteString(part.text("refusal"))
		default:
			if !slices.Contains(itemParts, kind) {
				return "", wrongValue(fmt.Sprintf("%s[%d]", path, i), kind, itemParts)
			}
			b.WriteString(picture(raw))
		}
	}
	return b.String(), nil
}

// callID is the member that pairs calls and outputs.
func callID(path string, f fields) (string, *refusal) {
	if !f.given("call_id") {
		return "", missing(path + ".call_id")
	}
	id := f.text("call_id")
	if id == "" {
		return "", invalid(path+".call_id", "empty_string", "Invalid '%s.call_id': empty string. Expected a string with minimum length 1, but got an empty string instead.", path)
	}
	return id, nil
}

func functionCall(path string, f fields) (item, *refusal) {
	id, bad := callID(path, f)
	if bad != nil {
		return item{}, bad
	}
	if f.text("name") == "" {
		return item{}, missing(path + ".name")
	}
	args, ok := textOf(f["arguments"])
	if !f.given("arguments") {
		return item{}, missing(path + ".arguments")
	}
	if !ok {
		return item{}, wrongKind(path+".arguments", "a string", f["arguments"])
	}
	return callItem(Call{id, f.text("name"), args}), nil
}

func functionOutput(path string, f fields) (item, *refusal) {
	id, bad := callID(path, f)
	if bad != nil {
		return item{}, bad
	}
	if !f.given("output") {
		return item{}, missing(path + ".output")
	}
	text, bad := itemText(path+".output", f["output"])
	return item{kind: "function_call_output", call: id, result: text, text: "<output " + id + ">" + text}, bad
}

// pairItems checks calls against outputs, which pair by id wherever they stand, and renders all.
func (a *ask) pairItems() *refusal {
	open, called := map[string]bool{}, false
	var order []string
	for _, it := range a.items {
		a.prompt.add(it.text)
		switch it.kind {
		case "function_call":
			open[it.call] = true
			order = append(order, it.call)
			if !called {
				a.turns++
			}
			called = true
		case "function_call_output":
			if _, known := open[it.call]; !known {
				return invalid("input", "", "No tool call found for function call output with call_id %s.", it.call)
			}
			open[it.call] = false
			a.results = append(a.results, Result{it.call, it.result})
		}
		if !it.ours {
			called = false
		}
	}
	for _, id := range order {
		if open[id] {
			return invalid("input", "", "No tool output found for function call %s.", id)
		}
	}
	return nil
}
