package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// Later holds the keys that are fixed already but not yet acted on, so that a file written for a
// later version is not refused by this one. A section moves to its package when its code comes.
type Later struct {
	// Masking of old tool results in conversations. Read and checked, but not yet acted on.
	Observation Observation `key:"observation_masking"`

	// LLM providers. Read and checked, but not yet served.
	Providers []Provider `key:"providers"`
}

// Observation holds the schemas of conversation masking.
type Observation struct {
	// The window over tool turns.
	Schema1 Schema1 `key:"schema1"`
}

// Schema1 keeps the results of the last tool turns and masks older ones.
type Schema1 struct {
	// Mask old tool results. Default true.
	Enabled bool `key:"enabled"`
	// How many tool turns stay intact. Default 8; 0 or less changes nothing.
	WindowTurns int `key:"window_turns"`
	// Keep results that look like errors. Default true.
	KeepErrors bool `key:"keep_errors"`
	// Results to keep for each tool, also outside the window. Default: no such rule.
	KeepLastK *int `key:"keep_last_k_per_tool"`
	// What stands for a masked result. Default: the document's French sentence.
	Placeholder string `key:"placeholder_template"`
	// When the window moves. Default "auto".
	Advance string `key:"advance" oneof:"turn,stride,pressure,auto"`
}

// Provider is one LLM API.
type Provider struct {
	// The provider's name in logs and metrics.
	Name string `key:"name"`
	// Which API it speaks: "openai" or "anthropic".
	Kind string `key:"kind" oneof:"openai,anthropic"`
	// The API's base URL.
	BaseURL string `key:"base_url"`
	// The key to call it with. Default: the client's own credentials pass through.
	APIKey secret.Text `key:"api_key"`
	// The models it serves, with * for any run of characters; the first provider that fits
	// serves a request.
	Models []string `key:"models"`
	// What cached input costs beside fresh input. Default: no discount.
	Cache Cache `key:"cache"`
}

// Cache is a provider's price of cached input, relative to fresh input.
type Cache struct {
	// Writing to the cache. Default 1.
	Write float64 `key:"write" min:"0"`
	// Reading from the cache. Default 1.
	Read float64 `key:"read" min:"0"`
	// How long the cache lives; a duration. Default 5m.
	TTL unit.Duration `key:"ttl"`
}

// SetDefaults fills what an entry does not say.
func (p *Provider) SetDefaults() {
	p.Cache = Cache{Write: 1, Read: 1, TTL: unit.Duration(5 * time.Minute)}
}

func laterDefault() Later {
	return Later{
		Observation: Observation{Schema1{
			Enabled: true, WindowTurns: 8, KeepErrors: true, Advance: "auto",
			Placeholder: "[Observation masquée: résultat d’outil ancien (tool_call_id={tool_call_id}, outil={tool_name}, chars={original_chars})]",
		}},
	}
}

func (l Later) validate() []error {
	var problems []error
	names := map[string]bool{}
	for i, p := range l.Providers {
		at := fmt.Sprintf("providers[%d].", i)
		if p.Name == "" || names[p.Name] {
			problems = append(problems, errors.New(at+"name: must be there and be no other provider's"))
		}
		names[p.Name] = true
		if p.Kind == "" {
			problems = append(problems, errors.New(at+"kind: openai or anthropic is needed"))
		}
		if p.BaseURL == "" {
			problems = append(problems, errors.New(at+"base_url: is missing"))
		}
	}
	return problems
}

// notYet names what the file asks for and this version does not do.
func (l *Loaded) notYet() []string {
	var out []string
	say := func(path, what string) {
		if line := l.File.Line(path); line > 0 {
			out = append(out, fmt.Sprintf("%s:%d: %s: %s", l.File.Path, line, path, what))
		}
	}
	say("observation_masking", "is not acted on by this version")
	say("providers", "are not served by this version")
	return out
}
