package access

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Explanation says rule by rule how a decision came about.
type Explanation struct {
	Steps     []Step   `json:"rules"`
	Effect    Effect   `json:"effect"`           // "" if it depends on the arguments
	Rule      int      `json:"rule"`             // the number of the rule that decides; 0 for the default
	Reason    string   `json:"reason"`           //
	IsListed  bool     `json:"listed"`           // shown in lists
	Redaction []string `json:"redact,omitempty"` // what is taken out
}

// Step is one rule of an Explanation.
type Step struct {
	Rule    int      `json:"rule"`
	Name    string   `json:"name,omitempty"`
	Effect  Effect   `json:"effect"`
	When    string   `json:"when"`
	Outcome string   `json:"outcome"`
	Error   string   `json:"error,omitempty"`  // why it cannot be evaluated
	Values  []string `json:"values,omitempty"` // what the condition read
}

// The outcomes of a rule.
const (
	Matched    = "matches"
	NotMatched = "does not match"
	NotReached = "not reached"
	Depends    = "depends on " // what is unknown follows
	Failed     = "cannot be evaluated"
)

// Explain says how the decision for a target comes about. Without arguments it says what depends on them.
func (r *Rules) Explain(c auth.Caller, t Target) Explanation {
	p := r.planFor(c, view{Target: t})
	x := Explanation{IsListed: p.mayAllow(), Reason: Depends + t.unknownParts()}
	d := p.last
	isCertain := t.Arguments != nil || len(p.open) == 0
	if !x.IsListed {
		x.Effect, x.Reason = Deny, "denied whatever the arguments are"
	}
	if isCertain {
		d = r.Decide(c, t)
		x.Effect, x.Rule, x.Reason = d.Effect, d.Rule, d.Reason
		x.Redaction = d.Redact.Describe()
	}
	known := values{caller: &c, target: &t, keep: r.arguments, text: math.MaxInt}
	for _, rule := range r.rules {
		step := rule.step()
		if d.Rule == 0 || rule.number <= d.Rule {
			step.Values = rule.describeValues(c, t)
			switch {
			case !rule.isFor(&t):
				step.Outcome = NotMatched
			case !isCertain && slices.Contains(p.open, rule):
				step.Outcome = Depends + t.unknownParts()
			default:
				step.Outcome, step.Error = rule.explain(&known)
			}
		}
		x.Steps = append(x.Steps, step)
	}
	return x
}

// ExplainCaller says what the rules make of a caller, whatever it wants to use.
func (r *Rules) ExplainCaller(c auth.Caller) []Step {
	var out []Step
	known := newEvaluation(&c, nil)
	isDecided := false
	for _, rule := range r.rules {
		step := rule.step()
		if !isDecided {
			o := known.outcomeOf(rule)
			isDecided = rule.decides(o) && rule.effect != Redact // which is not for models
			step.Outcome = map[outcome]string{isTrue: Matched, isFalse: NotMatched, isFailed: Failed, isOpen: Depends + "what is used"}[o]
		}
		out = append(out, step)
	}
	return out
}

func (r *rule) step() Step {
	return Step{Rule: r.number, Name: r.name, Effect: r.effect, When: r.when, Outcome: NotReached}
}

// unknownParts are what a decision about the target can depend on.
func (t Target) unknownParts() string {
	if t.lacksAnnotations() {
		return "the arguments or the tool's annotations"
	}
	return "the arguments"
}

// explain is the outcome of a rule, and why it failed.
func (r *rule) explain(known *values) (result, reason string) {
	switch o, err := r.evaluate(known); o {
	case isTrue:
		return Matched, ""
	case isFailed:
		return Failed, err.Error()
	default:
		return NotMatched, ""
	}
}

// describeValues lists what a rule reads, with its values.
func (r *rule) describeValues(c auth.Caller, t Target) []string {
	var out []string
	for _, read := range slices.Sorted(maps.Keys(r.reads)) {
		out = append(out, read+" = "+fault.ClipTo(describeValue(c, t, read), maxShown))
	}
	return out
}

// maxShown is how many bytes of a value are shown.
const maxShown = 200

func describeValue(c auth.Caller, t Target, read string) string {
	if strings.HasPrefix(read, "caller.") {
		return describeJSON(readOf(c, read))
	}
	name, member, isMember := strings.Cut(read, ".")
	raw := t.Arguments
	switch name {
	case varArguments:
	case varAnnotations:
		raw = t.Annotations
	default:
		text, _ := (&values{target: &t}).ResolveName(name)
		return describeJSON(text)
	}
	if raw == nil {
		return "(unknown)"
	}
	if !isMember {
		return string(raw)
	}
	fields, _ := jsonscan.FieldsOf(raw) // without fields nothing is found
	value, ok := fields.Get(member)
	if !ok {
		return "(missing)"
	}
	return string(value)
}

func describeJSON(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return "(unreadable)"
	}
	return string(out)
}
