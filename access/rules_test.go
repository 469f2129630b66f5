package access

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/redact"
)

// The first rule that matches decides, and the decision says which it was.
func TestFirstMatchDecides(t *testing.T) {
	named := deny(`tool == "b"`)
	named.Name = "no b"
	r := newRules(t, Deny, allow(`tool == "a"`), named, hide(`tool == "c"`, "x"), allow(`tool != "d"`))
	for tool, want := range map[string]Decision{
		"a": {Effect: Allow, Rule: 1, Reason: "rule 1"},
		"b": {Effect: Deny, Rule: 2, Reason: "rule 2 (no b)"},
		"c": {Effect: Redact, Rule: 3, Reason: "rule 3", Redact: r.rules[2].redact, Scope: hashScope("redacted", r.rules[2].redact.Fingerprint())},
		"e": {Effect: Allow, Rule: 4, Reason: "rule 4"},
		"d": {Effect: Deny, Reason: "no rule matches; access.default = deny"},
	} {
		for range 2 { // decided, and remembered
			if got := r.Decide(ann, call("fs", tool, "{}")); got != want {
				t.Errorf("%s: %+v, want %+v", tool, got, want)
			}
		}
	}
	if got := newRules(t, Allow).Decide(ann, call("fs", "a", "{}")); got != (Decision{Effect: Allow, Reason: "no rule matches; access.default = allow"}) {
		t.Errorf("%+v", got)
	}
	var none *Rules
	if d := none.Decide(ann, Target{}); d != (Decision{Effect: Allow, Reason: "no access rules"}) || !d.IsAllowed() {
		t.Errorf("%+v", d)
	}
	if !none.MayList(ann, Target{}) || !none.MayRead(ann, Target{}, "x") || !none.MayUseServer(ann, "x") || none.FiltersLists() || none.NeedsAnnotations() {
		t.Error("without rules something is not allowed")
	}
}

// A rule that cannot be evaluated never allows.
func TestFailuresAreClosed(t *testing.T) {
	const broken = `arguments.missing == 1`
	for _, c := range []struct {
		name string
		r    *Rules
		want bool
		rule int
	}{
		{"an allow rule does not match", newRules(t, Deny, allow(broken)), false, 0},
		{"and the next may", newRules(t, Deny, allow(broken), allow("true")), true, 2},
		{"a deny rule denies", newRules(t, Allow, deny(broken)), false, 1},
		{"a redact rule denies", newRules(t, Allow, hide(broken, "x")), false, 1},
		{"of the caller, allow", newRules(t, Deny, allow(`caller.claims.missing == 1`)), false, 0},
		{"of the caller, allow, and the next", newRules(t, Deny, allow(`caller.claims.missing == 1`), allow("true")), true, 2},
		{"of the caller, deny", newRules(t, Allow, deny(`caller.claims.missing == 1`)), false, 1},
		{"of the caller, redact", newRules(t, Allow, hide(`caller.claims.missing == 1`, "x")), false, 1},
		{"of the target", newRules(t, Allow, deny(`annotations.missing == 1`)), false, 1},
		{"of both", newRules(t, Allow, deny(`annotations.missing == caller.claims.missing`)), false, 1},
		{"a part that does not matter", newRules(t, Allow, deny(`caller.claims.missing == 1 && tool == "other"`)), true, 0},
		{"a part that does not matter with these arguments", newRules(t, Allow, deny(`caller.claims.missing == 1 && arguments.path == "y"`)), true, 0},
		{"a part that matters with these arguments", newRules(t, Allow, deny(`caller.claims.missing == 1 && arguments.path == "x"`)), false, 1},
	} {
		d := c.r.Decide(ann, call("fs", "read", `{"path":"x"}`))
		if d.IsAllowed() != c.want || d.Rule != c.rule || d.Effect == Deny && d.Scope != "" {
			t.Errorf("%s: %+v", c.name, d)
		}
		if failed := strings.HasSuffix(d.Reason, "cannot be evaluated"); failed != (d.Effect == Deny && c.rule > 0) {
			t.Errorf("%s: %s", c.name, d.Reason)
		}
	}
}

