// Package chat is the LLM endpoint: a proxy for LLM APIs that masks old tool results and otherwise forwards
// every byte unchanged.
//
// One request, in the order of its path: chat.go holds the proxy and its configuration; credentials.go
// authenticates the client and splits its headers; request.go is the straight line of one request and should
// be read first; body.go reads compressed bodies; route.go finds the provider by the model's name; retry.go
// asks providers, again if it may, then their fallbacks; provider.go makes one provider call; relay.go
// forwards the reply. wires.go lists the wire shapes, catalog.go the models. passthrough.go forwards the
// requests that are not conversations: all other paths of the APIs, and those that the configuration names.
//
// Package chat/masking decides which tool results are masked or shortened. readback.go and rounds.go let a model
// read originals back.
//
// Accounting: usage.go reads what a reply used, ledger.go records what it cost and what masking saved; prices.go finds
// what a provider charges for a model, learnedprices.go what the replies of unknown models tell about it; spending.go
// keeps requests within their tenants' budgets.
//
// Invariants: a request body is forwarded byte for byte, except for the edits of the shrinker and what reading
// back adds. A reply is forwarded byte for byte, each piece before the next is read, except for calls of
// recover_text: a slow client slows its provider down, and nothing queues. A request is sent again only before
// a byte of a reply was forwarded, only within the provider's retry budget, and only if the provider cannot
// have executed it. The gateway's own token goes to no provider, and a client's credentials only to the
// provider of its model. No key is in a log or an error.
//
// Failures: when a provider fails before its first byte, it is asked again, then its fallbacks; when all fail,
// the client gets the last answer, or an error in the form of its API. When a reply breaks off, the client's
// connection is aborted, so that half a reply never looks whole. When the client leaves, the provider call is
// canceled. When the store fails, results are sent whole. A shrinker that panics changes nothing.
package chat

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/budget"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/limit"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/wires"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
)

// Proxy serves the LLM APIs.
type Proxy struct {
	deps            Deps
	wires           *wireTable
	active          atomic.Pointer[activeConfig]
	inFlight        limit.Slots
	unhiddenReplies *gencache.Cache[string, struct{}] // replies that have nothing to restore
	outputs         *gencache.Cache[string, int64]    // output tokens of the last replies, by their conversations

	cacheMemory *membudget.Scope // reserved for the conversation cache

	learned  *learnedPrices
	unpriced sync.Map // names of providers that cache without configured prices; warned about once
}

const (
	maxUnhiddenReplies = 1 << 15
	maxOutputs         = 1 << 13 // in each generation
)

// Deps are the dependencies of a Proxy.
type Deps struct {
	Transport http.RoundTripper // must not decompress replies
	Meter     *meter.Meter
	Shrink    Shrinker // nil: requests are not shrunk
	// CountInput is told how many tokens a provider counted in a request: [masking.Masker.CountInput]. May be nil.
	CountInput func(r masking.Result, counted int64)
	Recall     *recall.Recall // nil: originals cannot be read back
	Budget     *membudget.Budget
	Budgets    *budget.Tracker // of tenants; nil: they may spend any amount
	Wires      []llm.Codec     // that are served; nil: all there are

	// MayRead says whether a caller's model may read back what came from an origin. Nil: only what came
	// from requests to the proxy's own providers.
	MayRead func(auth.Caller, recall.Origin) bool
}

// Settings is the part of the configuration that a Proxy needs.
type Settings struct {
	Chat Config
	HTTP front.HTTP
	Gate *gate.Gate // nil: no credential is required, and everything is allowed
}

// activeConfig is one configuration with what is derived from it. A request is served under one of them.
type activeConfig struct {
	Settings
	wires         *wireTable
	providers     []*provider
	conversations *history.ConversationCache
}

