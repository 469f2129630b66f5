package access

import (
	"fmt"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	named := allow(`tool == "read" && caller.claims.org == "acme"`)
	named.Name = "readers"
	r := newRules(t, Deny, deny(`arguments.path == "/etc"`), deny(`caller.claims.missing == 1 && server == "db"`), named, hide(`server == "fs" && annotations.x == 1`, "x"), allow("true"))
	for _, c := range []struct {
		name   string
		target Target
		want   string
	}{
		{"allowed", call("fs", "read", `{"path":"/tmp"}`), `does not match | does not match | matches | not reached | not reached; allow by 3: rule 3 (readers), listed true []`},
		{"denied", call("fs", "read", `{"path":"/etc"}`), `matches | not reached | not reached | not reached | not reached; deny by 1: rule 1, listed true []`},
		{"failed", call("fs", "read", `{}`), `cannot be evaluated: no such key: path | not reached | not reached | not reached | not reached; deny by 1: rule 1 cannot be evaluated, listed true []`},
		{"failed and open", Target{Method: "tools/call", Server: "db", Tool: "read", Annotations: []byte("{}")}, `depends on the arguments | cannot be evaluated: no such key: missing | not reached | not reached | not reached; deny by 0: denied whatever the arguments are, listed false []`},
		{"open", Target{Method: "tools/call", Server: "fs", Tool: "read", Annotations: []byte("{}")}, `depends on the arguments | does not match | matches | not reached | not reached;  by 0: depends on the arguments, listed true []`},
		{"unknown annotations", Target{Method: "tools/call", Server: "fs", Tool: "other"}, `depends on the arguments or the tool's annotations | does not match | does not match | depends on the arguments or the tool's annotations | matches;  by 0: depends on the arguments or the tool's annotations, listed true []`},
		{"redacted", Target{Method: "tools/call", Server: "fs", Tool: "x", Arguments: []byte(`{"path":1}`), Annotations: []byte(`{"x":1}`)}, `does not match | does not match | does not match | matches | not reached; redact by 4: rule 4, listed true [pattern x]`},
		{"a model", Target{Method: MethodModel, Server: "fs", Model: "x", Arguments: []byte(`{"path":1}`)}, `does not match | does not match | does not match | does not match | matches; allow by 5: rule 5, listed true []`},
	} {
		x := r.Explain(ann, c.target)
		var steps []string
		for _, s := range x.Steps {
			text := s.Outcome
			if s.Error != "" {
				text += ": " + s.Error
			}
			steps = append(steps, text)
		}
		if got := fmt.Sprintf("%s; %s by %d: %s, listed %t %v", strings.Join(steps, " | "), x.Effect, x.Rule, x.Reason, x.IsListed, x.Redaction); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
	if s := r.Explain(ann, someTargets[0]).Steps[2]; s.Rule != 3 || s.Name != "readers" || s.Effect != Allow || s.When != named.When {
		t.Errorf("%+v", s)
	}
}

func TestExplainCaller(t *testing.T) {
	outcomes := func(r *Rules) string {
		var out []string
		for _, s := range r.ExplainCaller(ann) {
			out = append(out, s.Outcome)
		}
		return strings.Join(out, " | ")
	}
	if got := outcomes(newRules(t, Deny, allow(`tool == "x"`), allow(`caller.subject == "bob"`), allow(`caller.claims.missing == 1`), hide("true", "x"), deny(`caller.subject == "ann"`), allow("true"))); got != "depends on what is used | does not match | cannot be evaluated | matches | matches | not reached" {
		t.Error(got)
	}
	if got := outcomes(newRules(t, Deny, deny(`caller.claims.missing == 1`), allow("true"))); got != "cannot be evaluated | not reached" {
		t.Error(got)
	}
}

// An explanation shows every value that a rule reads.
func TestDescribedValues(t *testing.T) {
	r := newRules(t, Deny, allow(`caller.subject + caller.tenant + caller.issuer == tool + server + resource + prompt + method + model && "x" in caller.roles && size(caller.claims) == 1 &&
		caller.claims.org == caller.claims.none && arguments.a == arguments.b && size(arguments) == 1 && annotations.c == annotations.d`))
	got := strings.Join(r.Explain(ann, call("fs", "read", `{"a":{"b":"`+strings.Repeat("x", 300)+`"}}`)).Steps[0].Values, "\n")
	for _, want := range []string{
		`caller.subject = "ann"`, `caller.tenant = "acme"`, `caller.issuer = ""`, `caller.roles = ["dev"]`, `caller.claims.org = "acme"`, `caller.claims.none = null`, `caller.claims = {"level"`,
		`tool = "read"`, `server = "fs"`, `resource = ""`, `prompt = ""`, `method = "tools/call"`, `model = ""`, `arguments.b = (missing)`, `annotations.d = (missing)`, `arguments = {"a":{"b":"xxx`, `arguments.a = {"b":"xxx`, "…",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
	if strings.Contains(got, strings.Repeat("x", 201)) {
		t.Error("a value is shown at full length")
	}
	target := call("fs", "read", "")
	target.Arguments, target.Annotations = nil, nil
	if got := strings.Join(r.Explain(ann, target).Steps[0].Values, "\n"); !strings.Contains(got, "arguments.a = (unknown)") || !strings.Contains(got, "annotations.c = (unknown)") {
		t.Error(got)
	}
	if got := describeJSON(func() {}); got != "(unreadable)" {
		t.Error(got)
	}
}