// Arguments that cannot be read fail every rule that reads them, and no other.
func TestUnreadableArguments(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	many := `[` + strings.Repeat("1,", maxValues) + `1]`
	r := newRules(t, Allow, deny(`arguments.path == "no"`))
	all := newRules(t, Allow, deny(`size(arguments) == 77`))
	nested := newRules(t, Allow, deny(`arguments.x == 1`))
	other := newRules(t, Allow, deny(`tool == "no"`))
	for _, c := range []struct {
		arguments   string
		path, whole bool // allowed by the rule that reads one member, and by the one that reads all
	}{
		{`{"path":"x"}`, true, true},
		{`{"path":"x","y":` + many + `}`, true, false}, // only what is read counts
		{`{"path":"x","y":` + deep + `}`, false, false},
		{`{"path":"x","path":"y"}`, false, false},
		{`{"path":"x","y":{"a":1,"a":1}}`, false, false},
		{`{"path":{"a":1,"a":1}}`, false, false},
		{`{"path":["a",{"a":1,"a":1}]}`, false, false},
		{`{"path":"x"} x`, false, false},
		{`["path"]`, false, false},
		{`"path"`, false, false},
		{`{"path":tru}`, false, false},
		{`{"path":"\x"}`, false, false},
		{`{"path":{"a":nul}}`, false, false},
	} {
		target := call("fs", "read", c.arguments)
		if got := r.Decide(ann, target).IsAllowed(); got != c.path {
			t.Errorf("%.40s: one member: %t", c.arguments, got)
		}
		if got := all.Decide(ann, target).IsAllowed(); got != c.whole {
			t.Errorf("%.40s: all members: %t", c.arguments, got)
		}
		if !other.Decide(ann, target).IsAllowed() {
			t.Errorf("%.40s: denied by a rule that does not read arguments", c.arguments)
		}
	}
	if d := newRules(t, Allow, deny(`arguments["path"] == "no"`)).Decide(ann, call("fs", "read", `{"path":"x","y":`+many+`}`)); !d.IsAllowed() {
		t.Errorf("a member that is read by index: %+v", d)
	}
	if nested.Decide(ann, call("fs", "read", `{"x":1e400}`)).IsAllowed() {
		t.Error("a number that is too large was compared")
	}
	if !newRules(t, Allow, deny(`has(arguments.x)`)).Decide(ann, Target{Method: "tools/call", Tool: "x"}).IsAllowed() {
		t.Error("no arguments are not an empty object")
	}
}

// Numbers of claims that were kept as text are numbers.
func TestExactClaims(t *testing.T) {
	c := who("x", "y", nil, map[string]any{"n": json.Number("9007199254740993"), "l": []any{json.Number("1.5"), "a"}, "m": map[string]any{"b": true}})
	r := newRules(t, Deny, allow(`caller.claims.n == 9007199254740993 && caller.claims.l == [1.5, "a"] && caller.claims.m.b == true`))
	if d := r.Decide(c, call("s", "t", "{}")); !d.IsAllowed() {
		t.Errorf("%+v", d)
	}
}

// A rule whose cost is not bounded by its length is stopped, and denies.
func TestCostIsBounded(t *testing.T) {
	list := `{"l":[` + strings.Repeat("1,", 2000) + `1],"s":"` + strings.Repeat("a", 4<<20) + `","t":["` + strings.Repeat("a", 40<<10) + `","` + strings.Repeat("a", 40<<10) + `"],"u":"` + strings.Repeat("a", 64<<10) + `"}`
	for _, when := range []string{
		`arguments.l.exists(a, arguments.l.exists(b, a + b == 77))`,
		`arguments.s.matches("(a?){50}b")`,
		`(arguments.s + arguments.s + arguments.s + arguments.s) == "a"`,
		`arguments.t.exists(t, t.matches("x"))`,
	} {
		if d := newRules(t, Allow, deny(when)).Decide(ann, call("fs", "x", list)); d.IsAllowed() || !strings.Contains(d.Reason, "cannot be evaluated") {
			t.Errorf("%s: %+v", when, d)
		}
	}
	for _, when := range []string{`arguments.l.exists(a, a == 77)`, `arguments.s == "a"`, `arguments.s.startsWith("b")`, `arguments.u.matches("^b")`} {
		if d := newRules(t, Allow, deny(when)).Decide(ann, call("fs", "x", list)); !d.IsAllowed() {
			t.Errorf("%s: %+v", when, d)
		}
	}
}

