// Package access decides what an authenticated caller may use. [Rules] are the rules of one configuration; they turn a
// caller and a [Target] into a [Decision]. The package is pure: it knows no protocol and does nothing but decide.
package access

import (
	"github.com/ctxgate/ctxgate/auth"
)

// Config says what callers may use.
type Config struct {
	// What holds for what no rule matches: "allow" or "deny". Default "allow".
	Default string `key:"default" oneof:"allow,deny"`
}

// Default is the configuration of an empty file.
func Default() Config { return Config{Default: "allow"} }

// Target is what a request wants to use, independent of the protocol revision and of the endpoint. Names are the
// server's own. Empty fields do not apply.
type Target struct {
	Method      string // as MCP names it; MethodModel or MethodModelPath at the LLM endpoint
	Server      string
	Tool        string
	Resource    string // its URI
	Prompt      string
	Model       string
	Arguments   []byte // raw JSON object; nil for none
	Annotations []byte // of the tool, raw JSON object; nil for none or unknown
}

// The methods of the LLM endpoint.
const (
	MethodModel     = "model/request" // a request to a model
	MethodModelPath = "model/path"    // any other path of a provider's API; the path is the resource
)

// Effect is what a rule does with what it matches.
type Effect string

// The effects.
const (
	Allow  Effect = "allow"
	Deny   Effect = "deny"
	Redact Effect = "redact" // allowed, without what the rule takes out
)

// Decision is what was decided for a caller and a target, and why.
type Decision struct {
	Effect Effect
	Rule   int    // the number of the rule that decided, from 1; 0 for the default
	Reason string // for the operator: never shown to the caller

	// Scope limits who may read back the originals of a call: "" for everybody who may make it, otherwise a name
	// for what was taken out and for whom it was decided.
	Scope string
}

// IsAllowed says whether the target may be used, perhaps redacted.
func (d Decision) IsAllowed() bool { return d.Effect == Allow || d.Effect == Redact }

// Rules decide. A nil *Rules allows everything.
type Rules struct {
	fallback Effect
}

// New compiles a valid configuration.
func New(cfg Config) (*Rules, error) {
	r := &Rules{fallback: Allow}
	if cfg.Default == string(Deny) {
		r.fallback = Deny
	}
	return r, nil
}

// Decide decides about one request.
func (r *Rules) Decide(auth.Caller, Target) Decision {
	if r == nil {
		return Decision{Effect: Allow, Reason: "no access rules"}
	}
	return Decision{Effect: r.fallback, Reason: "no rule matches; access.default = " + string(r.fallback)}
}

// MayList says whether a target is shown to a caller: whether some request for it could be allowed. The target has no
// arguments.
func (r *Rules) MayList(c auth.Caller, t Target) bool { return r.Decide(c, t).IsAllowed() }

// FiltersLists says whether what MayList says depends on caller or target at all. If not, everybody sees everything.
func (r *Rules) FiltersLists() bool { return r != nil && r.fallback == Deny }

// NeedsAnnotations says whether a rule reads the annotations of tools.
func (r *Rules) NeedsAnnotations() bool { return false }

// MayUseServer says whether a server exists for a caller: whether it could be allowed to use anything there.
func (r *Rules) MayUseServer(auth.Caller, string) bool { return r == nil || r.fallback == Allow }

// MayRead says whether a caller may read back what came from a target under a scope.
func (r *Rules) MayRead(c auth.Caller, t Target, _ string) bool { return r.Decide(c, t).IsAllowed() }
