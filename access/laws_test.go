package access

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/redact"
)

// The values that random rules, callers and targets are made of: few, so that they often meet.
var (
	someCallers = []auth.Caller{
		ann, bob, who("ann", "acme", nil, nil), who("ann", "acme", []string{"dev", "admin"}, map[string]any{"org": "other"}),
		who("eve", "acme", []string{"dev"}, map[string]any{"org": "acme", "jti": "1"}), who("eve", "acme", []string{"dev"}, map[string]any{"org": "acme", "jti": "2"}),
	}
	someArguments = []string{`{}`, `{"path":"/etc"}`, `{"path":"/tmp","n":1}`, `{"path":7}`, `{"n":2,"list":["a"]}`}
	someTargets   = []Target{
		{Method: "tools/call", Server: "fs", Tool: "read", Annotations: []byte(`{"readOnlyHint":true}`)},
		{Method: "tools/call", Server: "fs", Tool: "delete", Annotations: []byte(`{}`)},
		{Method: "tools/call", Server: "db", Tool: "read", Annotations: []byte(`{}`)},
		{Method: "resources/read", Server: "fs", Resource: "file:///etc"},
		{Method: "prompts/get", Server: "db", Prompt: "p"},
		{Method: "completion/complete", Server: "db", Prompt: "p"},
		{Method: MethodModel, Model: "kimi"},
	}
	someConditions = []string{
		`true`, `false`, `tool == "read"`, `tool == "delete"`, `server == "fs"`, `method == "tools/call"`, `resource.startsWith("file:")`, `prompt == "p"`,
		`caller.tenant == "acme"`, `caller.subject == "ann"`, `"dev" in caller.roles`, `caller.claims.org == "acme"`, `has(caller.claims.org)`, `size(caller.claims) == 2`,
		`annotations.readOnlyHint == true`, `has(annotations.readOnlyHint)`,
		`arguments.path == "/etc"`, `has(arguments.path)`, `arguments.n > 1`, `arguments.n < size(caller.roles)`, `arguments.?path.orValue("") == caller.claims.?org.orValue("")`,
		`arguments.list.exists(x, x == "a")`, `size(arguments) == 1`, `string(arguments.path).startsWith("/t")`,
	}
)

func someRules(t *rapid.T, label string) []Rule {
	condition := rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOfN(rapid.SampledFrom(someConditions), 1, 3).Draw(t, "parts")
		for i := range parts {
			if rapid.IntRange(0, 4).Draw(t, "not") == 0 {
				parts[i] = "!(" + parts[i] + ")"
			}
		}
		if rapid.Bool().Draw(t, "or") {
			return strings.Join(parts, " || ")
		}
		return strings.Join(parts, " && ")
	})
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Rule {
		r := Rule{Effect: rapid.SampledFrom([]Effect{Allow, Deny, Redact}).Draw(t, "effect"), When: condition.Draw(t, "when")}
		if r.Effect == Redact {
			r.Redact = redact.Config{Patterns: []string{rapid.SampledFrom([]string{"x", "y"}).Draw(t, "pattern")}}
		}
		return r
	}), 0, 5).Draw(t, label)
}

var naivePrograms = map[string]cel.Program{}

// naive decides by evaluating rule after rule, with every value known.
func naive(t interface{ Fatal(...any) }, cfg Config, c auth.Caller, target Target) (Effect, int) {
	env, err := language()
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{}
	for k, v := range c.Claims() {
		claims[k] = v
	}
	vars := map[string]any{
		"caller.subject": c.Subject(), "caller.tenant": c.Tenant(), "caller.issuer": c.Issuer(), "caller.roles": c.Roles(), "caller.claims": claims,
		"server": target.Server, "tool": target.Tool, "resource": target.Resource, "prompt": target.Prompt, "method": target.Method, "model": target.Model,
		"annotations": plain(target.Annotations), "arguments": plain(target.Arguments),
	}
	for i, rule := range cfg.Rules {
		p, ok := naivePrograms[rule.When]
		if !ok {
			ast, issues := env.Compile(rule.When)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			if p, err = env.Program(ast, cel.CostLimit(maxCost)); err != nil {
				t.Fatal(err)
			}
			naivePrograms[rule.When] = p
		}
		v, _, err := p.Eval(vars)
		switch {
		case rule.Effect == Redact && strings.HasPrefix(target.Method, "model/"):
		case err != nil && rule.Effect != Allow:
			return Deny, i + 1
		case err == nil && v == types.True:
			return rule.Effect, i + 1
		}
	}
	return Effect(cfg.Default), 0
}

