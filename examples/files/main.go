// Command files is a tool server small enough to read: plain JSON-RPC on 127.0.0.1:8004, one
// tool, read_file, which returns a text file below the current folder. It is what the README
// puts behind ctxgate.
package main

import (
	"encoding/json"
	"log"
	"net/http"
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

type content struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func main() {
	root, err := os.OpenRoot(".")
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /rpc", func(w http.ResponseWriter, r *http.Request) {
		var req request
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply := map[string]any{"jsonrpc": "2.0", "id": req.ID}
		if text, err := root.ReadFile(req.Params.Arguments.Path); err != nil {
			reply["error"] = map[string]any{"code": -32602, "message": err.Error()}
		} else {
			reply["result"] = map[string]any{"content": []content{{"text", string(text)}}}
		}
		if err := json.NewEncoder(w).Encode(reply); err != nil {
			log.Print(err)
		}
	})
	log.Print("serving files below this folder on http://127.0.0.1:8004/rpc")
	log.Fatal(http.ListenAndServe("127.0.0.1:8004", nil)) //nolint:gosec // an example
}
