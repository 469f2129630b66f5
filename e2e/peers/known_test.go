package peers

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// knownFailures reads testdata/known-failures.txt: the suite's failures that are inherent in translating between
// revisions, with reasons. A line is
//
//	CLIENT/UPSTREAM[/TRANSPORT] [?]SCENARIO:CHECK REASON
//
// with the revisions as legacy and modern; a question mark marks what fails only sometimes. Empty lines and
// lines that begin with # are ignored.
func knownFailures(t *testing.T, client, upstream revision, transport string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/known-failures.txt")
	if err != nil {
		t.Fatal(err)
	}
	out, err := parseKnown(string(text), string(client)+"/"+string(upstream), transport)
	if err != nil {
		t.Fatalf("testdata/known-failures.txt: %v", err)
	}
	return out
}

func parseKnown(text, pair, transport string) (map[string]string, error) {
	out := map[string]string{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		where, rest, _ := strings.Cut(line, " ")
		key, why, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if !strings.Contains(key, ":") || strings.TrimSpace(why) == "" {
			return nil, fmt.Errorf("line %d: want CLIENT/UPSTREAM[/TRANSPORT] SCENARIO:CHECK REASON", i+1)
		}
		if where == pair || where == pair+"/"+transport {
			out[key] = strings.TrimSpace(why)
		}
	}
	return out, nil
}

func TestKnownDirect(t *testing.T) {
	text := "# failures\n\nlegacy/modern a:b there is no c\nlegacy/modern/stdio d:e-1  f: g\nmodern/legacy a:b other\n"
	got, err := parseKnown(text, "legacy/modern", "stdio")
	if want := "map[a:b:there is no c d:e-1:f: g]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, %v; want %s", got, err, want)
	}
	if got, err := parseKnown(text, "legacy/modern", "http"); err != nil || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"legacy/modern a:b", "legacy/modern a reason", "legacy/modern"} {
		if _, err := parseKnown(bad, "legacy/modern", "http"); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
