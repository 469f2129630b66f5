package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
)

var (
	durationType = reflect.TypeFor[unit.Duration]()
	bytesType    = reflect.TypeFor[unit.Bytes]()
	secretType   = reflect.TypeFor[secret.Text]()
	urlType      = reflect.TypeFor[secret.URL]()
)

// Field is one key that a config struct takes. Tags on the Go field say which:
//
//	key:"name"       the key; a field without this tag is not configurable
//	key:",inline"    a struct whose keys belong to the table around it
//	key:"name,env"   no key: only the variables of the tag env set it, and a file must not
//	oneof:"a,b"      the values a text may have
//	min:"1" max:"9"  the bounds of a number, a duration or a size
//	literal:"ok"     a secret may be written out
//	env:"NAME,OTHER" variables read besides CTXGATE_<path>, after it
//	reload:"restart" a running process does not change it, nor anything in the table
type Field struct {
	// Key is the key as a file has it.
	Key string
	// Name is the Go field's name.
	Name string
	// Owner is the struct type that declares the field.
	Owner reflect.Type
	// Type is the field's type.
	Type reflect.Type
	// Tag holds the field's other tags.
	Tag reflect.StructTag

	index []int
}

// Fields lists the keys of a struct type in the order of their declaration, those of inlined
// structs in their place.
func Fields(t reflect.Type) []Field {
	var fields []Field
	for sf := range t.Fields() {
		name, opt, _ := strings.Cut(sf.Tag.Get("key"), ",")
		switch {
		case opt == "inline" && sf.Type.Kind() == reflect.Struct:
			for _, f := range Fields(sf.Type) {
				f.index = append(slices.Clone(sf.Index), f.index...)
				fields = append(fields, f)
			}
		case opt == onlyEnv:
		case name != "" && sf.IsExported():
			fields = append(fields, Field{
				Key: name, Name: sf.Name, Owner: t, Type: sf.Type, Tag: sf.Tag, index: sf.Index,
			})
		}
	}
	return fields
}

// onlyEnv marks what no file may say.
const onlyEnv = "env"

// EnvFields lists what only variables set in a struct of this type.
func EnvFields(t reflect.Type) []Field {
	var fields []Field
	for sf := range t.Fields() {
		if name, opt, _ := strings.Cut(sf.Tag.Get("key"), ","); opt == onlyEnv {
			fields = append(fields, Field{
				Key: name, Name: sf.Name, Owner: t, Type: sf.Type, Tag: sf.Tag, index: sf.Index,
			})
		}
	}
	return fields
}

// In is the field's value in v, which holds the struct whose Fields gave it.
func (f Field) In(v reflect.Value) reflect.Value { return v.FieldByIndex(f.index) }

// OneOf lists the values a text may have; nil for any.
func (f Field) OneOf() []string { return oneOf(f.Tag) }

func oneOf(tag reflect.StructTag) []string {
	list, ok := tag.Lookup("oneof")
	if !ok {
		return nil
	}
	return strings.Split(list, ",")
}

// Table is the struct type in the field when that is a table, a list of tables or tables by name,
// with its path and its TOML heading; path is that of the table around the field. It is nil for
// any other field.
func (f Field) Table(path string) (elem reflect.Type, below, heading string) {
	path = child(path, f.Key)
	switch t := f.Type; {
	case isTable(t):
		return t, path, "[" + path + "]"
	case t.Kind() == reflect.Slice && isTable(t.Elem()):
		return t.Elem(), path, "[[" + path + "]]"
	case t.Kind() == reflect.Map && isTable(t.Elem()):
		below = path + ".<name>"
		return t.Elem(), below, "[" + below + "]"
	default:
		return nil, "", ""
	}
}

// Fresh is a new element of a list or a map: the zero value, or what a SetDefaults method of the
// type makes of it.
func Fresh(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	if d, ok := p.Interface().(interface{ SetDefaults() }); ok {
		d.SetDefaults()
	}
	return p.Elem()
}

// isTable tells a nested struct from the struct that a secret is.
func isTable(t reflect.Type) bool { return t.Kind() == reflect.Struct && t != secretType }

// isScalar says that one text can hold the value, a list of text by commas.
func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer:
		return isScalar(t.Elem()) && t.Elem().Kind() != reflect.Slice
	case reflect.Slice:
		return t.Elem().Kind() == reflect.String
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return true
	default:
		return t == secretType
	}
}

func target(dst any) (reflect.Value, bool) {
	v := reflect.ValueOf(dst)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}, false
	}
	return v.Elem(), true
}

func notAStruct(dst any) Problem {
	return Problem{Text: fmt.Sprintf("cannot load into a %T: want a pointer to a struct", dst)}
}
