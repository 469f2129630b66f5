// Package secret holds text that must not be printed. A [Text] is written in a config file as
// a reference, "env:NAME" or "file:PATH", and resolved once at start; whatever prints it, at
// any verb, in any encoder, prints ***.
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
	from  string // "env:NAME", "file:PATH", or "" for a literal
	value string
}

// Parse reads a config value. A value with neither prefix is the secret itself; whether a
// literal is welcome at that key is the config's business.
func Parse(s string) Text {
	if strings.HasPrefix(s, "env:") || strings.HasPrefix(s, "file:") {
		return Text{from: s}
	}
	return Text{value: s}
}

// Literal is a secret that is known, whatever it looks like.
func Literal(s string) Text { return Text{value: s} }

// IsLiteral says that the secret itself was written where a reference could have been.
func (t Text) IsLiteral() bool { return t.from == "" && t.value != "" }

// IsSet says that there is a secret or a reference to one.
func (t Text) IsSet() bool { return t.from != "" || t.value != "" }

// Reveal is the secret. Call it where it is used, never to store it elsewhere.
func (t Text) Reveal() string { return t.value }

// ErrUnset is wrapped when an environment variable that a reference names is not there.
var ErrUnset = errors.New("is not set")

// Resolve reads what the reference names; a literal resolves to itself. One trailing line
// break of a file is not part of the secret.
func (t Text) Resolve(env func(string) (string, bool)) (Text, error) {
	if name, ok := strings.CutPrefix(t.from, "env:"); ok {
		v, ok := env(name)
		if !ok || v == "" {
			return t, fmt.Errorf("environment variable %s %w", name, ErrUnset)
		}
		return Text{from: t.from, value: v}, nil
	}
	if path, ok := strings.CutPrefix(t.from, "file:"); ok {
		b, err := os.ReadFile(path)
		if err != nil {
			return t, fmt.Errorf("reading a secret: %w", err)
		}
		v := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
		if v == "" {
			return t, fmt.Errorf("secret file %s is empty", path)
		}
		return Text{from: t.from, value: v}, nil
	}
	return t, nil
}

// Source is the reference as written ("env:NAME"), safe to print; "" for a literal.
func (t Text) Source() string { return t.from }

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
