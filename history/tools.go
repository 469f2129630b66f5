package history

import (
	"bytes"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// recoverTool is the name of the tool that reads back what was cut or masked.
const recoverTool = "recover_text"

// Recovers says whether the model is offered a tool that reads back what was masked: the gateway's
// own, which clients of its hub offer under a name of theirs, such as mcp__ctxgate__recover_text.
// A tool of that name that knows no prune_id is somebody else's.
func (d *Dialogue) Recovers() bool {
	if !bytes.Contains(d.tools.Of(d.body), []byte(recoverTool)) {
		return false
	}
	found := false
	_ = jsonscan.Elements(d.body, d.tools, func(tool jsonscan.Span) error {
		found = found || ReadsBack(nameOf(d.body, tool)) && bytes.Contains(tool.Of(d.body), []byte("prune_id"))
		return nil
	})
	return found
}

// Offers says whether a tool of this very name is among the tools.
func (d *Dialogue) Offers(name string) bool {
	found := false
	_ = jsonscan.Elements(d.body, d.tools, func(tool jsonscan.Span) error {
		found = found || nameOf(d.body, tool) == name
		return nil
	})
	return found
}

// Tools is where the list of tools is; empty where the request has none.
func (d *Dialogue) Tools() jsonscan.Span { return d.tools }

// Other is a member of the request that a conversation is not made of, such as n; nil where there is
// none, or it is null.
func (d *Dialogue) Other(key string) []byte {
	for _, f := range d.others {
		if raw := f.Value.Of(d.body); f.Key == key && string(raw) != "null" {
			return raw
		}
	}
	return nil
}

// nameOf is the name of a tool. Chat completions have it a level deeper than the others.
func nameOf(body []byte, tool jsonscan.Span) string {
	fields, err := jsonscan.ReadFields(body, tool)
	if err != nil {
		return ""
	}
	if f, ok := fields.Field("function"); ok {
		if fields, err = jsonscan.ReadFields(body, f.Value); err != nil {
			return ""
		}
	}
	return fields.Text("name")
}

// HasRead says whether the model may have read something back in the conversation.
func (d *Dialogue) HasRead() bool { return d.reads }

// ReadsBack says whether a name is that of the tool that reads back, or ends in it after whatever a
// client puts between the names of servers and tools.
func ReadsBack(name string) bool {
	before, ok := strings.CutSuffix(name, recoverTool)
	if !ok || before == "" {
		return ok
	}
	last := before[len(before)-1]
	alphanumeric := last >= '0' && last <= '9' || last >= 'a' && last <= 'z' || last >= 'A' && last <= 'Z' || last >= 0x80
	return !alphanumeric
}
