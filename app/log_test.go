package app

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// In every logged value, of any type, secrets are hidden and long texts are cut.
func TestLogValuesAreCutAndRedacted(t *testing.T) {
	const canary = "canary-in-the-log"
	secret.Register(canary)
	long := strings.Repeat("é", 100_000)
	for _, structured := range []bool{false, true} {
		var out bytes.Buffer
		log := NewLogger(&out, config.Log{Level: "DEBUG", Structured: structured})
		for name, value := range map[string]any{
			"string": long, "error": errors.New(long), "wrapped": fmt.Errorf("x: %w", errors.New(long)), "bytes": []byte(long),
			"stringer": stringer(long), "list": []string{long}, "struct": struct{ S string }{long}, "valuer": valuer(long), "nil": nil, "number": 5,
		} {
			out.Reset()
			log.Info("m", name, value, slog.Group("g", name, value), "secret", fmt.Sprint("a ", canary), "error", errors.New("b "+canary))
			if out.Len() > 3*(maxLogValue+200) || strings.Contains(out.String(), canary) || !strings.Contains(out.String(), "a ***") || !strings.Contains(out.String(), "b ***") {
				t.Errorf("%s, structured %t: %d bytes: %.300s", name, structured, out.Len(), out.String())
			}
			if name == "string" && !strings.Contains(out.String(), "bytes more)") {
				t.Errorf("the cut is not marked: %s", out.String()[out.Len()-200:])
			}
		}
		out.Reset()
		log.Info(long + canary)
		if out.Len() > maxLogValue+300 {
			t.Errorf("the message has %d bytes", out.Len())
		}
		out.Reset()
		log.With("before", long).WithGroup("g").Error("m", "stack", long)
		if out.Len() > maxLogValue+maxLogStack+400 || out.Len() < maxLogStack {
			t.Errorf("a stack has %d bytes", out.Len())
		}
		// Redacting makes room: the end of what was searched comes into sight.
		for pad := range len(canary) {
			many := strings.Repeat("-", pad) + strings.Repeat(canary, 2*maxLogStack/len(canary))
			if got := cleanText("x", many); strings.Contains(got, "canar") {
				t.Fatalf("a part of a secret is shown after %d bytes: …%s", pad, got[len(got)-60:])
			}
		}
		out.Reset()
		log.Info("m", "error", (*nilError)(nil))
		if !strings.Contains(out.String(), "nil") {
			t.Errorf("an error that is a nil pointer: %s", out.String())
		}
		// A secret that the cut goes through is not half shown.
		for pad := maxLogValue - len(canary); pad <= maxLogValue; pad++ {
			if got := cleanText("x", strings.Repeat("-", pad)+canary+long); strings.Contains(got, "canar") && pad <= maxLogValue-5 {
				t.Fatalf("a part of it is shown after %d bytes: …%s", pad, got[len(got)-60:])
			}
		}
	}
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

type stringer string

func (s stringer) String() string { return string(s) }

type valuer string

func (v valuer) LogValue() slog.Value { return slog.StringValue(string(v)) }
