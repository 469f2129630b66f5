// Package docgen writes the reference of the configuration from the code that reads it: a
// Markdown page (markdown.go) and a JSON Schema (schema.go), both from the struct tags, the
// defaults, and the comments on the fields (comments.go). It refuses a key without a comment, a
// key that a table has twice, a tag that means nothing, and a variable that would set two keys, so
// that running it is a check too.
package docgen

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/ctxgate/ctxgate/config"
)

// Job is one run: what to describe and where to put it.
type Job struct {
	// Root is the directory of go.mod.
	Root string
	// Command is what to run to write the files again; both files name it.
	Command string
	// Defaults is the config struct, filled with its defaults.
	Defaults any
	// Markdown and Schema are the files to write, relative to Root.
	Markdown, Schema string
}

// Files gives the contents of both files under their names.
func (j Job) Files() (map[string][]byte, error) {
	top, err := read(j.Root, j.Defaults)
	if err != nil {
		return nil, err
	}
	schema, err := schemaFile(top, j.Command)
	return map[string][]byte{j.Markdown: markdown(top, j.Command), j.Schema: schema}, err
}

// Write writes both files, or none when something is missing.
func (j Job) Write() error {
	files, err := j.Files()
	if err != nil {
		return err
	}
	for name, data := range files {
		path := filepath.Join(j.Root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// table is a struct of the config with what is said of it.
type table struct {
	heading string // "[masking]", "" at the top
	path    string
	keys    []key
}

// key is a field of a table. It holds a table itself, or a value.
type key struct {
	config.Field
	comment   string
	variables []string
	value     reflect.Value // the default
	table     *table
}

// reader collects every complaint before it gives up.
type reader struct {
	comments *comments
	owners   map[string]string // of each variable, the key it sets
	errs     []error
}

func read(root string, defaults any) (*table, error) {
	v := reflect.Indirect(reflect.ValueOf(defaults))
	if v.Kind() != reflect.Struct {
		return nil, fmt.Errorf("defaults are a %T, want a struct", defaults)
	}
	c, err := newComments(root)
	if err != nil {
		return nil, err
	}
	r := &reader{comments: c, owners: map[string]string{}}
	top := &table{}
	r.fill(top, v, true, nil)
	return top, errors.Join(r.errs...)
}

func (r *reader) complain(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

// fill reads the keys of v into t. Only outside lists and maps can the environment set them.
func (r *reader) fill(t *table, v reflect.Value, settable bool, above []reflect.Type) {
	if slices.Contains(above, v.Type()) {
		r.complain("%s: %s holds itself", t.path, v.Type())
		return
	}
	above = append(slices.Clone(above), v.Type())
	seen := map[string]bool{}
	for _, f := range config.Fields(v.Type()) {
		name := f.Owner.String() + "." + f.Name
		if seen[f.Key] {
			r.complain("%s: the table has the key %q already", name, f.Key)
			continue
		}
		seen[f.Key] = true
		k := key{Field: f, value: f.In(v), comment: r.comment(f, name)}
		if elem, path, heading := f.Table(t.path); elem == nil {
			r.check(f, name)
			if settable {
				k.variables = r.claim(f.Variables(t.path), name)
			}
		} else if k.table = (&table{heading: heading, path: path}); elem == f.Type {
			r.fill(k.table, k.value, settable, above)
		} else {
			r.fill(k.table, config.Fresh(elem), false, above)
		}
		t.keys = append(t.keys, k)
	}
}

func (r *reader) check(f config.Field, name string) {
	if typeName(f.Type) == "" {
		r.complain("%s: no key can have the type %s", name, f.Type)
	}
	if err := f.CheckTags(); err != nil {
		r.complain("%s: %w", name, err)
	}
}

func (r *reader) comment(f config.Field, name string) string {
	text, err := r.comments.of(f)
	if err != nil {
		r.complain("%s: %w", name, err)
	} else if text == "" {
		r.complain("%s has no comment: say what the key %q does", name, f.Key)
	}
	return text
}

func (r *reader) claim(variables []string, name string) []string {
	for _, v := range variables {
		if owner, taken := r.owners[v]; taken {
			r.complain("%s: %s sets %s already", name, v, owner)
		}
		r.owners[v] = name
	}
	return variables
}
