package recovertool

import (
	"encoding/json"
	"testing"
)

func TestIsName(t *testing.T) {
	for name, want := range map[string]bool{
		"recover_text": true, "mcp__ctxgate__recover_text": true, "ctxgate.recover_text": true, "x-recover_text": true,
		"unrecover_text": false, "1recover_text": false, "érecover_text": false, "recover_text2": false, "": false,
	} {
		if IsName(name) != want {
			t.Errorf("%q: got %v", name, !want)
		}
	}
}

// The bytes of the pruner's schema are the document's (P1).
func TestDocumentSchema(t *testing.T) {
	const want = `{"type":"object","properties":{` +
		`"prune_id":{"type":"string"},` +
		`"ranges":{"type":"array","items":{"type":"object","properties":{` +
		`"start_line":{"type":"integer","minimum":1},` +
		`"end_line":{"type":"integer","minimum":1}},` +
		`"required":["start_line","end_line"],"additionalProperties":false}},` +
		`"include_line_numbers":{"type":"boolean"}},` +
		`"required":["prune_id","ranges","include_line_numbers"],"additionalProperties":false}`
	if DocumentSchema != want || !json.Valid([]byte(want)) {
		t.Errorf("got %s", DocumentSchema)
	}
}

func TestSchemaIsJSON(t *testing.T) {
	if s := Schema(Descriptions{"a", "b", "c"}); !json.Valid([]byte(s)) {
		t.Error(s)
	}
}
