package prunerd

import (
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

// Error is a failure in the words of JSON-RPC.
type Error struct {
	Code    int
	Message string
	Data    []byte // raw JSON; nil for none
}

func (e *Error) Error() string { return e.Message }

// The codes that the document gives failures of the pruner's own (P6).
const (
	codeNotFound     = -32004
	codeInvalidRange = -32005
	codeInternal     = -32603
)

// domain is a failure of the pruner's own: its name is the message and data.code.
func domain(code int, name, pruneID string) *Error {
	var w writer
	w.open()
	w.text("code", name)
	w.text("prune_id", clip(pruneID))
	w.close()
	return &Error{Code: code, Message: name, Data: w.b}
}

// badArgument refuses an argument, by its path.
func badArgument(path, problem string) *Error {
	var w writer
	w.open()
	w.text("code", "invalid_params")
	w.text("argument", path)
	w.close()
	return &Error{Code: mcp.CodeInvalidParams, Message: "Invalid params: " + path + ": " + problem, Data: w.b}
}

func unknownTool(name string) *Error {
	return badArgument("name", "there is no tool "+string(jsonscan.AppendString(nil, clip(name))))
}

// clip bounds a text that somebody else chose.
func clip(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
