package hub

import (
	"errors"
	"math"

	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/prune"
	"github.com/ctxgate/ctxgate/recall"
)

// Policy is a rule for some servers and tools. What it does not say stays as [masking] has it.
type Policy struct {
	// The servers it is for: an id, with * for any run of characters. Default "*".
	Server string `key:"server"`

	// The tools it is for: a name, with * for any run of characters. Default "*". A call that
	// names no tool fits only "*".
	Tool string `key:"tool"`

	// What to do with long strings: "mask", "prune" or "none". Default "mask".
	//
	// With "prune" a tool is listed with one more optional argument, context_focus_question, in
	// which a model can say what it is looking for. Of each text longer than max_chars the lines
	// then stay that matter for it; a marker stands for each block of others, and recover_text
	// reads them back. The server never sees the argument. A call without it is masked, and so is
	// a text of one line or of more than 16 MiB; with json = true, a text that is JSON is
	// shortened as JSON. A tool that has such an argument of its own, or whose schema could
	// refuse one more (it has anyOf, $ref and the like), is listed as it is.
	Reduce string `key:"reduce" oneof:"mask,prune,none"`

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

	// For reduce = "prune": what sort of text the results are: "code", "logs", "docs", or "auto"
	// to look at each. Default "auto".
	PruneType string `key:"prune_type" oneof:"auto,code,logs,docs"`

	// For reduce = "prune": the most lines to leave out of a text, as a part of all its lines.
	// Default 0.7.
	PruneRatio float64 `key:"prune_ratio" min:"0" max:"1"`

	// For reduce = "prune": the fewest lines to keep of a text. Default 20.
	PruneMinKeep int `key:"prune_min_keep" min:"0"`
}

// SetDefaults fills what a rule does not say.
func (p *Policy) SetDefaults() {
	p.Server, p.Tool, p.Reduce = "*", "*", "mask"
	p.PruneType, p.PruneRatio, p.PruneMinKeep = "auto", 0.7, 20
}

const maxPattern = 512

func (p Policy) validate(base recall.Policy) []error {
	var problems []error
	if len(p.Server) > maxPattern {
		problems = append(problems, errors.New("server: the pattern is longer than 512 bytes"))
	}
	if len(p.Tool) > maxPattern {
		problems = append(problems, errors.New("tool: the pattern is longer than 512 bytes"))
	}
	if !(p.PruneRatio >= 0 && p.PruneRatio <= 1) { // NaN too
		problems = append(problems, errors.New("prune_ratio: must be between 0 and 1"))
	}
	if p.PruneMinKeep < 0 {
		problems = append(problems, errors.New("prune_min_keep: must not be negative"))
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

// pruning is how the rule prunes, but for the goal, which each call says; nil when it does not.
func (p Policy) pruning() *recall.Focus {
	if p.Reduce != "prune" {
		return nil
	}
	f := &recall.Focus{Kind: prune.Guess, Budget: prune.Budget{MaxRatio: p.PruneRatio, MinKeep: p.PruneMinKeep}}
	if kind, ok := prune.ParseKind(p.PruneType); ok {
		f.Kind = func(string) prune.Kind { return kind }
	}
	return f
}

func set[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// rules are the policies ready to be asked.
type rules struct {
	list   []rule
	rest   treatment
	least  int  // the length from which a string may be cut by any rule
	prunes bool // some rule prunes: the others need not be asked for that
}

type rule struct {
	server, tool glob
	treatment
}

// treatment is what becomes of a call's reply.
type treatment struct {
	recall.Policy
	prune *recall.Focus // how, where the call says what it looks for; nil where it is not asked
}

func compile(cfg Config) rules {
	r := rules{rest: treatment{Policy: cfg.Masking}, least: cfg.Masking.MaxChars}
	for _, p := range cfg.Policies {
		t := treatment{p.over(cfg.Masking), p.pruning()}
		r.list = append(r.list, rule{newGlob(p.Server), newGlob(p.Tool), t})
		r.least = min(r.least, t.MaxChars)
		r.prunes = r.prunes || t.prune != nil
	}
	return r
}

// find is what holds for a call: the first rule that fits it, or what is said in general.
func (r *rules) find(server, tool string) treatment {
	for _, rule := range r.list {
		if rule.server.match(server) && rule.tool.match(tool) {
			return rule.treatment
		}
	}
	return r.rest
}

// asker says which of a server's tools take what a call looks for; nil when no rule prunes.
func (r *rules) asker(server string) func(tool string) bool {
	if !r.prunes {
		return nil
	}
	return func(tool string) bool { return r.find(server, tool).prune != nil }
}
