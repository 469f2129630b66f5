package hub_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/testkit/recordings"
	"github.com/ctxgate/ctxgate/mcp"
)

// agentGateway is a gateway as the recorded agents saw it: one server with the tool read_log, and the names of profile =
// "agents". The server is legacy or modern.
func agentGateway(t *testing.T, protocol mcp.Protocol) *mcpGateway {
	t.Helper()
	logs := newFakeServer(t, "logs", protocol, true).
		handle(mcp.ToolsList, listResult("tools", itemsNamed("read_log")...)).
		handle(mcp.ToolsCall, respond(`{"content":[{"type":"text","text":"a log"}]}`))
	return startGateway(t, func(s *setup) {
		s.hub.Naming.Separator = "__"
		s.hub.FitClients = true
	}, logs)
}

// agentMessage is what these tests read of a message.
type agentMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name     string `json:"name"`
		Protocol string `json:"protocolVersion"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func readMessage(t *testing.T, text string) agentMessage {
	t.Helper()
	var m agentMessage
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v: %.300s", err, text)
	}
	return m
}

// checkReply checks the reply to a recorded request. Only recover_text may fail: the recorded id is nobody's.
func checkReply(t *testing.T, sent agentMessage, reply string) {
	t.Helper()
	got := readMessage(t, reply)
	var result struct {
		Protocol string `json:"protocolVersion"`
		Tools    []struct{ Name string }
		Content  []struct{ Text string }
		IsError  bool
	}
	_ = json.Unmarshal(got.Result, &result)
	switch {
	case sent.Params.Name == "recover_text":
		if !strings.Contains(reply, "unknown or expired prune_id") {
			t.Errorf("recover_text: %.300s", reply)
		}
	case got.Error != nil || got.Result == nil || result.IsError:
		t.Errorf("%s: %.300s", sent.Method, reply)
	case sent.Method == mcp.Initialize && result.Protocol != sent.Params.Protocol:
		t.Errorf("initialize: asked for %s, got %s", sent.Params.Protocol, result.Protocol)
	case sent.Method == mcp.ToolsList && fmt.Sprint(result.Tools) != "[{logs__read_log} {recover_text}]":
		t.Errorf("tools: %v", result.Tools)
	case sent.Method == mcp.ToolsCall && (len(result.Content) != 1 || result.Content[0].Text != "a log"):
		t.Errorf("tools/call: %.300s", reply)
	}
}

func allRecordings(t *testing.T) []recordings.Recording {
	t.Helper()
	all, err := recordings.All()
	if err != nil || len(all) < 8 {
		t.Fatalf("%d recordings: %v", len(all), err)
	}
	return all
}

// What each agent's MCP client wrote on stdio gets the replies that it expects, with servers of both generations.
func TestAgentsOnStdio(t *testing.T) {
	t.Parallel()
	for _, r := range allRecordings(t) {
		for _, protocol := range []mcp.Protocol{mcp.Legacy, mcp.Modern} {
			t.Run(fmt.Sprintf("%s/%v", r.Agent, protocol), func(t *testing.T) {
				t.Parallel()
				gw := agentGateway(t, protocol)
				var c *client
				for i, raw := range r.Stdio {
					sent := readMessage(t, string(raw))
					if i == 0 || sent.Method == mcp.Initialize { // the Inspector is a process per call
						c, _ = gw.joinStdio(t.Context(), t, mcp.Modern, "{}", hub.StdioOptions{Client: r.Agent})
					}
					replayStdio(t, c, sent, string(raw))
				}
			})
		}
	}
}

// replayStdio writes a recorded message and checks the reply. A listen stream has none until it ends.
func replayStdio(t *testing.T, c *client, sent agentMessage, raw string) {
	t.Helper()
	reply := make(chan httpReply, 1)
	c.mu.Lock()
	c.pending[string(sent.ID)] = reply
	c.mu.Unlock()
	if _, err := io.WriteString(c.in, raw+"\n"); err != nil {
		t.Fatal(err)
	}
	if sent.ID != nil && sent.Method != "" && sent.Method != mcp.SubscriptionsListen {
		checkReply(t, sent, receiveWithin(t, reply, sent.Method).body)
	}
}

// The same over HTTP, with the headers that each client sends.
func TestAgentsOverHTTP(t *testing.T) {
	t.Parallel()
	for _, r := range allRecordings(t) {
		t.Run(r.Agent, func(t *testing.T) {
			t.Parallel()
			gw := agentGateway(t, mcp.Legacy)
			session := ""
			for _, one := range r.HTTP {
				if one.Method != http.MethodPost || strings.Contains(one.Body, mcp.SubscriptionsListen) {
					continue // streams, and the end of a session
				}
				reply, head := replayHTTP(t, gw, one, session)
				if id := head.Get(mcp.HeaderSession); id != "" {
					session = id
				}
				if sent := readMessage(t, one.Body); sent.ID != nil && sent.Method != "" {
					checkReply(t, sent, reply)
				}
			}
		})
	}
}

// replayHTTP sends a recorded request in a session and returns the reply, which may be the last event of a stream.
func replayHTTP(t *testing.T, gw *mcpGateway, one recordings.Request, session string) (string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), one.Method, gw.URL+one.Path, strings.NewReader(one.Body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = one.Header.Clone()
	if req.Header.Get(mcp.HeaderSession) == recordings.SessionID {
		req.Header.Set(mcp.HeaderSession, session)
	}
	resp, err := gw.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s: %d %v %.300s", one.Body, resp.StatusCode, err, text)
	}
	reply := string(text)
	for line := range strings.Lines(reply) {
		if data, ok := strings.CutPrefix(line, "data:"); ok {
			reply = data
		}
	}
	return reply, resp.Header
}
