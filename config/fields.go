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

// Field is one key of a config struct. It is declared by the tags of the Go field:
//
//	key:"name"       the key; a field without this tag is not configurable
//	key:",inline"    a struct whose keys belong to the table around it
//	key:"name,env"   set only by the variables of the tag env, not by a file
//	oneof:"a,b"      the allowed values of a text; a type with a method OneOf lists them itself
//	min:"1" max:"9"  the bounds of a number, a duration or a size
//	literal:"ok"     a secret may be written in plain text
//	env:"NAME,OTHER" variables that are read after CTXGATE_<path>
//	reload:"restart" a change of the key, or of anything in the table, takes effect at the next start
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
// structs in their position.
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
		case opt == envOnly:
		case name != "" && sf.IsExported():
			fields = append(fields, Field{
				Key: name, Name: sf.Name, Owner: t, Type: sf.Type, Tag: sf.Tag, index: sf.Index,
			})
		}
	}
	return fields
}

// envOnly is the option of fields that a file cannot set.
const envOnly = "env"

// EnvFields lists the fields of a struct type that only environment variables set.
func EnvFields(t reflect.Type) []Field {
	var fields []Field
	for sf := range t.Fields() {
		if name, opt, _ := strings.Cut(sf.Tag.Get("key"), ","); opt == envOnly {
			fields = append(fields, Field{
				Key: name, Name: sf.Name, Owner: t, Type: sf.Type, Tag: sf.Tag, index: sf.Index,
			})
		}
	}
	return fields
}

// In is the field's value in v, a struct of the type that declares it.
func (f Field) In(v reflect.Value) reflect.Value { return v.FieldByIndex(f.index) }

// OneOf lists the allowed values of a text; nil for any.
func (f Field) OneOf() []string { return oneOf(f.Type, f.Tag) }

// oneOf asks the type for its values, if it knows them, and otherwise reads the tag.
func oneOf(t reflect.Type, tag reflect.StructTag) []string {
	if v, ok := reflect.Zero(t).Interface().(interface{ OneOf() []string }); ok {
		return v.OneOf()
	}
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
	path = childPath(path, f.Key)
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

// NewElement is a new element of a list or a map: the zero value, after SetDefaults if the type has that
// method.
func NewElement(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	if d, ok := p.Interface().(interface{ SetDefaults() }); ok {
		d.SetDefaults()
	}
	return p.Elem()
}

// isTable reports whether t is a nested struct; a secret is a struct, too, but not a table.
func isTable(t reflect.Type) bool { return t.Kind() == reflect.Struct && t != secretType }

// isScalar reports whether an environment variable can hold the value; a list of texts is separated by
// commas.
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

func structOf(dst any) (reflect.Value, bool) {
	v := reflect.ValueOf(dst)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}, false
	}
	return v.Elem(), true
}

func notAStruct(dst any) Problem {
	return Problem{Text: fmt.Sprintf("cannot load into a %T: want a pointer to a struct", dst)}
}
