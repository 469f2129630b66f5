package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

func clientRequest(conn, id, info, method string) *Request {
	return &Request{conn: conn, ClientID: id, CallerKey: "caller", Client: mcp.Client{Info: []byte(info)}, Request: rpc.Request{Method: method}}
}

func TestClientsAreListedWhileConnected(t *testing.T) {
	h := &Hub{}
	now := time.Now()
	h.clients.noteRequest(clientRequest("stdio-1", "claude-code", "", mcp.Initialize), now)
	h.clients.noteRequest(clientRequest("stdio-1", "claude-code", `{"name":"claude-code","version":"2.1"}`, mcp.ToolsCall), now.Add(time.Second))
	h.clients.noteRequest(clientRequest("7", "codex", "", mcp.Initialize), now)
	h.clients.noteRequest(clientRequest("7", "codex", `{"name":"codex-mcp-client","version":"0.1"}`, mcp.ToolsCall), now.Add(2*time.Second))
	h.clients.noteRequest(clientRequest("8", "", "", mcp.ToolsCall), now) // an HTTP client that says nothing of itself
	got := h.Clients(now.Add(time.Minute))
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	if c := got[0]; c.ID != "claude-code" || c.Version != "2.1" || c.Transport != "stdio" || c.Requests != 2 || !c.Since.Equal(now) {
		t.Errorf("%+v", c)
	}
	if c := got[1]; c.ID != "codex" || c.Name != "codex-mcp-client" || c.Transport != "http" || c.Requests != 1 {
		t.Errorf("%+v", c)
	}
	if got := h.Clients(now.Add(time.Hour)); len(got) != 1 || got[0].Transport != "stdio" {
		t.Errorf("after an hour without requests: %+v", got)
	}
	h.clients.removeConn("stdio-1")
	if got := h.Clients(now.Add(time.Hour)); len(got) != 0 {
		t.Errorf("after it left: %+v", got)
	}
}

// However many clients come, so many are remembered: those that made requests last.
func TestClientListIsBounded(t *testing.T) {
	h := &Hub{}
	now := time.Now()
	for i := range 2 * maxClientList {
		h.clients.noteRequest(clientRequest("1", "", fmt.Sprintf(`{"name":"client %d"}`, i), mcp.ToolsCall), now.Add(time.Duration(i)))
	}
	got := h.Clients(now)
	if len(got) != maxClientList || got[0].Name != fmt.Sprintf("client %d", maxClientList) {
		t.Errorf("%d clients, the first %+v", len(got), got[0])
	}
}
