package prunerd

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// ServerID is the id of the pruner among the servers.
const ServerID = "pruner"

// serverName is the specification's name of the pruner.
const serverName = "mcp-pruner"

// methodHealth is health as a JSON-RPC method, for clients that know no tools.
const methodHealth = "health"

// serveAuthorized answers a message of a caller that may use what it names. A tool that it may not use is unknown.
func (s *Server) serveAuthorized(ctx context.Context, g *gate.Gate, who auth.Caller, req rpc.Request, params mcp.Params) (result []byte, err error) {
	switch req.Method {
	case mcp.ToolsList:
		return s.toolsList(func(tool string) bool { return g.MayList(who, targetOf(tool, nil)) }), nil
	case mcp.ToolsCall, methodHealth:
		tool := cmp.Or(params.Text("name"), req.Method)
		args, _ := params.Get("arguments")
		pass, err := g.Enter(ctx, who, targetOf(tool, args))
		if errors.Is(err, gate.ErrDenied) {
			return nil, unknownTool(tool)
		}
		if err != nil {
			return nil, err
		}
		defer func() { endPass(pass, result, err) }()
	}
	return s.dispatch(ctx, who.Tenant(), req, params)
}

// targetOf is a tool of the pruner, as the access rules name it.
func targetOf(tool string, args []byte) access.Target {
	return access.Target{Method: mcp.ToolsCall, Server: ServerID, Tool: tool, Arguments: args}
}

// endPass ends the pass of a call and records how the call ended.
func endPass(pass *gate.Pass, result []byte, err error) {
	var rpcErr *Error
	switch {
	case errors.As(err, &rpcErr):
		pass.Reply(0, 0, true)
	case err != nil:
		pass.Fail(err)
	case result != nil: // there is none after a panic
		pass.Reply(len(result), len(result), false)
	}
	pass.Done()
}

// dispatch answers a request by its method (P1).
func (s *Server) dispatch(ctx context.Context, tenant string, req rpc.Request, params mcp.Params) ([]byte, error) {
	switch req.Method {
	case mcp.Initialize:
		return s.initializeResult(params.Text("protocolVersion")), nil
	case mcp.Ping:
		return []byte("{}"), nil
	case mcp.ToolsCall:
		return s.callTool(ctx, tenant, params)
	case mcp.ResourcesList:
		return []byte(`{"resources":[]}`), nil
	case mcp.ResourceTemplatesList:
		return []byte(`{"resourceTemplates":[]}`), nil
	case mcp.PromptsList:
		return []byte(`{"prompts":[]}`), nil
	case methodHealth:
		return s.health(time.Now()), nil
	}
	return nil, &Error{Code: mcp.CodeMethodNotFound, Message: "Method not found: " + fault.Clip(req.Method)}
}

func (s *Server) initializeResult(asked string) []byte {
	var w jsonWriter
	w.beginObject()
	w.textMember("protocolVersion", mcp.Negotiate(asked))
	w.rawMember("capabilities", []byte(`{"tools":{"listChanged":false}}`))
	w.key("serverInfo")
	w.beginObject()
	w.textMember("name", serverName)
	w.textMember("title", "ctxgate pruner")
	w.textMember("version", s.deps.Version)
	w.endObject()
	w.endObject()
	return w.b
}

func (s *Server) toolsList(mayList func(tool string) bool) []byte {
	tools := slices.DeleteFunc(s.Tools(), func(raw []byte) bool {
		fields, err := jsonscan.FieldsOf(raw)
		return err != nil || !mayList(fields.Text("name"))
	})
	var w jsonWriter
	w.beginObject()
	w.arrayMember("tools", len(tools), func(i int) { w.b = append(w.b, tools[i]...) })
	w.endObject()
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

// health is the health document, for the tool, the method and GET /health (P13).
func (s *Server) health(now time.Time) []byte {
	var w jsonWriter
	w.beginObject()
	w.textMember("status", "healthy")
	w.textMember("server", serverName)
	w.textMember("version", s.deps.Version)
	w.rawMember("capabilities", []byte(`["prune_text","recover_text","annotations","markers"]`))
	// The specification wants the offset in digits, also for UTC.
	w.textMember("timestamp", now.Format("2006-01-02T15:04:05-07:00"))
	w.endObject()
	return w.b
}

// Health answers GET /health.
func (s *Server) Health(w http.ResponseWriter, _ *http.Request) {
	body := s.health(time.Now())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// Error is a JSON-RPC error.
type Error struct {
	Code    int
	Message string
	Data    []byte // raw JSON; nil for none
}

func (e *Error) Error() string { return e.Message }

// The specification's codes for errors of the pruner (P6).
const (
	codeNotFound     = -32004
	codeInvalidRange = -32005
	codeInternal     = -32603
)

// domainError is an error of the pruner; its name is the message and data.code.
func domainError(code int, name, pruneID string) *Error {
	var w jsonWriter
	w.beginObject()
	w.textMember("code", name)
	w.textMember("prune_id", fault.Clip(pruneID))
	w.endObject()
	return &Error{Code: code, Message: name, Data: w.b}
}

// badArgument rejects the argument at a path.
func badArgument(path, problem string) *Error {
	var w jsonWriter
	w.beginObject()
	w.textMember("code", "invalid_params")
	w.textMember("argument", path)
	w.endObject()
	return &Error{Code: mcp.CodeInvalidParams, Message: "Invalid params: " + path + ": " + problem, Data: w.b}
}

func unknownTool(name string) *Error {
	return badArgument("name", "there is no tool "+string(jsonscan.AppendQuoted(nil, fault.Clip(name))))
}
