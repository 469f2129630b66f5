package e2e

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// stdioClient is a client of `ctxgate stdio --alone`. It answers roots/list, and records every request and notification.
type stdioClient struct {
	t        *testing.T
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	stderr   process.Buffer
	messages chan mcpwire.Message
	token    string // sent with every request, if not empty
	lastID   int
	received []mcpwire.Message
}

type params = map[string]any

// startStdio starts `ctxgate stdio --alone`. Anything on stdout that is no message fails the test, and so does an
// exit code other than 0 after the end of stdin.
func startStdio(t *testing.T, dir, config string, env ...string) *stdioClient {
	t.Helper()
	cmd := exec.Command(binary, "stdio", "--alone", "--config", config)
	cmd.Dir, cmd.Env = dir, gateway.Environment(dir, env...)
	return startStdioCommand(t, cmd)
}

// startStdioCommand starts a program that is one MCP server.
func startStdioCommand(t *testing.T, cmd *exec.Cmd) *stdioClient {
	t.Helper()
	c := &stdioClient{t: t, cmd: cmd, messages: make(chan mcpwire.Message, 64)}
	c.cmd.Stderr = &c.stderr
	stdout, err := c.cmd.StdoutPipe()
	if err == nil {
		c.stdin, err = c.cmd.StdinPipe()
	}
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.messages)
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			m, err := mcpwire.ParseMessage(lines.Bytes())
			if err != nil {
				t.Errorf("on stdout: %v", err)
			}
			c.messages <- m
		}
	}()
	t.Cleanup(func() {
		_ = c.stdin.Close()
		kill := time.AfterFunc(exitLimit, func() { _ = c.cmd.Process.Kill() })
		defer kill.Stop()
		for range c.messages { // to its end
		}
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("ctxgate stdio, after its stdin ended: %v", err)
		}
		if t.Failed() {
			t.Logf("its log:\n%s", &c.stderr)
		}
	})
	return c
}

func (c *stdioClient) sendMessage(message []byte) {
	c.t.Helper()
	if _, err := c.stdin.Write(append(message, '\n')); err != nil {
		c.t.Fatal(err)
	}
}

// callMethod sends a request and returns the response.
func (c *stdioClient) callMethod(method string, p params) mcpwire.Message {
	c.t.Helper()
	c.lastID++
	id, all := fmt.Sprint(c.lastID), params{}
	maps.Copy(all, p)
	if c.token != "" {
		all["proxy"] = params{"authToken": c.token}
	}
	c.sendMessage(mcpwire.NewRequest(id, method, mcpwire.EncodeJSON(all)))
	for limit := time.After(startLimit); ; {
		select {
		case m, ok := <-c.messages:
			if !ok {
				c.t.Fatalf("%s: ctxgate exited", method)
			}
			if m.Method != "" {
				c.received = append(c.received, m)
			}
			if m.Method == "roots/list" {
				c.sendMessage(mcpwire.NewResponse(m.ID, `{"roots":[{"uri":"file:///work","name":"w"}]}`))
			}
			if m.IsResponse() && string(m.ID) == id {
				return m
			}
		case <-limit:
			c.t.Fatalf("%s: no response within %s", method, startLimit)
		}
	}
}

func (c *stdioClient) initialize(version string) mcpwire.Message {
	c.t.Helper()
	return c.callMethod("initialize", params{"protocolVersion": version, "capabilities": params{"roots": params{}}, "clientInfo": params{"name": "e2e", "version": "1"}})
}

// waitForLog waits for a line on stderr with all of these parts.
func (c *stdioClient) waitForLog(all ...string) {
	c.t.Helper()
	err := wait.Until(startLimit, "stderr has no line with "+strings.Join(all, " "), func() (bool, error) {
		for line := range strings.SplitSeq(c.stderr.String(), "\n") {
			found := true
			for _, part := range all {
				found = found && strings.Contains(line, part)
			}
			if found {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
}
