// Command files is a minimal MCP server: newline-delimited JSON-RPC on stdin and
// stdout, one tool, read_file, which returns a text file below the current directory. The
// README uses it to try out ctxgate.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"
)

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string `json:"name"`
		Arguments struct {
			Path string `json:"path"`
		} `json:"arguments"`
	} `json:"params"`
}

type object = map[string]any

var initializeResult = object{
	"protocolVersion": "2025-11-25",
	"capabilities":    object{"tools": object{}},
	"serverInfo":      object{"name": "files", "version": "1"},
}

var tools = object{"tools": []object{{
	"name":        "read_file",
	"description": "Read a text file.",
	"inputSchema": object{"type": "object", "properties": object{"path": object{"type": "string"}}, "required": []string{"path"}},
}}}

func main() {
	root, err := os.OpenRoot(".")
	if err != nil {
		log.Fatal(err)
	}
	out := json.NewEncoder(os.Stdout)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var req request
		if json.Unmarshal(in.Bytes(), &req) != nil || req.ID == nil {
			continue // a notification needs no answer
		}
		reply := object{"jsonrpc": "2.0", "id": req.ID}
		switch req.Method {
		case "initialize":
			reply["result"] = initializeResult
		case "ping":
			reply["result"] = object{}
		case "tools/list":
			reply["result"] = tools
		case "tools/call":
			if text, err := root.ReadFile(req.Params.Arguments.Path); err != nil {
				reply["error"] = object{"code": -32602, "message": err.Error()}
			} else {
				reply["result"] = object{"content": []object{{"type": "text", "text": string(text)}}}
			}
		default:
			reply["error"] = object{"code": -32601, "message": "Method not found"}
		}
		if err := out.Encode(reply); err != nil {
			log.Fatal(err)
		}
	}
}
