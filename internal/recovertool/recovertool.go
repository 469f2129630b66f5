// Package recovertool is the tool recover_text, by which a model reads back what was cut or masked, as it
// is offered: its name and the schema of its arguments. What answers it is recall.
package recovertool

import "strings"

// Name is the tool's name.
const Name = "recover_text"

// IsName says whether name is that of the tool, or ends in it after whatever a client puts between the
// names of servers and tools, as in mcp__ctxgate__recover_text.
func IsName(name string) bool {
	before, ok := strings.CutSuffix(name, Name)
	if !ok || before == "" {
		return ok
	}
	last := before[len(before)-1]
	alphanumeric := last >= '0' && last <= '9' || last >= 'a' && last <= 'z' || last >= 'A' && last <= 'Z' || last >= 0x80
	return !alphanumeric
}

// Descriptions are what the schema says of the arguments, without escapes: a model that is offered the
// tool by the hub knows the markers of cut results, one that is offered it by the LLM proxy does not.
type Descriptions struct{ PruneID, Ranges, Chars string }

const ranges = `"items":{"type":"object","properties":{` +
	`"start_line":{"type":"integer","minimum":1},"end_line":{"type":"integer","minimum":1}},` +
	`"required":["start_line","end_line"],"additionalProperties":false}}`

// Schema is the JSON schema of the arguments.
func Schema(d Descriptions) string {
	return `{"type":"object","properties":{` +
		`"prune_id":{"type":"string","description":"` + d.PruneID + `"},` +
		`"ranges":{"type":"array","description":"` + d.Ranges + `",` + ranges + `,` +
		`"pattern":{"type":"string","description":"Only lines that match this regular expression (RE2)."},` +
		`"chars":{"type":"string","description":"` + d.Chars + `"},` +
		`"include_line_numbers":{"type":"boolean","description":"Put the number before each line."}},` +
		`"required":["prune_id"],"additionalProperties":false}`
}

// DocumentSchema is the schema of document 003 (P1), member for member: of the pruner's own tool, which
// reads lines and requires every argument.
const DocumentSchema = `{"type":"object","properties":{` +
	`"prune_id":{"type":"string"},` +
	`"ranges":{"type":"array",` + ranges + `,` +
	`"include_line_numbers":{"type":"boolean"}},` +
	`"required":["prune_id","ranges","include_line_numbers"],"additionalProperties":false}`
