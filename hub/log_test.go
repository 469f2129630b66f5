package hub_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// logLines is the log lines that are written while a test runs.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// captureLog collects the log. The test must not be parallel: there is one log.
func captureLog(t *testing.T) *logLines {
	t.Helper()
	l := &logLines{}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(l, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return l
}

// of returns the lines with this message and JSON-RPC method, as attributes.
func (l *logLines) of(t *testing.T, msg, rpc string) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []map[string]any
	for line := range strings.SplitSeq(strings.TrimSpace(l.b.String()), "\n") {
		var m map[string]any
		if line == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if m["msg"] == msg && m["rpc"] == rpc {
			out = append(out, m)
		}
	}
	return out
}

// expect waits for a line with these values, and checks that it has a duration.
func (l *logLines) expect(t *testing.T, msg, rpc string, want map[string]any) {
	t.Helper()
	wait.For(t, "the log line of "+rpc, func() bool {
		return slices.ContainsFunc(l.of(t, msg, rpc), func(m map[string]any) bool {
			for k, v := range want {
				if m[k] != v {
					return false
				}
			}
			took, ok := m["took"].(float64)
			return ok && took >= 0
		})
	})
}

// Each call on stdio has one log line, with its method, server, name, duration and code, in both protocols; so has
// each that is refused.
func TestStdioLogsEachCall(t *testing.T) {
	for _, protocol := range protocols {
		log := captureLog(t)
		a := newFakeServer(t, "a", mcp.Legacy, true)
		c := connectStdio(t, requireTokenOfProcess, protocol, "{}", a)
		c.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`)
		c.callResult(t, mcp.ToolsCall, `{"name":"nobody::x"}`)
		c.callResult(t, mcp.ToolsList, `{}`)
		c.callResult(t, "none", `{}`)
		c.callResult(t, mcp.PromptsList, `{"proxy":{"authToken":"wrong"}}`)
		log.expect(t, "request", mcp.ToolsCall, map[string]any{"transport": "stdio", "server": "a", "name": "x", "code": 0.})
		log.expect(t, "request", mcp.ToolsCall, map[string]any{"transport": "stdio", "fault": "not_found", "code": -32602.})
		log.expect(t, "request", mcp.ToolsList, map[string]any{"transport": "stdio", "code": 0.})
		log.expect(t, "request", "none", map[string]any{"fault": "no_method", "code": -32601.})
		log.expect(t, "request", mcp.PromptsList, map[string]any{"fault": "unauthorized", "code": -31401.})
		if protocol == mcp.Legacy {
			log.expect(t, "request", mcp.Initialize, map[string]any{"transport": "stdio", "code": 0.})
		}
		for rpc, want := range map[string]int{mcp.ToolsCall: 2, mcp.ToolsList: 1, "none": 1, mcp.PromptsList: 1} {
			if got := log.of(t, "request", rpc); len(got) != want {
				t.Errorf("%s: %d lines, want %d: %v", rpc, len(got), want, got)
			}
		}
	}
}

func requireTokenOfProcess(s *setup) { withToken("right")(s) }

// The same call over HTTP has the same attributes in its request line.
func TestHTTPLogsTheCode(t *testing.T) {
	log := captureLog(t)
	a := newFakeServer(t, "a", mcp.Modern, false)
	gw := startGateway(t, nil, a)
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	c.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`)
	c.callResult(t, mcp.ToolsCall, `{"name":"nobody::x"}`)
	log.expect(t, "request", mcp.ToolsCall, map[string]any{"path": "/mcp", "server": "a", "name": "x", "code": 0.})
	log.expect(t, "request", mcp.ToolsCall, map[string]any{"path": "/mcp", "fault": "not_found", "code": -32602.})
}

// Each request that a server sends to a client has one log line, on stdio and over HTTP, whatever the protocols:
// method, server, duration and code. A modern client is asked by the reply to its call, whose line says so.
func TestServerRequestsAreLogged(t *testing.T) {
	modern := func() *fakeServer { // it asks by its reply
		return newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsCall, func(c *serverCall) string {
			if strings.Contains(c.raw, "inputResponses") {
				return `{"content":[],"resultType":"complete"}`
			}
			return `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{}}},"requestState":"s"}`
		})
	}
	for _, serverProtocol := range protocols {
		for _, via := range []string{"stdio", "http"} {
			for _, protocol := range protocols {
				log := captureLog(t)
				a := newAskingServer(t, true)
				if serverProtocol == mcp.Modern {
					a = modern()
				}
				var c *client
				if via == "stdio" {
					c = connectStdio(t, nil, protocol, allCapabilities, a)
				} else if c = startGateway(t, nil, a).connect(t, "/mcp", protocol, allCapabilities); protocol == mcp.Legacy {
					c.openStream(t)
				}
				c.callAnswering(t, askParams(mcp.ElicitationCreate+` {}`), func(string) string { return `{"action":"accept"}` })
				if protocol == mcp.Modern && serverProtocol == mcp.Modern {
					wait.For(t, "the log line of the call", func() bool {
						return slices.ContainsFunc(log.of(t, "request", mcp.ToolsCall), func(m map[string]any) bool {
							return fmt.Sprint(m["asks"]) == "[elicitation/create]" && m["server"] == "a"
						})
					})
					continue
				}
				log.expect(t, "server request", mcp.ElicitationCreate, map[string]any{"server": "a", "code": 0.})
				if got := log.of(t, "server request", mcp.ElicitationCreate); len(got) != 1 {
					t.Errorf("%v to %v by %s: %d lines", protocol, serverProtocol, via, len(got))
				}
			}
		}
	}
}

// A server's request that no client can answer is logged with the code that the server got.
func TestRefusedServerRequestIsLogged(t *testing.T) {
	log := captureLog(t)
	a := newAskingServer(t, true)
	c := connectStdio(t, nil, mcp.Legacy, "{}", a)
	c.callResult(t, mcp.ToolsCall, askParams(mcp.ElicitationCreate+` {}`))
	log.expect(t, "server request", mcp.ElicitationCreate, map[string]any{"server": "a", "code": -32601.})
}

// A list that was answered without a server that is still being installed says so in the log.
func TestListLogsWhatIsNotListedYet(t *testing.T) {
	log := captureLog(t)
	npx := filepath.Join(t.TempDir(), "npx")
	if err := os.WriteFile(npx, []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	gw := startGateway(t, func(s *setup) {
		s.hub.ListWait = unit.Duration(100 * time.Millisecond)
		slow := upstream.ServerConfig{ID: "memory", Command: []string{npx, "server-memory"}}
		slow.SetDefaults()
		slow.ShutdownGrace = 0
		s.upstream.Servers = append(s.upstream.Servers, slow)
	}, a)
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	if got := strings.Join(c.tools(t), " "); !strings.Contains(got, "a::x") {
		t.Errorf("got %s", got)
	}
	wait.For(t, "the log line of the list", func() bool {
		return slices.ContainsFunc(log.of(t, "request", mcp.ToolsList), func(m map[string]any) bool {
			return strings.HasPrefix(fmt.Sprint(m["not_listed_yet"]), "memory: npx is installing, ")
		})
	})
}
