package prunerd

import (
	"strconv"

	"github.com/ctxgate/ctxgate/internal/recovertool"
)

// The tools.
const (
	toolPrune        = "prune_text"
	toolRecover      = recovertool.Name
	toolRecoverAlias = "recover_range" // accepted but not listed
	toolHealth       = "health"
)

// The schemas are the specification's (P1), member for member; the descriptions add what they leave out.
const (
	pruneSchema = `{"type":"object","properties":{` +
		`"text":{"type":"string"},` +
		`"goal_hint":{"type":"string"},` +
		`"source_type":{"type":"string","enum":["code","logs","docs"]},` +
		`"options":{"type":"object","properties":{` +
		`"max_prune_ratio":{"type":"number","minimum":0,"maximum":1},` +
		`"min_keep_lines":{"type":"integer","minimum":0},` +
		`"timeout_ms":{"type":"integer","minimum":1},` +
		`"annotate_lines":{"type":"boolean"},` +
		`"include_markers":{"type":"boolean"}},` +
		`"required":["max_prune_ratio","min_keep_lines","timeout_ms","annotate_lines","include_markers"],` +
		`"additionalProperties":false}},` +
		`"required":["text","goal_hint","source_type","options"],"additionalProperties":false}`

	healthSchema = `{"type":"object","properties":{},"additionalProperties":false}`
)

const (
	pruneText = "Makes a text shorter by leaving out lines that do not matter for goal_hint. Kept lines keep their order and " +
		"are not changed; whatever is left out is listed in annotations and can be read back with recover_text and the prune_id. " +
		"max_prune_ratio is the largest share of lines to leave out, min_keep_lines the fewest to keep. annotate_lines puts the " +
		"original number before each kept line; include_markers puts a line in the place of each block that was left out. When " +
		"anything goes wrong the text comes back whole, with a warning."

	recoverText = "Gives back lines of the original of a pruned text, byte for byte: the ranges asked for, in the order asked, " +
		"lines counted from 1, both ends included. A marker ⟦PRUNÉ: prune_id=… lignes A-B (N) …⟧ names the prune_id and the lines."
)

// Tools are the tools for tools/list, each as raw JSON.
func (s *Server) Tools() [][]byte {
	// With a reranker, the text leaves this server.
	outside := s.plan.Load().reranker != nil
	return [][]byte{
		tool(toolPrune, "Prune a text for a goal", pruneText, pruneSchema, outside),
		tool(toolRecover, "Read back pruned lines", recoverText, recovertool.DocumentSchema, false),
		tool(toolHealth, "Health of the pruner", "Says whether the pruner is well, and what it can do.", healthSchema, false),
	}
}

func tool(name, title, description, schema string, outside bool) []byte {
	var w jsonWriter
	w.beginObject()
	w.textMember("name", name)
	w.textMember("title", title)
	w.textMember("description", description)
	w.rawMember("inputSchema", []byte(schema))
	w.rawMember("annotations", []byte(`{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":`+strconv.FormatBool(outside)+`}`))
	w.endObject()
	return w.b
}
