package config

import (
	"reflect"
	"slices"
)

// Difference is a key with different values in two configurations. It does not hold the values: they may be
// secrets.
type Difference struct {
	// Key is the path of the key. Entries of a list of tables are named by their id or name:
	// "servers.files". A list whose entries have neither is one key.
	Key string
	// NeedsRestart reports whether the new value takes effect only at the next start: the field, or a
	// table around it, has the tag reload:"restart".
	NeedsRestart bool
}

// Diff lists the keys in which two configurations differ, in the order of their declaration. Secrets are
// compared by value, not by reference.
func Diff(old, next Config) []Difference {
	d := &differ{}
	d.compareTables(reflect.ValueOf(old), reflect.ValueOf(next), "", false)
	return d.found
}

// KeepUntilRestart copies to c the running values of all keys that need a restart.
func (c *Config) KeepUntilRestart(running Config) {
	keepUntilRestart(reflect.ValueOf(c).Elem(), reflect.ValueOf(running))
}

func keepUntilRestart(dst, from reflect.Value) {
	for _, f := range allFields(dst.Type()) {
		if needsRestart(f) {
			f.In(dst).Set(f.In(from))
		} else if isTable(f.Type) {
			keepUntilRestart(f.In(dst), f.In(from))
		}
	}
}

func needsRestart(f Field) bool { return f.Tag.Get("reload") == "restart" }

// allFields are the fields that a file sets and those that only the environment sets.
func allFields(t reflect.Type) []Field { return append(Fields(t), EnvFields(t)...) }

type differ struct{ found []Difference }

func (d *differ) compareTables(old, next reflect.Value, path string, restart bool) {
	for _, f := range allFields(old.Type()) {
		a, b, at := f.In(old), f.In(next), childPath(path, f.Key)
		restart := restart || needsRestart(f)
		switch {
		case isTable(f.Type):
			d.compareTables(a, b, at, restart)
		case f.Type.Kind() == reflect.Map && isTable(f.Type.Elem()):
			d.compareEntries(byMapKey(a), byMapKey(b), at, restart)
		case f.Type.Kind() == reflect.Slice && isTable(f.Type.Elem()) && allNamed(a) && allNamed(b):
			d.compareLists(a, b, at, restart)
		case !sameValue(a, b):
			d.found = append(d.found, Difference{at, restart})
		}
	}
}

// compareLists compares the entries of two lists by name. The same entries in another order are a
// difference of the list itself.
func (d *differ) compareLists(old, next reflect.Value, path string, restart bool) {
	before := len(d.found)
	d.compareEntries(byName(old), byName(next), path, restart)
	if len(d.found) > before {
		return
	}
	for i := range old.Len() {
		if nameOf(old.Index(i)) != nameOf(next.Index(i)) {
			d.found = append(d.found, Difference{path, restart})
			return
		}
	}
}

func (d *differ) compareEntries(old, next map[string]reflect.Value, path string, restart bool) {
	var names []string
	for name, a := range old {
		if b, ok := next[name]; !ok || !sameValue(a, b) {
			names = append(names, name)
		}
	}
	for name := range next {
		if _, ok := old[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		d.found = append(d.found, Difference{childPath(path, name), restart})
	}
}

// allNamed reports whether every table of a list has its own name.
func allNamed(list reflect.Value) bool {
	return len(byName(list)) == list.Len()
}

func byName(list reflect.Value) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for i := range list.Len() {
		if name := nameOf(list.Index(i)); name != "" {
			out[name] = list.Index(i)
		}
	}
	return out
}

// nameOf is the id or name of a table; "" when it has none.
func nameOf(table reflect.Value) string {
	for _, f := range Fields(table.Type()) {
		if (f.Key == "id" || f.Key == "name") && f.Type.Kind() == reflect.String {
			return f.In(table).String()
		}
	}
	return ""
}

func byMapKey(m reflect.Value) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for k, v := range m.Seq2() {
		out[k.String()] = v
	}
	return out
}

// sameValue compares two values of one type. An empty list or map equals a nil one, and secrets are compared
// by value.
func sameValue(a, b reflect.Value) bool {
	if a.CanInterface() {
		if s, ok := a.Interface().(interface{ Reveal() string }); ok {
			return s.Reveal() == b.Interface().(interface{ Reveal() string }).Reveal() //nolint:forcetypeassert // of one type
		}
	}
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() && b.IsNil()
		}
		return sameValue(a.Elem(), b.Elem())
	case reflect.Struct:
		for i := range a.NumField() {
			if !sameValue(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !sameValue(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		if a.Len() != b.Len() {
			return false
		}
		for k, v := range a.Seq2() {
			other := b.MapIndex(k)
			if !other.IsValid() || !sameValue(v, other) {
				return false
			}
		}
		return true
	default:
		return a.Equal(b)
	}
}
