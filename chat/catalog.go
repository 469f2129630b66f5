package chat

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/jsonscan"
)

const (
	listTime  = 10 * time.Second // the longest a provider may take to list its models
	listBytes = 8 << 20          // and the longest list
)

// model is an entry of a list: its name, and its bytes as the provider wrote them.
type model struct {
	id  string
	raw []byte
}

// shelf keeps the list of a provider that is asked with its own key, or with none.
type shelf struct {
	mu   sync.Mutex
	at   time.Time
	list []model
}

// listModels answers with the models that the same client can ask for: those of Anthropic's kind
// in Anthropic's form where the request speaks its API, else those of OpenAI's in OpenAI's.
func (d *Door) listModels(p *plan) http.HandlerFunc {
	return d.browse(p, func(r *http.Request, all []model) ([]byte, error) {
		if isAnthropic(r) {
			return appendAnthropicList(nil, all), nil
		}
		return append(appendData([]byte(`{"object":"list",`), all), '}'), nil
	})
}

// showModel answers with one of them.
func (d *Door) showModel(p *plan) http.HandlerFunc {
	return d.browse(p, func(r *http.Request, all []model) ([]byte, error) {
		id := r.PathValue("id")
		at := slices.IndexFunc(all, func(m model) bool { return m.id == id })
		if at < 0 {
			return nil, fault.New(fault.Unknown, "there is no model "+strconv.Quote(clip(id)))
		}
		return all[at].raw, nil
	})
}

// browse admits who wants to see models, and answers.
func (d *Door) browse(p *plan, show func(*http.Request, []model) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := auth.From(r.Context())
		var leave func()
		if err == nil {
			leave, err = d.admit(r.Context(), p, who)
		}
		var body []byte
		if err == nil {
			defer leave()
			body, err = show(r, p.models(r))
		}
		if err != nil {
			Refuse(w, r, err)
			return
		}
		front.BeginReply(w, p.HTTP, int64(len(body)))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	}
}

func appendData(dst []byte, all []model) []byte {
	dst = append(dst, `"data":[`...)
	for i, m := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m.raw...)
	}
	return append(dst, ']')
}

func appendAnthropicList(dst []byte, all []model) []byte {
	dst = append(appendData(append(dst, '{'), all), `,"has_more":false,"first_id":`...)
	if len(all) == 0 {
		return append(dst, `null,"last_id":null}`...)
	}
	dst = jsonscan.AppendString(dst, all[0].id)
	return append(jsonscan.AppendString(append(dst, `,"last_id":`...), all[len(all)-1].id), '}')
}

// models are those that a client of the request's API can ask for, each from the provider that
// would serve it. A provider that does not list any is there with the names it was configured for.
func (p *plan) models(r *http.Request) []model {
	kind := openAI
	if isAnthropic(r) {
		kind = anthropic
	}
	asked := slices.DeleteFunc(slices.Clone(p.providers), func(one *provider) bool { return one.Kind != kind })
	_, own := p.forwarded(r.Header)
	open := 0 // providers without a key of ours
	for _, one := range asked {
		if !one.APIKey.IsSet() {
			open++
		}
	}
	lists := make([][]model, len(asked))
	var wg sync.WaitGroup
	for i, one := range asked {
		// Whose key the client has is only known where one provider alone can be meant.
		if one.APIKey.IsSet() || open > 1 || len(own) == 0 {
			wg.Go(func() { lists[i] = one.shelved(r.Context(), p.Chat.LLM.ModelsTTL.D()) })
		} else {
			wg.Go(func() { lists[i], _ = one.list(r.Context(), own) })
		}
	}
	wg.Wait()
	return p.merged(asked, lists)
}

// merged joins the lists, each entry where a request for it would go.
func (p *plan) merged(asked []*provider, lists [][]model) []model {
	var all []model
	seen := map[string]bool{}
	for i, one := range asked {
		for _, m := range append(lists[i], one.named()...) {
			if server, err := p.route(one.Kind, m.id); err == nil && server == one && !seen[m.id] {
				seen[m.id] = true
				all = append(all, m)
			}
		}
	}
	return all
}

// named are the models that the configuration spells out.
func (p *provider) named() []model {
	var out []model
	for _, name := range p.Models {
		if strings.Contains(name, "*") {
			continue
		}
		raw := jsonscan.AppendString([]byte(`{"id":`), name)
		if p.Kind == anthropic {
			raw = jsonscan.AppendString(append(raw, `,"type":"model","display_name":`...), name)
			raw = append(raw, `,"created_at":"1970-01-01T00:00:00Z"}`...)
		} else {
			raw = jsonscan.AppendString(append(raw, `,"object":"model","created":0,"owned_by":`...), p.Name)
			raw = append(raw, '}')
		}
		out = append(out, model{name, raw})
	}
	return out
}

// shelved is the provider's list, not older than ttl. One that cannot be had now is the last one
// that could.
func (p *provider) shelved(ctx context.Context, ttl time.Duration) []model {
	p.shelf.mu.Lock()
	defer p.shelf.mu.Unlock()
	if p.shelf.at.IsZero() || time.Since(p.shelf.at) > ttl {
		list, err := p.list(ctx, nil)
		if err == nil {
			p.shelf.list = list
		}
		if ctx.Err() == nil {
			p.shelf.at = time.Now()
		}
	}
	return p.shelf.list
}

// list asks the provider for its models.
func (p *provider) list(ctx context.Context, own http.Header) ([]model, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	rep, err := p.send(ctx, listTime, func(ctx context.Context) (*http.Request, error) {
		target := p.root + "/models"
		if p.Kind == anthropic {
			target += "?limit=1000"
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/json")
		if p.Kind == anthropic {
			req.Header.Set("Anthropic-Version", "2023-06-01")
		}
		p.dress(req.Header, own)
		return req, nil
	})
	if err != nil {
		return nil, err
	}
	defer rep.end()
	var body []byte
	for {
		piece, err := rep.next()
		body = append(body, piece...)
		switch {
		case errors.Is(err, io.EOF) && rep.StatusCode == http.StatusOK:
			return readModels(body)
		case err != nil, len(body) > listBytes:
			return nil, fault.Wrap(fault.BadReply, "the provider lists no models", err)
		}
	}
}

// readModels reads a list in either form.
func readModels(body []byte) ([]model, error) {
	s := jsonscan.New(body, 0)
	if _, err := s.Skip(); err != nil {
		return nil, err
	}
	if err := s.End(); err != nil {
		return nil, err
	}
	top, err := jsonscan.FieldsOf(body)
	if err != nil {
		return nil, err
	}
	data, _ := top.Field("data")
	var out []model
	err = jsonscan.Elements(body, data.Value, func(at jsonscan.Span) error {
		fields, err := jsonscan.ReadFields(body, at)
		if id := fields.Text("id"); id != "" {
			out = append(out, model{id, at.Of(body)})
		}
		return err
	})
	return out, err
}
