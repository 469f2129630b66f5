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

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

const (
	modelListTimeout = 10 * time.Second // for one provider to list its models
	maxModelList     = 8 << 20          // bytes
)

// modelCache is a provider's model list, fetched with the configured key or without a key.
type modelCache struct {
	mu   sync.Mutex
	at   time.Time
	list []llm.Model
}

// handleModelList answers with the models of all providers whose API the client speaks, in the form of that
// API.
func (px *Proxy) handleModelList(p *activeConfig) http.HandlerFunc {
	return px.serveModels(p, func(r *http.Request, all []llm.Model) ([]byte, error) {
		return p.wires.vendorOf(r).AppendModelList(nil, all), nil
	})
}

// handleModel answers with one model.
func (px *Proxy) handleModel(p *activeConfig) http.HandlerFunc {
	return px.serveModels(p, func(r *http.Request, all []llm.Model) ([]byte, error) {
		id := r.PathValue("id")
		at := slices.IndexFunc(all, func(m llm.Model) bool { return m.ID == id })
		if at < 0 {
			return nil, fault.New(fault.UnknownHandle, "there is no model "+strconv.Quote(fault.Clip(id)))
		}
		return all[at].Raw, nil
	})
}

// serveModels admits the caller and writes the body that show returns.
func (px *Proxy) serveModels(p *activeConfig, show func(*http.Request, []llm.Model) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := auth.CallerFrom(r.Context())
		var leave func()
		if err == nil {
			leave, err = px.admit(r.Context(), p, who)
		}
		var body []byte
		if err == nil {
			defer leave()
			body, err = show(r, p.listModels(r, who))
		}
		if err != nil {
			px.wires.refuse(w, r, err)
			return
		}
		front.SetReplyDeadline(w, p.HTTP, int64(len(body)))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	}
}

// listModels merges the model lists of the providers of the client's API. A provider that cannot list its
// models contributes those of its configuration.
func (p *activeConfig) listModels(r *http.Request, who auth.Caller) []llm.Model {
	kind := APIKind(p.wires.vendorOf(r).Kind())
	candidates := slices.DeleteFunc(slices.Clone(p.providers), func(one *provider) bool {
		return one.Kind != kind || one.servesOnlyPaths()
	})
	_, own, _ := p.splitCredentials(r, p.wires.vendorOf(r))
	keyless := 0 // providers without a configured key
	for _, one := range candidates {
		if !one.APIKey.IsSet() {
			keyless++
		}
	}
	lists := make([][]llm.Model, len(candidates))
	var wg sync.WaitGroup
	for i, one := range candidates {
		// The client's own key is used only if exactly one provider could own it.
		if one.APIKey.IsSet() || keyless > 1 || len(own) == 0 {
			wg.Go(func() { lists[i] = one.cachedModels(r.Context(), p.Chat.LLM.ModelsTTL.D()) })
		} else {
			wg.Go(func() { lists[i], _ = one.fetchModels(r.Context(), own) })
		}
	}
	wg.Wait()
	return p.mergeModels(who, candidates, lists)
}

// mergeModels joins the lists. A model is listed only for the provider that would serve a request for it.
func (p *activeConfig) mergeModels(who auth.Caller, candidates []*provider, lists [][]llm.Model) []llm.Model {
	var all []llm.Model
	seen := map[string]bool{}
	for i, one := range candidates {
		for _, m := range append(lists[i], one.configuredModels()...) {
			if !p.Gate.MayList(who, access.Target{Method: access.MethodModel, Model: m.ID}) {
				continue
			}
			if server, err := p.findProvider(one.Kind, m.ID); err == nil && server == one && !seen[m.ID] {
				seen[m.ID] = true
				all = append(all, m)
			}
		}
	}
	return all
}

// configuredModels returns the models that the configuration names without a wildcard.
func (p *provider) configuredModels() []llm.Model {
	var out []llm.Model
	for _, name := range p.Models {
		if strings.Contains(name, "*") {
			continue
		}
		out = append(out, llm.Model{ID: name, Raw: p.vendor.AppendModel(nil, name, p.Name)})
	}
	return out
}

// cachedModels returns the provider's list, at most ttl old. If the provider fails, it returns the last list.
func (p *provider) cachedModels(ctx context.Context, ttl time.Duration) []llm.Model {
	p.models.mu.Lock()
	defer p.models.mu.Unlock()
	if p.models.at.IsZero() || time.Since(p.models.at) > ttl {
		list, err := p.fetchModels(ctx, nil)
		if err == nil {
			p.models.list = list
		}
		if ctx.Err() == nil {
			p.models.at = time.Now()
		}
	}
	return p.models.list
}

// fetchModels requests the provider's model list.
func (p *provider) fetchModels(ctx context.Context, own http.Header) ([]llm.Model, error) {
	ctx, cancel := context.WithTimeout(ctx, modelListTimeout)
	defer cancel()
	rep, err := p.roundTrip(ctx, modelListTimeout, func(ctx context.Context) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.root+"/models", nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/json")
		p.vendor.PrepareModelList(req)
		p.setCredentials(req.Header, own)
		return req, nil
	})
	if err != nil {
		return nil, err
	}
	defer rep.close()
	var body []byte
	for {
		piece, err := rep.nextPiece()
		body = append(body, piece...)
		switch {
		case errors.Is(err, io.EOF) && rep.StatusCode == http.StatusOK:
			return p.readModels(body)
		case err != nil, len(body) > maxModelList:
			return nil, fault.Wrap(fault.BadReply, "the provider lists no models", err)
		}
	}
}

// readModels decodes the provider's model list.
func (p *provider) readModels(body []byte) ([]llm.Model, error) {
	s := jsonscan.New(body, 0)
	if _, err := s.Skip(); err != nil {
		return nil, err
	}
	if err := s.End(); err != nil {
		return nil, err
	}
	return p.vendor.ReadModelList(body)
}
