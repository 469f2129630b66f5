package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// schema is a JSON Schema or a part of one.
type schema map[string]any

// schemaFile writes the schema of the whole configuration (JSON Schema, draft 2020-12).
func schemaFile(top *table, command string) ([]byte, error) {
	s := tableSchema(top)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["$comment"] = "Generated from the comments in the code by `" + command + "`; do not edit."
	s["title"] = "ctxgate configuration"
	// A configuration file may name its schema.
	s["properties"].(schema)["$schema"] = schema{"type": "string"}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(s)
	return b.Bytes(), err
}

func tableSchema(t *table) schema {
	properties := schema{}
	for _, k := range t.keys {
		s := keySchema(k)
		s["description"] = plainText(k.comment)
		properties[k.Key] = s
	}
	return schema{"type": "object", "properties": properties, "additionalProperties": false}
}

func keySchema(k key) schema {
	if k.table == nil {
		s := typeSchema(k.Type, k)
		if def, ok := defaultOf(k.value); ok {
			s["default"] = def
		}
		return s
	}
	switch s := tableSchema(k.table); k.Type.Kind() {
	case reflect.Slice:
		return schema{"type": "array", "items": s}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": s}
	default:
		return s
	}
}

func typeSchema(t reflect.Type, k key) schema {
	switch t {
	case durationType:
		return schema{"anyOf": []schema{{"type": "number", "minimum": 0}, {"type": "string"}}}
	case bytesType:
		return schema{"anyOf": []schema{{"type": "integer", "minimum": 0}, {"type": "string"}}}
	case secretType:
		return secretSchema(k)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeSchema(t.Elem(), k)
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return boundedSchema("integer", k)
	case reflect.Float64:
		return boundedSchema("number", k)
	case reflect.Slice:
		return schema{"type": "array", "items": typeSchema(t.Elem(), k)}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": typeSchema(t.Elem(), k)}
	default:
		s := schema{"type": "string"}
		if list := k.OneOf(); list != nil {
			s["enum"] = list
		}
		return s
	}
}

func secretSchema(k key) schema {
	s := schema{"type": "string"}
	if k.Tag.Get("literal") != "ok" {
		s["pattern"] = "^($|env:[A-Za-z_][A-Za-z0-9_]*$|file:.)"
	}
	return s
}

func boundedSchema(kind string, k key) schema {
	s := schema{"type": kind}
	if low := k.Tag.Get("min"); low != "" {
		s["minimum"] = json.Number(low)
	}
	if high := k.Tag.Get("max"); high != "" {
		s["maximum"] = json.Number(high)
	}
	return s
}

// plainText removes Markdown's backquotes and line breaks within paragraphs.
func plainText(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		paragraphs[i] = strings.Join(strings.Fields(p), " ")
	}
	return strings.ReplaceAll(strings.Join(paragraphs, "\n\n"), "`", "")
}
