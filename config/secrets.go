package config

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/internal/secret"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// alwaysSecret names the HTTP headers that carry credentials: never written out, even where
// other headers may be.
func alwaysSecret(header string) bool {
	switch strings.ToLower(header) {
	case "authorization", "proxy-authorization", "cookie", "x-api-key":
		return true
	}
	return false
}

func literalOK(tag reflect.StructTag) bool { return tag.Get("literal") == "ok" }

// secret takes a reference, or the text itself where that is welcome. No message here repeats
// what was written: a reference that is none may be the secret after all.
func (d *decoder) secret(n *node, v reflect.Value, at at) {
	literal := at.literal || d.fromEnv
	if n.kind != textKind {
		want := "text"
		if !literal {
			want = `"env:NAME" or "file:PATH"`
		}
		d.problem(n.line, at.path, "want %s, found %s", want, n.describe())
		return
	}
	text := secret.Parse(n.text)
	name, isEnv := strings.CutPrefix(text.Source(), "env:")
	switch {
	case text.IsLiteral() && !literal:
		d.problem(n.line, at.path, `a secret does not belong in the file: write "env:NAME" or "file:PATH"`)
	case isEnv && !variableName.MatchString(name):
		d.problem(n.line, at.path, `"env:" wants the name of an environment variable after it`)
	case text.Source() == "file:":
		d.problem(n.line, at.path, `"file:" wants a path after it`)
	default:
		v.Set(reflect.ValueOf(text))
	}
}

// ResolveSecrets follows every reference in dst, a pointer to a config struct. A reference that
// leads nowhere is a problem that names it; [File.Locate] gives it its line.
func ResolveSecrets(dst any, lookup func(string) (string, bool)) Problems {
	v, ok := target(dst)
	if !ok {
		return Problems{notAStruct(dst)}
	}
	var ps Problems
	eachSecret(v, "", func(path string, t secret.Text) secret.Text {
		resolved, err := t.Resolve(lookup)
		if err != nil {
			ps = append(ps, Problem{Key: path, Text: fmt.Sprintf("cannot resolve %s: %s", t.Source(), err)})
		}
		return resolved
	})
	return ps
}

// eachSecret replaces every secret below v with what visit gives for it, in a fixed order.
func eachSecret(v reflect.Value, path string, visit func(string, secret.Text) secret.Text) {
	if t, ok := v.Interface().(secret.Text); ok {
		v.Set(reflect.ValueOf(visit(path, t)))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			eachSecret(v.Elem(), path, visit)
		}
	case reflect.Struct:
		for _, f := range append(Fields(v.Type()), EnvFields(v.Type())...) {
			eachSecret(f.In(v), child(path, f.Key), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachSecret(v.Index(i), element(path, i), visit)
		}
	case reflect.Map:
		eachSecretOfMap(v, path, visit)
	}
}

func eachSecretOfMap(v reflect.Value, path string, visit func(string, secret.Text) secret.Text) {
	byName := map[string]reflect.Value{}
	for k, elem := range v.Seq2() {
		// What a map holds cannot be set in place.
		e := reflect.New(elem.Type()).Elem()
		e.Set(elem)
		byName[k.String()] = e
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		eachSecret(byName[name], child(path, name), visit)
		v.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), byName[name])
	}
}
