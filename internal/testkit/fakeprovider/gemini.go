package fakeprovider

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/internal/sse"
)

// geminiEndpoint is the endpoint of a path such as /v1beta/models/gemini-2.5-pro:streamGenerateContent.
func geminiEndpoint(method, path string) (endpoint, bool) {
	_, verb, ok := strings.Cut(path, ":")
	if !ok || method != http.MethodPost || verb != "generateContent" && verb != "streamGenerateContent" {
		return endpoint{}, false
	}
	return endpoint{Gemini, "call_", "resp_", readGemini, reply.geminiBody, reply.geminiEvents}, true
}

// geminiError is the body of an error.
type geminiError struct {
	Error geminiErrorBody `json:"error"`
}

type geminiErrorBody struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
}

// readGemini parses and validates a request.
func readGemini(p *Provider, r *http.Request, body []byte) (*request, *apiError) {
	f, ok := parseObject(body)
	if !ok {
		return nil, invalid("", "", "Invalid JSON payload received.")
	}
	for key := range f {
		if !slices.Contains(geminiKeys, key) && !p.opts.AllowUnknownFields {
			return nil, invalid("", "", "Invalid JSON payload received. Unknown name \"%s\": Cannot find field.", key)
		}
	}
	name, verb, _ := strings.Cut(r.URL.Path, ":")
	a := &request{model: name[strings.LastIndex(name, "/")+1:], stream: verb == "streamGenerateContent", includeUsage: true, noCallIDs: p.opts.NoCallIDs}
	a.asArray = a.stream && r.URL.Query().Get("alt") != "sse"
	system, _ := parseObject(f["systemInstruction"])
	a.prompt.add("<system>", compact(system["parts"]))
	if apiErr := a.geminiTools(f); apiErr != nil {
		return nil, apiErr
	}
	list, ok := parseArray(f["contents"])
	if !ok || len(list) == 0 {
		return nil, invalid("", "", "* GenerateContentRequest.contents: contents is not specified\n")
	}
	var calls []geminiCall // of the last content
	for i, raw := range list {
		c, _ := parseObject(raw)
		role := c.text("role")
		if role != "user" && role != "model" && role != "function" && role != "" {
			return nil, invalid("", "", "Please use a valid role: user, model.")
		}
		made, answers, apiErr := a.geminiParts(i, c)
		if apiErr != nil {
			return nil, apiErr
		}
		if len(answers) != len(calls) {
			return nil, invalid("", "", "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.")
		}
		for _, one := range answers {
			at := slices.IndexFunc(calls, func(c geminiCall) bool { return c.Name == one.Name && (c.ID == "" || one.ID == "" || c.ID == one.ID) })
			if at < 0 {
				return nil, invalid("", "", "The function response %s does not match a function call of the turn before it.", one.Name)
			}
			calls = slices.Delete(calls, at, at+1)
		}
		if calls = made; len(made) > 0 {
			a.toolTurns++
		}
	}
	if len(calls) > 0 {
		return nil, invalid("", "", "Please ensure that function call turn comes immediately after a user turn or after a function response turn.")
	}
	return a, nil
}

func (a *request) geminiTools(f fields) *apiError {
	tools, _ := parseArray(f["tools"])
	for i, raw := range tools {
		t, _ := parseObject(raw)
		list, _ := parseArray(t["functionDeclarations"])
		for j, raw := range list {
			d, _ := parseObject(raw)
			name := d.text("name")
			plain := strings.NewReplacer(".", "", ":", "").Replace(name)
			if len(name) > maxFunctionName || !isIdentifier(plain) || name[0] >= '0' && name[0] <= '9' {
				return invalid("", "", "* GenerateContentRequest.tools[%d].function_declarations[%d].name: Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of %d.", i, j, maxFunctionName)
			}
			if d.has("parameters") && d.has("parametersJsonSchema") {
				return invalid("", "", "* GenerateContentRequest.tools[%d].function_declarations[%d]: parameters and parameters_json_schema are mutually exclusive.", i, j)
			}
			a.tools = append(a.tools, name)
			a.prompt.add("<tool>", compact(raw))
		}
	}
	return nil
}

