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
	read := secret.ParseTemplate
	if d.fromEnv { // a variable holds the secret itself, whatever is in it, or is a reference as a whole
		read = parseVariable
	}
	text, err := read(n.text)
	switch {
	case err != nil:
		d.problem(n.line, at.path, "%s", err)
	case text.IsLiteral() && !literal:
		d.problem(n.line, at.path, `a secret does not belong in the file: write "env:NAME" or "file:PATH"`)
	default:
		if text.IsLiteral() && secretName.MatchString(at.path) {
			secret.Remember(text.Reveal())
		}
		v.Set(reflect.ValueOf(text))
	}
}

// secretName fits keys, headers and variables whose values are secrets even where they are written out.
var secretName = regexp.MustCompile(`(?i)(key|token|secret|passw|credential|auth)[a-z0-9_-]*$`)

func parseVariable(s string) (secret.Text, error) {
	if strings.HasPrefix(s, "env:") || strings.HasPrefix(s, "file:") {
		return secret.ParseTemplate(s)
	}
	return secret.Literal(s), nil
}

// url takes a URL that may have references in it.
func (d *decoder) url(n *node, v reflect.Value, at at) {
	if n.kind != textKind {
		d.mismatch(n, at.path, "text")
		return
	}
	if err := secret.URL(n.text).Check(); err != nil {
		d.problem(n.line, at.path, "%s", err)
		return
	}
	v.SetString(n.text)
}

// ResolveSecrets follows every reference in dst, a pointer to a config struct. A reference that
// leads nowhere is a problem that names it; [File.Locate] gives it its line.
func ResolveSecrets(dst any, lookup func(string) (string, bool)) Problems {
	v, ok := target(dst)
	if !ok {
		return Problems{notAStruct(dst)}
	}
	var ps Problems
	failed := func(path, source string, err error) {
		if err != nil {
			ps = append(ps, Problem{Key: path, Text: fmt.Sprintf("cannot resolve %s: %s", source, err)})
		}
	}
	eachSecret(v, "", visitor{
		text: func(path string, t secret.Text) secret.Text {
			resolved, err := t.Resolve(lookup)
			failed(path, t.Source(), err)
			return resolved
		},
		url: func(path string, u secret.URL) secret.URL {
			resolved, err := u.Resolve(lookup)
			failed(path, u.Source(), err)
			return resolved
		},
	})
	return ps
}

// referred is what the secrets of a configuration refer to.
type referred interface {
	Variables() []string
	Files() []string
}

// eachReference shows every secret and URL of dst to see.
func eachReference(v reflect.Value, see func(path string, r referred)) {
	eachSecret(v, "", visitor{
		text: func(path string, t secret.Text) secret.Text { see(path, t); return t },
		url:  func(path string, u secret.URL) secret.URL { see(path, u); return u },
	})
}

// visitor gives what takes the place of a secret.
type visitor struct {
	text func(path string, t secret.Text) secret.Text
	url  func(path string, u secret.URL) secret.URL
}

// eachSecret replaces every secret below v with what visit gives for it, in a fixed order.
func eachSecret(v reflect.Value, path string, visit visitor) {
	switch t := v.Interface().(type) {
	case secret.Text:
		v.Set(reflect.ValueOf(visit.text(path, t)))
		return
	case secret.URL:
		v.Set(reflect.ValueOf(visit.url(path, t)))
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

func eachSecretOfMap(v reflect.Value, path string, visit visitor) {
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
