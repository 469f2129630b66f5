package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// decoder decodes a tree into a struct that holds its defaults. It does not stop at a mistake: a value
// that does not fit becomes a problem, and the default stays.
type decoder struct {
	file     string
	root     reflect.Type
	fromEnv  bool // literal secrets are allowed
	problems Problems
	tables   map[string][]string // the tables that have each key; made for the first unknown key
}

// keyInfo is the path of a value and the tags of its field.
type keyInfo struct {
	path    string
	tag     reflect.StructTag
	literal bool // a secret may be written in plain text
}

func (d *decoder) problem(line int, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{File: d.file, Line: line, Key: path, Text: fmt.Sprintf(format, args...)})
}

func (d *decoder) mismatch(n *node, path, want string) {
	d.problem(n.line, path, "want %s, found %s", want, n.describe())
}

// schemaKey is allowed at the top of any file: editors find the JSON Schema there.
const schemaKey = "$schema"

func (d *decoder) decodeTable(n *node, v reflect.Value, path string) {
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
		case !known && envOnlyVariable(v.Type(), key) != "":
			d.problem(val.line, childPath(path, key), "cannot be set in a file: set %s in the environment", envOnlyVariable(v.Type(), key))
		case !known:
			d.problem(val.line, childPath(path, key), "%s", d.unknownKeyText(key, list))
		case val.kind == nullKind:
			// "key: null" sets nothing: the default stays.
		default:
			d.decodeValue(val, f.In(v), keyInfo{childPath(path, key), f.Tag, literalOK(f.Tag)})
		}
	}
}

// envOnlyVariable is the variable of a key that only the environment can set; "" for other keys.
func envOnlyVariable(t reflect.Type, key string) string {
	for _, f := range EnvFields(t) {
		if f.Key == key {
			return f.ownVariables()[0]
		}
	}
	return ""
}

func (d *decoder) decodeValue(n *node, v reflect.Value, at keyInfo) {
	if n.kind == badKind {
		return
	}
	switch v.Type() {
	case durationType:
		d.decodeDuration(n, v, at)
		return
	case bytesType:
		d.decodeBytes(n, v, at)
		return
	case secretType:
		d.decodeSecret(n, v, at)
		return
	case urlType:
		d.decodeURL(n, v, at)
		return
	}
	switch kind := v.Kind(); {
	case kind == reflect.Pointer:
		p, before := reflect.New(v.Type().Elem()), len(d.problems)
		d.decodeValue(n, p.Elem(), at)
		if len(d.problems) == before {
			v.Set(p)
		}
	case kind == reflect.Struct:
		if n.kind != tableKind {
			d.mismatch(n, at.path, "a table")
			return
		}
		d.decodeTable(n, v, at.path)
	case kind == reflect.Slice:
		d.decodeList(n, v, at)
	case kind == reflect.Map && v.Type().Key().Kind() == reflect.String:
		d.decodeMap(n, v, at)
	default:
		d.decodeScalar(n, v, at)
	}
}

// decodeList replaces the whole default list.
func (d *decoder) decodeList(n *node, v reflect.Value, at keyInfo) {
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
		elem := NewElement(v.Type().Elem())
		d.decodeValue(item, elem, at.withPath(elementPath(at.path, i)))
		out.Index(i).Set(elem)
	}
	v.Set(out)
}

// decodeMap adds to a copy of the default map: defaults may be shared.
func (d *decoder) decodeMap(n *node, v reflect.Value, at keyInfo) {
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
		elem := NewElement(t.Elem())
		if old := out.MapIndex(key); old.IsValid() {
			elem.Set(old)
		}
		in := at.withPath(childPath(at.path, name))
		in.literal = at.literal && !alwaysSecret(name)
		d.decodeValue(n.vals[name], elem, in)
		out.SetMapIndex(key, elem)
	}
	v.Set(out)
}

func (a keyInfo) withPath(path string) keyInfo {
	a.path = path
	return a
}

func (d *decoder) decodeScalar(n *node, v reflect.Value, at keyInfo) {
	switch v.Kind() {
	case reflect.String:
		d.decodeText(n, v, at)
	case reflect.Bool:
		if n.kind != boolKind {
			d.problem(n.line, at.path, "want true or false, found %s", n.describeValue())
			return
		}
		v.SetBool(n.bool)
	case reflect.Int, reflect.Int64:
		d.decodeInteger(n, v, at)
	case reflect.Float64:
		d.decodeFloat(n, v, at)
	default:
		d.problem(n.line, at.path, "no key can have the type %s", v.Type())
	}
}

func (d *decoder) decodeText(n *node, v reflect.Value, at keyInfo) {
	if n.kind != textKind {
		d.mismatch(n, at.path, "text")
		return
	}
	if allowed := oneOf(v.Type(), at.tag); allowed != nil && !slices.Contains(allowed, n.text) {
		d.problem(n.line, at.path, "want one of %s, found %s%s",
			quoteAll(allowed), quote(n.text), didYouMean(n.text, allowed))
		return
	}
	v.SetString(n.text)
}

