package access

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/auth"
)

// MayRead says whether a caller may read back what came from a target under a scope, as [Decision.Scope] gave it. Of
// the target the server is known, and the name of the tool with its annotations, of the prompt or of the resource. If
// none of them is, the request had another method.
//
// A caller that may make every call to the target today may read everything of it. One whose calls are all redacted in
// one way may read what was redacted in this way. Where the arguments decide, an original does not say which they were:
// then a caller may read only what it was itself given, under rules that would give it the same today.
func (r *Rules) MayRead(c auth.Caller, t Target, scope string) bool {
	if r == nil {
		return true
	}
	p := r.planFor(c, originOf(t))
	switch {
	case len(p.open) > 0:
		return scope == p.base
	case p.last.Effect == Allow:
		return true
	default:
		return p.last.Effect == Redact && scope == p.last.Scope
	}
}

// originOf is what an original says of the target that it came from.
func originOf(t Target) view {
	v := view{Target: Target{Server: t.Server}}
	switch {
	case t.Method == MethodModel || t.Method == MethodModelPath:
		v.Target = t
	case t.Tool != "":
		v.Method, v.Tool, v.Annotations = "tools/call", t.Tool, t.Annotations
	case t.Prompt != "" && t.Method == "prompts/get":
		v.Method, v.Prompt = t.Method, t.Prompt
	case t.Resource != "" && t.Method == "resources/read":
		v.Method, v.Resource = t.Method, t.Resource
	default:
		v.isServer = true
	}
	v.Arguments = nil
	return v
}

// scopeOther is the scope of what came from a method of which originals do not say what it was about, for a caller that
// may use everything of the server: who may not, may not read it.
const scopeOther = "server"

// scopeOf is the scope of a decision, given the plan for its origin.
func (p *plan) scopeOf(d Decision) string {
	switch {
	case len(p.open) > 0:
		return p.base
	case d.Redact != nil:
		return hashScope("redacted", d.Redact.Fingerprint())
	case p.isServer:
		return scopeOther
	default:
		return ""
	}
}

// baseScope names a caller, and everything on which the decision depends but the unknown: two requests of the same base
// with the same arguments get the same decision, even after the rules around them changed.
func (r *Rules) baseScope(c auth.Caller, v *view, p *plan) string {
	parts := []string{"decided for", c.Key(), v.Server, v.Tool, string(p.last.Effect), redactionOf(p.last)}
	for _, rule := range p.open {
		reads := slices.Sorted(maps.Keys(rule.reads))
		reads = slices.DeleteFunc(reads, func(read string) bool { return !strings.HasPrefix(read, "caller.") })
		parts = append(parts, string(rule.effect), rule.when, redactionOf(Decision{Redact: rule.redact}), string(appendReads(nil, reads, c)))
		if rule.readsVar(varAnnotations) {
			parts = append(parts, string(v.Annotations))
		}
	}
	return hashScope(parts...)
}

func redactionOf(d Decision) string {
	if d.Redact == nil {
		return ""
	}
	return d.Redact.Fingerprint()
}

// hashScope is the same in every process.
func hashScope(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
