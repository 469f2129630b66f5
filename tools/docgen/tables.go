package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/ctxgate/ctxgate/config"
)

// table is a struct of the configuration with its comments.
type table struct {
	heading string // "[masking]", "" at the top
	path    string
	keys    []key
}

// key is a field of a table: a value, or another table.
type key struct {
	config.Field
	comment   string
	variables []string
	value     reflect.Value // the default
	agents    reflect.Value // the default with profile = "agents"; not valid inside lists and maps
	table     *table
}

// tableReader reads tables and collects all problems.
type tableReader struct {
	comments *comments
	owners   map[string]string // the key that each variable sets
	errs     []error
}

func readTables(root string, defaults, agents any) (*table, error) {
	v := reflect.Indirect(reflect.ValueOf(defaults))
	if v.Kind() != reflect.Struct {
		return nil, fmt.Errorf("defaults are a %T, want a struct", defaults)
	}
	other := reflect.Indirect(reflect.ValueOf(agents))
	if agents != nil && other.Type() != v.Type() {
		return nil, fmt.Errorf("the agents' defaults are a %T, want a %T", agents, defaults)
	}
	c, err := newComments(root)
	if err != nil {
		return nil, err
	}
	r := &tableReader{comments: c, owners: map[string]string{}}
	top := &table{}
	r.fill(top, v, other, true, nil)
	return top, errors.Join(r.errs...)
}

func (r *tableReader) reportf(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

// fill reads the keys of v into t; agents is v with the other profile's defaults. The environment can set them only
// outside of lists and maps (settable).
func (r *tableReader) fill(t *table, v, agents reflect.Value, settable bool, above []reflect.Type) {
	if slices.Contains(above, v.Type()) {
		r.reportf("%s: %s holds itself", t.path, v.Type())
		return
	}
	above = append(slices.Clone(above), v.Type())
	seen := map[string]bool{}
	for _, f := range config.Fields(v.Type()) {
		name := f.Owner.String() + "." + f.Name
		if seen[f.Key] {
			r.reportf("%s: the table has the key %q already", name, f.Key)
			continue
		}
		seen[f.Key] = true
		k := key{Field: f, value: f.In(v), comment: r.comment(f, name)}
		if agents.IsValid() {
			k.agents = f.In(agents)
		}
		if elem, path, heading := f.Table(t.path); elem == nil {
			r.check(f, name)
			if settable {
				k.variables = r.claim(f.Variables(t.path), name)
			}
		} else if k.table = (&table{heading: heading, path: path}); elem == f.Type {
			r.fill(k.table, k.value, k.agents, settable, above)
		} else {
			r.fill(k.table, config.NewElement(elem), reflect.Value{}, false, above)
		}
		t.keys = append(t.keys, k)
	}
}

func (r *tableReader) check(f config.Field, name string) {
	if typeName(f.Type) == "" {
		r.reportf("%s: no key can have the type %s", name, f.Type)
	}
	if err := f.CheckTags(); err != nil {
		r.reportf("%s: %w", name, err)
	}
}

func (r *tableReader) comment(f config.Field, name string) string {
	text, err := r.comments.of(f)
	if err != nil {
		r.reportf("%s: %w", name, err)
	} else if text == "" {
		r.reportf("%s has no comment: say what the key %q does", name, f.Key)
	}
	return text
}

func (r *tableReader) claim(variables []string, name string) []string {
	for _, v := range variables {
		if owner, taken := r.owners[v]; taken {
			r.reportf("%s: %s sets %s already", name, v, owner)
		}
		r.owners[v] = name
	}
	return variables
}
