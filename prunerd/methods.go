package prunerd

import (
	"context"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// serverName is who we say we are; the document's name for it.
const serverName = "mcp-pruner"

// methodHealth is health as a method of its own, for clients from before tools.
const methodHealth = "health"

// serve answers a request, whatever its method (P1).
func (s *Server) serve(ctx context.Context, tenant string, req rpc.Request, params mcp.Params) ([]byte, error) {
	switch req.Method {
	case mcp.Initialize:
		return s.hello(params.Text("protocolVersion")), nil
	case mcp.Ping:
		return []byte("{}"), nil
	case mcp.ToolsList:
		return s.list(), nil
	case mcp.ToolsCall:
		return s.callTool(ctx, tenant, params)
	case mcp.ResourcesList:
		return []byte(`{"resources":[]}`), nil
	case mcp.TemplatesList:
		return []byte(`{"resourceTemplates":[]}`), nil
	case mcp.PromptsList:
		return []byte(`{"prompts":[]}`), nil
	case methodHealth:
		return s.health(time.Now()), nil
	}
	return nil, &Error{Code: mcp.CodeMethodNotFound, Message: "Method not found: " + clip(req.Method)}
}

func (s *Server) hello(asked string) []byte {
	var w writer
	w.open()
	w.text("protocolVersion", mcp.Negotiate(asked))
	w.raw("capabilities", []byte(`{"tools":{"listChanged":false}}`))
	w.key("serverInfo")
	w.open()
	w.text("name", serverName)
	w.text("title", "ctxgate pruner")
	w.text("version", s.deps.Version)
	w.close()
	w.close()
	return w.b
}

func (s *Server) list() []byte {
	tools := s.Tools()
	var w writer
	w.open()
	w.list("tools", len(tools), func(i int) { w.b = append(w.b, tools[i]...) })
	w.close()
	return w.b
}

func (s *Server) callTool(ctx context.Context, tenant string, params mcp.Params) ([]byte, error) {
	name, ok := params.Get("name")
	if !ok {
		return nil, badArgument("name", "is missing")
	}
	if name[0] != '"' {
		return nil, badArgument("name", "must be a string")
	}
	args, _ := params.Get("arguments")
	return s.Call(ctx, tenant, params.Text("name"), args)
}
