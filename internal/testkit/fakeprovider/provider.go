// Package fakeprovider is a model provider on loopback for tests and benchmarks. It implements OpenAI's
// chat completions and responses and Anthropic's messages, replies by a script, caches prompt prefixes as
// those providers do, and keeps a bill.
//
// Files: provider.go starts and stops it; serve.go serves a request; request.go holds a parsed request;
// chat.go, responses.go, messages.go (with blocks.go) and gemini.go parse and validate a shape's request from
// fields.go's objects; chatreply.go, responsesreply.go and messagesreply.go encode its reply; errors.go
// encodes errors; modellist.go lists models and counts tokens; script.go defines replies and misbehaviour;
// prompt.go renders a prompt and counts its tokens; cache.go is the prefix cache; bill.go the bill; reply.go
// reads replies for clients.
//
// Everything counted is a function of the requests in their order. A token is four bytes of the rendered
// prompt (see [Tokens]); the clock moves only by [Provider.Advance] and [Options.ClockStep]; ids are
// sequential. Requests are validated as strictly as by the real providers, with their error texts, before
// the script is consulted: an invalid request consumes no step and is not billed.
//
// Known differences: automatic caching never misses by chance and never evicts early; thinking of earlier
// turns counts as input; an image counts as 85 tokens; responses accept input without reasoning items.
package fakeprovider

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// Options configure a provider. The zero value accepts any key and model and caches for five minutes.
type Options struct {
	// Key is the only accepted API key; when empty, any key is, but one is required.
	Key string
	// Models are the only known models; when empty, any name is accepted.
	Models []string
	// Prices are used by [Provider.Cost]. If cache writes cost extra, the OpenAI shapes report them in the
	// usage, as OpenAI's models do that charge for them.
	Prices Prices
	// NoCache disables the prompt cache.
	NoCache bool
	// CacheTTL is the lifetime of an unused automatic cache entry; 5 minutes when 0. In messages the
	// breakpoints have their own.
	CacheTTL time.Duration
	// MinCacheTokens is the shortest cached prefix; 1024 when 0.
	MinCacheTokens int
	// CacheUnit is the number of tokens by which automatically cached prefixes grow; 128 when 0.
	CacheUnit int
	// MarksLast: the automatic cache is that of OpenAI's models since GPT-5.6, which writes one entry at the end of
	// each request and finds only such entries again, not the longest prefix.
	MarksLast bool
	// ContextWindow is the largest prompt in tokens; 0: unlimited.
	ContextWindow int
	// AllowUnknownFields accepts unknown fields, as most OpenAI-compatible providers do.
	AllowUnknownFields bool
	// NoCallIDs leaves out the ids of calls in Gemini's shape, as its models before Gemini 3 do.
	NoCallIDs bool
	// ClockStep advances the clock with each request.
	ClockStep time.Duration
	// DiscardBodies records no bodies and headers: benchmarks send more than fits into memory.
	DiscardBodies bool
}

// Provider is a running provider.
type Provider struct {
	// URL is the root. Every route exists with and without a leading /v1.
	URL string

	opts   Options
	server *http.Server
	busy   sync.WaitGroup // handlers and the accept loop
	cache  *cache

	mu       sync.Mutex
	closed   bool
	now      time.Time
	requests []*Request
	entries  []*Usage
	steps    []Step
	answer   func(Request) Step
	stored   map[string][]item // by response id, for previous_response_id
	ids      int
}

// epoch is the initial time of a provider's clock.
var epoch = time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)

// New starts a provider and closes it when the test ends. With a nil tb the caller closes it, and a failure
// to listen panics.
func New(tb testing.TB, o Options) *Provider {
	p := &Provider{
		opts:   o.withDefaults(),
		cache:  newCache(),
		now:    epoch,
		stored: map[string][]item{},
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		if tb == nil {
			panic(fmt.Errorf("fakeprovider: %w", err))
		}
		tb.Helper()
		tb.Fatalf("fakeprovider: %v", err)
	}
	p.URL = "http://" + ln.Addr().String()
	p.server = &http.Server{Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: time.Minute}
	p.busy.Go(func() { _ = p.server.Serve(ln) })
	if tb != nil {
		tb.Cleanup(p.Close)
	}
	return p
}

func (o Options) withDefaults() Options {
	if o.CacheTTL == 0 {
		o.CacheTTL = 5 * time.Minute
	}
	if o.MinCacheTokens == 0 {
		o.MinCacheTokens = 1024
	}
	if o.CacheUnit == 0 {
		o.CacheUnit = 128
	}
	if o.Prices == (Prices{}) {
		o.Prices = Prices{Write: 1, Read: 0.1}
	}
	return o
}

// Close ends all streams and waits for their handlers. It may be called twice.
func (p *Provider) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.server.Close()
	p.busy.Wait()
}

// Script sets the replies to the next valid requests, one step each; later requests get "ok". It replaces
// an earlier script.
func (p *Provider) Script(steps ...Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps, p.answer = slices.Clone(steps), nil
}

// ScriptFunc replies to every request with the step that f returns. Concurrent requests call f
// concurrently.
func (p *Provider) ScriptFunc(f func(Request) Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps, p.answer = nil, f
}

// Requests returns all received requests, invalid ones included, in order of arrival.
func (p *Provider) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Request, 0, len(p.requests))
	for _, r := range p.requests {
		out = append(out, *r)
	}
	return out
}

// Bill returns the usage of each valid request.
func (p *Provider) Bill() Bill {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(Bill, 0, len(p.entries))
	for _, e := range p.entries {
		out = append(out, *e)
	}
	return out
}

// Cost is the bill's cost at the provider's prices.
func (p *Provider) Cost() float64 { return p.Bill().Cost(p.opts.Prices) }

// Reset clears requests, bill, script and cache, but not the clock.
func (p *Provider) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests, p.entries, p.steps, p.answer = nil, nil, nil, nil
	clear(p.stored)
	p.cache.clear()
}

// Now is the time of the provider's clock.
func (p *Provider) Now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// Advance moves the provider's clock.
func (p *Provider) Advance(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(d)
}

// newID returns the next sequential id.
func (p *Provider) newID(prefix string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids++
	return fmt.Sprintf("%s%024d", prefix, p.ids)
}

// nextStep returns the script's step for the request.
func (p *Provider) nextStep(r Request) Step {
	p.mu.Lock()
	answer := p.answer
	s := ReplyText("ok")
	if answer == nil && len(p.steps) > 0 {
		s, p.steps = p.steps[0], p.steps[1:]
	}
	p.mu.Unlock()
	if answer != nil {
		s = answer(r)
	}
	return s
}
