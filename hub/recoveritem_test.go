package hub

import (
	"encoding/json"
	"testing"

	"github.com/ctxgate/ctxgate/reduce"
)

// The gateway's tool as clients are shown it. Pinned clients compare it: its bytes must not change.
func TestRecoverItem(t *testing.T) {
	const want = `{"name":"recover_text","title":"Read back text that was cut",` +
		`"description":"Gives back text that was cut from a tool result. Where a result says [recover: prune_id=prn_… chars=…], call this ` +
		`with that prune_id and those chars. Where it says ⟦PRUNÉ: prune_id=prn_… lignes A-B (N) …⟧, N lines were left out: call this with ` +
		`that prune_id and ranges from start_line A to end_line B. Without ranges, pattern or chars it gives the whole original; prefer a ` +
		`part of it. An answer that is too long ends with a line in brackets that says how to ask for the rest.",` +
		`"inputSchema":{"type":"object","properties":{` +
		`"prune_id":{"type":"string","description":"The id in the recover line or the marker."},` +
		`"ranges":{"type":"array","description":"Lines to read, counted from 1, both ends included, in the order asked. A line that is asked for twice is given once.","items":{"type":"object","properties":{` +
		`"start_line":{"type":"integer","minimum":1},"end_line":{"type":"integer","minimum":1}},` +
		`"required":["start_line","end_line"],"additionalProperties":false}},` +
		`"pattern":{"type":"string","description":"Only lines that match this regular expression (RE2)."},` +
		`"chars":{"type":"string","description":"Characters to read, as first-last counted from 1, as the recover line has them."},` +
		`"include_line_numbers":{"type":"boolean","description":"Put the number before each line."}},` +
		`"required":["prune_id"],"additionalProperties":false},` +
		`"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}`
	if got := string(recoverItem); got != want {
		t.Errorf("got %s", got)
	}
}

// With plain markers the tool's description names them, and clients with deferred tools are asked to load it.
func TestPlainRecoverItemIsAlwaysLoaded(t *testing.T) {
	var tool struct {
		Name, Description string
		Meta              map[string]bool `json:"_meta"`
	}
	if err := json.Unmarshal(recoverItemFor(reduce.PlainMarkers), &tool); err != nil {
		t.Fatal(err)
	}
	if tool.Name != "recover_text" || !tool.Meta["anthropic/alwaysLoad"] || len([]rune(tool.Description)) > 1024 {
		t.Errorf("got %+v, %d characters", tool, len([]rune(tool.Description)))
	}
	if string(recoverItemFor(reduce.DocumentMarkers)) != string(recoverItem) {
		t.Error("the document's tool changed")
	}
}
