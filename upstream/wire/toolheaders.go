package wire

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

// maxHeaderTools is how many tools with headers of their own are remembered per server.
const maxHeaderTools = 10_000

// ToolHeaders remembers which arguments a server's tools want as headers too, as in its latest lists. It
// outlives a connection, so that a call on a new one needs no new list.
type ToolHeaders struct {
	mu    sync.RWMutex
	tools map[string][]mcp.HeaderParam // only tools that want any
}

// CheckToolHeaders says why a tool of an HTTP server cannot be offered: its headers are not what the
// specification allows (Schema Extension).
func CheckToolHeaders(item []byte) error {
	_, _, err := headerParams(item)
	return err
}

func headerParams(item []byte) (name string, params []mcp.HeaderParam, err error) {
	tool, err := jsonscan.FieldsOf(item)
	if err != nil {
		return "", nil, fmt.Errorf("tool: %w", err)
	}
	name = tool.Text("name")
	schema, ok := tool.Get("inputSchema")
	if !ok {
		return name, nil, nil
	}
	if params, err = mcp.HeaderParams(schema); err != nil {
		return name, nil, fmt.Errorf("tool %q: %w", name, err)
	}
	return name, params, nil
}

// learn reads a page of a tool list.
func (h *ToolHeaders) learn(body []byte) {
	result, ok := resultFields(body)
	if !ok {
		return
	}
	list, ok := result.Field("tools")
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	err := jsonscan.EachElement(body, list.Value, func(at jsonscan.Span) error {
		name, params, err := headerParams(at.Of(body))
		switch {
		case err != nil || len(params) == 0: // a tool with bad headers is not offered, so it is not called
			delete(h.tools, name)
		case len(h.tools) < maxHeaderTools:
			if h.tools == nil {
				h.tools = map[string][]mcp.HeaderParam{}
			}
			h.tools[name] = params
		}
		return nil
	})
	if err != nil {
		slog.Debug("a list of tools cannot be read", "error", err)
	}
}

// set sets the headers that repeat what is in a request (2026-07-28, Request Metadata).
func (h *ToolHeaders) set(header http.Header, req Request) {
	header.Set(mcp.HeaderMethod, req.Method())
	field := mcp.NameParam(req.Method())
	if field == "" {
		return
	}
	name := jsonscan.DecodeString(req.Param(field))
	header.Set(mcp.HeaderName, mcp.EncodeHeader(name))
	if req.Method() != mcp.ToolsCall {
		return
	}
	h.mu.RLock()
	params := h.tools[name]
	h.mu.RUnlock()
	for _, p := range params {
		// A value that no header can carry is for the server to refuse.
		if text, ok, err := p.Value(req.Param("arguments")); ok && err == nil {
			header.Set(p.Header, mcp.EncodeHeader(text))
		}
	}
}
