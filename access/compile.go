package access

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/ctxgate/ctxgate/redact"
)

const (
	maxCondition = 4 << 10  // bytes of a condition
	maxPattern   = 512      // bytes of a regular expression in it
	maxRuleName  = 128      // bytes of a rule's name
	maxCost      = 100_000  // of one evaluation, in CEL's own unit: about a step of a loop
	maxText      = 64 << 10 // bytes of the arguments that a condition reads whose cost is not bounded by its length
)

// The variables of conditions.
const (
	varSubject     = "caller.subject"
	varTenant      = "caller.tenant"
	varIssuer      = "caller.issuer"
	varRoles       = "caller.roles"
	varClaims      = "caller.claims"
	varServer      = "server"
	varTool        = "tool"
	varResource    = "resource"
	varPrompt      = "prompt"
	varMethod      = "method"
	varModel       = "model"
	varAnnotations = "annotations"
	varArguments   = "arguments"
)

var (
	callerVars = []string{varSubject, varTenant, varIssuer, varRoles, varClaims}
	itemVars   = []string{varMethod, varTool, varAnnotations, varResource, varPrompt} // of a server
	targetVars = append([]string{varServer, varModel}, itemVars...)
)

// language is CEL with the variables of conditions, without clock and without chance.
var language = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{cel.OptionalTypes(), cel.ParserExpressionSizeLimit(maxCondition), cel.Variable(varRoles, cel.ListType(cel.StringType))}
	for _, name := range []string{varSubject, varTenant, varIssuer, varServer, varTool, varResource, varPrompt, varMethod, varModel} {
		options = append(options, cel.Variable(name, cel.StringType))
	}
	for _, name := range []string{varClaims, varAnnotations, varArguments} {
		options = append(options, cel.Variable(name, cel.MapType(cel.StringType, cel.DynType)))
	}
	return cel.NewEnv(options...)
})

// rule is a compiled rule.
type rule struct {
	number int // from 1
	name   string
	effect Effect
	when   string
	reason string
	redact *redact.Set

	whole   cel.Program // every variable is known
	partial cel.Program // some are unknown

	reads       map[string]bool // variables, or members of one such as "arguments.path"
	readsCaller bool
	readsTarget bool
	arguments   members
	isCostly    bool // its cost is not bounded by what it reads
}

// compileRule compiles one rule of the configuration. It reports every problem, each with its key.
func compileRule(i int, cfg Rule) (*rule, []error) {
	r := &rule{number: i + 1, name: cfg.Name, effect: cfg.Effect, when: cfg.When, reason: "rule " + strconv.Itoa(i+1)}
	var problems []error
	if cfg.Name != "" {
		r.reason += " (" + cfg.Name + ")"
	}
	if len(cfg.Name) > maxRuleName {
		problems = append(problems, fmt.Errorf("name: at most %d bytes", maxRuleName))
	}
	switch {
	case cfg.Effect == "":
		problems = append(problems, errors.New(`effect: must be set: "allow", "deny" or "redact"`))
	case cfg.Effect == Redact && cfg.Redact.IsEmpty():
		problems = append(problems, errors.New(`redact: must name what to take out: arguments, results or patterns`))
	case cfg.Effect == Redact:
		set, errs := redact.Compile(cfg.Redact)
		for _, err := range errs {
			problems = append(problems, fmt.Errorf("redact.%w", err))
		}
		r.redact = set
	case !cfg.Redact.IsEmpty():
		problems = append(problems, fmt.Errorf(`redact: has no effect on a rule with effect = %q`, cfg.Effect))
	}
	for _, err := range r.compileCondition() {
		problems = append(problems, fmt.Errorf("when: %w", err))
	}
	if r.effect == Redact && r.reads[varModel] {
		problems = append(problems, errors.New(`when: reads model, but effect = "redact" is for calls of MCP servers: what a model is sent came from the caller itself`))
	}
	return r, problems
}

func (r *rule) compileCondition() []error {
	if strings.TrimSpace(r.when) == "" {
		return []error{errors.New("must be set; 'true' matches everything")}
	}
	if len(r.when) > maxCondition {
		return []error{fmt.Errorf("at most %d bytes, found %d", maxCondition, len(r.when))}
	}
	env, err := language()
	if err != nil {
		return []error{err}
	}
	checked, issues := env.Compile(r.when)
	if issues.Err() != nil {
		return describeIssues(issues)
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) {
		return []error{fmt.Errorf("must be a condition that is true or false, not of type %s; compare it with something", t)}
	}
	found := analyze(checked.NativeRep().Expr())
	if len(found.problems) > 0 {
		return found.problems
	}
	r.reads = found.reads
	reads := func(names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return r.readsVar(name) })
	}
	r.readsCaller, r.readsTarget, r.isCostly = reads(callerVars), reads(targetVars), found.isCostly
	r.arguments = members{all: r.reads[varArguments], names: map[string]bool{}}
	for read := range r.reads {
		if name, ok := strings.CutPrefix(read, varArguments+"."); ok {
			r.arguments.names[name] = true
		}
	}
	var options []cel.ProgramOption
	if r.isCostly {
		options = append(options, cel.CostLimit(maxCost))
	}
	r.whole, err = env.Program(checked, append(options, cel.EvalOptions(cel.OptOptimize))...)
	if err != nil {
		return []error{err}
	}
	r.partial, err = env.Program(checked, append(options, cel.EvalOptions(cel.OptOptimize|cel.OptPartialEval))...)
	if err != nil {
		return []error{err}
	}
	return nil
}

