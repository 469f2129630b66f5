package yamledit

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

func isScalar(value any) bool {
	switch value.(type) {
	case textedit.Object, []any, []string:
		return false
	}
	return true
}

// encodeBlock returns the lines of a value in block style.
func encodeBlock(value any, indent, unit int) []string {
	pad := strings.Repeat(" ", indent)
	var out []string
	switch v := value.(type) {
	case textedit.Object:
		for _, m := range v {
			key := pad + encodeScalar(m.Key) + ":"
			switch {
			case isScalar(m.Value) || isEmptyValue(m.Value):
				out = append(out, key+" "+encodeFlow(m.Value))
			default:
				out = append(out, key)
				out = append(out, encodeBlock(m.Value, indent+unit, unit)...)
			}
		}
	case []string:
		return encodeBlock(textedit.Plain(v), indent, unit)
	case []any:
		for _, e := range v {
			if isScalar(e) || isEmptyValue(e) {
				out = append(out, pad+"- "+encodeFlow(e))
				continue
			}
			lines := encodeBlock(e, indent+2, unit)
			lines[0] = pad + "- " + strings.TrimLeft(lines[0], " ")
			out = append(out, lines...)
		}
	}
	return out
}

func isEmptyValue(value any) bool {
	switch v := value.(type) {
	case textedit.Object:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case []string:
		return len(v) == 0
	}
	return false
}

// encodeFlow writes a value on one line.
func encodeFlow(value any) string {
	var parts []string
	switch v := value.(type) {
	case textedit.Object:
		for _, m := range v {
			parts = append(parts, encodeScalar(m.Key)+": "+encodeFlow(m.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []string:
		return encodeFlow(textedit.Plain(v))
	case []any:
		for _, e := range v {
			parts = append(parts, encodeFlow(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return encodeScalar(v)
	case nil:
		return "null"
	}
	return fmt.Sprint(value)
}

// encodeScalar writes a string: plain where every reader takes it for the same string, in quotes otherwise.
func encodeScalar(s string) string {
	text, err := yaml.Marshal(s)
	plain := strings.TrimSuffix(string(text), "\n")
	if err == nil && plain == s && !strings.ContainsAny(s, "\n,[]{}#:") && s != "" {
		return s
	}
	quoted, err := json.Marshal(s)
	if err != nil {
		return fmt.Sprintf("%q", s)
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(quoted))
}

// plainValue returns a value as yaml.v3 decodes it, for comparison.
func plainValue(value any) (any, error) {
	model, err := decode([]byte("v: " + encodeFlow(value)))
	if err != nil {
		return nil, err
	}
	v, _ := textedit.GetIn(model, []string{"v"})
	return v, nil
}
