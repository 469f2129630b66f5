// Package llmtest is a model provider on loopback, for tests and benches: it speaks the wire of
// OpenAI's chat completions, of OpenAI's responses and of Anthropic's messages, answers by a
// script, caches prompt prefixes as those providers do, and writes a bill.
//
// Path through the files: llmtest.go opens the door and closes it; serve.go takes one request from
// the socket to the bill; ask.go is a request in no shape's dress, and what they all must have;
// chat.go, responses.go and messages.go (with blocks.go) read and check a request of their shape out
// of fields.go's objects, chatreply.go, responsesreply.go and messagesreply.go dress the answer;
// refuse.go dresses errors; other.go lists models and counts tokens; script.go says what to answer;
// stream.go sends it, slowly, cut or garbled where the script says so; prompt.go renders the prompt
// and counts its tokens; cache.go is the prefix cache; ledger.go the bill. On the client's side
// trajectory.go, texts.go and recorded.go make conversations of agents, player.go plays them against
// any base URL, and dialogue.go and usage.go speak and read each shape for it.
//
// Invariants: everything that is counted is a function of the requests in their order. A token is
// four bytes of the rendered prompt (see [Tokens]); the clock stands still unless a test moves it
// ([Provider.Advance], [Options.Tick]); ids are counted, not drawn. Requests are checked as
// strictly as the real providers check them, with their words, and before the script is asked: a
// request that they would refuse uses up no step and is not billed.
//
// What is known to differ from the real ones: automatic caching never misses by chance and is never
// evicted before its time; thinking of earlier turns counts as input; an image counts as 85 tokens;
// reasoning items may be left out of the input of responses.
package llmtest

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

// Options say what kind of provider it is. The zero value is one that takes any key and any model,
// and caches for five minutes.
type Options struct {
	// Key is the only credential that is taken; when it is empty any will do, but there must be one.
	Key string
	// Models are the only ones there are; when there are none any name will do.
	Models []string
	// Prices are what the bill is reckoned with. Where they charge for writing to the cache, the
	// OpenAI shapes report what was written, as OpenAI's models do from the time they charge for it.
	Prices Prices
	// NoCache makes it a provider without a prompt cache.
	NoCache bool
	// TTL is how long an automatic cache entry lives unused; 5 minutes when 0. It does not apply to
	// messages, whose breakpoints name their own.
	TTL time.Duration
	// MinCache is the shortest prefix, in tokens, that is cached; 1024 when 0.
	MinCache int
	// Window is the largest prompt in tokens; none is too large when 0.
	Window int
	// Lenient lets unknown fields pass, as most that copy the wire of OpenAI do.
	Lenient bool
	// Tick is how far the clock moves with each request.
	Tick time.Duration
	// Forgetful keeps no bodies and headers of requests: benches send more than memory holds.
	Forgetful bool
}

// Provider is a running provider.
type Provider struct {
	// URL is the root, without /v1. Every route is there with and without /v1 in front.
	URL string

	opts   Options
	server *http.Server
	busy   sync.WaitGroup // handlers, and the server's own loop
	cache  *cache

	mu       sync.Mutex
	closed   bool
	now      time.Time
	requests []*Request
	entries  []*Entry
	steps    []Step
	answer   func(Request) Step
	stored   map[string][]item // what responses may be continued, by id
	ids      int
}

// epoch is where a provider's clock starts.
var epoch = time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)

// New starts a provider. It is closed when the test ends; without a test (tb is nil) the caller
// closes it, and a machine without loopback panics.
func New(tb testing.TB, o Options) *Provider {
	p := &Provider{
		opts:   o.filled(),
		cache:  newCache(),
		now:    epoch,
		stored: map[string][]item{},
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		if tb == nil {
			panic(fmt.Errorf("llmtest: %w", err))
		}
		tb.Helper()
		tb.Fatalf("llmtest: %v", err)
	}
	p.URL = "http://" + ln.Addr().String()
	p.server = &http.Server{Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: time.Minute}
	p.busy.Go(func() { _ = p.server.Serve(ln) })
	if tb != nil {
		tb.Cleanup(p.Close)
	}
	return p
}

func (o Options) filled() Options {
	if o.TTL == 0 {
		o.TTL = 5 * time.Minute
	}
	if o.MinCache == 0 {
		o.MinCache = 1024
	}
	if o.Prices == (Prices{}) {
		o.Prices = Prices{Write: 1, Read: 0.1}
	}
	return o
}

// Close ends every stream and waits for its handler. It may be called twice.
func (p *Provider) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.server.Close()
	p.busy.Wait()
}

// Script answers the next requests with these steps, one each, in the order in which the requests
// are accepted; after the last the answer is "ok". It replaces what was there.
func (p *Provider) Script(steps ...Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps, p.answer = slices.Clone(steps), nil
}

// ScriptFunc answers every request with what f says to it. It is called from several goroutines
// when requests come at the same time.
func (p *Provider) ScriptFunc(f func(Request) Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps, p.answer = nil, f
}

// Requests are all that came, also refused ones, in the order of their arrival.
func (p *Provider) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Request, 0, len(p.requests))
	for _, r := range p.requests {
		out = append(out, *r)
	}
	return out
}

// Bill is what was charged, an entry per accepted request.
func (p *Provider) Bill() Ledger {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(Ledger, 0, len(p.entries))
	for _, e := range p.entries {
		out = append(out, *e)
	}
	return out
}

// Cost is what the bill comes to at the provider's own prices.
func (p *Provider) Cost() float64 { return p.Bill().Cost(p.opts.Prices) }

// Reset forgets requests, bill, script and cache; the clock goes on.
func (p *Provider) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests, p.entries, p.steps, p.answer = nil, nil, nil, nil
	clear(p.stored)
	p.cache.clear()
}

// Now is the time by the provider's clock.
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

// id is a new one, of the length and with the prefix that clients know.
func (p *Provider) id(prefix string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids++
	return fmt.Sprintf("%s%024d", prefix, p.ids)
}

// step is what to do with the request.
func (p *Provider) step(r Request) Step {
	p.mu.Lock()
	answer := p.answer
	s := Say("ok")
	if answer == nil && len(p.steps) > 0 {
		s, p.steps = p.steps[0], p.steps[1:]
	}
	p.mu.Unlock()
	if answer != nil {
		s = answer(r)
	}
	return s
}
