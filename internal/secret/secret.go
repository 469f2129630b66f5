// Package secret holds text that must not be printed. In a config file a [Text] is a reference,
// "env:NAME" or "file:PATH", or a text with references in it. It is resolved once, at start; every verb
// and encoder prints it as ***. A [URL] may have such references in its parts, and prints without its
// path and query.
//
// Path through the files: secret.go is Text, template.go parses references inside a text, url.go is
// URL, redact.go removes resolved secrets from texts of others (errors, what servers print),
// permissions.go checks who may read and change the file of a secret.
package secret

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
)

const hidden = "***"

// Text is a secret: where it comes from, and, once resolved, what it is. The zero value is
// "no secret".
type Text struct {
	written string // as the config has it, if it has references; never printed, since the rest may be secret too
	value   string
}

// Parse reads a value that is a reference or the secret itself; the config decides whether a literal
// is allowed.
func Parse(s string) Text {
	if strings.HasPrefix(s, "env:") || strings.HasPrefix(s, "file:") {
		return Text{written: s}
	}
	return Text{value: s}
}

// ParseTemplate reads a value that may have references inside a text: "Bearer env:NAME",
// "Bearer ${NAME}". The error does not quote the text.
func ParseTemplate(s string) (Text, error) {
	parts, err := parseTemplate(s)
	if err != nil {
		return Text{}, err
	}
	if len(parts) == 0 || len(parts) == 1 && parts[0].kind == literal {
		return Text{value: join(parts)}, nil
	}
	return Text{written: s}, nil
}

// Literal is a secret that is not parsed for references.
func Literal(s string) Text { return Text{value: s} }

// IsLiteral says that the value is the secret itself, not a reference.
func (t Text) IsLiteral() bool { return t.written == "" && t.value != "" }

// IsSet says that there is a secret or a reference to one.
func (t Text) IsSet() bool { return t.written != "" || t.value != "" }

// Reveal returns the secret. Call it where the secret is used, never to store it elsewhere.
func (t Text) Reveal() string { return t.value }

// ErrUnset is wrapped when a reference names an environment variable that is not set.
var ErrUnset = errors.New("is not set")

// Resolve reads the variables and files that the references name; a literal resolves to itself. One
// trailing line break of a file is not part of the secret. What was read is registered for [Redact].
func (t Text) Resolve(env func(string) (string, bool)) (Text, error) {
	if t.written == "" {
		return t, nil
	}
	parts, err := parseTemplate(t.written)
	if err != nil {
		return t, err
	}
	out := Text{written: t.written}
	for _, p := range parts {
		v, err := p.lookUp(env)
		if err != nil {
			return t, err
		}
		out.value += v
		if p.kind != literal {
			Register(v)
		}
	}
	return out, nil
}

// lookUp returns what one part stands for.
func (p part) lookUp(env func(string) (string, bool)) (string, error) {
	switch p.kind {
	case variable:
		v, _ := env(p.text)
		if v == "" && p.hasDefault {
			return p.byDefault, nil
		}
		if v == "" {
			return "", fmt.Errorf("environment variable %s %w", p.text, ErrUnset)
		}
		return v, nil
	case file:
		if err := checkNotWorldWritable(p.text); err != nil {
			return "", err
		}
		b, err := os.ReadFile(p.text)
		if err != nil {
			return "", fmt.Errorf("reading a secret: %w", err)
		}
		v := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
		if v == "" {
			return "", fmt.Errorf("secret file %s is empty", p.text)
		}
		return v, nil
	case literal:
	}
	return p.text, nil
}

// Written is the text as the config has it, if it has references. It may hold parts of a secret: do not print it.
func (t Text) Written() string { return t.written }

// Source lists the references ("env:NAME"), safe to print; "" for a literal.
func (t Text) Source() string { return sources(t.references()) }

// Variables are the environment variables that the references name.
func (t Text) Variables() []string { return variables(t.references()) }

// Files are the files that the references name.
func (t Text) Files() []string { return files(t.references()) }

// MoveFiles returns the text with other paths in its references to files.
func (t Text) MoveFiles(move func(path string) string) Text {
	t.written = moveFiles(t.written, t.references(), move)
	return t
}

// EditStart replaces the start of the text, before its first reference, by what edit returns for the whole text.
func (t Text) EditStart(edit func(string) string) Text {
	if t.written == "" {
		t.value = edit(t.value)
	} else if parts := t.references(); len(parts) > 0 && parts[0].kind == literal {
		t.written = edit(t.written)
	}
	return t
}

func (t Text) references() []part {
	if t.written == "" {
		return nil
	}
	parts, _ := parseTemplate(t.written)
	return parts
}

// String, Format, LogValue and the marshalers all hide the value.
func (t Text) String() string {
	if t.IsSet() {
		return hidden
	}
	return ""
}

// Format hides the value from every verb, %#v and %x included.
func (t Text) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(t.String())) }

// LogValue hides the value from slog.
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText hides the value from JSON, YAML and TOML encoders.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
