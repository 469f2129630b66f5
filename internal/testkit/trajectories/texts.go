package trajectories

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// textWriter generates texts as tools return them. The same name always gives the same texts: PCG is
// specified, and there is no other source of randomness.
type textWriter struct {
	rng *rand.Rand
	tag string // part of every tool call id, unique per trajectory
}

func newTextWriter(name string) *textWriter {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	sum := h.Sum64()
	return &textWriter{rand.New(rand.NewPCG(sum, 42)), fmt.Sprintf("%08x", uint32(sum))}
}

var (
	nouns = strings.Fields(`session token cache request header account invoice parser buffer worker queue ledger
		schema index cursor client server stream handler record packet window bucket cluster replica
		tenant quota budget digest marker prefix result policy filter router socket daemon journal`)
	verbs = strings.Fields(`open close parse render merge split check count flush write read load store drop keep
		find match route retry cancel resume encode decode verify sign build reduce expand mask`)
	folders = strings.Fields(`api auth billing cache cmd config core db handlers internal jobs models parser queue
		router scheduler server storage sync web`)
)

func (w *textWriter) noun() string { return nouns[w.rng.IntN(len(nouns))] }
func (w *textWriter) verb() string { return verbs[w.rng.IntN(len(verbs))] }

func (w *textWriter) path() string {
	return fmt.Sprintf("%s/%s_%s.go", folders[w.rng.IntN(len(folders))], w.noun(), w.noun())
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// between draws a size from lo to hi; small sizes are more likely, as in real tool outputs.
func (w *textWriter) between(lo, hi int) int {
	u := math.Pow(w.rng.Float64(), 1.6)
	return lo + int(u*float64(hi-lo))
}

// fill writes lines up to exactly the given number of tokens.
func fill(tokens int, line func(i int) string) string {
	want := tokens * fakeprovider.BytesPerToken
	var b strings.Builder
	for i := 0; b.Len() < want; i++ {
		b.WriteString(line(i))
		b.WriteByte('\n')
	}
	return b.String()[:want]
}

func (w *textWriter) prose(tokens int) string {
	return fill(tokens, func(int) string {
		return fmt.Sprintf("When the %s is %sed, %s the %s before the %s; never %s a %s twice.",
			w.noun(), w.verb(), w.verb(), w.noun(), w.noun(), w.verb(), w.noun())
	})
}

// code is a source file with numbered lines.
func (w *textWriter) code(path string, tokens int) string {
	pkg, _, _ := strings.Cut(path, "/")
	return fill(tokens, func(i int) string {
		if i == 0 {
			return "     1\tpackage " + pkg
		}
		return fmt.Sprintf("%6d\t%s", i+1, w.statement())
	})
}

func (w *textWriter) statement() string {
	v, n := w.verb(), w.noun()
	switch w.rng.IntN(9) {
	case 0:
		return "func (s *" + title(n) + ") " + title(v) + "(ctx context.Context, " + w.noun() + " string) error {"
	case 1:
		return "\t" + n + ", err := s." + w.noun() + "." + title(v) + "(ctx, \"" + w.noun() + "\")"
	case 2:
		return "\tif err != nil {"
	case 3:
		return "\t\treturn fmt.Errorf(\"" + v + " " + n + ": %w\", err)"
	case 4:
		return "\t}"
	case 5:
		return "\t// " + title(v) + " the " + n + " only once: the " + w.noun() + " holds a lock."
	case 6:
		return "\ts." + w.noun() + "[\"" + w.noun() + "\"] = " + n + "." + title(w.verb()) + "()"
	case 7:
		return "}"
	}
	return ""
}

func (w *textWriter) matches(tokens int) string {
	return fill(tokens, func(int) string {
		return fmt.Sprintf("%s:%d:\t%s := %s.%s(%s)", w.path(), 1+w.rng.IntN(900), w.noun(), w.noun(), title(w.verb()), w.noun())
	})
}

func (w *textWriter) listing(tokens int) string {
	return fill(tokens, func(int) string { return fmt.Sprintf("%8d  %s", w.rng.IntN(90_000), w.path()) })
}

// log is the output of a test run: mostly passes, some failures.
func (w *textWriter) log(tokens int) string {
	return fill(tokens, func(i int) string {
		name := "Test" + title(w.verb()) + title(w.noun())
		if i%37 == 36 {
			return fmt.Sprintf("--- FAIL: %s (0.%02ds)\n    %s:%d: got %d, want %d", name, w.rng.IntN(99), w.path(), w.rng.IntN(400), w.rng.IntN(50), w.rng.IntN(50))
		}
		return fmt.Sprintf("=== RUN   %s\n--- PASS: %s (0.%02ds)", name, name, w.rng.IntN(99))
	})
}

// rows is an API's JSON array.
func (w *textWriter) rows(tokens int) string {
	body := fill(max(tokens-4, 1), func(i int) string {
		return fmt.Sprintf(`  {"id":%d,"%s":%q,"state":%q,"url":"https://api.example.com/v1/%s/%d"},`, i, w.noun(), w.noun(), w.verb(), w.noun(), i)
	})
	return "[\n" + body[:strings.LastIndexByte("\n"+body, '\n')] + `{"id":-1}` + "\n]"
}

// failure is a tool's error message.
func (w *textWriter) failure() string {
	switch w.rng.IntN(4) {
	case 0:
		return fmt.Sprintf("Traceback (most recent call last):\n  File \"%s\", line %d, in %s\n    %s(%s)\nValueError: unknown %s\n", w.path(), w.rng.IntN(300), w.verb(), w.verb(), w.noun(), w.noun())
	case 1:
		return fmt.Sprintf(`{"status":"error","error":{"code":%d,"message":"no %s of that name"}}`, 400+w.rng.IntN(30), w.noun())
	case 2:
		return fmt.Sprintf("Error: the text to replace was not found in %s\n", w.path())
	}
	return fmt.Sprintf("dial tcp 10.0.0.%d:5432: connect: connection refused\n", w.rng.IntN(255))
}
