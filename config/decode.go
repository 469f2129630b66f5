package config

import (
	"fmt"
	"reflect"
)

// decoder lays a tree over a struct. It never stops: what does not fit becomes a problem, and
// the default stays.
type decoder struct {
	file     string
	root     reflect.Type
	fromEnv  bool // literal secrets are welcome
	problems Problems
	homes    map[string][]string // of each key, made for the first unknown one
}

// at is where a value stands and what the field's tags ask of it.
type at struct {
	path    string
	tag     reflect.StructTag
	literal bool // a secret may be written out
}

func (d *decoder) problem(line int, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{File: d.file, Line: line, Key: path, Text: fmt.Sprintf(format, args...)})
}

func (d *decoder) mismatch(n *node, path, want string) {
	d.problem(n.line, path, "want %s, found %s", want, n.describe())
}

// schemaKey may stand at the top of any file: editors look there for the schema to check by.
const schemaKey = "$schema"

func (d *decoder) table(n *node, v reflect.Value, path string) {
	list := Fields(v.Type())
	fields := map[string]Field{}
	for _, f := range list {
		fields[f.Key] = f
	}
	for _, key := range n.keys {
		f, known := fields[key]
		val := n.vals[key]
		switch {
		case !known && path == "" && key == schemaKey:
		case !known && onlyIn(v.Type(), key) != "":
			d.problem(val.line, child(path, key), "is not read from a file: set %s in the environment", onlyIn(v.Type(), key))
		case !known:
			d.problem(val.line, child(path, key), "%s", d.unknown(key, list))
		case val.kind == nullKind:
			// "key: null" asks for nothing: the default stays.
		default:
			d.value(val, f.In(v), at{child(path, key), f.Tag, literalOK(f.Tag)})
		}
	}
}

// onlyIn is the variable that a key which is none stands for, where there is one.
func onlyIn(t reflect.Type, key string) string {
	for _, f := range EnvFields(t) {
		if f.Key == key {
			return f.own()[0]
		}
	}
	return ""
}

func (d *decoder) value(n *node, v reflect.Value, at at) {
	if n.kind == badKind {
		return
	}
	switch v.Type() {
	case durationType:
		d.duration(n, v, at)
		return
	case bytesType:
		d.bytes(n, v, at)
		return
	case secretType:
		d.secret(n, v, at)
		return
	case urlType:
		d.url(n, v, at)
		return
	}
	switch kind := v.Kind(); {
	case kind == reflect.Pointer:
		p, before := reflect.New(v.Type().Elem()), len(d.problems)
		d.value(n, p.Elem(), at)
		if len(d.problems) == before {
			v.Set(p)
		}
	case kind == reflect.Struct:
		if n.kind != tableKind {
			d.mismatch(n, at.path, "a table")
			return
		}
		d.table(n, v, at.path)
	case kind == reflect.Slice:
		d.list(n, v, at)
	case kind == reflect.Map && v.Type().Key().Kind() == reflect.String:
		d.mapping(n, v, at)
	default:
		d.scalar(n, v, at)
	}
}

// list replaces the default list whole.
func (d *decoder) list(n *node, v reflect.Value, at at) {
	if n.kind != listKind {
		want := "a list"
		if isTable(v.Type().Elem()) {
			want = "a list of tables ([[" + at.path + "]] in TOML)"
		}
		d.mismatch(n, at.path, want)
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		elem := Fresh(v.Type().Elem())
		d.value(item, elem, at.in(element(at.path, i)))
		out.Index(i).Set(elem)
	}
	v.Set(out)
}

// mapping adds to the default map, in a copy: defaults may be shared.
func (d *decoder) mapping(n *node, v reflect.Value, at at) {
	if n.kind != tableKind {
		d.mismatch(n, at.path, "a table")
		return
	}
	t := v.Type()
	out := reflect.MakeMapWithSize(t, v.Len()+len(n.keys))
	for k, elem := range v.Seq2() {
		out.SetMapIndex(k, elem)
	}
	for _, name := range n.keys {
		key := reflect.ValueOf(name).Convert(t.Key())
		elem := Fresh(t.Elem())
		if old := out.MapIndex(key); old.IsValid() {
			elem.Set(old)
		}
		in := at.in(child(at.path, name))
		in.literal = at.literal && !alwaysSecret(name)
		d.value(n.vals[name], elem, in)
		out.SetMapIndex(key, elem)
	}
	v.Set(out)
}

func (a at) in(path string) at {
	a.path = path
	return a
}
