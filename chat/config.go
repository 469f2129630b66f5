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

	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/glob"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/llm/wires"
)

// Config configures the LLM endpoint: its providers, masking, and limits.
type Config struct {
	// Masking of old tool results in conversations.
	ObservationMasking ObservationMasking `key:"observation_masking"`

	// The LLM providers. Those of kind "openai" serve /v1/chat/completions (also /chat/completions) and
	// /v1/responses, those of kind "anthropic" serve /v1/messages, and those of kind "gemini" serve
	// /v1beta/models/{model}:generateContent and the like (also /v1 and /v1alpha); all other paths below
	// these versions are forwarded unread. If auth_token is set,
	// clients send that token as their API key (Authorization, x-api-key, x-goog-api-key or, for Gemini's API,
	// the parameter key); a client whose own key must reach the provider sends the token as X-Ctxgate-Token.
	// The token is never forwarded. Default: none; with profile = "agents", Anthropic
	// (https://api.anthropic.com), OpenAI (https://api.openai.com/v1) and Google
	// (https://generativelanguage.googleapis.com) with the client's own credentials. An entry of your own
	// replaces them.
	Providers []Provider `key:"providers"`

	// The prices of models. They replace those of the built-in table (llm.price_table) or add to them; the cache
	// and price of a provider's own entry win over both. Default: none.
	Prices []ModelPrice `key:"prices"`

	// Limits for all requests to providers, and where their prices come from.
	LLM Limits `key:"llm"`
}

// ObservationMasking holds the schemas of conversation masking.
type ObservationMasking struct {
	// The window over tool turns. Nothing at or before the last cache_control of a request is rewritten,
	// unless past_breakpoints allows it or the provider's cache has certainly expired.
	Schema1 history.Policy `key:"schema1"`
	// Shortening of new tool results.
	NewResults masking.NewResults `key:"birth"`
	// How the model can read masked results back.
	Recovery Recovery `key:"recovery"`
}

// Recovery lets a model read originals back if its client does not use the MCP endpoint, which has the tool
// recover_text too.
type Recovery struct {
	// Add a tool, recover_text, to every conversation that has tools. When the model calls it, ctxgate
	// answers and sends the conversation to the provider again; the client sees one reply, with the usage
	// of all rounds. Nothing is added if the client already offers the gateway's recover_text. Default
	// false: no tool is added to requests; with profile = "agents", true.
	Offer bool `key:"offer"`
	// How often one reply may be continued with a further request to the provider. Default 4.
	MaxRounds int `key:"max_rounds" min:"1" max:"32"`
	// The most characters of all recover_text answers in one round; the model can ask for the rest.
	// Default 60000.
	MaxChars int `key:"max_chars" min:"1000"`
}

// APIKind is the API that a provider serves: the vendor of one or more wire shapes.
type APIKind string

