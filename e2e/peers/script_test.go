package peers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"testing"
	"time"
)

const scriptLimit = 90 * time.Second

// runScript lets a TypeScript client do its checks in a world; each becomes a subtest.
func runScript(t *testing.T, script string, w world) {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), scriptLimit)
	defer cancel()
	scoped(t, "client") // or say what is missing
	cmd := exec.CommandContext(ctx, node(t), npm(t, script), string(text))
	cmd.Dir = t.TempDir()
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	last := ""
	for lines := bufio.NewScanner(&stdout); lines.Scan(); {
		last = subtest(t, lines.Bytes())
	}
	if err != nil || last != "close" {
		t.Errorf("%s ended after %q: %v", script, last, err)
	}
	if t.Failed() {
		said := stderr.String()
		t.Logf("stderr (last %d bytes):\n%s", tellMost, said[max(0, len(said)-tellMost):])
	}
}

// subtest makes a subtest of one line of output, and gives its name.
func subtest(t *testing.T, line []byte) string {
	t.Helper()
	var c struct {
		Name, Detail string
		OK           bool
		MS           int
	}
	if err := json.Unmarshal(line, &c); err != nil {
		t.Errorf("not a check: %s", line)
		return ""
	}
	t.Run(c.Name, func(t *testing.T) {
		if !c.OK {
			t.Error(c.Detail)
		} else {
			t.Logf("%d ms %s", c.MS, c.Detail)
		}
	})
	return c.Name
}

// The TypeScript SDKs, v1 with its handshake and v2 without, see four servers as one: A3, A4, A5,
// A6 and A13, G3 and G+1.
func TestScripts(t *testing.T) {
	for script, e := range map[string]era{"v1.mjs": legacy, "v2.mjs": modern} {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(script[:2]+"/"+transport, func(t *testing.T) { runScript(t, script, gated(t, e, transport)) })
		}
	}
}

func TestScriptsDirect(t *testing.T) {
	for _, c := range []struct {
		script string
		era    era
		of     member
	}{
		{"v1.mjs", legacy, everybody[0]},
		{"v2.mjs", legacy, everybody[0]},
		{"v2.mjs", modern, everybody[1]},
	} {
		for _, transport := range []string{"stdio", "http"} {
			name := c.script[:2] + "/" + string(c.era) + "/" + transport
			t.Run(name, func(t *testing.T) { runScript(t, c.script, bare(t, c.era, c.of, transport)) })
		}
	}
}
