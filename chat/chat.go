// Package chat is the LLM door: a proxy for the APIs of OpenAI and Anthropic that changes nothing
// it was not told to change.
//
// Path through the files: chat.go holds the door and what one configuration decides; enter.go says
// who is calling and whose credentials are whose; encoding.go reads bodies that are compressed; complete.go is the straight line of one request
// and should be read first; route.go finds the provider by the model's name; shrink.go lets the
// request be shortened, history.go masks its old tool results, memory.go remembers what was decided
// for a conversation, birth.go and newborn.go shorten results when they are first sent, and known.go
// spares doing that twice; ask.go asks a provider, again if it may, and then its fallbacks;
// provider.go is one far call, and delivery.go knows how much of it arrived; relay.go passes the reply on as it comes. reading.go lets a model
// read back what was masked, and rounds.go makes one reply of the rounds that takes. usage.go,
// events.go and pick.go read in passing what a reply cost, and ledger.go books it; catalog.go lists
// the models; errors.go and shape.go know the wires.
//
// Invariants: the body of a request goes out byte for byte as it came, but for the edits of the
// shrink hook and, where it is offered, what reading back adds. What a provider answers is passed
// on byte for byte, each piece before the next is read, but for calls of that tool: a client that
// is slow slows its provider down, and nothing queues. A request is made again only before a byte of a
// reply was passed on, only within the provider's budget, and only if the provider cannot have executed
// it: it was not delivered as a whole, or answered by a failure. The gateway's own token goes to no provider, and a client's credentials only to the one that its
// model names. No key is in a log or an error.
//
// When a provider fails before its first byte, it is asked again, then its fallbacks; when all
// fail, the last answer there was is passed on, or an error in the form of the client's API. When
// a reply breaks off, the client's connection is aborted: half a reply never looks like a whole
// one. When the client leaves, the far call ends with it. A shrink hook that panics, or whose
// edits make no sense, changes nothing.
package chat

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/lately"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/limit"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
)

// Door serves the LLM APIs.
type Door struct {
	deps Deps
	plan atomic.Pointer[plan]
	busy limit.Slots                   // requests under way
	bare *lately.Map[string, struct{}] // replies of which it is known that nothing of them is hidden

	recentMemory *membudget.Scope // holds what recent conversations may take

	unpriced sync.Map // names of providers that cache without a price
}

const bareMost = 1 << 15

// Deps is what a Door is made of.
type Deps struct {
	Transport http.RoundTripper // must not unpack replies
	Meter     *meter.Meter
	Limiter   *limit.Limiter // of all doors; nil: nobody is limited
	Shrink    Shrink         // nil: nothing is shrunk
	Recall    *recall.Recall // nil: nothing can be read back
	Budget    *membudget.Budget

	// MayRead says whether a caller's model may read back what came from an origin. Nil: what came
	// from requests to the door's own providers.
	MayRead func(auth.Caller, recall.Origin) bool
}

// Settings is the part of the configuration that a door needs.
type Settings struct {
	Chat Config
	HTTP front.HTTP
	Auth auth.Config
}

// plan is everything that one configuration decides. A request is served under one plan.
type plan struct {
	Settings
	gate      *auth.Gate
	asks      bool // clients must know a token
	providers []*provider
	talks     *history.Recent
}

// New makes a door of a valid configuration whose secrets are resolved.
func New(s Settings, d Deps) *Door {
	door := &Door{deps: d, bare: lately.NewMap[string, struct{}](bareMost)}
	door.Apply(s)
	return door
}

// Apply puts a new configuration into force: it holds for the handlers made from now on. Requests
// under way end under the old one.
func (d *Door) Apply(s Settings) {
	s.HTTP.MaxRequestBytes = s.Chat.LLM.MaxRequestBytes
	old := d.plan.Load()
	p := &plan{Settings: s, gate: auth.New(s.Auth), asks: s.Auth.Token.Reveal() != ""}
	if p.talks = old.recent(s.Chat.LLM.RecentBytes); p.talks == nil {
		p.talks = history.NewRecent(int(d.reserve(int64(s.Chat.LLM.RecentBytes))), maxDepth)
	}
	for _, entry := range s.Chat.Providers {
		p.providers = append(p.providers, d.newProvider(entry, s.Chat.LLM, old))
		d.deps.Meter.Provider(entry.Name)
	}
	for _, from := range p.providers {
		for _, name := range from.Fallback {
			from.spare = append(from.spare, p.named(name))
		}
	}
	d.plan.Store(p)
}

// reserve takes the memory of recent conversations from the budget: an eighth of it at the most.
func (d *Door) reserve(size int64) int64 {
	d.recentMemory.Release()
	d.recentMemory = d.deps.Budget.Scope("recent conversations")
	if total := d.deps.Budget.Stats().Total; total > 0 {
		size = min(size, total/8)
	}
	if d.recentMemory.Take(size) != nil {
		return 0
	}
	return size
}

// recent is what p remembers, if that is so much.
func (p *plan) recent(size unit.Bytes) *history.Recent {
	if p == nil || p.Chat.LLM.RecentBytes != size {
		return nil
	}
	return p.talks
}

func (p *plan) named(name string) *provider {
	if p == nil {
		return nil
	}
	at := slices.IndexFunc(p.providers, func(one *provider) bool { return one.Name == name })
	if at < 0 {
		return nil
	}
	return p.providers[at]
}

// Serves says whether a path is one of the door's.
func Serves(path string) bool { return strings.HasPrefix(path, "/v1/") || path == "/chat/completions" }

// Handler serves the paths of the door behind a listener's guard, as the configuration has it now.
func (d *Door) Handler(guard *front.Guard) http.Handler {
	p := d.plan.Load()
	mux := http.NewServeMux()
	for path, e := range endpoints {
		mux.HandleFunc("POST "+path, d.complete(p, e))
		mux.HandleFunc(path, only(http.MethodPost))
	}
	mux.HandleFunc("GET /v1/models", d.listModels(p))
	mux.HandleFunc("GET /v1/models/{id...}", d.showModel(p))
	mux.HandleFunc("/v1/models", only(http.MethodGet))
	mux.HandleFunc("/v1/models/{id...}", only(http.MethodGet))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		Refuse(w, r, fault.New(fault.NotFound, "there is nothing at this path"))
	})
	// The chain of every door, but for who is let in: here a credential may be the provider's.
	return front.Wrap(mux, front.Identified, front.Logged, front.Recovered(Refuse), front.Direct(Refuse),
		guard.Stage(Refuse), p.authenticated, front.Budgeted(d.deps.Budget, Refuse), front.Limited(p.HTTP))
}

func only(method string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", method)
		refuse(w, r, http.StatusMethodNotAllowed, fault.New(fault.Invalid, "only "+method+" is served here"))
	}
}
