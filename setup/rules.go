package setup

import (
	"bytes"
	"fmt"

	"github.com/ctxgate/ctxgate/setup/clientfile"
)

// renameRules works out the edits of the files in which clients keep rules for tools: the tools of servers that move get
// new names, and a rule that denies one must not end with its old name.
func (p *Plan) renameRules() []Edit {
	moves := map[string][]clientfile.Move{}
	for _, f := range p.Files {
		for _, s := range f.Servers {
			if f.Changes && s.ID != "" {
				moves[f.Client] = append(moves[f.Client], clientfile.Move{Server: s.Server, ID: s.ID})
			}
		}
	}
	var edits []Edit
	for _, f := range clientfile.FindRules(p.clientEnv()) {
		if len(moves[f.Client]) == 0 {
			continue
		}
		before, err := ReadExisting(f.Path)
		var after []byte
		if err == nil {
			after, err = f.RenameRules(before, gatewayName, moves[f.Client])
		}
		isProject := f.Scope == clientfile.Project
		switch {
		case err == nil && bytes.Equal(before, after):
			continue
		case err == nil && isProject && !p.Project:
			err = fmt.Errorf("it is a file of the project")
		case err == nil:
			_, _, err = writeTarget(f.Path)
		}
		if err != nil {
			p.Notes = append(p.Notes, fmt.Sprintf("%s: the rules for tools in %s were left alone (%v); rules for the servers that moved no longer match, see the new names in 'ctxgate check --servers'.", titleOf(f.Client), p.Tilde(f.Path), err))
			continue
		}
		p.rules = append(p.rules, f.Path)
		edits = append(edits, Edit{Path: f.Path, Before: before, After: after, Mode: 0o600, Client: f.Client, IsProject: isProject})
	}
	return edits
}
