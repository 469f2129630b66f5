package llmtest

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// modelList is OpenAI's list of models, modelPage Anthropic's.
type modelList struct {
	Object string      `json:"object"`
	Data   []openModel `json:"data"`
}

type openModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

type modelPage struct {
	Data    []namedModel `json:"data"`
	HasMore bool         `json:"has_more"`
	FirstID string       `json:"first_id"`
	LastID  string       `json:"last_id"`
}

type namedModel struct {
	Type        string `json:"type"`
	ID          string `json:"id"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
}

type tokenCount struct {
	InputTokens int `json:"input_tokens"`
}

// other answers what is no conversation: models, counting, and what is not there. Who sends
// Anthropic's header is answered as Anthropic does.
func (p *Provider) other(w http.ResponseWriter, r *http.Request, path string, body []byte) int {
	s := Chat
	if r.Header.Get("Anthropic-Version") != "" {
		s = Messages
	}
	if bad := p.admit(r, s); bad != nil {
		return p.refuse(w, s, bad)
	}
	if r.Method == http.MethodPost && path == "/messages/count_tokens" {
		return p.count(w, body)
	}
	if r.Method == http.MethodGet && path == "/models" {
		return p.models(w, s)
	}
	if id, ok := strings.CutPrefix(path, "/models/"); ok && r.Method == http.MethodGet {
		return p.model(w, s, id)
	}
	missing := &refusal{status: http.StatusNotFound, kind: "not_found_error", message: "Not found"}
	if s != Messages {
		missing = &refusal{status: http.StatusNotFound, kind: "invalid_request_error", message: "Invalid URL (" + r.Method + " " + r.URL.Path + ")"}
	}
	return p.refuse(w, s, missing)
}

func (p *Provider) send(w http.ResponseWriter, s Shape, body []byte) int {
	nameRequest(w.Header(), s, p.id("req_"))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
	return http.StatusOK
}

func (p *Provider) names() []string {
	if len(p.opts.Models) > 0 {
		return p.opts.Models
	}
	return []string{"gpt-test", "claude-test", "kimi-test"}
}

func open(id string) openModel {
	return openModel{ID: id, Object: "model", Created: epoch.Unix(), OwnedBy: "llmtest"}
}

func named(id string) namedModel {
	return namedModel{Type: "model", ID: id, DisplayName: id, CreatedAt: epoch.Format(time.RFC3339)}
}

func (p *Provider) models(w http.ResponseWriter, s Shape) int {
	names := p.names()
	if s == Messages {
		page := modelPage{FirstID: names[0], LastID: names[len(names)-1]}
		for _, id := range names {
			page.Data = append(page.Data, named(id))
		}
		return p.send(w, s, encode(page))
	}
	list := modelList{Object: "list"}
	for _, id := range names {
		list.Data = append(list.Data, open(id))
	}
	return p.send(w, s, encode(list))
}

func (p *Provider) model(w http.ResponseWriter, s Shape, id string) int {
	if !slices.Contains(p.names(), id) {
		return p.refuse(w, s, Failure{Status: http.StatusNotFound}.refusal(s, id))
	}
	if s == Messages {
		return p.send(w, s, encode(named(id)))
	}
	return p.send(w, s, encode(open(id)))
}

// count answers how long a prompt of the shape of messages is.
func (p *Provider) count(w http.ResponseWriter, body []byte) int {
	f, ok := fieldsOf(body)
	if !ok {
		return p.refuse(w, Messages, invalid("", "", "The request body is not valid JSON"))
	}
	m := &messageReader{lenient: p.opts.Lenient, counted: true}
	for _, read := range []func(fields) *refusal{m.needed, m.budget, m.readTools, m.readSystem, m.readTurns, m.marks} {
		if bad := read(f); bad != nil {
			return p.refuse(w, Messages, bad)
		}
	}
	return p.send(w, Messages, encode(tokenCount{m.prompt.tokens()}))
}
