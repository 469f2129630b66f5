package fakeprovider

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// responsesFields are the known members of a request.
var responsesFields = strings.Fields(`access_programs background client_metadata context_management conversation include input instructions
	max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls previous_response_id
	prompt prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier
	service_tier store stream stream_options temperature text tool_choice tools top_logprobs top_p
	truncation user verbosity`)

// itemFields are the known members of the item types that are validated; otherItems are not.
var itemFields = map[string][]string{
	"message":              strings.Fields("type role content id status phase internal_chat_message_metadata_passthrough"),
	"function_call":        strings.Fields("type id call_id name arguments status namespace async caller internal_chat_message_metadata_passthrough"),
	"function_call_output": strings.Fields("type id call_id output status caller name namespace internal_chat_message_metadata_passthrough"),
	"reasoning":            strings.Fields("type id summary content encrypted_content status internal_chat_message_metadata_passthrough"),
	"item_reference":       strings.Fields("type id"),
	"tool_search_call":     strings.Fields("type id call_id execution arguments status internal_chat_message_metadata_passthrough"),
	"tool_search_output":   strings.Fields("type id call_id execution tools status internal_chat_message_metadata_passthrough"),
}

var otherItems = strings.Fields(`file_search_call computer_call computer_call_output web_search_call image_generation_call
	code_interpreter_call local_shell_call local_shell_call_output shell_call shell_call_output
	apply_patch_call apply_patch_call_output mcp_list_tools mcp_approval_request mcp_approval_response
	mcp_call custom_tool_call custom_tool_call_output compaction`)

var responsesRoles = strings.Fields("assistant system developer user")

// item is an input item, as far as pairing and later requests need it.
type item struct {
	kind, call string
	text       string // what the model reads
	result     string
	fromModel  bool     // written by the model
	found      []string // names of tools that a search of the client found
}

// readResponses parses and validates a responses request.
func readResponses(p *Provider, _ *http.Request, body []byte) (*request, *apiError) {
	f, ok := parseObject(body)
	if !ok {
		return nil, notJSON()
	}
	if key, odd := f.firstUnknown(responsesFields...); odd && !p.opts.AllowUnknownFields {
		return nil, unknownParameter(key)
	}
	a := &request{model: f.text("model"), stream: f.isTrue("stream"), includeUsage: true, cacheTTL: cacheRetention(f)}
	a.store = !f.has("store") || f.isTrue("store")
	a.echoTools, a.echoInstructions = json.RawMessage("[]"), f["instructions"]
	if a.model == "" {
		return nil, missing("model")
	}
	if apiErr := a.responsesTools(f); apiErr != nil {
		return nil, apiErr
	}
	a.prompt.add("<instructions>", f.text("instructions"))
	if apiErr := p.loadPrevious(a, f); apiErr != nil {
		return nil, apiErr
	}
	if apiErr := a.readInput(f, p.opts.AllowUnknownFields); apiErr != nil {
		return nil, apiErr
	}
	return a, a.checkItemPairs()
}

func unknownParameter(path string) *apiError {
	return invalid(path, "unknown_parameter", "Unknown parameter: '%s'.", path)
}

func (a *request) responsesTools(f fields) *apiError {
	tools, ok := parseArray(f["tools"])
	if ok {
		a.echoTools = f["tools"]
	}
	for i, raw := range tools {
		t, _ := parseObject(raw)
		if !t.has("type") {
			return missing(fmt.Sprintf("tools[%d].type", i))
		}
		names, apiErr := toolNames(fmt.Sprintf("tools[%d]", i), t)
		if apiErr != nil {
			return apiErr
		}
		a.tools = append(a.tools, names...)
		a.prompt.add("<tool>", compact(raw))
	}
	return nil
}

