package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

const intro = `A config file is written in TOML, JSON or YAML; its extension says which, and the keys are the same.
The environment overrides the file, and the file overrides the defaults. Durations are seconds or text
such as "30s", "5m", "7d"; sizes are bytes or text such as "64KiB", "32MiB". A secret is written as a
reference, "env:NAME" or "file:PATH" (a relative path is relative to the config file, and "~" works); the variable of the key itself may hold the secret. Inside a text
a reference is "Bearer env:NAME" (after a space), "${NAME}", "${NAME:-default}" or "${file:PATH}"; a
literal "${" is written "$${". A secret file that everybody can write is rejected.
`

func markdownFile(top *table, command string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!-- Generated from the comments in the code by `%s`; do not edit. -->\n\n", command)
	fmt.Fprintf(&b, "# Configuration\n\n%s\n## Top level\n", intro)
	writeSection(&b, top)
	return b.Bytes()
}

// writeSection writes the table's own keys first, then the tables below it.
func writeSection(b *bytes.Buffer, t *table) {
	for _, k := range t.keys {
		if k.table == nil {
			writeEntry(b, k)
		}
	}
	for _, k := range t.keys {
		if k.table != nil {
			fmt.Fprintf(b, "\n## `%s`\n\n%s\n", k.table.heading, escape(k.comment))
			writeSection(b, k.table)
		}
	}
}

func writeEntry(b *bytes.Buffer, k key) {
	facts := []string{describeType(k)}
	text := describeDefault(k.value)
	if k.agents.IsValid() && k.Key != "profile" {
		if other := describeDefault(k.agents); other != text {
			text += ", with `profile = \"agents\"` " + strings.TrimPrefix(other, "default ")
		}
	}
	facts = append(facts, text)
	for _, name := range k.variables {
		facts = append(facts, "`"+name+"`")
	}
	fmt.Fprintf(b, "\n### `%s`\n\n%s\n\n%s\n", k.Key, strings.Join(facts, " · "), escape(k.comment))
}

func describeDefault(v reflect.Value) string {
	if def, ok := defaultOf(v); ok {
		return "default `" + encodeDefault(def) + "`"
	}
	return "no default"
}

func describeType(k key) string {
	text := typeName(k.Type)
	if list := k.OneOf(); list != nil {
		text += ", one of `" + strings.Join(list, "`, `") + "`"
	}
	if low := k.Tag.Get("min"); low != "" {
		text += ", at least " + low
	}
	if high := k.Tag.Get("max"); high != "" {
		text += ", at most " + high
	}
	if k.Tag.Get("literal") == "ok" {
		text += ", may be written out"
	}
	if k.Tag.Get("reload") == "restart" {
		text += ", changes need a restart"
	}
	return text
}

// escape keeps "<name>" in a comment from being read as HTML.
func escape(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 { // the odd ones are code
		parts[i] = strings.ReplaceAll(parts[i], "<", `\<`)
	}
	return strings.Join(parts, "`")
}

// encodeDefault writes a default in the syntax that JSON and TOML share.
func encodeDefault(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}
