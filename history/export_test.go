package history

import "github.com/ctxgate/ctxgate/jsonscan"

// Text is a result's text, decoded: what to keep before it is masked. Blocks are joined by line
// breaks.
func (d *Dialogue) Text(result int) []byte {
	var out []byte
	for i, raw := range d.Results[result].Texts {
		if i > 0 {
			out = append(out, '\n')
		}
		out = jsonscan.AppendText(out, raw.Of(d.body))
	}
	return out
}

// Edits are those of the plan's cut number i alone.
func (p *Plan) Edits(i int, id string) []jsonscan.Edit { return p.AppendEdits(nil, i, id) }