// toolNames returns the names of an offered tool: a function's; those of a namespace as "namespace.function"; a
// search tool's type.
func toolNames(path string, t fields) ([]string, *apiError) {
	var a request
	switch t.text("type") {
	case "function":
		apiErr := a.addTool(path+".name", t)
		return a.tools, apiErr
	case "tool_search":
		return []string{"tool_search"}, nil
	case "namespace":
		if apiErr := a.addTool(path+".name", t); apiErr != nil {
			return nil, apiErr
		}
		var names []string
		list, _ := parseArray(t["tools"])
		for i, raw := range list {
			inner, _ := parseObject(raw)
			found, apiErr := toolNames(fmt.Sprintf("%s.tools[%d]", path, i), inner)
			if apiErr != nil {
				return nil, apiErr
			}
			for _, name := range found {
				names = append(names, t.text("name")+"."+name)
			}
		}
		return names, nil
	}
	return nil, nil
}

// loadPrevious prepends the items of the response named by previous_response_id.
func (p *Provider) loadPrevious(a *request, f fields) *apiError {
	if !f.has("previous_response_id") {
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

// storeResponse stores a response for previous_response_id.
func (p *Provider) storeResponse(a reply) {
	items := slices.Clone(a.items)
	if a.Text != "" {
		items = append(items, item{kind: "message", fromModel: true, text: "<assistant>" + a.Text})
	}
	for _, c := range a.Calls {
		items = append(items, callItem(c))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stored[a.id] = items
}

func callItem(c Call) item {
	return item{kind: "function_call", call: c.ID, fromModel: true, text: "<call " + c.ID + " " + c.Name + ">" + c.Args}
}

func (a *request) readInput(f fields, lenient bool) *apiError {
	if s, ok := parseString(f["input"]); ok {
		a.items = append(a.items, item{kind: "message", text: "<user>" + s})
		return nil
	}
	if !f.has("input") {
		if f.has("previous_response_id") || f.has("prompt") || f.has("conversation") {
			return nil
		}
		return missing("input")
	}
	list, ok := parseArray(f["input"])
	if !ok {
		return wrongType("input", "one of an array of objects or string", f["input"])
	}
	for i, raw := range list {
		it, apiErr := readItem(fmt.Sprintf("input[%d]", i), raw, lenient)
		if apiErr != nil {
			return apiErr
		}
		a.items = append(a.items, it)
	}
	return nil
}

func readItem(path string, raw json.RawMessage, lenient bool) (item, *apiError) {
	f, ok := parseObject(raw)
	if !ok {
		return item{}, wrongType(path, "an object", raw)
	}
	kind := f.text("type")
	if !f.has("type") {
		kind = "message"
	}
	known, ok := itemFields[kind]
	if !ok {
		if slices.Contains(otherItems, kind) {
			return item{kind: kind, text: compact(raw), fromModel: strings.HasSuffix(kind, "_call")}, nil
		}
		return item{}, wrongValue(path, kind, append(slices.Sorted(maps.Keys(itemFields)), otherItems...))
	}
	if key, odd := f.firstUnknown(known...); odd && !lenient {
		return item{}, unknownParameter(path + "." + key)
	}
	switch kind {
	case "message":
		return messageItem(path, f)
	case "function_call":
		return functionCall(path, f)
	case "function_call_output":
		return functionOutput(path, f)
	case "tool_search_call":
		return item{kind: kind, text: compact(raw), fromModel: true}, nil
	case "tool_search_output":
		return searchOutput(path, f, raw)
	case "reasoning":
		return item{kind: kind, text: "<reasoning>" + compact(f["summary"]), fromModel: true}, nil
	}
	return item{kind: kind, text: compact(raw)}, nil
}

// searchOutput reads the tools that the client found for a search.
func searchOutput(path string, f fields, raw json.RawMessage) (item, *apiError) {
	it := item{kind: "tool_search_output", text: compact(raw)}
	list, ok := parseArray(f["tools"])
	if !ok {
		return it, missing(path + ".tools")
	}
	for i, one := range list {
		t, _ := parseObject(one)
		names, apiErr := toolNames(fmt.Sprintf("%s.tools[%d]", path, i), t)
		if apiErr != nil {
			return it, apiErr
		}
		it.found = append(it.found, names...)
	}
	return it, nil
}

func messageItem(path string, f fields) (item, *apiError) {
	role := f.text("role")
	if !f.has("role") {
		return item{}, missing(path + ".role")
	}
	if !slices.Contains(responsesRoles, role) {
		return item{}, wrongValue(path+".role", role, responsesRoles)
	}
	if !f.has("content") {
		return item{}, missing(path + ".content")
	}
	text, apiErr := itemText(path+".content", f["content"])
	return item{kind: "message", fromModel: role == "assistant", text: "<" + role + ">" + text}, apiErr
}

var itemParts = strings.Fields("input_text input_image output_text refusal input_file computer_screenshot summary_text")

// itemText returns the text of a content: a string or a list of parts.
func itemText(path string, raw json.RawMessage) (string, *apiError) {
	if s, ok := parseString(raw); ok {
		return s, nil
	}
	parts, ok := parseArray(raw)
	if !ok {
		return "", wrongType(path, "one of an array of objects or string", raw)
	}
	var b strings.Builder
	for i, raw := range parts {
		part, _ := parseObject(raw)
		switch kind := part.text("type"); kind {
		case "input_text", "output_text", "summary_text":
			b.WriteString(part.text("text"))
		case "refusal":
			b.WriteString(part.text("refusal"))
		default:
			if !slices.Contains(itemParts, kind) {
				return "", wrongValue(fmt.Sprintf("%s[%d]", path, i), kind, itemParts)
			}
			b.WriteString(imagePlaceholder(raw))
		}
	}
	return b.String(), nil
}

// callID reads the id that pairs calls with outputs.
func callID(path string, f fields) (string, *apiError) {
	if !f.has("call_id") {
		return "", missing(path + ".call_id")
	}
	id := f.text("call_id")
	if id == "" {
		return "", invalid(path+".call_id", "empty_string", "Invalid '%s.call_id': empty string. Expected a string with minimum length 1, but got an empty string instead.", path)
	}
	return id, nil
}

func functionCall(path string, f fields) (item, *apiError) {
	id, apiErr := callID(path, f)
	if apiErr != nil {
		return item{}, apiErr
	}
	if f.text("name") == "" {
		return item{}, missing(path + ".name")
	}
	args, ok := parseString(f["arguments"])
	if !f.has("arguments") {
		return item{}, missing(path + ".arguments")
	}
	if !ok {
		return item{}, wrongType(path+".arguments", "a string", f["arguments"])
	}
	return callItem(Call{id, f.text("name"), args}), nil
}

func functionOutput(path string, f fields) (item, *apiError) {
	id, apiErr := callID(path, f)
	if apiErr != nil {
		return item{}, apiErr
	}
	if !f.has("output") {
		return item{}, missing(path + ".output")
	}
	text, apiErr := itemText(path+".output", f["output"])
	return item{kind: "function_call_output", call: id, result: text, text: "<output " + id + ">" + text}, apiErr
}

// checkItemPairs adds all items to the prompt and requires exactly one output for each call, anywhere.
func (a *request) checkItemPairs() *apiError {
	open, called := map[string]bool{}, false
	var order []string
	for _, it := range a.items {
		a.prompt.add(it.text)
		a.tools = append(a.tools, it.found...)
		switch it.kind {
		case "function_call":
			open[it.call] = true
			order = append(order, it.call)
			if !called {
				a.toolTurns++
			}
			called = true
		case "function_call_output":
			if _, known := open[it.call]; !known {
				return invalid("input", "", "No tool call found for function call output with call_id %s.", it.call)
			}
			open[it.call] = false
			a.results = append(a.results, Result{it.call, it.result})
		}
		if !it.fromModel {
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
