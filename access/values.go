package access

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// values are the variables of one evaluation. They are converted when a rule reads them.
type values struct {
	caller *auth.Caller // nil: unknown
	target *Target      // nil: unknown
	keep   members      // which arguments are read
	text   int          // how many bytes of text the arguments may have

	claims, annotations, arguments ref.Val // converted; nil before
}

// members are the members of an object that rules read.
type members struct {
	all   bool
	names map[string]bool
}

// ResolveName implements cel.Activation. It is not asked for what is unknown.
func (v *values) ResolveName(name string) (any, bool) {
	switch name {
	case varSubject:
		return v.caller.Subject(), true
	case varTenant:
		return v.caller.Tenant(), true
	case varIssuer:
		return v.caller.Issuer(), true
	case varRoles:
		return v.caller.Roles(), true
	case varClaims:
		if v.claims == nil {
			v.claims = types.NewStringInterfaceMap(types.DefaultTypeAdapter, exactNumbers(v.caller.Claims()).(map[string]any))
		}
		return v.claims, true
	case varServer:
		return v.target.Server, true
	case varTool:
		return v.target.Tool, true
	case varResource:
		return v.target.Resource, true
	case varPrompt:
		return v.target.Prompt, true
	case varMethod:
		return v.target.Method, true
	case varModel:
		return v.target.Model, true
	case varAnnotations:
		if v.target.lacksAnnotations() {
			return nil, false
		}
		if v.annotations == nil {
			v.annotations = convertObject(v.target.Annotations, members{all: true}, maxText)
		}
		return v.annotations, true
	case varArguments:
		if v.arguments == nil {
			v.arguments = convertObject(v.target.Arguments, v.keep, v.text)
		}
		return v.arguments, true
	}
	return nil, false
}

// Parent implements cel.Activation.
func (v *values) Parent() cel.Activation { return nil }

// exactNumbers converts the numbers of claims that were kept as text.
func exactNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, member := range v {
			out[key] = exactNumbers(member)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = exactNumbers(item)
		}
		return out
	case json.Number:
		return convertNumber(v.String())
	default:
		return v
	}
}

const (
	maxValues = 100_000 // of the arguments that rules read
	maxDepth  = 128
)

var (
	errTooManyValues = errors.New("too many values to evaluate a rule")
	errTooMuchText   = errors.New("too much text to evaluate a rule")
)

// converter converts JSON to CEL values.
type converter struct {
	data   []byte
	values int // that are left
	text   int // bytes of text that are left
}

// convertObject converts an object, of which it keeps the members that are read. A document that is no object, too
// deep, too large or not strict JSON is an error, and so is every rule that reads it.
func convertObject(data []byte, keep members, text int) ref.Val {
	if data == nil {
		data = []byte("{}")
	}
	c := converter{data: data, values: maxValues, text: text}
	s := jsonscan.New(data, maxDepth)
	if s.Kind() != '{' {
		return types.NewErr("not an object")
	}
	out := map[ref.Val]ref.Val{}
	err := s.Object(nil, func(key []byte) error {
		if !keep.all && !keep.names[string(key)] {
			_, err := s.SkipStrict()
			return err
		}
		value, err := c.convert(s)
		out[types.String(key)] = value
		return err
	})
	if err == nil {
		err = s.End()
	}
	if err != nil {
		return types.WrapErr(err)
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, out)
}

func (c *converter) convert(s *jsonscan.Scanner) (ref.Val, error) {
	if c.values--; c.values < 0 {
		return nil, errTooManyValues
	}
	switch s.Kind() {
	case '{':
		out := map[ref.Val]ref.Val{}
		err := s.Object(nil, func(key []byte) error {
			name := types.String(key)
			value, err := c.convert(s)
			out[name] = value
			return err
		})
		return types.NewRefValMap(types.DefaultTypeAdapter, out), err
	case '[':
		var out []ref.Val
		err := s.Array(func() error {
			value, err := c.convert(s)
			out = append(out, value)
			return err
		})
		return types.NewRefValList(types.DefaultTypeAdapter, out), err
	case '"':
		text, err := s.Str()
		if c.text -= text.Len(); err == nil && c.text < 0 {
			err = errTooMuchText
		}
		if err != nil {
			return nil, err
		}
		return types.String(jsonscan.AppendDecoded(nil, text.Of(c.data))), nil
	}
	span, err := s.Skip()
	if err != nil {
		return nil, err
	}
	switch raw := span.Of(c.data); raw[0] {
	case 't', 'f':
		return types.Bool(raw[0] == 't'), nil
	case 'n':
		return types.NullValue, nil
	default:
		return convertNumber(string(raw)), nil
	}
}

// convertNumber converts a number exactly where CEL has a type for it. A number that CEL has none for is an error in
// the rules that read it.
func convertNumber(text string) ref.Val {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Int(n)
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return types.Uint(n)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !strings.ContainsAny(text, ".eE") {
		return types.NewErr("a number that is too large to compare")
	}
	return types.Double(f)
}