// geminiKeys are the members of a request.
var geminiKeys = strings.Fields("contents systemInstruction system_instruction tools toolConfig tool_config generationConfig generation_config safetySettings safety_settings cachedContent cached_content labels")

// signCall is the signature of a call. It depends only on the call, and not on the order of its arguments, which
// SDKs change.
func signCall(name string, args json.RawMessage) string {
	values := map[string]any{}
	_ = json.Unmarshal(args, &values)
	return SignThinking(name + string(encodeJSON(values)))
}

// anySignature is accepted in place of a signature.
const anySignature = "skip_thought_signature_validator"

// geminiParts reads the parts of a content, and the calls and results in it.
func (a *request) geminiParts(i int, c fields) (calls, results []geminiCall, _ *apiError) {
	parts, ok := parseArray(c["parts"])
	if !ok || len(parts) == 0 {
		return nil, nil, invalid("", "", "* GenerateContentRequest.contents[%d].parts: contents.parts must not be empty.\n", i)
	}
	for _, raw := range parts {
		part, _ := parseObject(raw)
		if part.has("functionCall") && part.has("functionResponse") || len(part) == 0 {
			return nil, nil, invalid("", "", "* GenerateContentRequest.contents[%d].parts: a part must have one data field.\n", i)
		}
		signature := part.text("thoughtSignature")
		switch {
		case part.has("functionCall"):
			f, _ := parseObject(part["functionCall"])
			if signature != "" && signature != anySignature && signature != signCall(f.text("name"), f["args"]) {
				return nil, nil, invalid("", "", "Thought signature is not valid.")
			}
			calls = append(calls, geminiCall{f.text("id"), f.text("name"), f["args"]})
			a.prompt.add("<call>", f.text("name"), compact(f["args"]))
		case part.has("functionResponse"):
			r, _ := parseObject(part["functionResponse"])
			results = append(results, geminiCall{ID: r.text("id"), Name: r.text("name")})
			id := r.text("id")
			if id == "" {
				id = r.text("name")
			}
			out, _ := parseObject(r["response"])
			text := out.text("output") + out.text("error")
			if text == "" {
				text = compact(r["response"])
			}
			a.results = append(a.results, Result{id, text})
			a.prompt.add("<result>", r.text("name"), compact(r["response"]))
		case string(part["thought"]) == "true": // thoughts of earlier turns are not billed
		default:
			delete(part, "thoughtSignature")
			a.prompt.add("<", c.text("role"), ">", part.text("text"))
			if !part.has("text") {
				a.prompt.add(compact(raw))
			}
		}
	}
	return calls, results, nil
}

// geminiReply is a reply or a chunk of one.
type geminiReply struct {
	Candidates   []geminiCandidate `json:"candidates"`
	Usage        geminiUsage       `json:"usageMetadata"`
	ModelVersion string            `json:"modelVersion"`
	ResponseID   string            `json:"responseId"`
}

type geminiCandidate struct {
	Content      geminiContent `json:"content"`
	FinishReason string        `json:"finishReason,omitempty"`
	Index        int           `json:"index"`
}

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

type geminiPart struct {
	Text      string      `json:"text,omitempty"`
	Thought   bool        `json:"thought,omitempty"`
	Call      *geminiCall `json:"functionCall,omitempty"`
	Signature string      `json:"thoughtSignature,omitempty"`
}

type geminiCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type geminiUsage struct {
	Prompt     int `json:"promptTokenCount"`
	Cached     int `json:"cachedContentTokenCount,omitempty"`
	Candidates int `json:"candidatesTokenCount"`
	Thoughts   int `json:"thoughtsTokenCount,omitempty"`
	Total      int `json:"totalTokenCount"`
}

func (a reply) geminiReply(parts []geminiPart, finish string) geminiReply {
	n, out, thoughts := a.prompt.tokens(), a.outputTokens(), 0
	if a.Thinking != "" {
		thoughts = min(out, Tokens(a.Thinking))
	}
	return geminiReply{
		Candidates: []geminiCandidate{{geminiContent{"model", parts}, finish, 0}},
		Usage:      geminiUsage{n, a.cacheRead, out - thoughts, thoughts, n + out}, ModelVersion: a.model, ResponseID: a.id,
	}
}

