package chat

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// Config is the LLM door: which providers there are, and what holds for all of them.
type Config struct {
	// Masking of old tool results in conversations.
	Observation Observation `key:"observation_masking"`

	// The LLM providers. /v1/chat/completions (also /chat/completions) and /v1/responses are
	// served by those of kind "openai", /v1/messages by those of kind "anthropic". Where
	// auth_token is set, a client sends that token as its API key (Authorization or x-api-key); one
	// whose own key must reach the provider sends the token as X-Ctxgate-Token. Wherever it
	// stands, the token is never forwarded.
	Providers []Provider `key:"providers"`

	// What holds for every request to a provider.
	LLM Limits `key:"llm"`
}

// Observation holds the schemas of conversation masking.
type Observation struct {
	// The window over tool turns. Nothing at or before the last cache_control of a request is
	// rewritten, unless past_breakpoints says so or the provider's cache has surely died.
	Schema1 history.Policy `key:"schema1"`
	// Shortening of new tool results.
	Birth Birth `key:"birth"`
	// Reading masked results back.
	Recovery Recovery `key:"recovery"`
}

// Recovery lets a model read back what was masked when its client does not use the hub, whose tool
// recover_text does the same.
type Recovery struct {
	// Offer the model a tool, recover_text, in every conversation that has tools. When it is called,
	// ctxgate answers and asks the provider again; the client sees one reply, with the usage of all
	// rounds. Where the client has the hub's tool nothing is added. Default false: no request gets a
	// tool that its client did not send.
	Offer bool `key:"offer"`
	// How often the provider may be asked again for one reply. Default 4.
	MaxRounds int `key:"max_rounds" min:"1" max:"32"`
	// The most characters that all answers of one round may have; the rest can be asked for.
	// Default 60000.
	MaxChars int `key:"max_chars" min:"1000"`
}

// The kinds of API.
const (
	openAI    = "openai"
	anthropic = "anthropic"
)

// Provider is one LLM API.
type Provider struct {
	// The provider's name in logs and metrics.
	Name string `key:"name"`
	// Which API it speaks: "openai" or "anthropic".
	Kind string `key:"kind" oneof:"openai,anthropic"`
	// The API's base URL. "/v1" is put after it unless its path names a version itself, as
	// https://api.example.com/v1 does. References work in it: "env:NAME", "https://${HOST}/v1".
	BaseURL secret.URL `key:"base_url"`
	// The key to call it with; it takes the place of whatever credentials the client sent.
	// Default: the client's own credentials (Authorization, x-api-key) pass through.
	APIKey secret.Text `key:"api_key"`
	// The models it serves, with * for any run of characters; the first provider that fits
	// serves a request. "*" is also served requests that name no model. Default: every model.
	Models []string `key:"models"`
	// Headers sent with every request, in place of the client's of the same name; "env:NAME",
	// "file:PATH", "Bearer env:NAME" and "Bearer ${NAME}" work, and a credential must be written so.
	Headers map[string]secret.Text `key:"headers" literal:"ok"`
	// The longest it may take until the first byte of a reply; a duration. A reply that is not
	// streamed comes all at once, so this is the longest such a reply may take. Default 10m.
	FirstByte unit.Duration `key:"timeout_first_byte" min:"1ms"`
	// The longest a reply may be silent once it has begun; a duration. Default 5m.
	Idle unit.Duration `key:"timeout_idle" min:"1ms"`
	// How often a request is made again that could not be delivered as a whole or was answered 429, 500,
	// 502, 503, 504 or 529; never once a byte of a reply was passed on. One that was delivered and got no
	// answer may have been executed, and is made again only if the client sent an Idempotency-Key.
	// Default 2.
	Retries int `key:"retries" min:"0" max:"10"`
	// Providers of the same kind to ask, in order, when this one fails so, or has the request and does not
	// answer (then both may execute it, and bill it). They get the same body, whatever their models, but
	// neither the client's credentials nor its query, and of its headers only Accept, Content-Type,
	// User-Agent, Anthropic-Version, Anthropic-Beta and OpenAI-Beta. Default none.
	Fallback []string `key:"fallback"`
	// What cached input costs beside fresh input. Default: no discount.
	Cache Cache `key:"cache"`
	// What tokens cost, for the accounts of what masking saved. Default: not known; the accounts are
	// then in tokens only.
	Price Price `key:"price"`
}

// Price is what a provider charges for a million tokens, in the operator's currency.
type Price struct {
	// Fresh input. Default 0: not known.
	Input float64 `key:"input" min:"0"`
	// Output. Default 0: not known.
	Output float64 `key:"output" min:"0"`
}

func (p Price) validate() error {
	for key, n := range map[string]float64{"input": p.Input, "output": p.Output} {
		if n < 0 || math.IsNaN(n) || math.IsInf(n, 0) {
			return fmt.Errorf("price.%s: must be a number that is not negative", key)
		}
	}
	if p.Output > 0 && p.Input == 0 {
		return errors.New("price.input: is needed beside output")
	}
	return nil
}

