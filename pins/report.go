package pins

import (
	"encoding/json"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Report is what servers have, and what is held back of it.
type Report struct {
	Mode    string         `json:"mode"`
	File    string         `json:"file,omitempty"` // the path of the lock, in mode "lock"
	Servers []ServerReport `json:"servers"`
}

// ServerReport is one server.
type ServerReport struct {
	ID           string       `json:"id"`
	Listed       bool         `json:"listed"` // its tools have been read
	Instructions ItemReport   `json:"instructions"`
	Tools        []ItemReport `json:"tools"`
}

// ItemReport is one tool, or the instructions of a server.
type ItemReport struct {
	Name       string          `json:"name,omitempty"` // "" for the instructions
	SHA256     string          `json:"sha256"`
	Definition json.RawMessage `json:"definition"`           // as the server has it now
	Held       Reason          `json:"held,omitempty"`       // why it is not served; "" for what is
	Text       string          `json:"text,omitempty"`       // what happened and what to do
	OldSHA256  string          `json:"old_sha256,omitempty"` // of what was approved
	Old        json.RawMessage `json:"old,omitempty"`        // what was approved, where that is known
	HiddenText int             `json:"hidden_characters,omitempty"`
}

// NewItem describes a tool as its server listed it, or the instructions of a server, and why it is held back.
func NewItem(name string, def Definition, hold *Hold) ItemReport {
	_, hidden := markValue(def.Text)
	item := ItemReport{Name: name, SHA256: def.Hash, Definition: def.Text, HiddenText: hidden}
	if hold != nil {
		item.Held, item.Text = hold.Reason, hold.Text
		if hold.Old != nil {
			item.OldSHA256, item.Old = hold.Old.Hash, hold.Old.Text
		}
	}
	return item
}

// Approvable reports whether approving something makes it served.
func (i ItemReport) Approvable() bool { return i.Held == Changed || i.Held == Unapproved }

// Approval returns the approval of an item. What was reported must have its hash.
func (i ItemReport) Approval(server string) (Approval, error) {
	a := Approval{Server: server, Tool: i.Name}
	if i.Name == "" {
		a.Definition = TextDefinition(jsonscan.DecodeString(i.Definition))
	} else {
		var err error
		if a.Definition, err = ToolDefinition(i.Definition); err != nil {
			return a, err
		}
	}
	if a.Hash != i.SHA256 {
		return a, errEdited(describe(server, i.Name))
	}
	return a, nil
}

// Approve adds approvals to a lock.
func (l Lock) Approve(approvals ...Approval) {
	for _, a := range approvals {
		r := l[a.Server].clone()
		if r.Tools == nil {
			r.Tools = map[string]Definition{}
		}
		if a.Tool == "" {
			r.Instructions = &a.Definition
		} else {
			r.Tools[a.Tool] = a.Definition
		}
		l[a.Server] = r
	}
}
