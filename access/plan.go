package access

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/internal/gencache"
)

// plan is what is decided for a caller and a target without arguments.
type plan struct {
	open []*rule // what the arguments decide, in order; empty: nothing
	last Decision
	base string // the scope of decisions that depend on more than is known here; "" if open is empty

	isServer bool // for everything of a server
}

// outcome is what is known of a rule's condition.
type outcome uint32

const (
	notEvaluated outcome = iota
	isOpen               // depends on what is unknown
	isFalse
	isTrue
	isFailed // cannot be evaluated
)

// view is what is known of a target.
type view struct {
	Target
	isServer bool // only the server
}

func (t *Target) lacksAnnotations() bool { return t.Tool != "" && t.Annotations == nil }

// unknownVars are the variables whose values are not known; without caller or target, all of theirs.
func unknownVars(hasCaller bool, v *view) []string {
	names := []string{varArguments}
	if !hasCaller {
		names = append(names, callerVars...)
	}
	switch {
	case v == nil:
		names = append(names, targetVars...)
	case v.isServer:
		names = append(names, itemVars...)
	case v.lacksAnnotations():
		names = append(names, varAnnotations)
	}
	return names
}

// maxName is how long the name of something can be that rules decide about. What is longer does not exist.
const maxName = 16 << 10

var tooLong = &plan{last: Decision{Effect: Deny, Reason: "the name is too long for access rules"}}

// The caches. A generation of plans holds maxPlans; one of outcomes holds maxOutcomes of single rules.
const (
	maxPlans    = 32 << 10
	maxOutcomes = 1 << 20
)

type planKey struct{ caller, target gencache.Fingerprint }

type planner struct {
	hasher  gencache.Hasher
	plans   *gencache.Cache[planKey, *plan]
	callers *gencache.Cache[gencache.Fingerprint, []outcome]
	targets *gencache.Cache[gencache.Fingerprint, []atomic.Uint32] // outcomes, evaluated when needed

	lastCaller atomic.Pointer[knownCaller]
}

func newPlanner() *planner {
	return &planner{
		hasher:  gencache.NewHasher(),
		plans:   gencache.New[planKey, *plan](maxPlans),
		callers: gencache.New[gencache.Fingerprint, []outcome](maxOutcomes),
		targets: gencache.New[gencache.Fingerprint, []atomic.Uint32](maxOutcomes),
	}
}

// planFor decides what can be decided without arguments. Most rules are false for a caller whatever the target, or for
// a target whoever the caller, so each rule is evaluated for one of them alone before it is evaluated for both: the
// results are shared by all targets of the caller, and by all callers.
func (r *Rules) planFor(c auth.Caller, v view) *plan {
	if len(r.rules) > 0 && len(v.Method)+len(v.Tool)+len(v.Resource)+len(v.Prompt)+len(v.Model) > maxName {
		return tooLong
	}
	key := planKey{r.callerKey(c), r.targetKey(&v)}
	if p, ok := r.plans.Get(key); ok {
		return p
	}
	p := r.newPlan(c, &v, key)
	r.plans.Put(key, p, 1+len(p.open))
	return p
}

func (r *Rules) newPlan(c auth.Caller, v *view, key planKey) *plan {
	ofCaller, ofTarget := r.callerOutcomes(c, key.caller), r.targetOutcomes(key.target)
	var alone, both lazyEvaluation
	p := &plan{last: r.defaultDecision(), isServer: v.isServer}
	for i, rule := range r.rules {
		o := ofCaller[i]
		if !rule.isFor(&v.Target) {
			o = isFalse
		}
		if o == isOpen && rule.readsTarget {
			if o = outcome(ofTarget[i].Load()); o == notEvaluated {
				o = alone.get(nil, v).outcomeOf(rule)
				ofTarget[i].Store(uint32(o))
			}
		}
		if o == isOpen && rule.readsCaller && rule.readsTarget {
			o = both.get(&c, v).outcomeOf(rule)
		}
		if o == isOpen {
			p.open = append(p.open, rule)
		}
		if rule.decides(o) {
			p.last = rule.decide(o)
			break
		}
	}
	if len(p.open) > 0 {
		p.base = r.baseScope(c, v, p)
	}
	p.last.Scope = p.scopeOf(p.last)
	return p
}