// plain converts a small JSON object.
func plain(raw []byte) map[string]any {
	out := map[string]any{}
	fields, _ := jsonscan.FieldsOf(slices.Concat(raw, []byte("{}"))[:max(len(raw), 2)])
	for _, f := range fields.All() {
		switch v := f.Value.Of(raw); v[0] {
		case '"':
			out[f.Key] = jsonscan.DecodeString(v)
		case '[':
			out[f.Key] = []any{"a"}
		case 't':
			out[f.Key] = true
		default:
			out[f.Key] = int64(v[0] - '0')
		}
	}
	return out
}

// What the rules decide is what each rule says for itself, in order, whatever was decided before.
func TestDecisionsAreNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Default: rapid.SampledFrom([]string{"allow", "deny"}).Draw(t, "default"), Rules: someRules(t, "rules")}
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range someCallers {
			for _, target := range someTargets {
				listed := r.MayList(c, target)
				could := false
				for _, arguments := range someArguments {
					target.Arguments = []byte(arguments)
					effect, rule := naive(t, cfg, c, target)
					if d := r.Decide(c, target); d.Effect != effect || d.Rule != rule {
						t.Fatalf("%s, %+v, %s: %+v, want %s by rule %d", c.Key(), target, arguments, d, effect, rule)
					}
					could = could || effect != Deny
				}
				if could && !listed {
					t.Fatalf("%s, %+v is allowed, and not listed", c.Key(), target)
				}
				if could && target.Server != "" && !r.MayUseServer(c, target.Server) {
					t.Fatalf("%s: %+v is allowed, and its server does not exist", c.Key(), target)
				}
			}
		}
	})
}

// What may be read back is what the caller could be shown today by the call that it came from.
func TestReadingBackIsAllowedToday(t *testing.T) {
	reads := 0
	rapid.Check(t, func(t *rapid.T) {
		before := Config{Default: rapid.SampledFrom([]string{"allow", "deny"}).Draw(t, "default then"), Rules: someRules(t, "rules then")}
		today := before
		if rapid.Bool().Draw(t, "changed") {
			today = Config{Default: rapid.SampledFrom([]string{"allow", "deny"}).Draw(t, "default"), Rules: someRules(t, "rules")}
		}
		then, err := New(before)
		if err != nil {
			t.Fatal(err)
		}
		now, err := New(today)
		if err != nil {
			t.Fatal(err)
		}
		for _, writer := range someCallers {
			for _, target := range someTargets {
				for _, arguments := range someArguments {
					target.Arguments = []byte(arguments)
					stored := then.Decide(writer, target)
					if !stored.IsAllowed() {
						continue
					}
					for _, reader := range someCallers {
						origin := target
						origin.Arguments = nil
						if !now.MayRead(reader, origin, stored.Scope) {
							continue
						}
						reads++
						shown := now.Decide(reader, target)
						if shown.Effect != Allow && (shown.Effect != Redact || stored.Redact == nil || shown.Redact.Fingerprint() != stored.Redact.Fingerprint()) {
							t.Fatalf("%s reads what %s stored of %+v with %s under %+v; today it would get %+v", reader.Key(), writer.Key(), target, arguments, stored, shown)
						}
					}
				}
			}
		}
	})
	if reads < 1000 {
		t.Errorf("only %d originals were read", reads)
	}
}

