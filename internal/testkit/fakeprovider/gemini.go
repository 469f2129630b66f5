package fakeprovider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/ctxgate/ctxgate/internal/sse"
)

// geminiEndpoint is the endpoint of a path such as /v1beta/models/gemini-2.5-pro:streamGenerateContent. It serves
// agents that speak nothing else, with the rules about turns and names, but without caching and error injection in
// the middle of a stream.
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
func readGemini(_ *Provider, r *http.Request, body []byte) (*request, *apiError) {
	f, ok := parseObject(body)
	if !ok {
		return nil, invalid("", "", "Invalid JSON payload received.")
	}
	name, verb, _ := strings.Cut(r.URL.Path, ":")
	a := &request{model: name[strings.LastIndex(name, "/")+1:], stream: verb == "streamGenerateContent", includeUsage: true}
	system, _ := parseObject(f["systemInstruction"])
	a.prompt.add("<system>", compact(system["parts"]))
	if apiErr := a.geminiTools(f); apiErr != nil {
		return nil, apiErr
	}
	list, ok := parseArray(f["contents"])
	if !ok || len(list) == 0 {
		return nil, invalid("", "", "* GenerateContentRequest.contents: contents is not specified\n")
	}
	calls := 0
	for i, raw := range list {
		c, _ := parseObject(raw)
		role := c.text("role")
		if role != "user" && role != "model" && role != "function" && role != "" {
			return nil, invalid("", "", "Please use a valid role: user, model.")
		}
		made, answered, apiErr := a.geminiParts(i, c)
		if apiErr != nil {
			return nil, apiErr
		}
		if answered != calls && (answered > 0 || calls > 0) {
			return nil, invalid("", "", "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.")
		}
		if calls = made; made > 0 {
			a.toolTurns++
		}
	}
	if calls > 0 {
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
			a.tools = append(a.tools, name)
			a.prompt.add("<tool>", compact(raw))
		}
	}
	return nil
}

// geminiParts reads the parts of a content and counts the calls and results in it.
func (a *request) geminiParts(i int, c fields) (calls, results int, _ *apiError) {
	parts, ok := parseArray(c["parts"])
	if !ok || len(parts) == 0 {
		return 0, 0, invalid("", "", "* GenerateContentRequest.contents[%d].parts: contents.parts must not be empty.\n", i)
	}
	for _, raw := range parts {
		part, _ := parseObject(raw)
		a.prompt.add("<", c.text("role"), ">", compact(raw))
		if part.has("functionCall") {
			calls++
		}
		if part.has("functionResponse") {
			results++
			r, _ := parseObject(part["functionResponse"])
			id := r.text("id")
			if id == "" {
				id = r.text("name")
			}
			out, _ := parseObject(r["response"])
			text := out.text("output")
			if text == "" {
				text = compact(r["response"])
			}
			a.results = append(a.results, Result{id, text})
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
	Text    string      `json:"text,omitempty"`
	Thought bool        `json:"thought,omitempty"`
	Call    *geminiCall `json:"functionCall,omitempty"`
}

type geminiCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type geminiUsage struct {
	Prompt     int `json:"promptTokenCount"`
	Candidates int `json:"candidatesTokenCount"`
	Total      int `json:"totalTokenCount"`
}

func (a reply) geminiReply(parts []geminiPart, finish string) geminiReply {
	n := a.prompt.tokens()
	return geminiReply{
		Candidates: []geminiCandidate{{geminiContent{"model", parts}, finish, 0}},
		Usage:      geminiUsage{n, a.outputTokens(), n + a.outputTokens()}, ModelVersion: a.model, ResponseID: a.id,
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
	for _, c := range a.Calls {
		parts = append(parts, geminiPart{Call: &geminiCall{c.ID, c.Name, json.RawMessage(c.Args)}})
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
