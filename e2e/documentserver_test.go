package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// documentServerVariable makes this test binary one of the servers that document 002 tests with: alpha and
// beta are small, gamma asks its client for its roots while it is called.
const documentServerVariable = "CTXGATE_E2E_DOCUMENT_SERVER"

// wireMessage is any message of JSON-RPC.
type wireMessage struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// documentServer is a server of MCP on stdin and stdout, one message a line.
func documentServer(name string) int {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	var waiting json.RawMessage // gamma's call, while its client is asked
	heard := ""                 // what its results end with, once it got a notification that it does not know
	say := func(m wireMessage) {
		m.JSONRPC = "2.0"
		line, _ := json.Marshal(m) // it is made of JSON
		fmt.Println(string(line))
	}
	for in.Scan() {
		var m wireMessage
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			return 1
		}
		switch {
		case m.Method == "tools/call" && name == "gamma":
			waiting = m.ID
			say(wireMessage{ID: json.RawMessage(`"gamma-1"`), Method: "roots/list"})
		case m.Method == "" && waiting != nil: // the client's answer
			say(wireMessage{ID: waiting, Result: textResult(string(m.Result) + heard)})
			waiting = nil
		case m.Method == "notifications/document/unknown":
			heard = " which was notified"
		case m.Method == "tools/call":
			say(wireMessage{ID: m.ID, Result: textResult("the tool of " + name + heard)})
		case m.ID != nil:
			say(wireMessage{ID: m.ID, Result: documentAnswer(name, m)})
		}
	}
	return 0
}

func textResult(text string) json.RawMessage {
	return json.RawMessage(`{"content":[{"type":"text","text":` + string(quote(text)) + `}]}`)
}

func documentAnswer(name string, m wireMessage) json.RawMessage {
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