// callerOutcomes are the outcomes of all rules for a caller, whatever the target.
func (r *Rules) callerOutcomes(c auth.Caller, key gencache.Fingerprint) []outcome {
	out, ok := r.callers.Get(key)
	if ok {
		return out
	}
	known := newEvaluation(&c, nil)
	out = make([]outcome, len(r.rules))
	for i, rule := range r.rules {
		out[i] = isOpen
		if rule.readsCaller || !rule.readsTarget {
			out[i] = known.outcomeOf(rule)
		}
	}
	r.callers.Put(key, out, len(out))
	return out
}

// targetOutcomes are the outcomes of rules for a target, whoever the caller; notEvaluated at first.
func (r *Rules) targetOutcomes(key gencache.Fingerprint) []atomic.Uint32 {
	out, ok := r.targets.Get(key)
	if !ok {
		out = make([]atomic.Uint32, len(r.rules))
		r.targets.Put(key, out, len(out))
	}
	return out
}

// evaluation evaluates rules with some variables unknown.
type evaluation struct {
	unknown []string
	partial cel.PartialActivation
}

// newEvaluation makes an evaluation for a caller and a target, of which one may be nil: unknown.
func newEvaluation(c *auth.Caller, v *view) *evaluation {
	e := &evaluation{unknown: unknownVars(c != nil, v)}
	known := &values{caller: c}
	if v != nil {
		known.target = &v.Target
	}
	patterns := make([]*cel.AttributePatternType, len(e.unknown))
	for i, name := range e.unknown {
		patterns[i] = cel.AttributePattern(name)
	}
	e.partial, _ = cel.PartialVars(known, patterns...) // fails only for what is no activation
	return e
}

// lazyEvaluation is an evaluation that is made when it is needed, which is seldom.
type lazyEvaluation struct{ made *evaluation }

func (l *lazyEvaluation) get(c *auth.Caller, v *view) *evaluation {
	if l.made == nil {
		l.made = newEvaluation(c, v)
	}
	return l.made
}

// outcomeOf evaluates a rule. A failure counts only if the rule reads nothing that is unknown: what is known later can
// make the failing part irrelevant.
func (e *evaluation) outcomeOf(r *rule) outcome {
	v, _, err := r.partial.Eval(e.partial)
	switch {
	case err == nil && v == types.True:
		return isTrue
	case err == nil && v == types.False:
		return isFalse
	case slices.ContainsFunc(e.unknown, r.readsVar):
		return isOpen
	default:
		return isFailed
	}
}

// callerKey identifies what rules can see of a caller. Claims differ with every token, so only those that rules
// read count.
func (r *Rules) callerKey(c auth.Caller) gencache.Fingerprint {
	if last := r.lastCaller.Load(); last != nil && last.caller == c { // a list asks a thousand times
		return last.key
	}
	buf := appendText(make([]byte, 0, 512), c.Key())
	buf = binary.AppendUvarint(buf, uint64(len(c.Roles())))
	for _, role := range c.Roles() {
		buf = appendText(buf, role)
	}
	key := r.fingerprint(appendReads(buf, r.claims, c))
	r.lastCaller.Store(&knownCaller{c, key})
	return key
}

// knownCaller is a caller and its key.
type knownCaller struct {
	caller auth.Caller
	key    gencache.Fingerprint
}

func (r *Rules) targetKey(v *view) gencache.Fingerprint {
	buf := strconv.AppendBool(strconv.AppendBool(make([]byte, 0, 512), v.isServer), v.Annotations == nil)
	for _, text := range [...]string{v.Method, v.Server, v.Tool, v.Resource, v.Prompt, v.Model} {
		buf = appendText(buf, text)
	}
	return r.fingerprint(append(buf, v.Annotations...))
}

func (r *Rules) fingerprint(b []byte) gencache.Fingerprint {
	return r.hasher.Sum(func(h *maphash.Hash) { _, _ = h.Write(b) })
}

// appendText appends a text so that two in a row cannot be taken for two others.
func appendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// appendReads appends what rules read of a caller, in a form that is the same in every process.
func appendReads(dst []byte, reads []string, c auth.Caller) []byte {
	for _, read := range reads {
		dst = fmt.Appendf(dst, "%q=%#v;", read, readOf(c, read))
	}
	return dst
}

// readOf is a variable of the caller, or a claim.
func readOf(c auth.Caller, read string) any {
	if claim, ok := strings.CutPrefix(read, varClaims+"."); ok {
		return c.Claims()[claim]
	}
	switch read {
	case varSubject:
		return c.Subject()
	case varTenant:
		return c.Tenant()
	case varIssuer:
		return c.Issuer()
	case varRoles:
		return append([]string{}, c.Roles()...)
	default:
		return c.Claims()
	}
}
