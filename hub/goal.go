package hub

import (
	"context"
	"strings"

	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

// goalArgument is the argument with which a call says what it is looking for in the result. It belongs
// to the gateway: tools whose reducer needs a goal are listed with it, and their servers never see it.
const goalArgument = "context_focus_question"

var goalSchema = []byte(`{"type":"string","description":"What you are looking for in the result: of a long text ` +
	`only the lines that matter for it are shown, and the rest can be read back with recover_text."}`)

// restrictiveKeywords are JSON Schema keywords that may reject an argument although properties lists it,
// or that refer to a schema which may.
var restrictiveKeywords = map[string]bool{
	"$ref": true, "$dynamicRef": true, "$recursiveRef": true, "allOf": true, "anyOf": true, "oneOf": true, "not": true,
	"if": true, "then": true, "else": true, "dependentSchemas": true, "dependencies": true, "extends": true, "disallow": true,
	"patternProperties": true, "propertyNames": true, "maxProperties": true, "enum": true, "const": true,
}

// addGoalArgument adds the argument to the input schema of a tool; all other bytes stay. False means
// that the tool is unchanged: it has such an argument itself, it takes no object, or its schema could
// reject one more argument.
func addGoalArgument(tool []byte) ([]byte, bool) {
	item, err := jsonscan.FieldsOf(tool)
	if err != nil {
		return tool, false
	}
	raw, _ := item.Get("inputSchema")
	schema, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return tool, false
	}
	for _, f := range schema.All() {
		if restrictiveKeywords[f.Key] {
			return tool, false
		}
	}
	properties, some := schema.Get("properties")
	_, typed := schema.Get("type")
	takesObject := schema.Text("type") == "object" || !typed && some
	if !takesObject || some && properties[0] != '{' {
		return tool, false
	}
	if !some {
		properties = []byte("{}")
	}
	inner, err := jsonscan.FieldsOf(properties)
	if _, taken := inner.Get(goalArgument); taken || err != nil {
		return tool, false
	}
	properties = inner.With(jsonscan.Change{Key: goalArgument, Value: goalSchema})
	raw = schema.With(jsonscan.Change{Key: "properties", Value: properties})
	return item.With(jsonscan.Change{Key: "inputSchema", Value: raw}), true
}

// takeGoal takes the goal out of a call's arguments, and returns it with the change of the params.
func (h *Hub) takeGoal(ctx context.Context, req *Request, server, tool string) (goal string, changes []jsonscan.Change) {
	rules := &req.Plan.rules
	if !rules.needsGoals || req.Method != mcp.ToolsCall || !rules.policyFor(server, tool).NeedsGoal() {
		return "", nil
	}
	raw, _ := req.Params.Get("arguments")
	goal, rest, ok := withoutGoal(raw)
	if !ok || h.hasOwnGoalArgument(ctx, req, server, tool) {
		return "", nil
	}
	if strings.TrimSpace(goal) == "" {
		goal = ""
	}
	return goal, []jsonscan.Change{{Key: "arguments", Value: rest}}
}

// withoutGoal separates the goal from the other arguments, whose bytes stay; false if there is none. A
// goal that is not a string is dropped.
func withoutGoal(arguments []byte) (goal string, rest []byte, ok bool) {
	args, err := jsonscan.FieldsOf(arguments)
	if err != nil {
		return "", nil, false
	}
	value, ok := args.Get(goalArgument)
	if !ok {
		return "", nil, false
	}
	return jsonscan.DecodeString(value), args.With(jsonscan.Change{Key: goalArgument}), true
}

// hasOwnGoalArgument reports whether a tool is known and was listed without our argument: then an
// argument of that name is the tool's own. For an unknown tool it is ours, since another replica may
// have listed it.
func (h *Hub) hasOwnGoalArgument(ctx context.Context, req *Request, server, tool string) bool {
	e, known := h.catalog.WaitServer(ctx, req.UpstreamCaller(), &req.Plan.Layout, server).Find(catalog.Tools, tool)
	return known && e.Server == server && !e.Edited
}
