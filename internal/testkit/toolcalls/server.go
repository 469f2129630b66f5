package toolcalls

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
)

// message is a request as far as the server reads it.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Arguments struct {
			Bytes int    `json:"bytes"`
			Nonce string `json:"nonce"`
		} `json:"arguments"`
	} `json:"params"`
}

const toolList = `{"tools":[{"name":"read","description":"Reads a text.","inputSchema":{"type":"object","properties":{"bytes":{"type":"integer"},"nonce":{"type":"string"}}}}]}`

// Server is an MCP server over HTTP (2025-11-25) with one tool, read, whose results are parts of the text.
func Server(text string) http.Handler {
	quoted := newQuotedText(text)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		var m message
		if err := json.Unmarshal(body, &m); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		result := ""
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"toolcalls","version":"1"}}`
		case "ping":
			result = "{}"
		case "tools/list":
			result = toolList
		case "tools/call":
			result = `{"content":[{"type":"text","text":` + quoted.part(m.Params.Arguments.Bytes, m.Params.Arguments.Nonce) + `}]}`
		default:
			if m.ID == nil {
				w.WriteHeader(http.StatusAccepted)
				return
			}
		}
		reply := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		if result == "" {
			reply = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown method"}}`, m.ID)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(reply)))
		_, _ = io.WriteString(w, reply)
	})
}

// quotedText is a text as JSON, with the places where its lines begin: parts of it need no encoding again, which would cost more
// than what is measured.
type quotedText struct {
	text   string
	starts []int
}

func newQuotedText(text string) quotedText {
	q := quotedText{text: strings.Trim(mcpwire.Quote(text), `"`)}
	for at := 0; at < len(q.text); {
		n := strings.Index(q.text[at:], `\n`)
		if n < 0 {
			break
		}
		at += n + 2
		if n == 0 || q.text[at-3] != '\\' {
			q.starts = append(q.starts, at)
		}
	}
	return q
}

// part is a JSON string of about size bytes that begins with the nonce, and elsewhere for each nonce.
func (q quotedText) part(size int, nonce string) string {
	at := 0
	for _, b := range []byte(nonce) {
		at = (at*31 + int(b)) % (len(q.starts) / 2)
	}
	from := q.starts[at]
	to := q.starts[min(len(q.starts)-1, sort.SearchInts(q.starts, from+size))]
	return `"` + nonce + " " + q.text[from:to] + `"`
}
