package access

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"

	"github.com/ctxgate/ctxgate/auth"
)

// Rules decide. A nil *Rules allows everything. They are safe for concurrent use.
type Rules struct {
	fallback  Effect
	rules     []*rule
	arguments members  // that rules read
	claims    []string // that rules read, sorted
	*planner

	needsAnnotations bool
}

// New compiles a valid configuration.
func New(cfg Config) (*Rules, error) {
	r := &Rules{fallback: Allow, arguments: members{names: map[string]bool{}}, planner: newPlanner()}
	if cfg.Default == string(Deny) {
		r.fallback = Deny
	}
	for i, c := range cfg.Rules {
		compiled, problems := compileRule(i, c)
		if len(problems) > 0 {
			return nil, errors.Join(problems...)
		}
		r.rules = append(r.rules, compiled)
		maps.Copy(r.arguments.names, compiled.arguments.names)
		r.arguments.all = r.arguments.all || compiled.arguments.all
		r.needsAnnotations = r.needsAnnotations || compiled.readsVar(varAnnotations)
		for read := range compiled.reads {
			if strings.HasPrefix(read, varClaims) && !slices.Contains(r.claims, read) {
				r.claims = append(r.claims, read)
			}
		}
	}
	slices.Sort(r.claims)
	return r, nil
}

// Decide decides about one request.
func (r *Rules) Decide(c auth.Caller, t Target) Decision {
	if r == nil {
		return Decision{Effect: Allow, Reason: "no access rules"}
	}
	p := r.planFor(c, view{Target: t})
	d := p.last
	if len(p.open) > 0 {
		known := values{caller: &c, target: &t, keep: r.arguments, text: math.MaxInt}
		for _, rule := range p.open {
			if o, _ := rule.evaluate(&known); rule.decides(o) {
				d = rule.decide(o)
				break
			}
		}
	}
	d.Scope = ""
	if d.IsAllowed() {
		d.Scope = r.planFor(c, originOf(t)).scopeOf(d)
	}
	return d
}

// MayList says whether a target is shown to a caller: whether some request for it could be allowed. The target has no
// arguments.
func (r *Rules) MayList(c auth.Caller, t Target) bool {
	return r == nil || r.planFor(c, view{Target: t}).mayAllow()
}

// mayAllow says whether some arguments could be allowed.
func (p *plan) mayAllow() bool {
	return p.last.IsAllowed() || slices.ContainsFunc(p.open, func(rule *rule) bool { return rule.effect != Deny })
}

// FiltersLists says whether what MayList says depends on caller or target at all. If not, everybody sees everything.
func (r *Rules) FiltersLists() bool {
	return r != nil && (r.fallback == Deny || slices.ContainsFunc(r.rules, func(rule *rule) bool { return rule.effect != Allow }))
}

// NeedsAnnotations says whether a rule reads the annotations of tools.
func (r *Rules) NeedsAnnotations() bool {
	return r != nil && r.needsAnnotations
}

// MayUseServer says whether a server exists for a caller: whether it could be allowed to use anything there.
func (r *Rules) MayUseServer(c auth.Caller, server string) bool {
	return r == nil || r.planFor(c, view{Target: Target{Server: server}, isServer: true}).mayAllow()
}

// isFor says whether a rule can match a target: what a model is sent came from the caller itself, and is not redacted.
func (r *rule) isFor(t *Target) bool {
	return r.effect != Redact || t.Method != MethodModel && t.Method != MethodModelPath
}

// evaluate evaluates a rule with every variable known. The error says why it failed.
func (r *rule) evaluate(known *values) (outcome, error) {
	if r.isCostly {
		known = &values{caller: known.caller, target: known.target, keep: r.arguments, text: maxText}
	}
	v, _, err := r.whole.Eval(known)
	switch {
	case err != nil:
		return isFailed, err
	case v == types.True:
		return isTrue, nil
	default:
		return isFalse, nil
	}
}

// decides says whether a rule with an outcome ends the search. One that cannot be evaluated denies, unless it would
// allow: then the next rules decide.
func (r *rule) decides(o outcome) bool { return o == isTrue || o == isFailed && r.effect != Allow }

// decide is the decision of a rule that matches, or cannot be evaluated.
func (r *rule) decide(o outcome) Decision {
	if o == isFailed {
		return Decision{Effect: Deny, Rule: r.number, Reason: r.reason + " cannot be evaluated"}
	}
	return Decision{Effect: r.effect, Rule: r.number, Reason: r.reason, Redact: r.redact}
}

func (r *Rules) defaultDecision() Decision {
	return Decision{Effect: r.fallback, Reason: "no rule matches; access.default = " + string(r.fallback)}
}
