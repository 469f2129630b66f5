package peers

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// known reads testdata/eras-known.txt: what the conformance suite finds when client and server are
// of different eras, and why it must. A line is
//
//	CLIENT/UPSTREAM[/TRANSPORT] [?]SCENARIO:CHECK REASON
//
// with the eras as words, legacy and modern; a question mark is for what fails only sometimes.
// Empty lines and those that begin with # say nothing.
func known(t *testing.T, client, upstream era, transport string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/eras-known.txt")
	if err != nil {
		t.Fatal(err)
	}
	out, err := parseKnown(string(text), string(client)+"/"+string(upstream), transport)
	if err != nil {
		t.Fatalf("testdata/eras-known.txt: %v", err)
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
	text := "# eras\n\nlegacy/modern a:b there is no c\nlegacy/modern/stdio d:e-1  f: g\nmodern/legacy a:b other\n"
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