// readsVar says whether a rule reads a variable, or a member of it.
func (r *rule) readsVar(name string) bool {
	for read := range r.reads {
		if rest, ok := strings.CutPrefix(read, name); ok && (rest == "" || rest[0] == '.') {
			return true
		}
	}
	return false
}

// describeIssues says what is wrong with a condition, and where in it.
func describeIssues(issues *cel.Issues) []error {
	var out []error
	for _, e := range issues.Errors() {
		text := strings.ReplaceAll(e.Message, " (in container '')", "")
		out = append(out, fmt.Errorf("line %d, column %d: %s", e.Location.Line(), e.Location.Column()+1, text))
	}
	return out
}

// analysis is what a condition reads, and what it may cost.
type analysis struct {
	reads    map[string]bool
	isCostly bool
	loops    int // around what is visited
	problems []error
}

// cheap are the functions whose cost is bounded by the length of what they are given.
var cheap = []string{
	operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional, operators.Equals, operators.NotEquals, operators.Less,
	operators.LessEquals, operators.Greater, operators.GreaterEquals, operators.In, operators.Index, operators.OptIndex, operators.OptSelect,
	"startsWith", "endsWith", "contains", "size", "orValue", "hasValue",
}

func analyze(root ast.Expr) *analysis {
	a := &analysis{reads: map[string]bool{}}
	a.visit(root)
	return a
}

// visit walks an expression. A variable that is only read for a member counts as that member.
func (a *analysis) visit(e ast.Expr) {
	switch e.Kind() {
	case ast.IdentKind:
		a.addRead(e.AsIdent(), "")
	case ast.SelectKind:
		a.visitMember(e.AsSelect().Operand(), e.AsSelect().FieldName())
	case ast.CallKind:
		a.visitCall(e.AsCall())
	case ast.ListKind:
		for _, item := range e.AsList().Elements() {
			a.visit(item)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			a.visit(entry.AsMapEntry().Key())
			a.visit(entry.AsMapEntry().Value())
		}
	case ast.ComprehensionKind:
		a.isCostly = true
		loop := e.AsComprehension()
		a.visit(loop.IterRange())
		a.loops++
		for _, part := range []ast.Expr{loop.AccuInit(), loop.LoopCondition(), loop.LoopStep(), loop.Result()} {
			a.visit(part)
		}
		a.loops--
	default: // a literal; message types cannot be made
	}
}

func (a *analysis) visitCall(call ast.CallExpr) {
	args := call.Args()
	switch name := call.FunctionName(); name {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		if member, ok := textLiteral(args[1]); ok {
			a.visitMember(args[0], member)
			return
		}
	case "matches":
		a.isCostly = true
		a.checkPattern(args[len(args)-1])
	default:
		if !slices.Contains(cheap, name) {
			a.isCostly = true
		}
	}
	if call.IsMemberFunction() {
		a.visit(call.Target())
	}
	for _, arg := range args {
		a.visit(arg)
	}
}

// visitMember visits the reading of one member of a value.
func (a *analysis) visitMember(of ast.Expr, member string) {
	if of.Kind() == ast.IdentKind {
		a.addRead(of.AsIdent(), member)
		return
	}
	a.visit(of)
}

func (a *analysis) addRead(name, member string) {
	switch {
	case !slices.Contains(callerVars, name) && !slices.Contains(targetVars, name) && name != varArguments: // of a macro
	case member == "":
		a.reads[name] = true
	default:
		a.reads[name+"."+member] = true
	}
}

// checkPattern refuses a regular expression whose cost would be unknown: CEL counts the steps of loops only.
func (a *analysis) checkPattern(arg ast.Expr) {
	if a.loops > 1 {
		a.problems = append(a.problems, errors.New("matches() cannot be used in a macro inside of another"))
		return
	}
	pattern, ok := textLiteral(arg)
	if !ok {
		a.problems = append(a.problems, errors.New("the regular expression of matches() must be written in the rule"))
		return
	}
	if len(pattern) > maxPattern {
		a.problems = append(a.problems, fmt.Errorf("a regular expression has at most %d bytes, found %d", maxPattern, len(pattern)))
		return
	}
	if _, err := regexp.Compile(pattern); err != nil {
		a.problems = append(a.problems, fmt.Errorf("the regular expression of matches(): %w", err))
	}
}

func textLiteral(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}