// FuzzCondition: a condition that compiles decides as it does alone.
func FuzzCondition(f *testing.F) {
	for _, when := range someConditions {
		f.Add(when, `{"path":"/etc","n":1}`)
	}
	f.Add(`caller.claims.x == arguments.y || tool == "read"`, `{"n":1}`)
	f.Fuzz(func(t *testing.T, when, arguments string) {
		if _, err := jsonscan.New([]byte(arguments), 0).SkipStrict(); err != nil || strings.Trim(arguments, `{}:,"0123456789npath/ec`) != "" || !strings.HasPrefix(arguments, "{") || strings.Count(arguments, "{") > 1 {
			return
		}
		for _, effect := range []Effect{Allow, Deny} {
			cfg := Config{Default: "allow", Rules: []Rule{{Effect: effect, When: when}, deny(`tool == "delete"`)}}
			if len(cfg.Validate()) > 0 {
				return
			}
			r, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range someCallers {
				for _, target := range someTargets[:3] {
					target.Arguments = []byte(arguments)
					want, rule := naive(t, cfg, c, target)
					for range 2 {
						if d := r.Decide(c, target); d.Effect != want || d.Rule != rule {
							t.Fatalf("%s: %+v, want %s by rule %d", when, d, want, rule)
						}
					}
				}
			}
		}
	})
}

// manyRules are 100 rules as a platform team writes them: some per tenant, role, server, tool and arguments.
func manyRules() []Rule {
	var rules []Rule
	for i := range 20 {
		rules = append(rules,
			deny(fmt.Sprintf(`caller.tenant == "tenant%d" && tool.startsWith("delete_")`, i)),
			deny(fmt.Sprintf(`server == "server%d" && !("role%d" in caller.roles)`, i, i)),
			deny(fmt.Sprintf(`tool == "tool_%d" && caller.claims.?level.orValue(0) < 3`, i)),
			allow(fmt.Sprintf(`"team%d" in caller.roles && tool.matches("^(get|list)_%d$")`, i, i)),
			deny(fmt.Sprintf(`server == "fs" && tool == "write_%d" && arguments.path.startsWith("/etc/")`, i)),
		)
	}
	return rules
}

func benchmarkCaller(i int) auth.Caller {
	return who(fmt.Sprintf("user%d", i), fmt.Sprintf("tenant%d", i%50), []string{"dev", fmt.Sprintf("team%d", i%40)}, map[string]any{"level": 2.0, "jti": fmt.Sprint(i)})
}

func benchmarkTools() []Target {
	out := make([]Target, 1000)
	for i := range out {
		out[i] = Target{Method: "tools/call", Server: fmt.Sprintf("server%d", 100+i%10), Tool: fmt.Sprintf("tool_%d", 100+i), Annotations: []byte(`{"readOnlyHint":true}`)}
	}
	return out
}

func BenchmarkDecide100Rules(b *testing.B) {
	r := newRules(b, Allow, manyRules()...)
	target := call("fs", "write_7", `{"path":"/home/ann/notes.md","content":"hello"}`)
	b.ReportAllocs()
	for b.Loop() {
		if !r.Decide(benchmarkCaller(7), target).IsAllowed() { // as a request does: the caller is authenticated anew
			b.Fatal("denied")
		}
	}
}

func BenchmarkList1000Tools(b *testing.B) {
	r, tools := newRules(b, Allow, manyRules()...), benchmarkTools()
	for _, c := range []struct {
		name    string
		callers int
	}{{"same", 1}, {"new", 1 << 30}} {
		b.Run(c.name+"-caller", func(b *testing.B) {
			n := 0
			for b.Loop() {
				who := benchmarkCaller(n % c.callers)
				n++
				for _, target := range tools {
					if !r.MayList(who, target) {
						b.Fatal("not listed")
					}
				}
			}
		})
	}
}
