package llmtest

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
)

// writer writes texts as tools return them. The same name gives the same texts for ever: the
// generator is specified, and nothing else is drawn from.
type writer struct {
	rng *rand.Rand
	tag string // tells the calls of one trajectory from those of another
}

func newWriter(name string) *writer {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	sum := h.Sum64()
	return &writer{rand.New(rand.NewPCG(sum, 42)), fmt.Sprintf("%08x", uint32(sum))}
}

var (
	nouns = words(`session token cache request header account invoice parser buffer worker queue ledger
		schema index cursor client server stream handler record packet window bucket cluster replica
		tenant quota budget digest marker prefix result policy filter router socket daemon journal`)
	verbs = words(`open close parse render merge split check count flush write read load store drop keep
		find match route retry cancel resume encode decode verify sign build reduce expand mask`)
	folders = words(`api auth billing cache cmd config core db handlers internal jobs models parser queue
		router scheduler server storage sync web`)
)

func (w *writer) noun() string { return nouns[w.rng.IntN(len(nouns))] }
func (w *writer) verb() string { return verbs[w.rng.IntN(len(verbs))] }

func (w *writer) path() string {
	return fmt.Sprintf("%s/%s_%s.go", folders[w.rng.IntN(len(folders))], w.noun(), w.noun())
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// between is a size from lo to hi, small ones more often: outputs of tools are like that.
func (w *writer) between(lo, hi int) int {
	u := math.Pow(w.rng.Float64(), 1.6)
	return lo + int(u*float64(hi-lo))
}

// fill writes lines until there are exactly so many tokens.
func fill(tokens int, line func(i int) string) string {
	want := tokens * bytesPerToken
	var b strings.Builder
	for i := 0; b.Len() < want; i++ {
		b.WriteString(line(i))
		b.WriteByte('\n')
	}
	return b.String()[:want]
}

func (w *writer) prose(tokens int) string {
	return fill(tokens, func(int) string {
		return fmt.Sprintf("When the %s is %sed, %s the %s before the %s; never %s a %s twice.",
			w.noun(), w.verb(), w.verb(), w.noun(), w.noun(), w.verb(), w.noun())
	})
}

// code is a file with numbered lines.
func (w *writer) code(path string, tokens int) string {
	pkg, _, _ := strings.Cut(path, "/")
	return fill(tokens, func(i int) string {
		if i == 0 {
			return "     1\tpackage " + pkg
		}
		return fmt.Sprintf("%6d\t%s", i+1, w.statement())
	})
}

// statement is a line of code.
func (w *writer) statement() string {
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

func (w *writer) matches(tokens int) string {
	return fill(tokens, func(int) string {
		return fmt.Sprintf("%s:%d:\t%s := %s.%s(%s)", w.path(), 1+w.rng.IntN(900), w.noun(), w.noun(), title(w.verb()), w.noun())
	})
}

func (w *writer) listing(tokens int) string {
	return fill(tokens, func(int) string { return fmt.Sprintf("%8d  %s", w.rng.IntN(90_000), w.path()) })
}

// log is the output of a test run: mostly passes, at times a failure.
func (w *writer) log(tokens int) string {
	return fill(tokens, func(i int) string {
		name := "Test" + title(w.verb()) + title(w.noun())
		if i%37 == 36 {
			return fmt.Sprintf("--- FAIL: %s (0.%02ds)\n    %s:%d: got %d, want %d", name, w.rng.IntN(99), w.path(), w.rng.IntN(400), w.rng.IntN(50), w.rng.IntN(50))
		}
		return fmt.Sprintf("=== RUN   %s\n--- PASS: %s (0.%02ds)", name, name, w.rng.IntN(99))
	})
}

// rows are an API's answer.
func (w *writer) rows(tokens int) string {
	body := fill(max(tokens-4, 1), func(i int) string {
		return fmt.Sprintf(`  {"id":%d,"%s":%q,"state":%q,"url":"https://api.example.com/v1/%s/%d"},`, i, w.noun(), w.noun(), w.verb(), w.noun(), i)
	})
	return "[\n" + body[:strings.LastIndexByte("\n"+body, '\n')] + `{"id":-1}` + "\n]"
}

// failure is what a tool says when it does not work.
func (w *writer) failure() string {
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
