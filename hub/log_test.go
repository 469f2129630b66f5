package hub_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ctxgate/ctxgate/mcp"
)

// logLines are those that are written while a test runs.
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

// of are the lines with this message and JSON-RPC method, as attributes.
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

// expect waits for a line that has these values, and says that it took some time.
func (l *logLines) expect(t *testing.T, msg, rpc string, want map[string]any) {
	t.Helper()
	eventually(t, "the log line of "+rpc, func() bool {
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

// Each call on stdio has one log line, with its method, server, name, duration and code, in both eras; so
// has each that is refused.
func TestStdioLogsEachCall(t *testing.T) {
	for _, era := range both {
		log := captureLog(t)
		a := newFar(t, "a", mcp.EraLegacy, true)
		c := onStdio(t, guardedByProcess, era, "{}", a)
		c.ask(t, mcp.ToolsCall, `{"name":"a::x"}`)
		c.ask(t, mcp.ToolsCall, `{"name":"nobody::x"}`)
		c.ask(t, mcp.ToolsList, `{}`)
		c.ask(t, "none", `{}`)
		c.ask(t, mcp.PromptsList, `{"proxy":{"authToken":"wrong"}}`)
		log.expect(t, "request", mcp.ToolsCall, map[string]any{"transport": "stdio", "server": "a", "name": "x", "code": 0.})
		log.expect(t, "request", mcp.ToolsCall, map[string]any{"transport": "stdio", "fault": "not_found", "code": -32602.})
		log.expect(t, "request", mcp.ToolsList, map[string]any{"transport": "stdio", "code": 0.})
		log.expect(t, "request", "none", map[string]any{"fault": "no_method", "code": -32601.})
		log.expect(t, "request", mcp.PromptsList, map[string]any{"fault": "unauthorized", "code": -31401.})
		if era == mcp.EraLegacy {
			log.expect(t, "request", mcp.Initialize, map[string]any{"transport": "stdio", "code": 0.})
		}
		for rpc, want := range map[string]int{mcp.ToolsCall: 2, mcp.ToolsList: 1, "none": 1, mcp.PromptsList: 1} {
			if got := log.of(t, "request", rpc); len(got) != want {
				t.Errorf("%s: %d lines, want %d: %v", rpc, len(got), want, got)
			}
		}
	}
}

func guardedByProcess(s *setup) { withToken("right")(s) }

// The same call over HTTP has the same attributes in its request line.
func TestHTTPLogsTheCode(t *testing.T) {
	log := captureLog(t)
	a := newFar(t, "a", mcp.EraModern, false)
	y := start(t, nil, a)
	c := y.visit(t, "/mcp", mcp.EraModern, "{}")
	c.ask(t, mcp.ToolsCall, `{"name":"a::x"}`)
	c.ask(t, mcp.ToolsCall, `{"name":"nobody::x"}`)
	log.expect(t, "request", mcp.ToolsCall, map[string]any{"path": "/mcp", "server": "a", "name": "x", "code": 0.})
	log.expect(t, "request", mcp.ToolsCall, map[string]any{"path": "/mcp", "fault": "not_found", "code": -32602.})
}

// Each request that a server makes of a client has one log line, on stdio and over HTTP, whatever the
// eras: method, server, duration and code. A client of the newer era is asked by the reply to its call,
// whose line says so.
func TestServerRequestsAreLogged(t *testing.T) {
	newer := func() *far { // asks by its reply
		return newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsCall, func(c *turn) string {
			if strings.Contains(c.raw, "inputResponses") {
				return `{"content":[],"resultType":"complete"}`
			}
			return `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{}}},"requestState":"s"}`
		})
	}
	for _, serverEra := range both {
		for _, via := range []string{"stdio", "http"} {
			for _, era := range both {
				log := captureLog(t)
				a := asking(t, true)
				if serverEra == mcp.EraModern {
					a = newer()
				}
				var c *client
				if via == "stdio" {
					c = onStdio(t, nil, era, able, a)
				} else if c = start(t, nil, a).visit(t, "/mcp", era, able); era == mcp.EraLegacy {
					c.listen(t)
				}
				c.converse(t, asks(mcp.Elicit+` {}`), func(string) string { return `{"action":"accept"}` })
				if era == mcp.EraModern && serverEra == mcp.EraModern {
					eventually(t, "the log line of the call", func() bool {
						return slices.ContainsFunc(log.of(t, "request", mcp.ToolsCall), func(m map[string]any) bool {
							return fmt.Sprint(m["asks"]) == "[elicitation/create]" && m["server"] == "a"
						})
					})
					continue
				}
				log.expect(t, "server request", mcp.Elicit, map[string]any{"server": "a", "code": 0.})
				if got := log.of(t, "server request", mcp.Elicit); len(got) != 1 {
					t.Errorf("%v to %v by %s: %d lines", era, serverEra, via, len(got))
				}
			}
		}
	}
}

// A request that no client can answer is logged with the code that its server got.
func TestRefusedServerRequestIsLogged(t *testing.T) {
	log := captureLog(t)
	a := asking(t, true)
	c := onStdio(t, nil, mcp.EraLegacy, "{}", a)
	c.ask(t, mcp.ToolsCall, asks(mcp.Elicit+` {}`))
	log.expect(t, "server request", mcp.Elicit, map[string]any{"server": "a", "code": -32601.})
}
