package upstream_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// The status of a server names its state, since when, how often it was restarted and what went wrong.
func TestStatusOfAChild(t *testing.T) {
	t.Parallel()
	n := newChild(t, childEntry(), nil)
	if st := n.Status(); st.State != upstream.StateStopped || st.ID != "a" || st.Transport != "stdio" {
		t.Errorf("before the start: %+v", st)
	}
	began := time.Now()
	n.Start()
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	up := n.Status()
	if up.State != upstream.StateUp || up.Since.Before(began) || up.Restarts != 0 || up.LastError != "" || mcp.ProtocolOf(up.Revision) != up.Protocol {
		t.Errorf("up: %+v", up)
	}
	_, _ = n.call(t, mcp.ToolsCall, `{"name":"exit","arguments":{"n":7}}`)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	again := n.Status()
	if again.State != upstream.StateUp || again.Since.Before(up.Since) || again.Restarts != 1 || again.LastErrorAt.Before(up.Since) || !strings.Contains(again.LastError, "the server went away") {
		t.Errorf("after a restart: %+v", again)
	}
	n.Close()
	if st := n.Status(); st.State != upstream.StateStopped {
		t.Errorf("closed: %+v", st)
	}
}

// A server that cannot start is down since its first failure, and the status quotes the line of its stderr that says why, without
// secrets.
func TestStatusQuotesStderr(t *testing.T) {
	t.Parallel()
	key, err := secret.ParseTemplate("${KEY}")
	if err == nil {
		key, err = key.Resolve(func(string) (string, bool) { return "status-canary-1", true })
	}
	if err != nil {
		t.Fatal(err)
	}
	n := launchChild(t, upstream.ServerConfig{
		Command: []string{"/bin/sh", "-c", `printf 'starting\nError: the key %s is invalid\n    at main (x.js:1)\n\nNode.js v22.1.0\n' "$KEY" >&2; exit 3`},
		Env:     map[string]secret.Text{"KEY": key},
	}, nil)
	wait.For(t, "a failure", func() bool { return n.Status().LastStderr != "" })
	first := n.Status()
	if first.State != upstream.StateDown || first.LastStderr != "Error: the key *** is invalid" || !strings.Contains(first.LastError, "the server did not start") {
		t.Errorf("got %+v", first)
	}
	wait.For(t, "more failures", func() bool { return n.Status().Failures > 2 })
	later := n.Status()
	if later.State != upstream.StateDown || !later.Since.Equal(first.Since) || later.Restarts < 2 {
		t.Errorf("got %+v, before %+v", later, first)
	}
	if text := strings.Join(later.Stderr, "\n"); !strings.Contains(text, "***") || strings.Contains(text, "canary") {
		t.Errorf("stderr: %s", text)
	}
}

// A server whose wait is long says when it is tried again.
func TestStatusNamesTheNextAttempt(t *testing.T) {
	t.Parallel()
	n := launchChild(t, upstream.ServerConfig{Command: []string{"/no/such/program"}}, nil)
	wait.For(t, "a wait", func() bool { return n.Status().NextAttempt.After(time.Now()) })
	if st := n.Status(); !strings.Contains(st.LastError, "no such file") || st.LastStderr != "" {
		t.Errorf("got %+v", st)
	}
}
