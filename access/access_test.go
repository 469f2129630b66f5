package access

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/redact"
)

// who makes a caller.
func who(subject, tenant string, roles []string, claims map[string]any) auth.Caller {
	c, err := auth.Hypothetical(auth.Identity{Subject: subject, Tenant: tenant, Roles: roles, Claims: claims})
	if err != nil {
		panic(err)
	}
	return c
}

var (
	ann = who("ann", "acme", []string{"dev"}, map[string]any{"org": "acme", "level": 3.0, "nested": map[string]any{"a": []any{"x"}}})
	bob = who("bob", "other", nil, nil)
)

func newRules(t testing.TB, fallback Effect, rules ...Rule) *Rules {
	t.Helper()
	cfg := Config{Default: string(fallback), Rules: rules}
	if problems := cfg.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func allow(when string) Rule { return Rule{Effect: Allow, When: when} }
func deny(when string) Rule  { return Rule{Effect: Deny, When: when} }
func hide(when string, patterns ...string) Rule {
	return Rule{Effect: Redact, When: when, Redact: redact.Config{Patterns: patterns}}
}

func call(server, tool, arguments string) Target {
	return Target{Method: "tools/call", Server: server, Tool: tool, Arguments: []byte(arguments), Annotations: []byte(`{"readOnlyHint":true}`)}
}

func TestConditions(t *testing.T) {
	for _, c := range []struct {
		when string
		want bool
	}{
		{`true`, true},
		{`false`, false},
		{`caller.subject == "ann" && caller.tenant == "acme" && caller.issuer == ""`, true},
		{`"dev" in caller.roles && !("admin" in caller.roles)`, true},
		{`caller.claims.org == "acme" && caller.claims["level"] == 3 && caller.claims.level > 2`, true},
		{`caller.claims.nested.a[0] == "x"`, true},
		{`has(caller.claims.missing)`, false},
		{`caller.claims.?missing.orValue("none") == "none"`, true},
		{`server == "fs" && tool == "delete_file" && method == "tools/call"`, true},
		{`tool.startsWith("delete_")`, true},
		{`tool.matches("^delete_(file|dir)$")`, true},
		{`resource == "" && prompt == "" && model == ""`, true},
		{`annotations.readOnlyHint == true`, true},
		{`has(annotations.destructiveHint)`, false},
		{`arguments.path == "/etc/\u00e9"`, true},
		{`arguments.path.startsWith("/etc")`, true},
		{`arguments.n == 9007199254740993 && arguments.n != 9007199254740992`, true},
		{`arguments.u == 18446744073709551615u`, true},
		{`arguments.f == 1.5 && arguments.e == 100.0 && arguments.f < 2`, true},
		{`arguments.list.exists(x, x == 2) && size(arguments.list) == 3`, true},
		{`arguments.list == [1, 2, 3]`, true},
		{`arguments.o.a.b[1].c == "deep"`, true},
		{`arguments.b && !arguments.no && arguments.nil == null`, true},
		{`"path" in arguments && !("other" in arguments)`, true},
		{`arguments["path"] != "" && arguments.?other.orValue("d") == "d" && arguments[?"path"].hasValue()`, true},
		{`size(arguments) == 10`, true},
		{`arguments.missing == 1`, false},
		{`arguments.missing == 1 || tool == "delete_file"`, true},
		{`arguments.path == 1`, false},
		{`arguments.big == 1`, false}, // no type for it: cannot be evaluated
		{`[tool].all(x, x == tool) && {"a": server}["a"] == "fs"`, true},
		{`(caller.tenant == "acme" ? arguments.b : true) == true`, true},
	} {
		target := call("fs", "delete_file", `{"path":"/etc/\u00e9","n":9007199254740993,"u":18446744073709551615,"f":1.5,"e":1e2,"list":[1,2,3],"o":{"a":{"b":[0,{"c":"deep"}]}},"b":true,"no":false,"nil":null}`)
		if strings.Contains(c.when, "big") {
			target.Arguments = []byte(`{"big":18446744073709551616}`)
		}
		if got := newRules(t, Deny, allow(c.when)).Decide(ann, target); got.IsAllowed() != c.want {
			t.Errorf("%s: %v", c.when, got)
		}
	}
}
