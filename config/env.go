package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

const envPrefix = "CTXGATE_"

// Variables are the environment variables that set the field when it stands in the table at
// path ("" at the top), the first to win in front; nil when it cannot be set that way. Nothing
// inside a list or a map can.
func (f Field) Variables(path string) []string {
	if !isScalar(f.Type) {
		return nil
	}
	name := strings.NewReplacer(".", "_", "-", "_").Replace(strings.ToUpper(child(path, f.Key)))
	names := []string{envPrefix + name}
	return append(names, f.own()...)
}

// own are the variables that a field names itself.
func (f Field) own() []string {
	if names := f.Tag.Get("env"); names != "" {
		return strings.Split(names, ",")
	}
	return nil
}

// ApplyEnv lays the environment over dst, a pointer to a config struct: CTXGATE_MASKING_MAX_CHARS
// over masking.max_chars. A list of text is split at commas. A secret's variable holds the secret
// itself, or a reference to it. An empty variable empties a text or a list, and is as good as
// unset for anything else.
//
// The second result warns of CTXGATE_ variables that set nothing, except those in ignore and
// those that dst's secrets refer to.
func ApplyEnv(dst any, environ []string, ignore ...string) (problems, warnings Problems) {
	v, ok := target(dst)
	if !ok {
		return Problems{notAStruct(dst)}, nil
	}
	env := variables(environ)
	used := map[string]bool{}
	for _, name := range ignore {
		used[name] = true
	}
	// Before anything is overridden: a variable that a file refers to is used, even if the
	// reference then loses to another variable.
	eachReference(v, func(_ string, r referred) {
		for _, name := range r.Variables() {
			used[name] = true
		}
	})

	var known []string
	for _, b := range bindings(v, "") {
		known = append(known, b.names...)
		problems = append(problems, b.apply(env)...)
	}
	return problems, unknownVariables(environ, known, used)
}

// variables keeps the first of two settings of a name, as the standard library does.
func variables(environ []string) map[string]string {
	env := map[string]string{}
	for _, kv := range environ {
		name, val, _ := strings.Cut(kv, "=")
		if _, ok := env[name]; !ok {
			env[name] = val
		}
	}
	return env
}

func unknownVariables(environ, known []string, used map[string]bool) Problems {
	var warnings Problems
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || used[name] || slices.Contains(known, name) {
			continue
		}
		warnings = append(warnings, Problem{File: name, Text: "unknown variable, not used" + didYouMean(name, known)})
	}
	warnings.Sort()
	return warnings
}

// binding is a value that variables may set.
type binding struct {
	names []string
	field Field
	value reflect.Value
}

func bindings(v reflect.Value, path string) []binding {
	var list []binding
	for _, f := range Fields(v.Type()) {
		if isTable(f.Type) {
			list = append(list, bindings(f.In(v), child(path, f.Key))...)
		} else if names := f.Variables(path); names != nil {
			list = append(list, binding{names, f, f.In(v)})
		}
	}
	for _, f := range EnvFields(v.Type()) {
		list = append(list, binding{f.own(), f, f.In(v)})
	}
	return list
}

func (b binding) apply(env map[string]string) Problems {
	for _, name := range b.names {
		text, ok := env[name]
		if !ok || text == "" && !b.takesEmpty() {
			continue
		}
		d := &decoder{file: name, fromEnv: true}
		d.value(fromText(text, b.field.Type), b.value, at{tag: b.field.Tag})
		for i := range d.problems {
			d.problems[i].Key = "" // the variable's name says it
		}
		return d.problems
	}
	return nil
}

func (b binding) takesEmpty() bool {
	k := b.field.Type.Kind()
	return k == reflect.String || k == reflect.Slice
}

// fromText gives the node a file would have had for a value of type t; text that is no such
// value stays text, and the decoder then says what it wanted.
func fromText(text string, t reflect.Type) *node {
	n := &node{kind: textKind, text: text}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice:
		n.kind = listKind
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				n.items = append(n.items, &node{kind: textKind, text: item})
			}
		}
	case t == durationType || t == bytesType:
		// Both read their numbers from text.
	case t.Kind() == reflect.Bool:
		if b, err := strconv.ParseBool(text); err == nil {
			n.kind, n.bool = boolKind, b
		}
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64, t.Kind() == reflect.Float64:
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			return number(0, text)
		}
	}
	return n
}