// New makes a proxy from a valid configuration whose secrets are resolved.
func New(s Settings, d Deps) *Proxy {
	if d.Wires == nil {
		d.Wires = wires.All()
	}
	px := &Proxy{deps: d, wires: newWireTable(d.Wires), unhiddenReplies: gencache.New[string, struct{}](maxUnhiddenReplies), outputs: gencache.New[string, int64](maxOutputs), learned: newLearnedPrices(d.Recall)}
	px.Apply(s)
	return px
}

// Apply replaces the configuration for the handlers that are made from now on. Requests in flight end under
// the old one.
func (px *Proxy) Apply(s Settings) {
	s.HTTP.MaxRequestBytes = s.Chat.LLM.MaxRequestBytes
	old := px.active.Load()
	if s.Gate == nil {
		s.Gate = gate.New(gate.Deps{})
	}
	p := &activeConfig{Settings: s, wires: px.wires}
	if p.conversations = old.reusableCache(s.Chat.LLM.RecentBytes); p.conversations == nil {
		p.conversations = history.NewConversationCache(int(px.reserveCacheMemory(int64(s.Chat.LLM.RecentBytes))), maxDepth)
	}
	for _, entry := range s.Chat.Providers {
		p.providers = append(p.providers, px.newProvider(entry, s.Chat, old))
		px.deps.Meter.AddProvider(entry.Name)
	}
	for _, from := range p.providers {
		for _, name := range from.Fallback {
			from.fallbacks = append(from.fallbacks, p.providerNamed(name))
		}
	}
	px.active.Store(p)
}

// reserveCacheMemory reserves memory for the conversation cache: at most an eighth of the budget.
func (px *Proxy) reserveCacheMemory(size int64) int64 {
	px.cacheMemory.Release()
	px.cacheMemory = px.deps.Budget.Scope("recent conversations")
	if total := px.deps.Budget.Stats().Total; total > 0 {
		size = min(size, total/8)
	}
	if px.cacheMemory.Reserve(size) != nil {
		return 0
	}
	return size
}

// reusableCache is the conversation cache of p, if it has this size.
func (p *activeConfig) reusableCache(size unit.Bytes) *history.ConversationCache {
	if p == nil || p.Chat.LLM.RecentBytes != size {
		return nil
	}
	return p.conversations
}

func (p *activeConfig) providerNamed(name string) *provider {
	if p == nil {
		return nil
	}
	at := slices.IndexFunc(p.providers, func(one *provider) bool { return one.Name == name })
	if at < 0 {
		return nil
	}
	return p.providers[at]
}

// Serves says whether a request is for the LLM endpoint, under the current configuration.
func (px *Proxy) Serves(r *http.Request) bool { return px.active.Load().serves(r) }

// Handler serves the LLM endpoint behind a listener's guard, under the current configuration.
func (px *Proxy) Handler(guard *front.Guard) http.Handler {
	p, refuse := px.active.Load(), px.wires.refuse
	mux := http.NewServeMux()
	for path, e := range px.wires.endpoints {
		mux.HandleFunc("POST "+path, px.handleEndpoint(p, e))
	}
	for _, version := range px.wires.versions {
		list := "/" + version + "/models"
		mux.HandleFunc("GET "+list, px.handleModelList(p))
		mux.HandleFunc("GET "+list+"/{id...}", px.handleModel(p))
	}
	other := px.handleOther(p)
	for _, prefix := range px.wires.patternPrefixes() {
		mux.HandleFunc("POST "+prefix+"{call...}", func(w http.ResponseWriter, r *http.Request) {
			if e, ok := px.wires.find(r.URL.Path); ok {
				px.handleEndpoint(p, e)(w, r)
				return
			}
			other(w, r)
		})
	}
	mux.HandleFunc("/", other)
	// The chain of every endpoint except for authentication: here a credential may be the provider's.
	return front.Wrap(mux, front.RequestID, front.AccessLog, front.Recover(refuse), front.RequireCleanPath(refuse),
		guard.Protect(refuse), p.authenticated, front.ChargeMemory(px.deps.Budget, refuse), front.LimitBody(p.HTTP))
}
