package hub

import (
	"errors"
	"math"
	"regexp"
	"strings"

	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/recall"
)

// Policy is a rule for some servers and tools. What it does not say stays as [masking] has it.
type Policy struct {
	// The servers it is for: an id, with * for any run of characters. Default "*".
	Server string `key:"server"`

	// The tools it is for: a name, with * for any run of characters. Default "*". A call that
	// names no tool fits only "*".
	Tool string `key:"tool"`

	// What to do with long strings: "mask" or "none". Default "mask".
	Reduce string `key:"reduce" oneof:"mask,none"`

	// Overrides masking.max_chars.
	MaxChars *int `key:"max_chars"`

	// Overrides masking.head_chars.
	HeadChars *int `key:"head_chars"`

	// Overrides masking.tail_chars.
	TailChars *int `key:"tail_chars"`

	// Overrides masking.recover_line.
	RecoverLine *bool `key:"recover_line"`

	// Overrides masking.hard_limit_bytes.
	HardLimit *unit.Bytes `key:"hard_limit_bytes"`

	// Overrides masking.json.
	JSON *bool `key:"json"`
}

// SetDefaults fills what a rule does not say.
func (p *Policy) SetDefaults() { p.Server, p.Tool, p.Reduce = "*", "*", "mask" }

const maxPattern = 512

func (p Policy) validate(base recall.Policy) []error {
	var problems []error
	if len(p.Server) > maxPattern {
		problems = append(problems, errors.New("server: the pattern is longer than 512 bytes"))
	}
	if len(p.Tool) > maxPattern {
		problems = append(problems, errors.New("tool: the pattern is longer than 512 bytes"))
	}
	return append(problems, p.over(base).Validate()...)
}

// over is base with what the rule says.
func (p Policy) over(base recall.Policy) recall.Policy {
	set(&base.MaxChars, p.MaxChars)
	set(&base.HeadChars, p.HeadChars)
	set(&base.TailChars, p.TailChars)
	set(&base.RecoverLine, p.RecoverLine)
	set(&base.HardLimit, p.HardLimit)
	set(&base.JSON, p.JSON)
	if p.Reduce == "none" {
		base.MaxChars = math.MaxInt
	}
	return base
}

func set[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// rules are the policies ready to be asked.
type rules struct {
	list  []rule
	rest  recall.Policy
	least int // the length from which a string may be cut by any rule
}

type rule struct {
	server, tool *regexp.Regexp
	policy       recall.Policy
}

func compile(cfg Config) rules {
	r := rules{rest: cfg.Masking, least: cfg.Masking.MaxChars}
	for _, p := range cfg.Policies {
		policy := p.over(cfg.Masking)
		r.list = append(r.list, rule{glob(p.Server), glob(p.Tool), policy})
		r.least = min(r.least, policy.MaxChars)
	}
	return r
}

// glob matches a whole name; * stands for any run of characters.
func glob(pattern string) *regexp.Regexp {
	return regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
}

// find is the policy for a call: that of the first rule that fits it, or the general one.
func (r rules) find(server, tool string) recall.Policy {
	for _, rule := range r.list {
		if rule.server.MatchString(server) && rule.tool.MatchString(tool) {
			return rule.policy
		}
	}
	return r.rest
}
