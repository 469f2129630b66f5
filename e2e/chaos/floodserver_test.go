//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// floodServer is a legacy MCP server over Streamable HTTP with very large replies on request, which it does
// not hold in memory.
type floodServer struct {
	*httptest.Server
	quit chan struct{} // ends waiting calls and streams

	mu      sync.Mutex
	streams map[chan string]bool // GET streams
}

func startFloodServer(t *testing.T) *floodServer {
	t.Helper()
	f := &floodServer{quit: make(chan struct{}), streams: map[chan string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", f.mcp)
	mux.HandleFunc("/v1/chat/completions", f.model)
	f.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		close(f.quit)
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// lines fills a reply's text with lines of 64 bytes in JSON.
const floodLine = `0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcd\n`

func (f *floodServer) mcp(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		f.stream(w, r)
		return
	case http.MethodDelete:
		return
	}
	body, err := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name, Cursor string
			Arguments    struct{ Size int }
		}
	}
	if err != nil || json.Unmarshal(body, &m) != nil {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	switch {
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "initialize":
		w.Header().Set("Mcp-Session-Id", "one")
		f.reply(w, m.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"flood","version":"1"}}`)
	case m.Method == "tools/list":
		f.reply(w, m.ID, `{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"text","inputSchema":{"type":"object"}},{"name":"ask","inputSchema":{"type":"object"}}]}`)
	case m.Method == "tools/call" && m.Params.Name == "text":
		f.text(w, m.ID, m.Params.Arguments.Size)
	case m.Method == "tools/call" && m.Params.Name == "ask":
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"elicitation/create\",\"params\":{\"message\":\"?\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{}}}}\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-f.quit:
		case <-r.Context().Done():
		}
	case m.Method == "tools/call", m.Method == "ping":
		f.reply(w, m.ID, `{"content":[{"type":"text","text":"ok"}]}`)
	default:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
	}
}

func (f *floodServer) reply(w http.ResponseWriter, id json.RawMessage, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// text replies with a text of about the given size.
func (f *floodServer) text(w http.ResponseWriter, id json.RawMessage, size int) {
	head := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, id)
	const tail = `"}]}}`
	block := strings.Repeat(floodLine, 1024)
	blocks := max(1, size/len(block))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(head)+blocks*len(block)+len(tail)))
	_, err := io.WriteString(w, head)
	for range blocks {
		if err == nil {
			_, err = io.WriteString(w, block)
		}
	}
	_, _ = io.WriteString(w, tail)
}

// stream serves a GET stream.
func (f *floodServer) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_ = http.NewResponseController(w).Flush()
	notes := make(chan string)
	f.mu.Lock()
	f.streams[notes] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.streams, notes)
		f.mu.Unlock()
	}()
	for {
		select {
		case note := <-notes:
			fmt.Fprintf(w, "data: %s\n\n", note)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		case <-f.quit:
			return
		}
	}
}

// note sends a notification on every open stream and returns their number.
func (f *floodServer) note(text string) (sent int) {
	f.mu.Lock()
	var all []chan string
	for notes := range f.streams {
		all = append(all, notes)
	}
	f.mu.Unlock()
	for _, notes := range all {
		select {
		case notes <- text:
			sent++
		case <-f.quit:
		}
	}
	return sent
}

// model is an LLM provider with a short reply.
func (f *floodServer) model(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
}

// startBigLister starts a server with a huge tool list: pages of a megabyte.
func startBigLister(t *testing.T, pages int) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Cursor string }
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		page, _ := strconv.Atoi(m.Params.Cursor)
		switch {
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "initialize":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"lists","version":"1"}}}`, m.ID)
		case m.Method == "tools/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[`, m.ID)
			for i := range 16 {
				fmt.Fprintf(w, `{"name":"tool_%d_%d","description":"%s","inputSchema":{"type":"object"}},`, page, i, strings.Repeat(floodLine, 1024))
			}
			fmt.Fprintf(w, `{"name":"last_%d","inputSchema":{"type":"object"}}]`, page)
			if page+1 < pages {
				fmt.Fprintf(w, `,"nextCursor":"%d"`, page+1)
			}
			fmt.Fprint(w, `}}`)
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
		}
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv
}
