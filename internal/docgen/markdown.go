package docgen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

const intro = `A config file is TOML, JSON or YAML; the extension says which, and the keys are the same. The
environment wins over the file, the file over the defaults. Durations are seconds or text such as
"30s", "5m", "7d"; sizes are bytes or text such as "64KiB", "32MiB". A secret is written as a
reference, "env:NAME" or "file:PATH"; in its own variable it stands itself. Inside of a text a reference is
"Bearer env:NAME" (after a space), "${NAME}", "${NAME:-default}" or "${file:PATH}"; a literal "${" is "$${".
A file that everybody can change is refused.
`

func markdown(top *table, command string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!-- Generated from the comments in the code by `%s`; do not edit. -->\n\n", command)
	fmt.Fprintf(&b, "# Configuration\n\n%s\n## Top level\n", intro)
	section(&b, top)
	return b.Bytes()
}

// section writes the table's own keys first, then the tables below it.
func section(b *bytes.Buffer, t *table) {
	for _, k := range t.keys {
		if k.table == nil {
			entry(b, k)
		}
	}
	for _, k := range t.keys {
		if k.table != nil {
			fmt.Fprintf(b, "\n## `%s`\n\n%s\n", k.table.heading, escape(k.comment))
			section(b, k.table)
		}
	}
}

func entry(b *bytes.Buffer, k key) {
	facts := []string{describeType(k)}
	if def, ok := defaultOf(k.value); ok {
		facts = append(facts, "default `"+inJSON(def)+"`")
	} else {
		facts = append(facts, "no default")
	}
	for _, name := range k.variables {
		facts = append(facts, "`"+name+"`")
	}
	fmt.Fprintf(b, "\n### `%s`\n\n%s\n\n%s\n", k.Key, strings.Join(facts, " · "), escape(k.comment))
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

// escape keeps "<name>" in a comment from being taken for HTML.
func escape(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 { // the odd ones are quoted
		parts[i] = strings.ReplaceAll(parts[i], "<", `\<`)
	}
	return strings.Join(parts, "`")
}

// inJSON prints a default as JSON and TOML alike have it.
func inJSON(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}
