package upstream

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

// maxMirrors is how many tools with headers of their own are remembered of a server.
const maxMirrors = 10_000

// mirrors are the parameters that a server's tools want to see in headers too, as its lists said
// last. They outlive a connection, so that a call on a new one needs no new list.
type mirrors struct {
	mu    sync.RWMutex
	tools map[string][]mcp.HeaderParam // only tools that want any
}

// InvalidTool says why a tool of a list cannot be offered to clients of a server that is reached
// over HTTP: its headers would not be what the specification allows (Schema Extension).
func InvalidTool(item []byte) error {
	_, _, err := mirrorsOf(item)
	return err
}

func mirrorsOf(item []byte) (string, []mcp.HeaderParam, error) {
	tool, err := jsonscan.FieldsOf(item)
	if err != nil {
		return "", nil, fmt.Errorf("tool: %w", err)
	}
	name := tool.Text("name")
	schema, ok := tool.Get("inputSchema")
	if !ok {
		return name, nil, nil
	}
	params, err := mcp.HeaderParams(schema)
	if err != nil {
		return name, nil, fmt.Errorf("tool %q: %w", name, err)
	}
	return name, params, nil
}

// learn reads a page of a list of tools.
func (m *mirrors) learn(body []byte) {
	result, ok := resultOf(body)
	if !ok {
		return
	}
	list, ok := result.Field("tools")
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := jsonscan.Elements(body, list.Value, func(at jsonscan.Span) error {
		name, params, err := mirrorsOf(at.Of(body))
		switch {
		case err != nil || len(params) == 0: // a tool that is not offered is not called
			delete(m.tools, name)
		case len(m.tools) < maxMirrors:
			if m.tools == nil {
				m.tools = map[string][]mcp.HeaderParam{}
			}
			m.tools[name] = params
		}
		return nil
	})
	if err != nil {
		slog.Debug("a list of tools cannot be read", "error", err)
	}
}

// put sets the headers that mirror a call (2026-07-28, Request Metadata).
func (m *mirrors) put(head http.Header, call *Call) {
	head.Set(mcp.HeaderMethod, call.Method)
	field := mcp.IdentityOf(call.Method)
	if field == "" {
		return
	}
	name := jsonscan.TextOf(call.sent(field))
	head.Set(mcp.HeaderName, mcp.EncodeHeader(name))
	if call.Method != mcp.ToolsCall {
		return
	}
	m.mu.RLock()
	params := m.tools[name]
	m.mu.RUnlock()
	for _, p := range params {
		// What no header can carry is for the server to refuse.
		if text, ok, err := p.Value(call.sent("arguments")); ok && err == nil {
			head.Set(p.Header, mcp.EncodeHeader(text))
		}
	}
}

// sent is the raw value of a member of the params as the server gets them.
func (c *Call) sent(key string) []byte {
	for _, change := range c.Changes {
		if change.Key == key {
			return change.Value
		}
	}
	raw, _ := c.Params.Get(key)
	return raw
}
