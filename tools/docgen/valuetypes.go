package main

import (
	"reflect"
	"strconv"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
)

var (
	durationType = reflect.TypeFor[unit.Duration]()
	bytesType    = reflect.TypeFor[unit.Bytes]()
	secretType   = reflect.TypeFor[secret.Text]()
)

// typeName names a key's type as the loader's messages do; "" for a type that the loader cannot read.
func typeName(t reflect.Type) string {
	switch t {
	case durationType:
		return "duration"
	case bytesType:
		return "size"
	case secretType:
		return "secret"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "whole number"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return nameOf("list of ", t.Elem())
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			return nameOf("table of ", t.Elem())
		}
	}
	return ""
}

func nameOf(outer string, elem reflect.Type) string {
	inner := typeName(elem)
	if inner == "" {
		return ""
	}
	return outer + inner
}

// defaultOf returns a default as a file would contain it; false if there is none.
func defaultOf(v reflect.Value) (any, bool) {
	switch x := v.Interface().(type) {
	case unit.Duration:
		return x.String(), true
	case unit.Bytes:
		if _, err := strconv.Atoi(x.String()); err == nil {
			return int64(x), true
		}
		return x.String(), true
	case secret.Text:
		return x.Source(), x.Source() != ""
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil, false
		}
		return defaultOf(v.Elem())
	case reflect.Slice:
		return listDefault(v), true
	case reflect.Map:
		return mapDefault(v), true
	default:
		return v.Interface(), true
	}
}

func listDefault(v reflect.Value) []any {
	list := []any{}
	for i := range v.Len() {
		if item, ok := defaultOf(v.Index(i)); ok {
			list = append(list, item)
		}
	}
	return list
}

func mapDefault(v reflect.Value) map[string]any {
	m := map[string]any{}
	for k, elem := range v.Seq2() {
		if item, ok := defaultOf(elem); ok {
			m[k.String()] = item
		}
	}
	return m
}
