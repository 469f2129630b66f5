package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

const envPrefix = "CTXGATE_"

// Variables are the environment variables that set the field in the table at path ("" at the top), highest
// priority first; nil if the environment cannot set it. It cannot set anything inside a list or a map.
func (f Field) Variables(path string) []string {
	if !isScalar(f.Type) {
		return nil
	}
	name := strings.NewReplacer(".", "_", "-", "_").Replace(strings.ToUpper(childPath(path, f.Key)))
	names := []string{envPrefix + name}
	return append(names, f.ownVariables()...)
}

// ownVariables are the variables of the tag env.
func (f Field) ownVariables() []string {
	if names := f.Tag.Get("env"); names != "" {
		return strings.Split(names, ",")
	}
	return nil
}

// ApplyEnv applies the environment to dst, a pointer to a config struct: CTXGATE_MASKING_MAX_CHARS sets
// masking.max_chars. A list of texts is split at commas. A secret's variable holds the secret itself, or a
// reference to it. An empty variable empties a text or a list; for other types it counts as unset.
//
// The second result warns of unknown CTXGATE_ variables, except those in ignore and those that dst's
// secrets refer to.
func ApplyEnv(dst any, environ []string, ignore ...string) (problems, warnings Problems) {
	v, ok := structOf(dst)
	if !ok {
		return Problems{notAStruct(dst)}, nil
	}
	env := envMap(environ)
	used := map[string]bool{}
	for _, name := range ignore {
		used[name] = true
	}
	// This comes before anything is overridden: a variable that the file refers to is known, even if
	// another variable replaces the reference.
	eachSecretRef(v, func(_ string, r secretRefs) {
		for _, name := range r.Variables() {
			used[name] = true
		}
	})

	var known []string
	for _, b := range envBindings(v, "") {
		known = append(known, b.names...)
		problems = append(problems, b.applyTo(env)...)
	}
	return problems, unknownVariables(environ, known, used)
}

// envMap keeps the first value of a name that is set twice, as the standard library does.
func envMap(environ []string) map[string]string {
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
		warnings = append(warnings, Problem{File: name, Text: "unknown variable, ignored" + didYouMean(name, known)})
	}
	warnings.Sort()
	return warnings
}

// envBinding is a field that environment variables can set.
type envBinding struct {
	names []string
	field Field
	value reflect.Value
}

func envBindings(v reflect.Value, path string) []envBinding {
	var list []envBinding
	for _, f := range Fields(v.Type()) {
		if isTable(f.Type) {
			list = append(list, envBindings(f.In(v), childPath(path, f.Key))...)
		} else if names := f.Variables(path); names != nil {
			list = append(list, envBinding{names, f, f.In(v)})
		}
	}
	for _, f := range EnvFields(v.Type()) {
		list = append(list, envBinding{f.ownVariables(), f, f.In(v)})
	}
	return list
}

func (b envBinding) applyTo(env map[string]string) Problems {
	for _, name := range b.names {
		text, ok := env[name]
		if !ok || text == "" && !b.acceptsEmpty() {
			continue
		}
		d := &decoder{file: name, fromEnv: true}
		d.decodeValue(textNode(text, b.field.Type), b.value, keyInfo{tag: b.field.Tag})
		for i := range d.problems {
			d.problems[i].Key = "" // the variable's name is enough
		}
		return d.problems
	}
	return nil
}

func (b envBinding) acceptsEmpty() bool {
	k := b.field.Type.Kind()
	return k == reflect.String || k == reflect.Slice
}

// textNode is the node that a file would have for a value of type t. Text that is not such a value stays
// text, and the decoder reports it.
func textNode(text string, t reflect.Type) *node {
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
		// Both are parsed from text.
	case t.Kind() == reflect.Bool:
		if b, err := strconv.ParseBool(text); err == nil {
			n.kind, n.bool = boolKind, b
		}
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64, t.Kind() == reflect.Float64:
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			return numberNode(0, text)
		}
	}
	return n
}