// OneOf lists the kinds that there are.
func (APIKind) OneOf() []string {
	var kinds []string
	for _, codec := range wires.All() {
		if kind := codec.Wire().Vendor.Kind(); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Provider is one LLM API.
type Provider struct {
	// The provider's name in logs and metrics.
	Name string `key:"name"`
	// The provider's API: "openai", "anthropic" or "gemini".
	Kind APIKind `key:"kind"`
	// The API's base URL. "/v1" is appended unless the path already contains a version; for Gemini's API it is
	// the version that the client asks for. An example with a version:
	// https://api.example.com/v1. References work in it: "env:NAME", "https://${HOST}/v1".
	BaseURL secret.URL `key:"base_url"`
	// The provider's API key; it replaces the client's credentials. Default: the client's own credentials
	// (Authorization, x-api-key, x-goog-api-key; a parameter key of Gemini's API as x-goog-api-key) are
	// forwarded.
	APIKey secret.Text `key:"api_key"`
	// The models that the provider serves, with * for any characters; the first provider that matches
	// serves a request. "*" also matches requests without a model. Default: every model; with paths, none.
	Models []string `key:"models"`
	// Further paths that go to this provider, with * for any characters, for clients that use another API
	// than /v1: "/openai/*" (Azure), "/model/*" (Bedrock). They are sent to the same path at the host of
	// base_url, with the query. A path that ends like one of the kind's endpoints (Azure's
	// /openai/deployments/NAME/chat/completions) is masked and accounted as that endpoint; all others are
	// forwarded unread. Paths that ctxgate serves itself are not affected. Default none.
	Paths []string `key:"paths"`
	// Headers sent with every request, in place of the client's headers of the same name; "env:NAME",
	// "file:PATH", "Bearer env:NAME" and "Bearer ${NAME}" work. Credentials must be written as such
	// references.
	Headers map[string]secret.Text `key:"headers" literal:"ok"`
	// How long the provider may take until the first byte of a reply; a duration. A reply that is not
	// streamed arrives all at once, so this limits its whole duration. Default 10m.
	FirstByteTimeout unit.Duration `key:"timeout_first_byte" min:"1ms"`
	// How long a reply that has started may pause; a duration. Default 5m.
	IdleTimeout unit.Duration `key:"timeout_idle" min:"1ms"`
	// How often a request is retried that could not be delivered completely or was answered with 429, 500,
	// 502, 503, 504 or 529; never after a byte of a reply was passed on. A request that was delivered but
	// got no answer may have been executed: it is retried only if the client sent an Idempotency-Key.
	// Default 2.
	Retries int `key:"retries" min:"0" max:"10"`
	// Providers of the same kind to try, in order, when this one fails that way, or has received the
	// request and does not answer (then both may execute it, and bill it). They get the same body,
	// whatever their models, but neither the client's credentials nor its query, and of its headers only
	// Accept, Content-Type, User-Agent, Anthropic-Version, Anthropic-Beta and OpenAI-Beta. Default none.
	Fallback []string `key:"fallback"`
	// The price of cached input relative to fresh input, for all models of the provider: for them, neither
	// [[prices]] nor the built-in table are used. Default: no discount, unless [[prices]] or, with
	// llm.price_table, the built-in table have prices of a model. Read and write of 1 count as not set: where
	// the table is wrong about a discount, use [[prices]] without cache_read.
	Cache masking.CachePrices `key:"cache"`
	// The price of tokens, for /savings on the admin listener. Default: as in [[prices]] or, with
	// llm.price_table, in the built-in table, which is in US dollars: where another currency is used, set it
	// for every provider. Without any, savings are in tokens only.
	Price Price `key:"price"`
}

// Price is what a provider charges for a million tokens, in the operator's currency.
type Price struct {
	// Fresh input. Default 0: unknown.
	Input float64 `key:"input" min:"0"`
	// Output. Default 0: unknown.
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

// Limits are the limits of all requests to providers, and where prices come from.
type Limits struct {
	// Use the built-in table of prices: for models of providers that set no cache of their own, it says what
	// input, output and cached input cost, in US dollars, how long caches live, and above which size a request
	// costs more. docs/prices.md lists it. A model that is not in it is assumed to have cheap cached input
	// until its replies tell otherwise. Default false: prices are what the configuration says, and without
	// any there is no discount; with profile = "agents", true.
	PriceTable bool `key:"price_table"`
	// The largest request body, compressed or not; a size. Default 32MiB. Must be positive.
	MaxRequestBytes unit.Bytes `key:"max_request_bytes" min:"1"`
	// The most requests in flight at once; further ones are answered with 503. One caller (a token at an
	// address) may have three quarters of them; where there are several tenants, all callers of one together
	// may have half. Default 1000.
	MaxConcurrent int `key:"max_concurrent" min:"1"`
	// The share of a provider's requests of the last ten seconds that may be retries; three retries are
	// always allowed. Default 0.2.
	RetryBudget float64 `key:"retry_budget" min:"0" max:"1"`
	// How much of recent conversations stays in memory, so that processing of the next request continues
	// where the last one ended; a size. It affects only speed. At most an eighth of memory_budget is used.
	// Default 64MiB; 0 turns it off.
	RecentBytes unit.Bytes `key:"recent_bytes" min:"0"`
	// How long a provider's list of models is cached; a duration. Default 1m.
	ModelsTTL unit.Duration `key:"models_ttl"`
}

// SetDefaults sets the defaults of an entry.
func (p *Provider) SetDefaults() {
	p.FirstByteTimeout = unit.Duration(10 * time.Minute)
	p.IdleTimeout = unit.Duration(5 * time.Minute)
	p.Retries = 2
	p.Cache = masking.CachePrices{Write: 1, Read: 1, TTL: unit.Duration(5 * time.Minute)}
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		ObservationMasking: ObservationMasking{Schema1: history.DefaultPolicy(), NewResults: masking.DefaultNewResults(), Recovery: Recovery{MaxRounds: 4, MaxChars: 60_000}},
		LLM:                Limits{MaxRequestBytes: 32 << 20, MaxConcurrent: 1000, RetryBudget: 0.2, RecentBytes: 64 << 20, ModelsTTL: unit.Duration(time.Minute)},
	}
}

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	for _, err := range c.ObservationMasking.Schema1.Validate() {
		problems = append(problems, fmt.Errorf("observation_masking.schema1.%w", err))
	}
	for _, err := range c.ObservationMasking.NewResults.Validate() {
		problems = append(problems, fmt.Errorf("observation_masking.birth.%w", err))
	}
	kinds := map[string]APIKind{}
	for i, p := range c.Providers {
		at := fmt.Sprintf("providers[%d].", i)
		if _, taken := kinds[p.Name]; p.Name == "" || taken {
			problems = append(problems, errors.New(at+"name: must be set and unique"))
		}
		kinds[p.Name] = p.Kind
		for _, err := range p.validate() {
			problems = append(problems, fmt.Errorf("%s%w", at, err))
		}
	}
	for i, m := range c.Prices {
		for _, err := range m.problems(kinds) {
			problems = append(problems, fmt.Errorf("prices[%d].%w", i, err))
		}
	}
	for i, p := range c.Providers {
		for _, name := range p.Fallback {
			if kind, ok := kinds[name]; !ok || kind != p.Kind || name == p.Name {
				problems = append(problems, fmt.Errorf("providers[%d].fallback: %q is not another provider of kind %s", i, name, p.Kind))
			}
		}
	}
	return problems
}

func (p Provider) validate() []error {
	var problems []error
	if p.Kind == "" {
		problems = append(problems, errors.New("kind: "+strings.Join(p.Kind.OneOf(), " or ")+" is needed"))
	}
	if err := checkURL(p.BaseURL.Sample()); err != nil && (p.BaseURL == "" || p.BaseURL.Sample() != "") {
		problems = append(problems, fmt.Errorf("base_url: %w", err))
	}
	if slices.Contains(p.Models, "") {
		problems = append(problems, errors.New("models: a name is empty"))
	}
	for _, pattern := range p.Paths {
		if len(pattern) < 2 || pattern[0] != '/' || pattern[1] == '*' || len(pattern) > glob.MaxLength {
			problems = append(problems, fmt.Errorf("paths: %q does not begin with / and a name, such as /openai/*", pattern))
		}
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
