// Package access decides what an authenticated caller may use. [Rules] are the rules of one configuration; they turn a
// caller and a [Target] into a [Decision]. The package is pure: it knows no protocol and does nothing but decide.
//
// Path through the files: compile.go turns the conditions, which are CEL, into programs, and finds out what each of them
// reads; values.go gives them their values, the arguments only where a rule reads them; plan.go decides as much as can
// be decided without arguments, and remembers it; rules.go decides about requests, lists and reading back; scope.go names
// who may read back; explain.go says why.
//
// Invariants: the first rule that matches decides. A rule that cannot be evaluated never allows: if it allows, it does
// not match, and if it denies or redacts, it denies. What is decided without arguments is what every request would be
// decided with any. Caches are bounded, and a miss costs only time.
package access

import (
	"fmt"

	"github.com/ctxgate/ctxgate/redact"
)

// Config says what callers may use.
type Config struct {
	// What holds for what no rule matches: "allow" or "deny". Default "allow".
	Default string `key:"default" oneof:"allow,deny"`

	// The rules, in order: the first that matches decides.
	Rules []Rule `key:"rules"`
}

// Rule says what holds for some callers and some of what they may use.
type Rule struct {
	// A name for logs, the audit log and `ctxgate check --as`. Default empty: the rule's number alone.
	Name string `key:"name"`

	// What the rule does: "allow", "deny" or "redact". What is denied is unknown to the caller: it is not
	// listed, and using it is answered as for a name that does not exist. "redact" allows, and takes out
	// what redact names. Must be set.
	Effect Effect `key:"effect" oneof:"allow,deny,redact"`

	// The condition, in CEL, of at most 4096 bytes, over caller.subject, caller.tenant, caller.issuer,
	// caller.roles (a list), caller.claims (of an access token), server, tool and prompt (the server's own
	// names, without prefix), resource (a URI), method (as MCP names it; "model/request" and "model/path" at
	// the LLM endpoint), arguments (of a tool or prompt), annotations (of a tool) and model. What does not
	// apply is "". A key that may be missing is asked for with has(arguments.path), or read with
	// arguments.?path.orValue(""): a rule that cannot be evaluated never allows; if its effect is "deny" or
	// "redact", it denies. Must be set; 'true' matches everything.
	When string `key:"when"`

	// What an effect of "redact" takes out.
	Redact redact.Config `key:"redact"`
}

// Default is the configuration of an empty file.
func Default() Config { return Config{Default: string(Allow)} }

// maxRules bounds the work of one decision.
const maxRules = 1000

// Validate reports every problem.
func (c Config) Validate() []error {
	if len(c.Rules) > maxRules {
		return []error{fmt.Errorf("rules: at most %d, found %d", maxRules, len(c.Rules))}
	}
	var problems []error
	for i, rule := range c.Rules {
		_, errs := compileRule(i, rule)
		for _, err := range errs {
			problems = append(problems, fmt.Errorf("rules[%d].%w", i, err))
		}
	}
	return problems
}

// Target is what a request wants to use, independent of the protocol revision and of the endpoint. Names are the
// server's own. Empty fields do not apply.
type Target struct {
	Method    string // as MCP names it; MethodModel or MethodModelPath at the LLM endpoint
	Server    string
	Tool      string
	Resource  string // its URI
	Prompt    string
	Model     string
	Arguments []byte // raw JSON object; nil for none

	// Annotations of the tool, a raw JSON object. nil: not known, and a rule that needs them cannot be evaluated.
	Annotations []byte
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

	// Redact is what is taken out of arguments and results; nil for nothing.
	Redact *redact.Set

	// Scope limits who may read back the originals of a call: "" for everybody who may make it, otherwise a name
	// for what was taken out and for whom it was decided.
	Scope string
}

// IsAllowed says whether the target may be used, perhaps redacted.
func (d Decision) IsAllowed() bool { return d.Effect == Allow || d.Effect == Redact }