func (a reply) geminiFinish() string {
	if a.Truncated {
		return "MAX_TOKENS"
	}
	return "STOP"
}

func (a reply) geminiCalls() []geminiPart {
	var parts []geminiPart
	for i, c := range a.Calls {
		one := geminiPart{Call: &geminiCall{c.ID, c.Name, json.RawMessage(c.Args)}}
		if a.noCallIDs {
			one.Call.ID = ""
		}
		if i == 0 { // only the first call of a reply is signed
			one.Signature = signCall(c.Name, one.Call.Args)
		}
		parts = append(parts, one)
	}
	return parts
}

func (a reply) geminiBody() []byte {
	var parts []geminiPart
	if a.Thinking != "" {
		parts = append(parts, geminiPart{Text: a.Thinking, Thought: true})
	}
	if a.Text != "" {
		parts = append(parts, geminiPart{Text: a.Text})
	}
	return encodeJSON(a.geminiReply(append(parts, a.geminiCalls()...), a.geminiFinish()))
}

func (a reply) geminiEvents() []sse.Event {
	var parts []geminiPart
	for _, chunk := range a.chunks(a.Thinking) {
		parts = append(parts, geminiPart{Text: chunk, Thought: true})
	}
	for _, chunk := range a.chunks(a.Text) {
		parts = append(parts, geminiPart{Text: chunk})
	}
	parts = append(parts, a.geminiCalls()...)
	var events []sse.Event
	for i := range parts {
		finish := ""
		if i == len(parts)-1 {
			finish = a.geminiFinish()
		}
		events = append(events, sse.Event{Data: encodeJSON(a.geminiReply(parts[i:i+1], finish))})
	}
	return events
}

// geminiErrorOf is the body of an error.
func geminiErrorOf(f *apiError) []byte {
	status := "INVALID_ARGUMENT"
	switch f.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		status = "UNAUTHENTICATED"
	case http.StatusNotFound:
		status = "NOT_FOUND"
	case http.StatusTooManyRequests:
		status = "RESOURCE_EXHAUSTED"
	case http.StatusServiceUnavailable:
		status = "UNAVAILABLE"
	}
	return encodeJSON(geminiError{geminiErrorBody{f.status, f.message, status}})
}

// serveGeminiCount counts the tokens of a request.
func (p *Provider) serveGeminiCount(w http.ResponseWriter, body []byte) int {
	return p.sendJSON(w, Gemini, fmt.Appendf(nil, `{"totalTokens":%d}`, Tokens(string(body))))
}

// geminiModel is an entry of the model list.
type geminiModel struct {
	Name        string   `json:"name"`
	DisplayName string   `json:"displayName"`
	Methods     []string `json:"supportedGenerationMethods"`
}

func newGeminiModel(id string) geminiModel {
	return geminiModel{"models/" + id, id, []string{"generateContent", "countTokens"}}
}

// readGemini adds a reply, or an event of one.
func (o *Reply) readGemini(g geminiReply) {
	for _, c := range g.Candidates {
		for _, part := range c.Content.Parts {
			switch {
			case part.Call != nil:
				o.Calls = append(o.Calls, Call{part.Call.ID, part.Call.Name, string(part.Call.Args)})
			case !part.Thought:
				o.Text += part.Text
			}
		}
	}
	o.CacheRead, o.Output = g.Usage.Cached, g.Usage.Candidates+g.Usage.Thoughts
	o.Uncached = g.Usage.Prompt - g.Usage.Cached
}

func (o *Reply) geminiEvent(e sse.Event) (bool, error) {
	var g geminiReply
	if err := json.Unmarshal(e.Data, &g); err != nil {
		return false, err
	}
	if len(g.Candidates) == 0 {
		return false, errors.New("the stream reports an error")
	}
	o.readGemini(g)
	return g.Candidates[0].FinishReason != "", nil
}
