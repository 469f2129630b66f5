package secret

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNothingPrintsTheValue(t *testing.T) {
	const canary = "canary-7f3a"
	s := Parse(canary)
	holder := struct {
		S Text
		P *Text
	}{s, &s}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+verb, s, holder)
	}
	enc, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(enc)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "s", s, "h", holder)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "s", s, "h", holder)
	if strings.Contains(out.String(), canary) || strings.Contains(out.String(), fmt.Sprintf("%x", canary)) {
		t.Fatalf("the secret was printed:\n%s", out.String())
	}
	if s.Reveal() != canary {
		t.Error("Reveal must give it back")
	}
}

func TestResolve(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(file, []byte("from file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) { return map[string]string{"A": "from env"}[name], name == "A" }
	for _, tt := range []struct {
		in, want string
		bad      bool
	}{
		{in: "env:A", want: "from env"},
		{in: "env:B", bad: true},
		{in: "file:" + file, want: "from file"},
		{in: "file:/does/not/exist", bad: true},
		{in: "file:" + empty, bad: true},
		{in: "plain", want: "plain"},
		{in: "", want: ""},
	} {
		got, err := Parse(tt.in).Resolve(env)
		if (err != nil) != tt.bad || got.Reveal() != tt.want {
			t.Errorf("%q: got %q, %v", tt.in, got.Reveal(), err)
		}
	}
	if _, err := Parse("env:B").Resolve(env); !errors.Is(err, ErrUnset) {
		t.Error("the error for an unset variable is not ErrUnset")
	}
	if !Parse("x").IsLiteral() || Parse("env:A").IsLiteral() || Parse("").IsSet() {
		t.Error("IsLiteral or IsSet is wrong")
	}
	if Parse("env:A").Source() != "env:A" {
		t.Error("Source must name the reference")
	}
}
