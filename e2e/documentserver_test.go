package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
)

// documentServerVariable makes the test binary one of the servers of document 002: alpha and beta are
// minimal, gamma requests its client's roots during a call.
const documentServerVariable = "CTXGATE_E2E_DOCUMENT_SERVER"

// runDocumentServer is an MCP server over stdio.
func runDocumentServer(name string) int {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	var waiting json.RawMessage // gamma's call while its client is asked
	suffix := ""                // suffix of its results after an unknown notification
	send := func(m mcpwire.Message) {
		m.JSONRPC = "2.0"
		line, _ := json.Marshal(m) // it can always be encoded
		fmt.Println(string(line))
	}
	for in.Scan() {
		var m mcpwire.Message
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			return 1
		}
		switch {
		case m.Method == "tools/call" && name == "gamma":
			waiting = m.ID
			send(mcpwire.Message{ID: json.RawMessage(`"gamma-1"`), Method: "roots/list"})
		case m.Method == "" && waiting != nil: // the client's response
			send(mcpwire.Message{ID: waiting, Result: textResult(string(m.Result) + suffix)})
			waiting = nil
		case m.Method == "notifications/document/unknown":
			suffix = " which was notified"
		case m.Method == "tools/call":
			send(mcpwire.Message{ID: m.ID, Result: textResult("the tool of " + name + suffix)})
		case m.ID != nil:
			send(mcpwire.Message{ID: m.ID, Result: documentResult(name, m)})
		}
	}
	return 0
}

func textResult(text string) json.RawMessage {
	return json.RawMessage(`{"content":[{"type":"text","text":` + string(quoteJSON(text)) + `}]}`)
}

func documentResult(name string, m mcpwire.Message) json.RawMessage {
	answers := map[string]string{
		"initialize":     `{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"resources":{},"prompts":{},"logging":{}},"serverInfo":{"name":"NAME","version":"1"}}`,
		"tools/list":     `{"tools":[{"name":"NAME_tool","inputSchema":{"type":"object"}}]}`,
		"prompts/list":   `{"prompts":[{"name":"NAME_prompt"}]}`,
		"prompts/get":    `{"messages":[{"role":"user","content":{"type":"text","text":"the prompt of NAME"}}]}`,
		"resources/list": `{"resources":[{"uri":"test://NAME/1","name":"one"}]}`,
		"resources/read": `{"contents":[{"uri":"test://NAME/1","text":"the resource of NAME"}]}`,
	}
	if answer, ok := answers[m.Method]; ok {
		return json.RawMessage(strings.ReplaceAll(answer, "NAME", name))
	}
	return json.RawMessage(`{}`)
}
