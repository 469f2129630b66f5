package hub

import (
	"context"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
)

// focusKey is the argument by which a call says what it looks for in the result. It is the
// gateway's: tools whose policy prunes are listed with it, and their servers never see it.
const focusKey = "context_focus_question"

var focusSchema = []byte(`{"type":"string","description":"What you are looking for in the result: of a long text ` +
	`only the lines that matter for it are shown, and the rest can be read back with recover_text."}`)

// binding are the words by which a schema may refuse an argument that its properties name, or
// that lead to a schema that does.
var binding = map[string]bool{
	"$ref": true, "$dynamicRef": true, "$recursiveRef": true, "allOf": true, "anyOf": true, "oneOf": true, "not": true,
	"if": true, "then": true, "else": true, "dependentSchemas": true, "dependencies": true, "extends": true, "disallow": true,
	"patternProperties": true, "propertyNames": true, "maxProperties": true, "enum": true, "const": true,
}

// offerFocus is a tool of a list with the argument among its properties; all its other bytes
// stay. False means that it stays as it is: it has such an argument itself, or it takes no
// object, or its schema could refuse one more.
func offerFocus(tool []byte) ([]byte, bool) {
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
		if binding[f.Key] {
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
	if _, taken := inner.Get(focusKey); taken || err != nil {
		return tool, false
	}
	properties = inner.With(jsonscan.Change{Key: focusKey, Value: focusSchema})
	raw = schema.With(jsonscan.Change{Key: "properties", Value: properties})
	return item.With(jsonscan.Change{Key: "inputSchema", Value: raw}), true
}

// takeFocus takes what a call looks for out of its arguments: the goal, and what of the params is
// different without it.
func (h *Hub) takeFocus(ctx context.Context, req *request, server, tool string) (goal string, changes []jsonscan.Change) {
	rules := &req.plan.rules
	if !rules.prunes || req.Method != mcp.ToolsCall || rules.find(server, tool).prune == nil {
		return "", nil
	}
	raw, _ := req.params.Get("arguments")
	goal, rest, ok := withoutFocus(raw)
	if !ok || h.takesItself(ctx, req, server, tool) {
		return "", nil
	}
	return goal, []jsonscan.Change{{Key: "arguments", Value: rest}}
}

// withoutFocus parts a call's arguments from what it looks for; false when it does not say. All
// bytes of the others stay. What is no text is no goal, and goes too.
func withoutFocus(arguments []byte) (goal string, rest []byte, ok bool) {
	args, err := jsonscan.FieldsOf(arguments)
	if err != nil {
		return "", nil, false
	}
	value, ok := args.Get(focusKey)
	if !ok {
		return "", nil, false
	}
	return jsonscan.TextOf(value), args.With(jsonscan.Change{Key: focusKey}), true
}

// takesItself says whether a tool is known that was not offered our argument: one by that name
// is its own. Of a tool that no list names it is ours: another replica may have offered it.
func (h *Hub) takesItself(ctx context.Context, req *request, server, tool string) bool {
	e, known := h.shelves.single(ctx, req, server).find(tools, tool)
	return known && !e.asks
}

// focus is what to look for in a reply; nil when the call does not say, or its policy does not
// care.
func (t treatment) focus(goal string) *recall.Focus {
	if t.prune == nil || strings.TrimSpace(goal) == "" {
		return nil
	}
	f := *t.prune
	f.Goal = goal
	return &f
}
