package fakeprovider

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// modelList is OpenAI's model list, modelPage Anthropic's.
type modelList struct {
	Object string        `json:"object"`
	Data   []openAIModel `json:"data"`
}

type openAIModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

type modelPage struct {
	Data    []anthropicModel `json:"data"`
	HasMore bool             `json:"has_more"`
	FirstID string           `json:"first_id"`
	LastID  string           `json:"last_id"`
}

type anthropicModel struct {
	Type        string `json:"type"`
	ID          string `json:"id"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
}

type tokenCount struct {
	InputTokens int `json:"input_tokens"`
}

// serveOther serves models, token counts and 404s, in Anthropic's shape if the request has an
// Anthropic-Version header.
func (p *Provider) serveOther(w http.ResponseWriter, r *http.Request, path string, body []byte) int {
	s := Chat
	if r.Header.Get("Anthropic-Version") != "" {
		s = Messages
	}
	if inner, ok := strings.CutPrefix(path, "/beta/"); ok {
		s, path = Gemini, "/"+inner
	}
	if apiErr := p.checkKey(r, s); apiErr != nil {
		return p.sendError(w, s, apiErr)
	}
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "HTTP/1.1")
		return p.sendError(w, s, &apiError{status: http.StatusUpgradeRequired, kind: "invalid_request_error", message: "websockets are not served here"})
	}
	if r.Method == http.MethodPost && path == "/messages/count_tokens" {
		return p.serveTokenCount(w, body)
	}
	if r.Method == http.MethodPost && strings.HasSuffix(path, ":countTokens") {
		return p.serveGeminiCount(w, body)
	}
	if r.Method == http.MethodGet && path == "/models" {
		return p.serveModels(w, s)
	}
	if id, ok := strings.CutPrefix(path, "/models/"); ok && r.Method == http.MethodGet {
		return p.serveModel(w, s, id)
	}
	missing := &apiError{status: http.StatusNotFound, kind: "not_found_error", message: "Not found"}
	if s != Messages {
		missing = &apiError{status: http.StatusNotFound, kind: "invalid_request_error", message: "Invalid URL (" + r.Method + " " + r.URL.Path + ")"}
	}
	return p.sendError(w, s, missing)
}

func (p *Provider) sendJSON(w http.ResponseWriter, s Shape, body []byte) int {
	setRequestID(w.Header(), s, p.newID("req_"))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
	return http.StatusOK
}

func (p *Provider) modelNames() []string {
	if len(p.opts.Models) > 0 {
		return p.opts.Models
	}
	return []string{"gpt-test", "claude-test", "kimi-test"}
}

func newOpenAIModel(id string) openAIModel {
	return openAIModel{ID: id, Object: "model", Created: epoch.Unix(), OwnedBy: "fakeprovider"}
}

func newAnthropicModel(id string) anthropicModel {
	return anthropicModel{Type: "model", ID: id, DisplayName: id, CreatedAt: epoch.Format(time.RFC3339)}
}

func (p *Provider) serveModels(w http.ResponseWriter, s Shape) int {
	names := p.modelNames()
	if s == Messages {
		page := modelPage{FirstID: names[0], LastID: names[len(names)-1]}
		for _, id := range names {
			page.Data = append(page.Data, newAnthropicModel(id))
		}
		return p.sendJSON(w, s, encodeJSON(page))
	}
	if s == Gemini {
		var page struct {
			Models []geminiModel `json:"models"`
		}
		for _, id := range names {
			page.Models = append(page.Models, newGeminiModel(id))
		}
		return p.sendJSON(w, s, encodeJSON(page))
	}
	list := modelList{Object: "list"}
	for _, id := range names {
		list.Data = append(list.Data, newOpenAIModel(id))
	}
	return p.sendJSON(w, s, encodeJSON(list))
}

func (p *Provider) serveModel(w http.ResponseWriter, s Shape, id string) int {
	if !slices.Contains(p.modelNames(), id) {
		return p.sendError(w, s, Failure{Status: http.StatusNotFound}.apiError(s, id))
	}
	if s == Messages {
		return p.sendJSON(w, s, encodeJSON(newAnthropicModel(id)))
	}
	if s == Gemini {
		return p.sendJSON(w, s, encodeJSON(newGeminiModel(id)))
	}
	return p.sendJSON(w, s, encodeJSON(newOpenAIModel(id)))
}

// serveTokenCount counts the tokens of a messages request.
func (p *Provider) serveTokenCount(w http.ResponseWriter, body []byte) int {
	f, ok := parseObject(body)
	if !ok {
		return p.sendError(w, Messages, invalid("", "", "The request body is not valid JSON"))
	}
	m := &messageReader{lenient: p.opts.AllowUnknownFields, countOnly: true}
	for _, read := range []func(fields) *apiError{m.checkRequired, m.readThinking, m.readTools, m.readSystem, m.readMessageList, m.checkBreakpoints} {
		if apiErr := read(f); apiErr != nil {
			return p.sendError(w, Messages, apiErr)
		}
	}
	return p.sendJSON(w, Messages, encodeJSON(tokenCount{m.prompt.tokens()}))
}