// Lists show what some arguments could make allowed.
func TestLists(t *testing.T) {
	for _, c := range []struct {
		name string
		r    *Rules
		want bool
	}{
		{"allowed", newRules(t, Deny, allow("true")), true},
		{"denied", newRules(t, Allow, deny("true")), false},
		{"redacted", newRules(t, Deny, hide("true", "x")), true},
		{"by default", newRules(t, Allow), true},
		{"not by default", newRules(t, Deny), false},
		{"perhaps allowed", newRules(t, Deny, allow(`arguments.x == 1`)), true},
		{"perhaps redacted", newRules(t, Deny, hide(`arguments.x == 1`, "x")), true},
		{"perhaps denied", newRules(t, Allow, deny(`arguments.x == 1`)), true},
		{"denied, perhaps earlier", newRules(t, Deny, deny(`arguments.x == 1`)), false},
		{"allowed before it is denied", newRules(t, Deny, allow(`tool == "read"`), deny("true")), true},
		{"perhaps allowed after it is denied", newRules(t, Deny, deny("true"), allow(`arguments.x == 1`)), false},
		{"another's arguments", newRules(t, Deny, allow(`caller.subject == "bob" && arguments.x == 1`)), false},
		{"a rule that fails", newRules(t, Allow, deny(`caller.claims.missing == 1`)), false},
		{"a rule that fails, and reads arguments", newRules(t, Allow, deny(`caller.claims.missing == arguments.x`)), true},
	} {
		target := call("fs", "read", "")
		target.Arguments = nil
		if got := c.r.MayList(ann, target); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// A name that is too long for rules does not exist.
func TestLongNames(t *testing.T) {
	r := newRules(t, Allow, deny(`tool == "x"`))
	for n, want := range map[int]bool{16<<10 - 10: true, 16<<10 - 9: false} { // with tools/call
		if d := r.Decide(ann, call("fs", strings.Repeat("x", n), "{}")); d.IsAllowed() != want {
			t.Errorf("%d: %+v", n, d)
		}
		if target := call("fs", strings.Repeat("x", n), "{}"); r.MayList(ann, target) != want || r.MayRead(ann, target, "") != want {
			t.Errorf("%d is listed or read", n)
		}
	}
	if !newRules(t, Allow).Decide(ann, call("fs", strings.Repeat("x", 20<<10), "{}")).IsAllowed() {
		t.Error("without rules a long name was denied")
	}
}

func TestFiltersLists(t *testing.T) {
	for _, c := range []struct {
		r    *Rules
		want bool
	}{
		{newRules(t, Allow), false}, {newRules(t, Allow, allow("true")), false}, {newRules(t, Deny, allow("true")), true},
		{newRules(t, Allow, deny("false")), true}, {newRules(t, Allow, hide("false", "x")), true},
	} {
		if c.r.FiltersLists() != c.want {
			t.Errorf("%v: %t", c.r.rules, !c.want)
		}
	}
	if newRules(t, Allow, deny("tool == 'x'")).NeedsAnnotations() || !newRules(t, Allow, deny("tool == 'x'"), deny("has(annotations.x)")).NeedsAnnotations() {
		t.Error("NeedsAnnotations")
	}
}

// A server exists for a caller that may use something of it.
func TestMayUseServer(t *testing.T) {
	r := newRules(t, Deny, deny(`server == "fs" && caller.tenant == "other"`), allow(`tool == "x"`), deny(`server == "db"`))
	only := newRules(t, Deny, allow(`server == "fs" && resource.startsWith("file:")`))
	for _, c := range []struct {
		r      *Rules
		server string
		ann    bool
		bob    bool
	}{{r, "fs", true, false}, {r, "db", true, true}, {only, "fs", true, true}, {only, "db", false, false}, {newRules(t, Allow, deny(`server == "db"`)), "db", false, false}} {
		if c.r.MayUseServer(ann, c.server) != c.ann || c.r.MayUseServer(bob, c.server) != c.bob {
			t.Errorf("%s of %v", c.server, c.r.rules)
		}
	}
}

// Without its annotations, a tool is denied by every rule that needs them; a tool without annotations is not.
func TestUnknownAnnotations(t *testing.T) {
	r := newRules(t, Allow, deny(`has(annotations.destructiveHint) && annotations.destructiveHint == true`))
	for _, c := range []struct {
		annotations []byte
		want, list  bool
	}{{nil, false, true}, {[]byte("{}"), true, true}, {[]byte(`{"destructiveHint":true}`), false, false}, {[]byte(`{"destructiveHint":false}`), true, true}, {[]byte(`[]`), false, false}} {
		target := Target{Method: "tools/call", Tool: "x", Annotations: c.annotations}
		if r.Decide(ann, target).IsAllowed() != c.want || r.MayList(ann, target) != c.list {
			t.Errorf("%s: %+v, listed %t", c.annotations, r.Decide(ann, target), r.MayList(ann, target))
		}
	}
	if d := r.Decide(ann, Target{Method: "resources/read", Resource: "x"}); !d.IsAllowed() {
		t.Errorf("a resource: %+v", d)
	}
}

func TestProblems(t *testing.T) {
	long := strings.Repeat("a", 513)
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{Rule{When: "true"}, `rules[0].effect: must be set: "allow", "deny" or "redact"`},
		{Rule{Effect: Allow}, `rules[0].when: must be set; 'true' matches everything`},
		{Rule{Effect: Allow, When: " \n"}, `rules[0].when: must be set; 'true' matches everything`},
		{allow(`tool ==`), `rules[0].when: line 1, column 8: Syntax error: mismatched input '<EOF>'`},
		{allow(`toool == "x"`), `rules[0].when: line 1, column 1: undeclared reference to 'toool'`},
		{allow("true &&\n  caller.rols == 'x'"), `rules[0].when: line 2, column 9: undeclared reference to 'caller.rols' (did you mean 'caller.roles'?)`},
		{allow(`tool == 1`), `rules[0].when: line 1, column 6: found no matching overload for '_==_' applied to '(string, int)'`},
		{allow(`tool`), `rules[0].when: must be a condition that is true or false, not of type string; compare it with something`},
		{allow(`arguments.flag`), `rules[0].when: must be a condition that is true or false, not of type dyn; compare it with something`},
		{allow(`tool.matches(server)`), `rules[0].when: the regular expression of matches() must be written in the rule`},
		{allow(`tool.matches("(")`), `rules[0].when: the regular expression of matches(): error parsing regexp`},
		{allow(`matches(tool, "(")`), `rules[0].when: the regular expression of matches(): error parsing regexp`},
		{allow(`tool.matches("` + long + `")`), `rules[0].when: a regular expression has at most 512 bytes, found 513`},
		{allow(`tool == "` + strings.Repeat("a", 4<<10) + `"`), `rules[0].when: at most 4096 bytes, found 4106`},
		{allow(`caller.roles.exists(a, caller.roles.exists(b, a.matches("x")))`), `rules[0].when: matches() cannot be used in a macro inside of another`},
		{Rule{Effect: Allow, When: "true", Name: long}, `rules[0].name: at most 128 bytes`},
		{Rule{Effect: Redact, When: "true"}, `rules[0].redact: must name what to take out: arguments, results or patterns`},
		{Rule{Effect: Deny, When: "true", Redact: redact.Config{Patterns: []string{"x"}}}, `rules[0].redact: has no effect on a rule with effect = "deny"`},
		{hide("true", "("), "rules[0].redact.patterns[0]: error parsing regexp"},
		{hide(`model == "x"`, "x"), `rules[0].when: reads model, but effect = "redact" is for calls of MCP servers`},
	} {
		cfg := Config{Rules: []Rule{c.rule}}
		problems := cfg.Validate()
		if len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), c.want) {
			t.Errorf("got  %v\nwant %s", problems, c.want)
		}
		if _, err := New(cfg); err == nil {
			t.Errorf("%v was accepted", c.rule)
		}
	}
	if problems := (Config{Rules: make([]Rule, 1001)}).Validate(); len(problems) != 1 || problems[0].Error() != "rules: at most 1000, found 1001" {
		t.Error(problems)
	}
	fine := []Rule{allow(`tool.matches("` + long[1:] + `")`), {Effect: Allow, When: "true", Name: long[:128]}, allow(`tool == "` + strings.Repeat("a", 4<<10-10) + `"`)}
	if problems := (Config{Rules: fine}).Validate(); len(problems) != 0 {
		t.Error(problems)
	}
	if Default().Default != "allow" || len(Default().Validate()) != 0 {
		t.Error("the default configuration")
	}
}

// A scope names the annotations on which a decision depended beside the arguments.
func TestScopeNamesAnnotations(t *testing.T) {
	r := newRules(t, Deny, allow(`arguments.x == annotations.x`))
	target := Target{Method: "tools/call", Server: "fs", Tool: "t", Arguments: []byte(`{"x":1}`), Annotations: []byte(`{"x":1}`)}
	d := r.Decide(ann, target)
	if !d.IsAllowed() || d.Scope == "" || !r.MayRead(ann, target, d.Scope) {
		t.Fatalf("%+v", d)
	}
	if target.Annotations = []byte(`{"x":2}`); r.MayRead(ann, target, d.Scope) {
		t.Error("with other annotations the same call would be denied, and its text can be read")
	}
	if r.MayRead(bob, Target{Server: "fs", Tool: "t", Annotations: []byte(`{"x":1}`)}, d.Scope) {
		t.Error("another caller reads it")
	}
}