// Cache is a provider's price of cached input, relative to fresh input.
type Cache struct {
	// Writing to the cache. Default 1.
	Write float64 `key:"write" min:"0"`
	// Writing to the cache for an hour, where a request asks for that. Default 0: 1.6 times write, as
	// Anthropic charges.
	WriteHour float64 `key:"write_1h" min:"0"`
	// Reading from the cache. Default 1.
	Read float64 `key:"read" min:"0"`
	// How long the cache lives; a duration. Default 5m.
	TTL unit.Duration `key:"ttl"`
}

// hourly is what writing for an hour costs more than writing.
const hourly = 1.6

func (c Cache) long() float64 {
	switch {
	case c.WriteHour > 0:
		return c.WriteHour
	case c.Read < c.Write:
		return hourly * c.Write
	}
	return c.Write
}

// Limits hold for every request to a provider.
type Limits struct {
	// The largest request body, compressed or not; a size. Default 32MiB. Zero is refused.
	MaxRequestBytes unit.Bytes `key:"max_request_bytes" min:"1"`
	// The most requests under way at once; those beyond are refused with 503. One caller (a
	// token at an address) may have three quarters of them. Default 1000.
	MaxConcurrent int `key:"max_concurrent" min:"1"`
	// The share of a provider's requests of the last ten seconds that may be made again; three
	// always may. Default 0.2.
	RetryBudget float64 `key:"retry_budget" min:"0" max:"1"`
	// How much of recent conversations is remembered, so that the next request of one is read from
	// where the last ended; a size. Nothing but time depends on it. At most an eighth of
	// memory_budget is used. Default 64MiB; 0 remembers none.
	RecentBytes unit.Bytes `key:"recent_bytes" min:"0"`
	// How long a provider's list of models is believed; a duration. Default 1m.
	ModelsTTL unit.Duration `key:"models_ttl"`
}

// SetDefaults fills what an entry does not say.
func (p *Provider) SetDefaults() {
	p.FirstByte = unit.Duration(10 * time.Minute)
	p.Idle = unit.Duration(5 * time.Minute)
	p.Retries = 2
	p.Cache = Cache{Write: 1, Read: 1, TTL: unit.Duration(5 * time.Minute)}
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Observation: Observation{Schema1: history.DefaultPolicy(), Birth: DefaultBirth(), Recovery: Recovery{MaxRounds: 4, MaxChars: 60_000}},
		LLM:         Limits{MaxRequestBytes: 32 << 20, MaxConcurrent: 1000, RetryBudget: 0.2, RecentBytes: 64 << 20, ModelsTTL: unit.Duration(time.Minute)},
	}
}

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	for _, err := range c.Observation.Schema1.Validate() {
		problems = append(problems, fmt.Errorf("observation_masking.schema1.%w", err))
	}
	for _, err := range c.Observation.Birth.Validate() {
		problems = append(problems, fmt.Errorf("observation_masking.birth.%w", err))
	}
	kinds := map[string]string{}
	for i, p := range c.Providers {
		at := fmt.Sprintf("providers[%d].", i)
		if _, taken := kinds[p.Name]; p.Name == "" || taken {
			problems = append(problems, errors.New(at+"name: must be there and be no other provider's"))
		}
		kinds[p.Name] = p.Kind
		for _, err := range p.validate() {
			problems = append(problems, fmt.Errorf("%s%w", at, err))
		}
	}
	for i, p := range c.Providers {
		for _, name := range p.Fallback {
			if kind, ok := kinds[name]; !ok || kind != p.Kind || name == p.Name {
				problems = append(problems, fmt.Errorf("providers[%d].fallback: %q is no other provider of kind %s", i, name, p.Kind))
			}
		}
	}
	return problems
}

func (p Provider) validate() []error {
	var problems []error
	if p.Kind == "" {
		problems = append(problems, errors.New("kind: openai or anthropic is needed"))
	}
	if err := checkURL(p.BaseURL.Sample()); err != nil && (p.BaseURL == "" || p.BaseURL.Sample() != "") {
		problems = append(problems, fmt.Errorf("base_url: %w", err))
	}
	if slices.Contains(p.Models, "") {
		problems = append(problems, errors.New("models: a name is empty"))
	}
	if err := p.Price.validate(); err != nil {
		problems = append(problems, err)
	}
	for name := range p.Headers {
		if hopByHop[http.CanonicalHeaderKey(name)] {
			problems = append(problems, fmt.Errorf("headers: %s belongs to the connection", name))
		}
	}
	return problems
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case s == "":
		return errors.New("is missing")
	case err != nil || u.Host == "":
		return errors.New("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("scheme %q is not http or https", u.Scheme)
	case u.User != nil:
		return errors.New("credentials do not belong in a URL: use api_key")
	case strings.ContainsAny(s, "?#"):
		return errors.New("a query or fragment has no meaning here: paths are put after it")
	}
	return nil
}
