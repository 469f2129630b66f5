// Package secret holds text that must not be printed. A [Text] is written in a config file as a
// reference, "env:NAME" or "file:PATH", or as a text with references in it, and resolved once at
// start; whatever prints it, at any verb, in any encoder, prints ***. A [URL] may have such
// references in its parts, and prints without its path and query.
//
// Path through the files: secret.go is Text, template.go reads references inside of a text, url.go
// is URL, redact.go takes what was resolved out of texts that others wrote (errors, what servers
// print), mode.go looks at who may read and change a secret's file.
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
	written string // as the config has it, where it has references; never printed, the rest may be secret too
	value   string
}

// Parse reads a value that is a reference or the secret itself; whether a literal is welcome there is
// the config's business.
func Parse(s string) Text {
	if strings.HasPrefix(s, "env:") || strings.HasPrefix(s, "file:") {
		return Text{written: s}
	}
	return Text{value: s}
}

// ParseTemplate reads a value that may have references inside of a text: "Bearer env:NAME",
// "Bearer ${NAME}". The error never repeats the text.
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

// Literal is a secret that is known, whatever it looks like.
func Literal(s string) Text { return Text{value: s} }

// IsLiteral says that the secret itself was written where a reference could have been.
func (t Text) IsLiteral() bool { return t.written == "" && t.value != "" }

// IsSet says that there is a secret or a reference to one.
func (t Text) IsSet() bool { return t.written != "" || t.value != "" }

// Reveal is the secret. Call it where it is used, never to store it elsewhere.
func (t Text) Reveal() string { return t.value }

// ErrUnset is wrapped when an environment variable that a reference names is not there.
var ErrUnset = errors.New("is not set")

// Resolve reads what the references name; a literal resolves to itself. One trailing line break of a
// file is not part of the secret. What was read is remembered by [Redact].
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
		v, err := p.resolve(env)
		if err != nil {
			return t, err
		}
		out.value += v
		if p.kind != literal {
			Remember(v)
		}
	}
	return out, nil
}

// resolve is what one part stands for.
func (p part) resolve(env func(string) (string, bool)) (string, error) {
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
		if err := checkFile(p.text); err != nil {
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

// Source names the references ("env:NAME"), safe to print; "" for a literal.
func (t Text) Source() string { return sources(t.references()) }

// Variables are the environment variables that the secret is made of.
func (t Text) Variables() []string { return variables(t.references()) }

// Files are the files that it is made of.
func (t Text) Files() []string { return files(t.references()) }

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
