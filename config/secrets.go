package config

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/pins"
)

// alwaysSecret reports whether an HTTP header carries credentials: its value must be a reference, even
// where other headers may be written in plain text.
func alwaysSecret(header string) bool {
	switch strings.ToLower(header) {
	case "authorization", "proxy-authorization", "cookie", "x-api-key":
		return true
	}
	return false
}

func literalOK(tag reflect.StructTag) bool { return tag.Get("literal") == "ok" }

// decodeSecret accepts a reference, or the text itself where that is allowed. No message repeats the
// value: a malformed reference may be the secret itself.
func (d *decoder) decodeSecret(n *node, v reflect.Value, at keyInfo) {
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
	if d.fromEnv { // a variable holds the secret itself, or is a reference as a whole
		read = parseVariable
	}
	text, err := read(n.text)
	switch {
	case err != nil:
		d.problem(n.line, at.path, "%s", err)
	case text.IsLiteral() && !literal:
		d.problem(n.line, at.path, `a secret must not be written in the file: write "env:NAME" or "file:PATH"`)
	default:
		if text.IsLiteral() && secretName.MatchString(at.path) {
			secret.Register(text.Reveal())
		}
		v.Set(reflect.ValueOf(text))
	}
}

// secretName matches keys, headers and variables whose values are secrets even if written in plain text.
var secretName = regexp.MustCompile(`(?i)(key|token|secret|passw|credential|auth)[a-z0-9_-]*$`)

func parseVariable(s string) (secret.Text, error) {
	if strings.HasPrefix(s, "env:") || strings.HasPrefix(s, "file:") {
		return secret.ParseTemplate(s)
	}
	return secret.Literal(s), nil
}

// decodeURL accepts a URL that may contain references.
func (d *decoder) decodeURL(n *node, v reflect.Value, at keyInfo) {
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

// ResolveSecrets replaces every reference in dst, a pointer to a config struct, by its value. A reference
// that cannot be resolved is a problem; [File.Locate] adds its line.
func ResolveSecrets(dst any, lookup func(string) (string, bool)) Problems {
	v, ok := structOf(dst)
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

// secretRefs are the variables and files that a secret refers to.
type secretRefs interface {
	Variables() []string
	Files() []string
}

// eachSecretRef calls see for every secret and URL in v.
func eachSecretRef(v reflect.Value, see func(path string, r secretRefs)) {
	eachSecret(v, "", visitor{
		text: func(path string, t secret.Text) secret.Text { see(path, t); return t },
		url:  func(path string, u secret.URL) secret.URL { see(path, u); return u },
	})
}

// visitor returns the replacement of a secret.
type visitor struct {
	text func(path string, t secret.Text) secret.Text
	url  func(path string, u secret.URL) secret.URL
}

// eachSecret replaces every secret in v by the result of visit, in a fixed order.
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
			eachSecret(f.In(v), childPath(path, f.Key), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachSecret(v.Index(i), elementPath(path, i), visit)
		}
	case reflect.Map:
		eachSecretOfMap(v, path, visit)
	}
}

func eachSecretOfMap(v reflect.Value, path string, visit visitor) {
	byName := map[string]reflect.Value{}
	for k, elem := range v.Seq2() {
		// Values of a map cannot be set in place.
		e := reflect.New(elem.Type()).Elem()
		e.Set(elem)
		byName[k.String()] = e
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		eachSecret(byName[name], childPath(path, name), visit)
		v.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), byName[name])
	}
}

// SecretFiles are the files that the configuration's secrets are read from, and the lock of package pins, sorted. When
// one of them changes, the configuration changes.
func (l *Loaded) SecretFiles() []string { return l.secretFiles }

// secretFiles finds them; it must be called before the references are resolved.
func (c *Config) secretFiles() []string {
	var files []string
	eachSecretRef(reflect.ValueOf(c).Elem(), func(_ string, r secretRefs) { files = append(files, r.Files()...) })
	for _, s := range c.Upstream.Servers {
		for _, word := range s.Command {
			for _, ref := range commandRef.FindAllString(word, -1) {
				if t, err := secret.ParseTemplate(ref); err == nil {
					files = append(files, t.Files()...)
				}
			}
		}
	}
	if c.Pins.Mode == pins.ModeLock {
		files = append(files, c.Pins.File)
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// commandRef is a reference in the command of a server. Other ${…} is left to the command: it may be a shell's.
var commandRef = regexp.MustCompile(`\$\{(?:env|file):[^}]+\}`)

// resolveCommands replaces the references in the commands of servers.
func (c *Config) resolveCommands(env Env) Problems {
	var ps Problems
	for i, s := range c.Upstream.Servers {
		resolved := slices.Clone(s.Command)
		for j, word := range s.Command {
			resolved[j] = commandRef.ReplaceAllStringFunc(word, func(ref string) string {
				t, err := secret.ParseTemplate(ref)
				if err == nil {
					t, err = t.Resolve(env.Lookup)
				}
				if err != nil && !s.Disabled {
					ps = append(ps, Problem{Key: fmt.Sprintf("servers[%d].command", i), Text: fmt.Sprintf("cannot resolve %s: %s", t.Source(), err)})
				}
				return t.Reveal()
			})
		}
		c.Upstream.Servers[i].Command = resolved
	}
	return ps
}