func (d *decoder) decodeInteger(n *node, v reflect.Value, at keyInfo) {
	i := n.int
	switch {
	case n.kind == floatKind && n.float != math.Trunc(n.float): // NaN too
		d.problem(n.line, at.path, "want a whole number, found %s", n.describeValue())
		return
	case n.kind == floatKind && (n.float >= 1<<63 || n.float < -1<<63):
		d.problem(n.line, at.path, "%s is out of range", n.describeValue())
		return
	case n.kind == floatKind: // 30.0: JSON does not distinguish it from 30
		i = int64(n.float)
	case n.kind != intKind:
		d.problem(n.line, at.path, "want a number, found %s", n.describeValue())
		return
	}
	d.setInt(n, v, at, i)
}

func (d *decoder) decodeFloat(n *node, v reflect.Value, at keyInfo) {
	f, ok := n.asFloat()
	if !ok {
		d.problem(n.line, at.path, "want a number, found %s", n.describeValue())
		return
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		d.problem(n.line, at.path, "want a finite number, found %s", n.describeValue())
		return
	}
	if low, err := strconv.ParseFloat(at.tag.Get("min"), 64); err == nil && f < low {
		d.problem(n.line, at.path, "must be at least %v, found %v", low, f)
		return
	}
	if high, err := strconv.ParseFloat(at.tag.Get("max"), 64); err == nil && f > high {
		d.problem(n.line, at.path, "must be at most %v, found %v", high, f)
		return
	}
	v.SetFloat(f)
}

func (n *node) asFloat() (float64, bool) {
	switch n.kind {
	case intKind:
		return float64(n.int), true
	case floatKind:
		return n.float, true
	default:
		return 0, false
	}
}

func (d *decoder) decodeDuration(n *node, v reflect.Value, at keyInfo) {
	var span unit.Duration
	var err error
	if f, ok := n.asFloat(); ok {
		span, err = unit.Seconds(f)
	} else if n.kind == textKind {
		span, err = unit.ParseDuration(fault.ClipTo(n.text, maxQuoted))
	} else {
		d.mismatch(n, at.path, `a duration (seconds, or text such as "30s")`)
		return
	}
	if err != nil {
		d.problem(n.line, at.path, "%s", err)
		return
	}
	d.setInt(n, v, at, int64(span))
}

func (d *decoder) decodeBytes(n *node, v reflect.Value, at keyInfo) {
	var size unit.Bytes
	var err error
	switch n.kind {
	case intKind, floatKind:
		size, err = unit.ParseBytes(n.text)
	case textKind:
		size, err = unit.ParseBytes(fault.ClipTo(n.text, maxQuoted))
	default:
		d.mismatch(n, at.path, `a size (bytes, or text such as "64KiB")`)
		return
	}
	if err != nil {
		d.problem(n.line, at.path, "%s", err)
		return
	}
	d.setInt(n, v, at, int64(size))
}

// setInt stores an integer, a duration or a size after checking its bounds.
func (d *decoder) setInt(n *node, v reflect.Value, at keyInfo, i int64) {
	if low, ok := bound(v.Type(), at.tag.Get("min")); ok && i < low {
		d.problem(n.line, at.path, "must be at least %s, found %s", at.tag.Get("min"), printInt(v.Type(), i))
		return
	}
	if high, ok := bound(v.Type(), at.tag.Get("max")); ok && i > high {
		d.problem(n.line, at.path, "must be at most %s, found %s", at.tag.Get("max"), printInt(v.Type(), i))
		return
	}
	if v.OverflowInt(i) {
		d.problem(n.line, at.path, "%d is out of range", i)
		return
	}
	v.SetInt(i)
}

// CheckTags reports a min or max tag that does not fit the field's type, which the decoder would ignore.
func (f Field) CheckTags() error {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, name := range []string{"min", "max"} {
		text, ok := f.Tag.Lookup(name)
		if !ok {
			continue
		}
		switch t.Kind() {
		case reflect.Int, reflect.Int64:
			_, ok = bound(t, text)
		case reflect.Float64:
			_, err := strconv.ParseFloat(text, 64)
			ok = err == nil
		default:
			ok = false
		}
		if !ok {
			return fmt.Errorf("the tag %s:%q does not fit the type %s", name, text, f.Type)
		}
	}
	return nil
}

func bound(t reflect.Type, tag string) (int64, bool) {
	if tag == "" {
		return 0, false
	}
	switch t {
	case durationType:
		span, err := unit.ParseDuration(tag)
		return int64(span), err == nil
	case bytesType:
		size, err := unit.ParseBytes(tag)
		return int64(size), err == nil
	default:
		i, err := strconv.ParseInt(tag, 10, 64)
		return i, err == nil
	}
}

func printInt(t reflect.Type, i int64) string {
	switch t {
	case durationType:
		return unit.Duration(i).String()
	case bytesType:
		return unit.Bytes(i).String()
	default:
		return strconv.FormatInt(i, 10)
	}
}
