package hub

import (
	"errors"
	"math"

	"github.com/ctxgate/ctxgate/internal/glob"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/reduce"
)

// Policy is a rule for some servers and tools. What it does not set is as in [masking].
type Policy struct {
	// The servers that the entry is for: an id, with * for any characters. Default "*".
	Server string `key:"server"`

	// The tools that the entry is for: a name, with * for any characters. Default "*". Requests without a
	// tool name match only "*".
	Tool string `key:"tool"`

	// What to do with long strings: "mask", "prune" or "none". Default "mask".
	//
	// With "prune" each matching tool gets one more optional argument, context_focus_question, in which
	// the model can say what it is looking for. In each text longer than max_chars only the lines that
	// matter for that question stay, at most max_chars characters of them with their markers: a marker
	// replaces each block of other lines, and recover_text reads them back. The server never sees the
	// argument. Where no line matters, or none fits, the head and the tail stay, with their marker within
	// max_chars, too; so do those of a text of one line or of more than 16 MiB. A call without the argument
	// is masked. With json = true, a text that is JSON is shortened as JSON. A tool that already has such
	// an argument, or whose schema may not allow another one (because of anyOf, $ref and the like), is
	// listed unchanged.
	Reduce reduce.Name `key:"reduce"`

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

	Prune reduce.PruneOptions `key:",inline"`
}

// SetDefaults sets what a rule leaves out.
func (p *Policy) SetDefaults() {
	p.Server, p.Tool, p.Reduce = "*", "*", reduce.ByMask
	p.Prune = reduce.DefaultPruneOptions()
}

func (p Policy) validateOver(base recall.Policy) []error {
	var problems []error
	if len(p.Server) > glob.MaxLength {
		problems = append(problems, errors.New("server: the pattern is longer than 512 bytes"))
	}
	if len(p.Tool) > glob.MaxLength {
		problems = append(problems, errors.New("tool: the pattern is longer than 512 bytes"))
	}
	if p.Reduce != "" {
		problems = append(problems, p.Reduce.Validate()...)
	}
	problems = append(problems, p.Prune.Validate()...)
	return append(problems, p.over(base).Validate()...)
}

// over returns base with what the rule overrides.
func (p Policy) over(base recall.Policy) recall.Policy {
	set(&base.MaxChars, p.MaxChars)
	set(&base.HeadChars, p.HeadChars)
	set(&base.TailChars, p.TailChars)
	set(&base.RecoverLine, p.RecoverLine)
	set(&base.HardLimit, p.HardLimit)
	set(&base.JSON, p.JSON)
	base.Choice = reduce.Choice{Reducer: p.Reduce, Prune: p.Prune}
	if p.Reduce == reduce.None {
		base.MaxChars = math.MaxInt // so that no string is looked at
	}
	return base
}

func set[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// rules are the compiled policies.
type rules struct {
	list       []rule
	rest       recall.Policy // where no rule matches
	minChars   int           // strings of up to this length are cut by no rule
	needsGoals bool          // some rule's reducer needs a goal
}

type rule struct {
	server, tool glob.Pattern
	recall.Policy
}

func compile(cfg Config) rules {
	r := rules{rest: cfg.Masking, minChars: cfg.Masking.MaxChars}
	for _, p := range cfg.Policies {
		policy := p.over(cfg.Masking)
		r.list = append(r.list, rule{glob.New(p.Server), glob.New(p.Tool), policy})
		r.minChars = min(r.minChars, policy.MaxChars)
		r.needsGoals = r.needsGoals || policy.NeedsGoal()
	}
	return r
}

// policyFor returns the policy of the first rule that matches a call, or the general one.
func (r *rules) policyFor(server, tool string) recall.Policy {
	for _, rule := range r.list {
		if rule.server.Match(server) && rule.tool.Match(tool) {
			return rule.Policy
		}
	}
	return r.rest
}
