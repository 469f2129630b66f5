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

// runScript runs the checks of an npm script in a setup; each becomes a subtest, and onCheck, if not nil,
// gets its line of output.
func runScript[W testSetup | *llmSetup](t *testing.T, script string, w W, env []string, onCheck func(name string, line []byte)) {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), scriptLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, node(t), npm(t, script), string(text))
	cmd.Dir, cmd.Env, cmd.WaitDelay = t.TempDir(), env, 5*time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	last := ""
	for lines := bufio.NewScanner(&stdout); lines.Scan(); {
		last = subtest(t, lines.Bytes())
		if onCheck != nil {
			onCheck(last, lines.Bytes())
		}
	}
	if err != nil || last != "close" {
		t.Errorf("%s ended after %q: %v", script, last, err)
	}
	if t.Failed() {
		out := stderr.String()
		t.Logf("stderr (last %d bytes):\n%s", logTail, out[max(0, len(out)-logTail):])
	}
}

// runMCPScript runs the checks of a TypeScript MCP client.
func runMCPScript(t *testing.T, script string, w testSetup) {
	t.Helper()
	scoped(t, "client") // fails with a hint if it is missing
	runScript(t, script, w, nil, nil)
}

// subtest makes a subtest of one line of output and returns its name.
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

// The TypeScript SDKs, v1 with its handshake and v2 without, see four servers as one (A3, A4, A5, A6, A13,
// G3, G+1).
func TestScripts(t *testing.T) {
	for script, e := range map[string]revision{"v1.mjs": legacy, "v2.mjs": modern} {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(script[:2]+"/"+transport, func(t *testing.T) { runMCPScript(t, script, newGatewaySetup(t, e, transport)) })
		}
	}
}

func TestScriptsDirect(t *testing.T) {
	for _, c := range []struct {
		script   string
		revision revision
		of       setupServer
	}{
		{"v1.mjs", legacy, allServers[0]},
		{"v2.mjs", legacy, allServers[0]},
		{"v2.mjs", modern, allServers[1]},
	} {
		for _, transport := range []string{"stdio", "http"} {
			name := c.script[:2] + "/" + string(c.revision) + "/" + transport
			t.Run(name, func(t *testing.T) { runMCPScript(t, c.script, newDirectSetup(t, c.revision, c.of, transport)) })
		}
	}
}
